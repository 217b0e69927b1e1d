"""What a benchmark gives: rows of scores with intervals, to print, to keep and to compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.storage.files import write_text

Scores = dict[str, float]


@dataclass
class Row:
    """One method: scores in percent, with intervals that hold 95 % of what other videos of the same kind would give."""

    method: str
    scores: Scores
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass
class Table:
    title: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row.scores))


@dataclass
class Report:
    """The tables of one run, with all that is needed to run it again."""

    benchmark: str
    command: str
    tables: list[Table]
    settings: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Videos that the benchmark has and the features do not."""

    def to_dict(self) -> dict[str, Any]:
        return {"version": 1, **asdict(self)}

    def save(self, path: Path) -> None:
        write_text(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Report:
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            tables = [Table(t["title"], [Row(**row) for row in t["rows"]], t["notes"]) for t in held["tables"]]
            return cls(held["benchmark"], held["command"], tables, held["settings"], held["missing"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not a report of hiero eval ({error})") from error


def bootstrap_row(
    method: str, values: Callable[[np.ndarray], Scores], num_videos: int, num_draws: int = 1000, seed: int = 0
) -> Row:
    """A row from a function of how often each video counts: once each for the scores, drawn with replacement for the intervals."""
    scores = values(np.ones(num_videos))
    if num_videos < 2 or any(value != value for value in scores.values()):
        return Row(method, scores)
    rng = np.random.default_rng(seed)
    draws = [values(rng.multinomial(num_videos, np.full(num_videos, 1 / num_videos)).astype(float)) for _ in range(num_draws)]
    intervals = {}
    for name in scores:
        drawn = np.array([draw[name] for draw in draws])
        bias = np.nanmean(drawn) - scores[name]  # a draw has fewer different videos: what is no mean over videos comes out too high
        low, high = np.clip(np.nanpercentile(drawn, [2.5, 97.5]) - bias, 0.0, 100.0)
        intervals[name] = (float(low), float(high))
    return Row(method, scores, intervals)


def weighted_means(values: np.ndarray, videos: np.ndarray, names: Sequence[str]) -> Callable[[np.ndarray], Scores]:
    """Means over questions (Q, M) in percent, where `videos` (Q,) says which video each question belongs to."""

    def scores(weights: np.ndarray) -> Scores:
        weight = weights[videos]
        total = weight.sum()
        found = (weight @ values / total) if total else np.full(values.shape[1], np.nan)
        return dict(zip(names, (100 * found).tolist(), strict=True))

    return scores


def mean_row(name: str, rows: Sequence[Row]) -> Row:
    """Means over seeds of scores and intervals."""
    scores = {column: float(np.mean([one.scores[column] for one in rows])) for column in rows[0].scores}
    intervals = {}
    for column in rows[0].intervals:
        low, high = np.mean([one.intervals[column] for one in rows], axis=0)
        intervals[column] = (float(low), float(high))
    return Row(name, scores, intervals)


def as_markdown(table: Table, intervals: bool = True) -> str:
    lines = [f"| | {' | '.join(table.columns)} |", "|---" * (1 + len(table.columns)) + "|"]
    for one in table.rows:
        cells = [format_cell(one, name, intervals) for name in table.columns]
        lines.append(f"| {one.method} | {' | '.join(cells)} |")
    return "\n".join([f"**{table.title}**", "", *lines, *(["", *table.notes] if table.notes else [])])


def format_cell(one: Row, name: str, intervals: bool = True) -> str:
    value = one.scores.get(name)
    if value is None or value != value:
        return "–"
    if intervals and name in one.intervals:
        low, high = (max(0.0, bound) for bound in one.intervals[name])
        return f"{value:.1f} ({low:.1f}-{high:.1f})"
    return f"{value:.1f}" if name in one.intervals else f"{value:.2f}".removesuffix("0")  # the paper's numbers as published
