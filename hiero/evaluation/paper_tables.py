"""The tables of the paper: what tables.toml says about them, and how reports of `hiero eval` become their rows."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.evaluation.egoprocel_data import TASKS, Task, find_annotations, read_key_steps
from hiero.evaluation.results import Report, Row, Table
from hiero.storage.files import ASSETS

RAW = "raw"  # name of a run without a model: backbone features and their text tower

Run = dict[str, Any]
"""A run of `hiero eval` in tables.toml: eval, model, backbone, and options."""


@cache
def definitions() -> dict[str, Any]:
    """The content of tables.toml: `tables`, and the command that creates each of the `models`."""
    return tomllib.loads((ASSETS / "tables.toml").read_text(encoding="utf-8"))


def table_names() -> list[str]:
    return list(definitions()["tables"])


def default_tables(heads: bool) -> list[str]:
    """The tables that need only released files and, with `heads`, those of heads that are trained on them.

    The others compare models that the authors did not release.
    """
    excluded = ("hiero train",) if heads else ("hiero train", "hiero head")
    commands = {RAW: "", **definitions()["models"]}
    runs = {name: [run for row in own_rows(name) for run in row["ours"]] for name in table_names()}
    return [name for name in runs if not any(commands[run["model"]].startswith(excluded) for run in runs[name])]


def all_rows(table: str) -> list[dict[str, Any]]:
    """The rows of a table. `ours` holds the runs of those that hiero computes."""
    return [{"ours": [], **row} for row in definitions()["tables"][table]["rows"]]


def own_rows(table: str) -> list[dict[str, Any]]:
    """The rows of a table that hiero computes."""
    return [row for row in all_rows(table) if is_own(row)]


def is_own(row: dict[str, Any]) -> bool:
    """Whether hiero computes a row; the others are only published."""
    return bool(row["ours"]) or "statistics" in row


def find_task(name: str) -> Task:
    """A task of EgoProceL."""
    return next(task for task in TASKS if task.name == name)


def count_annotations(annotations: Path, task: str) -> dict[str, float]:
    """Number of annotated videos and key-steps of a task of EgoProceL; empty without annotations."""
    files = find_annotations(annotations, find_task(task)) or []
    numbers = {number for file in files for _, _, number in read_key_steps(file)}
    return {"videos": float(len(files)), "key-steps": float(len(numbers))} if files else {}


def add_scores(ours: Row, reports: Sequence[Report], run: Run, columns: Sequence[str]) -> None:
    """Add the mean over the reports of all seeds for each column, or for those that the run picks.

    With one seed, the interval is that over videos; with several, the mean ± two standard deviations.
    """
    rows = [_select_row(report, run) for report in reports]
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


def _select_row(report: Report, run: Run) -> Row:
    """The row that the run names, or the first."""
    method = run.get("row")
    for row in report.tables[0].rows:
        if method is None or row.method == method:
            return row
    raise InputError(f"the report of {report.command} has no row {method}; delete the report to run it again")


def as_table(compared: dict[str, Any]) -> Table:
    """A table of summary.json, with the published rows and ours, to print."""
    rows, failed = [], []
    for row in compared["rows"]:
        if row["published"]:
            rows.append(Row(f"{row['method']}, published", row["published"]))
        if row["ours"] or row["failed"]:
            rows.append(Row(f"{row['method']}, ours{' (failed)' * bool(row['failed'])}", row["ours"], row["intervals"]))
        failed += [f"Failed: {row['method']}: {reason}" for reason in row["failed"]]
    return Table(compared["title"], rows, [*compared["notes"], *failed])
