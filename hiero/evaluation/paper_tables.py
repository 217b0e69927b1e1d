"""The paper's tables: our numbers beside the published ones. What a table needs is run once and saved
as reports of `hiero eval`.

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
from hiero.storage import weights
from hiero.storage.cache import content_key

TABLES = Path(__file__).parent.parent / "assets" / "tables.toml"
# Annotations that heads are scored on, by the name of their task: the file, and the key of SOURCES
# that says where to get it.
HEAD_DATA = {
    "nlq": ("nlq/nlq_val.json", "nlq"),
    "steps": ("goalstep/goalstep_grounding_val.json", "goalstep"),
    "local": ("goalstep/goalstep_val.json", "goalstep"),
}
SOURCES = {
    "nlq": "EgoNLQ's annotations, from Ego4D's download",
    "egomcq.json": "EgoMCQ's questions: egomcq.json of EgoVLP",
    "stores": "features of the Ego4D videos, packed: hiero pack DATA/ego4d/{backbone} DATA/stores/{backbone}",
    "ego4d": "features of the Ego4D videos, UID.pt: Ego4D's download has omnivore_video_swinl; "
    "extract others from the videos",
    "enriched": "hiero embed DATA/ego4d/{plain} --model MODELS/{backbone} -o DATA/ego4d/{backbone}",
    "goalstep": "Goal-Step's annotations, from Ego4D's download and the repository of the task",
    "annotations": "EgoProceL's annotations, from its project page",
    "features": "features of EgoProceL's videos, named as the csv files",
    "rates": "EgoProceL's videos (DATA/egoprocel/videos) or their frame rates "
    "(DATA/egoprocel/rates.csv: video,fps,frames)",
}
# What the release's own scripts make: these rows are run by their protocol, others by the corrected one.
RELEASE_ROWS = {
    "egoprocel": ("HiERO, spectral", "raw, spectral"),
    "goalstep-grounding": ("HiERO, runs of threads", "raw, runs of threads"),
}
PROTOCOL_NOTE = (
    "Ours: HiERO's rows and those of raw features by --protocol release, other clusterings by --protocol corrected."
)
BACKBONE_NAMES: dict[str, str] = {"lavila": "lavila-l"}  # folders of features whose backbone has another name
RAW = "raw"  # in place of a model: the backbone's features and its text tower
ENRICHED = "hiero-"  # prefix of a backbone whose features went through a model
DIGEST_LENGTH = 10  # hexadecimal digits in the name of a report

Run = dict[str, Any]
"""A run of `hiero eval` as tables.toml has it: eval, model, backbone, and options."""


@dataclass
class TableResult:
    """A table of the paper."""

    name: str
    table: Table
    commands: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)

    def add_wanted(self, line: str) -> None:
        """Add a line once."""
        if line not in self.wanted:
            self.wanted.append(line)


@cache
def definitions() -> dict[str, Any]:
    """The content of tables.toml: `tables`, and how to get each of the `models`."""
    return tomllib.loads(TABLES.read_text(encoding="utf-8"))


def table_names() -> list[str]:
    """Names that `make_table` takes."""
    return list(definitions()["tables"])


def make_table(
    name: str, data: Path, models: Path, runs: Path, log: Callable[[str], None] = lambda _: None, num_seeds: int = 0
) -> TableResult:
    """A table of the paper with our numbers. Runs whose report does not exist are run now, if their data exists."""
    if name not in table_names():
        raise InputError(f"no table {name}; known are {', '.join(table_names())}")
    definition = definitions()["tables"][name]
    columns = definition["columns"]
    result = TableResult(name, Table(definition["title"], [], list(definition.get("notes", []))))
    for entry in definition["rows"]:
        published = {c: float(v) for c, v in zip(columns, entry["published"], strict=True) if not math.isnan(v)}
        if published:
            result.table.rows.append(Row(f"{entry['method']}, published", published))
        ours = Row(f"{entry['method']}, ours", {})
        for run in entry.get("ours", []) or ablation_runs(entry):
            if run["model"] != RAW:
                train_seeds(run["model"], data, models, num_seeds, log)
            reports = _reports(run, data, models, runs, result, log)
            if reports:
                _add_scores(
                    ours, [_select_row(report, run) for report in reports], run.get("pick") or {c: c for c in columns}
                )
        if "statistics" in entry:
            ours.scores |= count_annotations(data / "egoprocel" / "annotations", entry["statistics"])
        if "parameters" in entry:
            ours.scores["parameters (M)"] = count_parameters(entry["parameters"])
        if any(not math.isnan(value) for value in ours.scores.values()):
            result.table.rows.append(ours)
    if any(
        run["eval"] in RELEASE_ROWS
        for entry in definition["rows"]
        for run in entry.get("ours", []) or ablation_runs(entry)
    ):
        result.table.notes.append(PROTOCOL_NOTE)
    return result


def train_seeds(
    name: str, data: Path, models: Path, num_seeds: int, log: Callable[[str], None] = lambda _: None
) -> None:
    """Train what a table needs, NAME-seed0 … in `models`, by the command of tables.toml; seeds that
    are there stay.
    """
    command = definitions()["models"][name].replace(" --set seed=0", "").replace("DATA", str(data)).split()
    if command[1] == "import-checkpoint":  # nothing to train
        return
    out = command.index("-o") + 1
    for seed in range(num_seeds):
        folder = models / f"{name}-seed{seed}"
        if not (folder / "config.json").is_file():
            command[out] = str(folder)
            arguments = [*command[1:], "--set", f"seed={seed}"]
            log(shlex.join(["hiero", *arguments]))
            if subprocess.run([sys.executable, "-m", "hiero", *arguments], check=False).returncode:
                raise InputError(f"hiero {shlex.join(arguments)} failed; its message is above")


def count_annotations(annotations: Path, task: str) -> dict[str, float]:
    """Videos and key-steps that a task of EgoProceL has in its annotations; nothing where they are not there."""
    from hiero.evaluation.egoprocel_data import TASKS, find_annotations, read_key_steps

    files = find_annotations(annotations, next(each for each in TASKS if each.name == task)) or []
    numbers = {number for file in files for _, _, number in read_key_steps(file)}
    return {"videos": float(len(files)), "key-steps": float(len(numbers))} if files else {}


def count_parameters(mode: str, input_size: int = 1536, num_layers: int = 2) -> float:
    """Millions of parameters that training changes: the network's, and those of DistilBERT."""
    import torch

    from hiero.config import ModelConfig, TextConfig
    from hiero.model.hiero import HiERO

    with torch.device("meta"):  # counted, not made
        total = sum(p.numel() for p in HiERO(ModelConfig(input_size, num_layers=num_layers)).parameters())
        if mode == "frozen":
            return total / 1e6
        try:
            from transformers import DistilBertConfig, DistilBertModel
        except ImportError:
            return math.nan
        config = DistilBertConfig()
        if mode == "full":
            return (total + sum(p.numel() for p in DistilBertModel(config).parameters())) / 1e6
    # Two factors of the rank beside query, key and value of each layer.
    return (total + config.n_layers * 3 * 2 * config.dim * TextConfig().lora_rank) / 1e6


def ablation_runs(entry: dict[str, Any]) -> list[Run]:
    """The runs of an ablated model, on three benchmarks; none where the row is no ablation."""
    if "ablation" not in entry:
        return []
    model = {"model": entry["ablation"], "backbone": "egovlp"}
    threads = "HiERO, runs of threads"
    return [
        {**model, "eval": "egomcq", "pick": {"MCQ inter": "inter", "MCQ intra": "intra"}},
        {
            **model,
            "eval": "egoprocel",
            "row": "HiERO, spectral",
            "pick": {"EgoProceL F1": "mean F1", "EgoProceL IoU": "mean IoU"},
        },
        {
            **model,
            "eval": "goalstep-grounding",
            "row": threads,
            "pick": {"grounding R1@.3": "R1@.3", "grounding R5@.3": "R5@.3"},
        },
    ]


def _reports(
    run: Run, data: Path, models: Path, runs: Path, result: TableResult, log: Callable[[str], None]
) -> list[Report]:
    """The reports of all seeds of a run; what is missing is added to the result."""
    seeds = [Path(RAW)] if run["model"] == RAW else seed_folders(models, run["model"])
    tower = BACKBONE_NAMES.get(str(run["backbone"]), str(run["backbone"]))
    if run["model"] == RAW and weights.find(tower) is None:
        result.add_wanted(f"the text tower of {tower}: hiero weights get {tower}")
        return []
    if not seeds:
        model = models / run["model"]
        source = definitions()["models"][run["model"]].replace("MODELS", str(models)).replace("DATA", str(data))
        result.add_wanted(f"{model}: {source}")
        for path, source in run_arguments(run, [model], data)[1].items():
            if not path.exists():
                result.add_wanted(f"{path}: {source}")
        return []
    groups = [seeds] if run["eval"] == "head" else [[seed] for seed in seeds]  # `hiero head eval` averages seeds itself
    reports = (_read_or_run(run, group, data, runs, result, log) for group in groups)
    return [report for report in reports if report is not None]


def seed_folders(models: Path, name: str) -> list[Path]:
    """Folders of a model: all its seeds, or the one without; none where it is not there."""
    seeds = sorted(models.glob(f"{name}-seed*"))
    return seeds or ([models / name] if (models / name).is_dir() else [])


def _read_or_run(
    run: Run, models: list[Path], data: Path, runs: Path, result: TableResult, log: Callable[[str], None]
) -> Report | None:
    """The report of one run; None where its data is missing."""
    arguments, needed = run_arguments(run, models, data)
    file = report_file(run, models, arguments, runs)
    if not file.is_file():
        if absent := [path for path in needed if not path.exists()]:
            for path in absent:
                result.add_wanted(f"{path}: {needed[path]}")
            return None
        command = [*(["head", "eval"] if run["eval"] == "head" else ["eval", run["eval"]]), *arguments, "-o", str(file)]
        log(shlex.join(["hiero", *command]))
        # A process of its own, so that the report holds the command that makes it.
        process = subprocess.run(
            [sys.executable, "-m", "hiero", *command, "--json"], stdout=subprocess.DEVNULL, check=False
        )
        if process.returncode:
            raise InputError(f"hiero {shlex.join(command)} failed; its message is above")
    report = Report.load(file)
    if report.command not in result.commands:
        result.commands.append(report.command)
    return report


def report_file(run: Run, models: list[Path], arguments: list[str], runs: Path) -> Path:
    """Where the report of a run lies: other data, other seeds or other weights are another run."""
    name = models[0].name if run["eval"] != "head" else Path(run["model"]).name
    digest = hashlib.sha256("\0".join(arguments).encode())
    for model in models:
        if (model / "model.safetensors").is_file():
            digest.update(content_key(model / "model.safetensors").encode())
    return runs / f"{run['eval']}-{name}-{digest.hexdigest()[:DIGEST_LENGTH]}.json"


def run_arguments(run: Run, models: list[Path], data: Path) -> tuple[list[str], dict[Path, str]]:
    """What `hiero eval` is called with, and all of its files, each with its source."""
    backbone = run["backbone"]
    inputs = _inputs(run, data)
    plain = backbone.removeprefix(ENRICHED)
    sources = {
        key: text.format(backbone=backbone, plain=plain).replace("DATA", str(data)) for key, text in SOURCES.items()
    }
    if plain != backbone:
        sources["ego4d"] = sources["enriched"]
    needed = {path: sources[key] for path, key in inputs.values()}
    files = [text for option, (path, _) in inputs.items() for text in (option, str(path))]
    if run["eval"] == "head":
        return [*map(str, models), *files], needed
    context = ["--context", str(run["context"])] if "context" in run else []
    if run["model"] == RAW:
        context += ["--backbone", BACKBONE_NAMES.get(str(backbone), str(backbone))]
    protocol = ["--protocol", "release"] if run.get("row") in RELEASE_ROWS.get(run["eval"], ()) else []
    return [*files, "--model", str(models[0]), *context, *protocol], needed


def _inputs(run: Run, data: Path) -> dict[str, tuple[Path, str]]:
    """Files that a run reads, by the option: the path, and its key in SOURCES."""
    features, goalstep, egoprocel = data / "ego4d" / run["backbone"], data / "goalstep", data / "egoprocel"
    groups = goalstep / "goalstep_video_groups.tsv"
    if run["eval"] == "head":
        file, key = HEAD_DATA[run["data"]]
        inputs = {"--annotations": (data / file, key), "--features": (features, "ego4d")}
        return inputs | {"--groups": (groups, "goalstep")} if key == "goalstep" else inputs
    if run["eval"] == "egomcq":
        return {
            "--questions": (data / "egomcq.json", "egomcq.json"),
            "--store": (data / "stores" / run["backbone"], "stores"),
        }
    if run["eval"] == "egoprocel":
        rates = egoprocel / "rates.csv"
        return {
            "--annotations": (egoprocel / "annotations", "annotations"),
            "--features": (egoprocel / "features" / run["backbone"], "features"),
            **({"--rates": (rates, "rates")} if rates.is_file() else {"--videos": (egoprocel / "videos", "rates")}),
        }
    file = "goalstep_grounding_val.json" if run["eval"] == "goalstep-grounding" else "goalstep_val.json"
    inputs = {
        "--annotations": (goalstep / file, "goalstep"),
        "--features": (features, "ego4d"),
        "--groups": (groups, "goalstep"),
    }
    train = goalstep / "goalstep_train.json", "goalstep"
    if run["eval"] == "goalstep-classification":
        inputs["--train"] = train
    elif run["eval"] == "goalstep-localization":
        inputs["--taxonomy"] = train
    return inputs


def _select_row(report: Report, run: Run) -> Row:
    """The row that the run names, or the first."""
    method = run.get("row")
    for row in report.tables[0].rows:
        if method is None or row.method == method:
            return row
    raise InputError(f"the report of {report.command} has no row {method}; remove it, and it is made again")


def _add_scores(ours: Row, rows: list[Row], pick: dict[str, str]) -> None:
    """Add means over seeds, columns as `pick` names them.

    The interval is that of the videos for one seed, mean ± two deviations for several.
    """
    for column, name in pick.items():
        values = [row.scores[name] for row in rows if name in row.scores]
        if not values:
            continue
        ours.scores[column] = float(np.mean(values))
        if len(values) > 1:
            spread = 2 * float(np.std(values, ddof=1))
            ours.intervals[column] = (ours.scores[column] - spread, ours.scores[column] + spread)
        elif name in rows[0].intervals:
            ours.intervals[column] = rows[0].intervals[name]
