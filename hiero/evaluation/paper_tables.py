"""The paper's tables: ours beside the published numbers. What a table needs is run once and kept as reports of `hiero eval`.

DATA/egomcq.json  DATA/stores/BACKBONE             EgoMCQ's questions, and packed features of the Ego4D videos
DATA/goalstep/…json, …tsv  DATA/ego4d/BACKBONE/    annotations of Goal-Step, and UID.pt
DATA/egoprocel/annotations|videos|rates.csv        EgoProceL, and DATA/egoprocel/features/BACKBONE/
MODELS/NAME or MODELS/NAME-seed0, NAME-seed1 …     model folders; several are seeds of one
"""

from __future__ import annotations

import hashlib
import math
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.evaluation.results import Report, Row, Table
from hiero.storage.cache import content_key

TABLES = Path(__file__).parent.parent / "assets" / "tables.toml"
HEAD_DATA = {
    "nlq": ("nlq/nlq_val.json", "nlq"),
    "steps": ("goalstep/goalstep_grounding_val.json", "goalstep"),
    "local": ("goalstep/goalstep_val.json", "goalstep"),
}
SOURCES = {
    "nlq": "EgoNLQ's annotations, from Ego4D's download",
    "egomcq.json": "EgoMCQ's questions: egomcq.json of EgoVLP",
    "stores": "features of the Ego4D videos, packed: hiero pack DATA/ego4d/{backbone} DATA/stores/{backbone}",
    "ego4d": "features of the Ego4D videos, UID.pt: Ego4D's download has omnivore_video_swinl; extract others from the videos",
    "enriched": "hiero embed DATA/ego4d/{plain} --model MODELS/{backbone} -o DATA/ego4d/{backbone}",
    "goalstep": "Goal-Step's annotations, from Ego4D's download and the repository of the task",
    "annotations": "EgoProceL's annotations, from its project page",
    "features": "features of EgoProceL's videos, named as the csv files",
    "rates": "EgoProceL's videos (DATA/egoprocel/videos) or their frame rates (DATA/egoprocel/rates.csv: video,fps,frames)",
}


@dataclass
class TableResult:
    """A table of the paper: published and ours in rows that follow each other, and what could not be run for want of data."""

    name: str
    table: Table
    commands: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)


@cache
def definitions() -> dict[str, Any]:
    return tomllib.loads(TABLES.read_text(encoding="utf-8"))


def table_names() -> list[str]:
    return list(definitions()["tables"])


def make_table(name: str, data: Path, models: Path, runs: Path, log: Callable[[str], None] = lambda _: None) -> TableResult:
    """Read the reports that the table needs, run those that are not there, and say what is missing for the rest."""
    if name not in table_names():
        raise InputError(f"no table {name}; known are {', '.join(table_names())}")
    about = definitions()["tables"][name]
    columns = about["columns"]
    out = TableResult(name, Table(about["title"], [], list(about.get("notes", []))))
    for line in about["rows"]:
        published = {c: float(v) for c, v in zip(columns, line["published"], strict=True) if not math.isnan(v)}
        if published:
            out.table.rows.append(Row(f"{line['method']}, published", published))
        found = Row(f"{line['method']}, ours", {})
        for run in line.get("ours", []) or _ablation(line):
            found_models = [[m] for m in _seeds(models, run["model"])]
            if run["eval"] == "head" and found_models:  # which averages its seeds itself
                found_models = [[m for one in found_models for m in one]]
            reports = [report for group in found_models if (report := _report(run, group, data, runs, out, log))]
            if not _seeds(models, run["model"]):
                how = definitions()["models"][run["model"]].replace("MODELS", str(models)).replace("DATA", str(data))
                _want(out, f"{models / run['model']}: {how}")
                for path, what in _arguments(run, [models / run["model"]], data)[1]:
                    _want(out, f"{path}: {what}")
            if reports:
                _add(found, [_pick(report, run) for report in reports], run.get("pick") or {c: c for c in columns})
        if found.scores:
            out.table.rows.append(found)
    return out


def _ablation(line: dict[str, Any]) -> list[dict[str, Any]]:
    """An ablated model on three benchmarks."""
    if "ablation" not in line:
        return []
    model = {"model": line["ablation"], "backbone": "egovlp"}
    threads = "HiERO, runs of threads (the paper)"
    return [
        {**model, "eval": "egomcq", "pick": {"MCQ inter": "inter", "MCQ intra": "intra"}},
        {**model, "eval": "egoprocel", "row": "HiERO, spectral", "pick": {"EgoProceL F1": "mean F1", "EgoProceL IoU": "mean IoU"}},
        {**model, "eval": "goalstep-grounding", "row": threads,
         "pick": {"grounding R1@.3": "R1@.3", "grounding R5@.3": "R5@.3"}},
    ]  # fmt: skip


def _seeds(models: Path, name: str) -> list[Path]:
    found = sorted(models.glob(f"{name}-seed*"))
    return found or ([models / name] if (models / name).is_dir() else [])


def _report(
    run: dict[str, Any], models: list[Path], data: Path, runs: Path, out: TableResult, log: Callable[[str], None]
) -> Report | None:
    """The report of one run: read, or made now."""
    arguments, absent = _arguments(run, models, data)
    file = report_file(run, models, arguments, runs)
    if not file.is_file():
        for path, what in absent:
            _want(out, f"{path}: {what}")
        if absent:
            return None
        command = [*(["head", "eval"] if run["eval"] == "head" else ["eval", run["eval"]]), *arguments, "-o", str(file)]
        log(shlex.join(["hiero", *command]))
        done = subprocess.run([sys.executable, "-m", "hiero", *command, "--json"], stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise InputError(f"hiero {shlex.join(command)} failed; its message is above")
    report = Report.load(file)
    if report.command not in out.commands:
        out.commands.append(report.command)
    return report


def report_file(run: dict[str, Any], models: list[Path], arguments: list[str], runs: Path) -> Path:
    """Where a run's report lies: other data, other seeds or other weights are another run."""
    named = models[0].name if run["eval"] != "head" else Path(run["model"]).name
    digest = hashlib.sha256("\0".join(arguments).encode())
    for model in models:
        if (model / "model.safetensors").is_file():
            digest.update(content_key(model / "model.safetensors").encode())
    return runs / f"{run['eval']}-{named}-{digest.hexdigest()[:10]}.json"


def _arguments(run: dict[str, Any], models: list[Path], data: Path) -> tuple[list[str], list[tuple[Path, str]]]:
    """What `hiero eval` is called with, and what of it is not there."""
    backbone, goalstep, procel = run["backbone"], data / "goalstep", data / "egoprocel"
    needs: dict[str, tuple[Path, str]] = {}
    if run["eval"] == "head":
        file, kind = HEAD_DATA[run["data"]]
        needs = {"--annotations": (data / file, kind), "--features": (data / "ego4d" / backbone, "ego4d")}
        if kind == "goalstep":
            needs["--groups"] = (goalstep / "goalstep_video_groups.tsv", "goalstep")
    elif run["eval"] == "egomcq":
        needs = {"--questions": (data / "egomcq.json", "egomcq.json"), "--store": (data / "stores" / backbone, "stores")}
    elif run["eval"] == "egoprocel":
        rates = procel / "rates.csv"
        needs = {
            "--annotations": (procel / "annotations", "annotations"), "--features": (procel / "features" / backbone, "features"),
            **({"--rates": (rates, "rates")} if rates.is_file() else {"--videos": (procel / "videos", "rates")}),
        }  # fmt: skip
    else:
        file = "goalstep_grounding_val.json" if run["eval"] == "goalstep-grounding" else "goalstep_val.json"
        needs = {
            "--annotations": (goalstep / file, "goalstep"), "--features": (data / "ego4d" / backbone, "ego4d"),
            "--groups": (goalstep / "goalstep_video_groups.tsv", "goalstep"),
        }  # fmt: skip
        if run["eval"] == "goalstep-classification":
            needs["--train"] = (goalstep / "goalstep_train.json", "goalstep")
        elif run["eval"] == "goalstep-localization":
            needs["--taxonomy"] = (goalstep / "goalstep_train.json", "goalstep")
    plain = backbone.removeprefix("hiero-")
    source = {kind: text.format(backbone=backbone, plain=plain).replace("DATA", str(data)) for kind, text in SOURCES.items()}
    if plain != backbone:
        source["ego4d"] = source["enriched"]
    absent = [(path, source[kind]) for path, kind in needs.values() if not path.exists()]
    given = [text for name, (path, _) in needs.items() for text in (name, str(path))]
    context = ["--context", str(run["context"])] if "context" in run else []
    if run["eval"] == "head":
        return [*map(str, models), *given], absent
    return [*given, "--model", str(models[0]), *context], absent


def _pick(report: Report, run: dict[str, Any]) -> Row:
    rows = report.tables[0].rows
    wanted = run.get("row")
    for one in rows:
        if wanted is None or one.method == wanted:
            return one
    raise InputError(f"the report of {report.command} has no row {wanted}; remove it, and it is made again")


def _add(found: Row, rows: list[Row], pick: dict[str, str]) -> None:
    """Means over seeds; the interval is that of the videos for one seed, mean ± two deviations for several."""
    for column, name in pick.items():
        values = [row.scores[name] for row in rows if name in row.scores]
        if not values:
            continue
        found.scores[column] = float(np.mean(values))
        if len(values) > 1:
            spread = 2 * float(np.std(values, ddof=1))
            found.intervals[column] = (found.scores[column] - spread, found.scores[column] + spread)
        elif name in rows[0].intervals:
            found.intervals[column] = rows[0].intervals[name]


def _want(out: TableResult, line: str) -> None:
    if line not in out.wanted:
        out.wanted.append(line)
