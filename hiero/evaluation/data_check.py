"""What of the paper's data is in a folder, and which of its tables can be made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hiero.data.features import FEATURE_SUFFIXES
from hiero.evaluation.paper_tables import (
    BACKBONE_NAMES,
    RAW,
    Run,
    ablation_runs,
    definitions,
    run_arguments,
    seed_folders,
    table_names,
)
from hiero.storage import weights
from hiero.storage.files import home


@dataclass(frozen=True)
class Input:
    """A file or folder that tables read."""

    path: Path
    found: str
    source: str
    tables: tuple[str, ...]


@dataclass
class DataReport:
    """What is there and what is missing."""

    inputs: list[Input] = field(default_factory=list)
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)


def check_data(data: Path, models: Path) -> DataReport:
    """Look for all that `hiero table` needs; nothing is run."""
    report = DataReport()
    describe_once = cache(describe)  # folders may be large
    inputs: dict[Path, tuple[str, list[str]]] = {}
    for name in table_names():
        num_ready = num_rows = 0
        for entry in definitions()["tables"][name]["rows"]:
            runs = entry.get("ours", []) or ablation_runs(entry)
            is_ready = True
            for run in runs:
                needed = _needed(run, data, models)
                for path, source in needed.items():
                    inputs.setdefault(path, (source, []))[1].append(name)
                    is_ready = is_ready and bool(describe_once(path))
            num_rows, num_ready = num_rows + bool(runs), num_ready + (bool(runs) and is_ready)
        report.rows[name] = num_ready, num_rows
    for path, (source, tables) in sorted(inputs.items()):
        report.inputs.append(Input(path, describe_once(path), source, tuple(dict.fromkeys(tables))))
    return report


def _needed(run: Run, data: Path, models: Path) -> dict[Path, str]:
    """Files and folders that a run reads, with where to get each."""
    if run["model"] == RAW:
        name = BACKBONE_NAMES.get(str(run["backbone"]), str(run["backbone"]))
        needed = {weights.find(name) or home() / "weights" / name: f"hiero weights get {name}"}
    else:
        folders = seed_folders(models, run["model"]) or [models / run["model"]]
        source = definitions()["models"][run["model"]].replace("MODELS", str(models)).replace("DATA", str(data))
        needed = {folders[0]: source}
    return needed | run_arguments(run, [models / run["model"]], data)[1]


def describe(path: Path) -> str:
    """What is at a path, in a few words; empty where nothing is."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
        num_features = sum(file.suffix in FEATURE_SUFFIXES for file in files)
        num_tables = sum(file.suffix == ".csv" for file in files)
        kinds = [f"{num_features} feature files"] * bool(num_features) + [f"{num_tables} csv files"] * bool(num_tables)
        return ", ".join(kinds) or (f"{len(files)} files" if files else "")
    return f"{path.stat().st_size / 1e6:.1f} MB" if path.is_file() else ""
