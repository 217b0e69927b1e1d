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
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hiero.config import RELEASED_CHECKPOINTS
from hiero.errors import InputError
from hiero.evaluation.commands import Execute, run_hiero
from hiero.evaluation.egoprocel_data import TASKS, find_annotations, read_key_steps
from hiero.evaluation.results import Report, Row, Table
from hiero.features.files import FEATURE_SUFFIXES
from hiero.storage import weights
from hiero.storage.cache import content_key
from hiero.storage.files import ASSETS, home, read_json

BACKBONE_NAMES = {"lavila": "lavila-l"}  # feature folders that are not named after their backbone
RAW = "raw"  # name of a run without a model: backbone features and their text tower
ANNOTATIONS = "egoprocel/annotations"  # in DATA
ENRICHED = "hiero-"  # prefix of features that went through a model
DIGEST_LENGTH = 10  # hexadecimal digits in the name of a report

Run = dict[str, Any]
"""A run of `hiero eval` in tables.toml: eval, model, backbone, and options."""
Log = Callable[[str], None]


@dataclass
class TableResult:
    """A table of the paper, the commands that produced it, missing inputs, and rows that failed with the reason."""

    name: str
    table: Table
    commands: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@cache
def definitions() -> dict[str, Any]:
    """The content of tables.toml: `tables`, and the command that creates each of the `models`."""
    return tomllib.loads((ASSETS / "tables.toml").read_text(encoding="utf-8"))


def table_names() -> list[str]:
    return list(definitions()["tables"])


def own_rows(table: str) -> list[dict[str, Any]]:
    """The rows of a table that hiero computes; `ours` holds their runs."""
    rows = definitions()["tables"][table]["rows"]
    return [{"ours": [], **row} for row in rows if "ours" in row or "statistics" in row]


@dataclass
class PaperTables:
    """Tables with our numbers. Runs without a report are computed if their data exists.

    A run that fails leaves its row without a number; `failures` has the reasons by command.
    """

    data: Path
    models: Path
    runs: Path
    log: Log = lambda _: None
    num_seeds: int = 0
    execute: Execute = run_hiero
    failures: dict[str, str] = field(default_factory=dict)

    def make(self, name: str) -> TableResult:
        """Build a table."""
        if name not in table_names():
            raise InputError(f"unknown table {name}; choose one of {', '.join(table_names())}")
        definition = definitions()["tables"][name]
        columns = definition["columns"]
        notes = [name_folders(note, self.data, self.models) for note in definition.get("notes", [])]
        result = TableResult(name, Table(definition["title"], [], notes))
        for entry in definition["rows"]:
            published = {c: float(v) for c, v in zip(columns, entry["published"], strict=True) if not math.isnan(v)}
            if published:
                result.table.rows.append(Row(f"{entry['method']}, published", published))
            ours = Row(f"{entry['method']}, ours", {})
            failed = self._add_runs(ours, entry, columns, result)
            if "parameters" in entry:
                ours.scores["parameters (M)"] = entry["parameters"]
            if failed:
                ours.method += " (failed)"
                result.failed.append(f"{entry['method']}: {'; '.join(dict.fromkeys(failed))}")
            if failed or any(not math.isnan(value) for value in ours.scores.values()):
                result.table.rows.append(ours)
        result.table.notes += [f"Failed: {reason}" for reason in result.failed]
        result.commands = list(dict.fromkeys(result.commands))
        result.wanted = list(dict.fromkeys(result.wanted))
        return result

    def _add_runs(self, ours: Row, entry: dict[str, Any], columns: Sequence[str], result: TableResult) -> list[str]:
        """Add the scores of the runs of a row; returns the reasons of those that failed."""
        failed = []
        for run in entry.get("ours", ()):
            try:
                if run["model"] != RAW:
                    self.train_seeds(run["model"])
                add_scores(ours, self._reports(run, result), run, columns)
            except InputError as error:
                failed.append(str(error))
        if "statistics" in entry:
            try:
                ours.scores |= count_annotations(self.data / ANNOTATIONS, entry["statistics"])
            except InputError as error:
                failed.append(str(error))
        return failed

    def train_seeds(self, name: str) -> None:
        """Train missing seeds of a model, NAME-seed0 …, by its command in tables.toml."""
        command = training_command(name, self.data, self.models)
        if command[1:3] == ["models", "import"]:  # nothing to train
            return
        out = command.index("-o") + 1
        for seed in range(self.num_seeds):
            folder = self.models / f"{name}-seed{seed}"
            if not (folder / "config.json").is_file():
                command[out] = str(folder)
                self._run_hiero([*command[1:], "--set", f"seed={seed}"])

    def _run_hiero(self, arguments: list[str], *hidden: str) -> None:
        """Run a command of hiero, once; `hidden` arguments are not logged."""
        command = shlex.join(["hiero", *arguments])
        if command not in self.failures:
            self.log(command)
            if not (reason := self.execute([*arguments, *hidden], {})):
                return
            self.failures[command] = reason
        raise InputError(self.failures[command])

    def _reports(self, run: Run, result: TableResult) -> list[Report]:
        """The reports of all seeds of a run. Missing inputs are added to the result."""
        seeds = [Path(RAW)] if run["model"] == RAW else seed_folders(self.models, run["model"])
        if run["model"] == RAW and weights.find(text_tower(run)) is None:
            result.wanted.append(f"the text tower of {text_tower(run)}: hiero models get {text_tower(run)}")
            return []
        needed = _needed(run, self.data, self.models).items()
        missing = [f"{path}: {source}" for path, source in needed if not path.exists()]
        if not seeds:
            result.wanted += missing
            return []
        groups = [seeds] if run["eval"] == "head" else [[seed] for seed in seeds]  # `hiero head eval` averages seeds
        reports = (self._read_or_run(run, group, missing, result) for group in groups)
        return [report for report in reports if report is not None]

    def _read_or_run(self, run: Run, models: list[Path], missing: list[str], result: TableResult) -> Report | None:
        """The report of one run; None if its data is missing."""
        arguments, _ = run_arguments(run, models, self.data)
        file = report_file(run, models, arguments, self.runs)
        if not file.is_file():
            if missing:
                result.wanted += missing
                return None
            # In its own process, so that the report records the command.
            self._run_hiero([*run_command(run), *arguments, "-o", str(file)], "--json")
        report = Report.load(file)
        result.commands.append(report.command)
        return report


def training_command(name: str, data: Path, models: Path) -> list[str]:
    """The command that creates a model, without its seed."""
    words = definitions()["models"][name].replace(" --set seed=0", "").split()
    named = [name_folders(word, data, models) for word in words]
    return [str(find_input(Path(word))) if word.startswith(str(data)) else word for word in named]


def find_input(path: Path) -> Path:
    """An input under its usual name, or an official file of Goal-Step beside it with the same split.

    The names of Goal-Step's files vary: goalstep_val.json is also published as goalstep_valid.json. The official
    files hold the queries of step grounding, too.
    """
    if path.exists() or path.suffix != ".json" or not any("goalstep" in part for part in path.parts[-3:]):
        return path
    split = "train" if "train" in path.stem else "val"
    official = (file for file in sorted(path.parent.glob("*.json")) if _goalstep_split(file) == split)
    return next(official, path)


@cache
def _goalstep_split(file: Path) -> str:
    """`train` or `val` for an official annotation file of Goal-Step, otherwise an empty text."""
    try:
        content = read_json(file)
    except InputError:
        return ""
    videos = content.get("videos") if isinstance(content, dict) else None
    if not isinstance(videos, list) or not videos or not isinstance(videos[0], dict) or "segments" not in videos[0]:
        return ""
    return {"train": "train", "val": "val", "valid": "val"}.get(str(content.get("split")), "")


def count_annotations(annotations: Path, task: str) -> dict[str, float]:
    """Number of annotated videos and key-steps of a task of EgoProceL; empty without annotations."""
    files = find_annotations(annotations, next(each for each in TASKS if each.name == task)) or []
    numbers = {number for file in files for _, _, number in read_key_steps(file)}
    return {"videos": float(len(files)), "key-steps": float(len(numbers))} if files else {}


def text_tower(run: Run) -> str:
    backbone: str = run["backbone"]
    return BACKBONE_NAMES.get(backbone, backbone)


def seed_folders(models: Path, name: str) -> list[Path]:
    """Existing folders of a model: its seeds, or else the folder without a seed."""
    seeds = sorted(models.glob(f"{name}-seed*"))
    return seeds or ([models / name] if (models / name).is_dir() else [])


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
        path = find_input(data / name.format(backbone=backbone))
        if option == "--rates" and not path.is_file():
            option, path = "--videos", path.with_name("videos")
        if source == "ego4d" and plain != backbone:
            source = "enriched"
        files += [option, str(path)]
        needed[path] = definitions()["sources"][source].format(backbone=backbone, plain=plain)
    if run["eval"] == "head":
        return [*map(str, models), *files], needed
    arguments = [*files, "--model", text_tower(run) if run["model"] == RAW else str(models[0])]
    if "context" in run:
        arguments += ["--context", str(run["context"])]
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
        num_ready = 0
        for row in own_rows(name):
            needed = {path: text for run in row["ours"] for path, text in _needed(run, data, models).items()}
            is_ready = all(describe_once(path) for path in needed)
            if "statistics" in row:
                needed[data / ANNOTATIONS] = definitions()["sources"]["annotations"]
                task = next(task for task in TASKS if task.name == row["statistics"])
                is_ready = bool(find_annotations(data / ANNOTATIONS, task))
            for run in row["ours"]:
                needed |= _training_inputs(run, data, models)
            for path, source in needed.items():
                inputs.setdefault(path, (source, []))[1].append(name)
            num_ready += is_ready
        num_rows[name] = num_ready, len(own_rows(name))
    found = [
        Input(path, describe_once(path), source, tuple(dict.fromkeys(tables)))
        for path, (source, tables) in sorted(inputs.items())
    ]
    return found, num_rows


def _training_inputs(run: Run, data: Path, models: Path) -> dict[Path, str]:
    """Annotations that the training of a head reads, each with its source."""
    if run["eval"] != "head":
        return {}
    names = {find_input(data / name): source for name, (_, source) in definitions()["release"].items()}
    words = map(Path, training_command(run["model"], data, models))
    return {path: definitions()["sources"][names[path]] for path in words if path in names and path.suffix == ".json"}


def _needed(run: Run, data: Path, models: Path) -> dict[Path, str]:
    """Files and folders that a run reads, each with its source."""
    if run["model"] == RAW:
        name = text_tower(run)
        needed = {weights.find(name) or home() / "weights" / name: f"hiero models get {name}"}
    else:
        folders = seed_folders(models, run["model"]) or [models / run["model"]]
        command = definitions()["models"][run["model"]]
        address = f" (download the file from {RELEASED_CHECKPOINTS})" if "models import" in command else ""
        needed = {folders[0]: command + address}
    needed |= run_arguments(run, [models / run["model"]], data)[1]
    return {path: name_folders(source, data, models) for path, source in needed.items()}


def name_folders(text: str, data: Path, models: Path) -> str:
    """A text of tables.toml with the folders that it means by DATA and MODELS."""
    folders = {"DATA": str(data), "MODELS": str(models)}
    return re.sub(r"\b(DATA|MODELS)\b(?=/)", lambda match: folders[match[0]], text)


def _describe(path: Path) -> str:
    """A few words about a file or folder; empty if nothing exists."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
        num_features = sum(file.suffix.lower() in FEATURE_SUFFIXES for file in files)
        num_tables = sum(file.suffix == ".csv" for file in files)
        kinds = [f"{num_features} feature files"] * bool(num_features) + [f"{num_tables} csv files"] * bool(num_tables)
        return ", ".join(kinds) or (f"{len(files)} files" if files else "")
    return f"{path.stat().st_size / 1e6:.1f} MB" if path.is_file() else ""
