"""The paper's tables with our numbers beside the published ones. Each run of `hiero eval` that a table
needs is saved as a report and reused.

DATA/egomcq.json  DATA/stores/BACKBONE             EgoMCQ's questions, and packed features of the Ego4D videos
DATA/goalstep/…json, …tsv  DATA/ego4d/BACKBONE/    annotations of Goal-Step, and UID.pt
DATA/egoprocel/annotations|videos|rates.csv        EgoProceL, and DATA/egoprocel/features/BACKBONE/
MODELS/NAME or MODELS/NAME-seed0, NAME-seed1 …     model folders, one for each seed
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hiero.config import RELEASED_CHECKPOINTS
from hiero.data.features import FEATURE_SUFFIXES
from hiero.errors import InputError
from hiero.evaluation.results import Report, Row, Table
from hiero.storage import weights
from hiero.storage.cache import content_key
from hiero.storage.files import ASSETS, home

BACKBONE_NAMES = {"lavila": "lavila-l"}  # feature folders that are not named after their backbone
RAW = "raw"  # name of a run without a model: backbone features and their text tower
ENRICHED = "hiero-"  # prefix of features that went through a model
DIGEST_LENGTH = 10  # hexadecimal digits in the name of a report

Run = dict[str, Any]
"""A run of `hiero eval` in tables.toml: eval, model, backbone, and options."""
Log = Callable[[str], None]


@dataclass
class TableResult:
    """A table of the paper, the commands that produced it, and the inputs that are missing."""

    name: str
    table: Table
    commands: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)


@cache
def definitions() -> dict[str, Any]:
    """The content of tables.toml: `tables`, and the command that creates each of the `models`."""
    return tomllib.loads((ASSETS / "tables.toml").read_text(encoding="utf-8"))


def table_names() -> list[str]:
    return list(definitions()["tables"])


def make_table(
    name: str, data: Path, models: Path, runs: Path, log: Log = lambda _: None, num_seeds: int = 0
) -> TableResult:
    """Build a table of the paper with our numbers. Runs without a report are run now if their data exists."""
    if name not in table_names():
        raise InputError(f"unknown table {name}; choose one of {', '.join(table_names())}")
    definition = definitions()["tables"][name]
    columns = definition["columns"]
    notes = [_name_folders(note, data, models) for note in definition.get("notes", [])]
    result = TableResult(name, Table(definition["title"], [], notes))
    for entry in definition["rows"]:
        published = {c: float(v) for c, v in zip(columns, entry["published"], strict=True) if not math.isnan(v)}
        if published:
            result.table.rows.append(Row(f"{entry['method']}, published", published))
        ours = Row(f"{entry['method']}, ours", {})
        for run in entry.get("ours", ()):
            if run["model"] != RAW:
                train_seeds(run["model"], data, models, num_seeds, log)
            add_scores(ours, _reports(run, data, models, runs, result, log), run, columns)
        if "statistics" in entry:
            ours.scores |= count_annotations(data / "egoprocel" / "annotations", entry["statistics"])
        if "parameters" in entry:
            ours.scores["parameters (M)"] = entry["parameters"]
        if any(not math.isnan(value) for value in ours.scores.values()):
            result.table.rows.append(ours)
    result.commands = list(dict.fromkeys(result.commands))
    result.wanted = list(dict.fromkeys(result.wanted))
    return result


def train_seeds(name: str, data: Path, models: Path, num_seeds: int, log: Log = lambda _: None) -> None:
    """Train missing seeds of a model, NAME-seed0 …, by its command in tables.toml."""
    words = definitions()["models"][name].replace(" --set seed=0", "").split()
    command = [_name_folders(word, data, models) for word in words]
    if command[1] == "import-checkpoint":  # nothing to train
        return
    out = command.index("-o") + 1
    for seed in range(num_seeds):
        folder = models / f"{name}-seed{seed}"
        if not (folder / "config.json").is_file():
            command[out] = str(folder)
            _run_hiero([*command[1:], "--set", f"seed={seed}"], log)


def _run_hiero(arguments: list[str], log: Log, *hidden: str, **options: Any) -> None:
    """Run a command of hiero in its own process; `hidden` arguments are not logged."""
    log(shlex.join(["hiero", *arguments]))
    process = subprocess.run([sys.executable, "-m", "hiero", *arguments, *hidden], check=False, **options)
    if process.returncode:
        raise InputError(f"hiero {shlex.join(arguments)} failed; see its message above")


def count_annotations(annotations: Path, task: str) -> dict[str, float]:
    """Number of annotated videos and key-steps of a task of EgoProceL; empty without annotations."""
    from hiero.evaluation.egoprocel_data import TASKS, find_annotations, read_key_steps

    files = find_annotations(annotations, next(each for each in TASKS if each.name == task)) or []
    numbers = {number for file in files for _, _, number in read_key_steps(file)}
    return {"videos": float(len(files)), "key-steps": float(len(numbers))} if files else {}


def _reports(run: Run, data: Path, models: Path, runs: Path, result: TableResult, log: Log) -> list[Report]:
    """The reports of all seeds of a run. Missing inputs are added to the result."""
    seeds = [Path(RAW)] if run["model"] == RAW else seed_folders(models, run["model"])
    if run["model"] == RAW and weights.find(text_tower(run)) is None:
        result.wanted.append(f"the text tower of {text_tower(run)}: hiero weights get {text_tower(run)}")
        return []
    missing = [f"{path}: {source}" for path, source in _needed(run, data, models).items() if not path.exists()]
    if not seeds:
        result.wanted += missing
        return []
    groups = [seeds] if run["eval"] == "head" else [[seed] for seed in seeds]  # `hiero head eval` averages seeds itself
    reports = (_read_or_run(run, group, data, runs, missing, result, log) for group in groups)
    return [report for report in reports if report is not None]


def text_tower(run: Run) -> str:
    backbone: str = run["backbone"]
    return BACKBONE_NAMES.get(backbone, backbone)


def seed_folders(models: Path, name: str) -> list[Path]:
    """Existing folders of a model: its seeds, or else the folder without a seed."""
    seeds = sorted(models.glob(f"{name}-seed*"))
    return seeds or ([models / name] if (models / name).is_dir() else [])


def _read_or_run(
    run: Run, models: list[Path], data: Path, runs: Path, missing: list[str], result: TableResult, log: Log
) -> Report | None:
    """The report of one run; None if its data is missing."""
    arguments, _ = run_arguments(run, models, data)
    file = report_file(run, models, arguments, runs)
    if not file.is_file():
        if missing:
            result.wanted += missing
            return None
        # In its own process, so that the report records the command.
        _run_hiero([*run_command(run), *arguments, "-o", str(file)], log, "--json", stdout=subprocess.DEVNULL)
    report = Report.load(file)
    result.commands.append(report.command)
    return report


def report_file(run: Run, models: list[Path], arguments: list[str], runs: Path) -> Path:
    """The report file of a run; its name depends on the data, the seeds and the weights."""
    name = models[0].name if run["eval"] != "head" else Path(run["model"]).name
    digest = hashlib.sha256("\0".join(arguments).encode())
    for model in models:
        if (model / "model.safetensors").is_file():
            digest.update(content_key(model / "model.safetensors").encode())
    return runs / f"{run['eval']}-{name}-{digest.hexdigest()[:DIGEST_LENGTH]}.json"


def run_command(run: Run) -> list[str]:
    return ["head", "eval"] if run["eval"] == "head" else ["eval", run["eval"]]


def run_arguments(run: Run, models: list[Path], data: Path) -> tuple[list[str], dict[Path, str]]:
    """The arguments of `hiero eval`, and its input files, each with its source in terms of DATA and MODELS."""
    backbone: str = run["backbone"]
    plain = backbone.removeprefix(ENRICHED)
    benchmark = f"head-{run['data']}" if run["eval"] == "head" else run["eval"]
    files: list[str] = []
    needed: dict[Path, str] = {}
    for option, (name, source) in definitions()["inputs"][benchmark].items():
        path = data / name.format(backbone=backbone)
        if option == "--rates" and not path.is_file():
            option, path = "--videos", path.with_name("videos")
        if source == "ego4d" and plain != backbone:
            source = "enriched"
        files += [option, str(path)]
        needed[path] = definitions()["sources"][source].format(backbone=backbone, plain=plain)
    if run["eval"] == "head":
        return [*map(str, models), *files], needed
    arguments = [*files, "--model", str(models[0])]
    if "context" in run:
        arguments += ["--context", str(run["context"])]
    if run["model"] == RAW:
        arguments += ["--backbone", text_tower(run)]
    if "protocol" in run:
        arguments += ["--protocol", run["protocol"]]
    return arguments, needed


def select_row(report: Report, run: Run) -> Row:
    """The row that the run names, or the first."""
    method = run.get("row")
    for row in report.tables[0].rows:
        if method is None or row.method == method:
            return row
    raise InputError(f"the report of {report.command} has no row {method}; delete the report to run it again")


def add_scores(ours: Row, reports: Sequence[Report], run: Run, columns: Sequence[str]) -> None:
    """Add the mean over the reports of all seeds for each column, or for those that the run picks.

    With one seed, the interval is that over videos; with several, the mean ± two standard deviations.
    """
    rows = [select_row(report, run) for report in reports]
    for column, name in run.get("pick", {c: c for c in columns}).items():
        values = [row.scores[name] for row in rows if name in row.scores]
        if not values:
            continue
        ours.scores[column] = float(np.mean(values))
        if len(values) > 1:
            spread = 2 * float(np.std(values, ddof=1))
            ours.intervals[column] = (ours.scores[column] - spread, ours.scores[column] + spread)
        elif name in rows[0].intervals:
            ours.intervals[column] = rows[0].intervals[name]


@dataclass(frozen=True)
class Input:
    """A file or folder that tables read."""

    path: Path
    found: str
    source: str
    tables: tuple[str, ...]


def check_data(data: Path, models: Path) -> tuple[list[Input], dict[str, tuple[int, int]]]:
    """All inputs of `hiero table`, and for each table how many rows are ready and how many there are."""
    num_rows: dict[str, tuple[int, int]] = {}
    describe_once = cache(_describe)  # folders may be large
    inputs: dict[Path, tuple[str, list[str]]] = {}
    for name in table_names():
        rows = [entry["ours"] for entry in definitions()["tables"][name]["rows"] if "ours" in entry]
        num_ready = 0
        for runs in rows:
            needed = [item for run in runs for item in _needed(run, data, models).items()]
            for path, source in needed:
                inputs.setdefault(path, (source, []))[1].append(name)
            num_ready += all(describe_once(path) for path, _ in needed)
        num_rows[name] = num_ready, len(rows)
    found = [
        Input(path, describe_once(path), source, tuple(dict.fromkeys(tables)))
        for path, (source, tables) in sorted(inputs.items())
    ]
    return found, num_rows


def _needed(run: Run, data: Path, models: Path) -> dict[Path, str]:
    """Files and folders that a run reads, each with its source."""
    if run["model"] == RAW:
        name = text_tower(run)
        needed = {weights.find(name) or home() / "weights" / name: f"hiero weights get {name}"}
    else:
        folders = seed_folders(models, run["model"]) or [models / run["model"]]
        command = definitions()["models"][run["model"]]
        address = f" (download the file from {RELEASED_CHECKPOINTS})" if "import-checkpoint" in command else ""
        needed = {folders[0]: command + address}
    needed |= run_arguments(run, [models / run["model"]], data)[1]
    return {path: _name_folders(source, data, models) for path, source in needed.items()}


def _name_folders(text: str, data: Path, models: Path) -> str:
    """A text of tables.toml with the folders that it means by DATA and MODELS."""
    folders = {"DATA": str(data), "MODELS": str(models)}
    return re.sub(r"\b(DATA|MODELS)\b(?=/)", lambda match: folders[match[0]], text)


def _describe(path: Path) -> str:
    """A few words about a file or folder; empty if nothing exists."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
        num_features = sum(file.suffix in FEATURE_SUFFIXES for file in files)
        num_tables = sum(file.suffix == ".csv" for file in files)
        kinds = [f"{num_features} feature files"] * bool(num_features) + [f"{num_tables} csv files"] * bool(num_tables)
        return ", ".join(kinds) or (f"{len(files)} files" if files else "")
    return f"{path.stat().st_size / 1e6:.1f} MB" if path.is_file() else ""
