"""Results of a benchmark: rows of scores with confidence intervals, to print, save and compare."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hiero.evaluation.parsing import parsing
from hiero.storage.files import parse_json, write_text

Scores = dict[str, float]
# Maps the weight of each video in each bootstrap draw, (D, V), to scores of the draws, (D,) each.
DrawnScores = Callable[[np.ndarray], dict[str, np.ndarray]]
INTERVAL_PERCENTILES = (2.5, 97.5)
LATEX = str.maketrans({"\\": r"\textbackslash{}", "Δ": r"$\Delta$", "α": r"$\alpha$", "β": r"$\beta$"})
LATEX |= {ord(character): f"\\{character}" for character in "&%$#_{}"}


@dataclass
class Row:
    """The scores of one method."""

    method: str
    scores: Scores
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    def select(self, prefix: str) -> Row:
        """The row with the scores whose names begin with a prefix."""
        names = [name for name in self.scores if name.startswith(prefix)]
        intervals = {name: self.intervals[name] for name in names if name in self.intervals}
        return Row(self.method, {name: self.scores[name] for name in names}, intervals)


@dataclass
class Table:
    """Rows with a title, and notes that are printed below them."""

    title: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Names of all scores in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row.scores))


@dataclass
class Report:
    """The tables of one run, with the command and settings that produced them."""

    benchmark: str
    command: str = field(default="", kw_only=True)
    tables: list[Table]
    settings: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"version": 1, **asdict(self)}

    def save(self, path: Path) -> None:
        write_text(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read a saved report. Raises InputError if the file is not a report."""
        with parsing(f"{path}: not a report of hiero eval"):
            document = parse_json(path.read_text(encoding="utf-8"))
            tables = [Table(t["title"], [Row(**row) for row in t["rows"]], t["notes"]) for t in document["tables"]]
            fields = {name: document[name] for name in ("benchmark", "command", "settings", "missing")}
            report = cls(tables=tables, summary=document.get("summary", {}), **fields)
        return report


def bootstrap_row(
    method: str, compute_scores: DrawnScores, num_videos: int, num_draws: int = 1000, seed: int = 0
) -> Row:
    """A row with 95 % confidence intervals from the bootstrap over videos."""
    scores = {name: float(values[0]) for name, values in compute_scores(np.ones((1, num_videos))).items()}
    if num_videos < 2 or any(math.isnan(value) for value in scores.values()):
        return Row(method, scores)
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(num_videos, np.full(num_videos, 1 / num_videos), size=num_draws).astype(float)
    intervals = {}
    for name, drawn in compute_scores(weights).items():
        # Draws hold fewer distinct videos, which biases scores that are not means over videos.
        bias = np.nanmean(drawn) - scores[name]
        low, high = np.clip(np.nanpercentile(drawn, INTERVAL_PERCENTILES) - bias, 0.0, 100.0)
        intervals[name] = (float(low), float(high))
    return Row(method, scores, intervals)


def weighted_means(values: np.ndarray, owners: np.ndarray, names: Sequence[str]) -> DrawnScores:
    """Means over questions in percent, as a function for `bootstrap_row`."""
    values = np.asarray(values, dtype=float)

    def scores(weights: np.ndarray) -> dict[str, np.ndarray]:
        num_videos = weights.shape[1]
        totals = np.stack([np.bincount(owners, column, num_videos) for column in values.T], axis=1)  # (V, M)
        count = weights @ np.bincount(owners, minlength=num_videos)
        means = np.divide(
            weights @ totals, count[:, None], out=np.full((len(weights), len(names)), np.nan), where=count[:, None] > 0
        )
        return dict(zip(names, 100 * means.T, strict=True))

    return scores


def accuracy_by_kind(answers: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> DrawnScores:
    """Accuracy of each kind of question, from whether each answer is correct and the video it belongs to."""
    means = [weighted_means(correct[:, None], owners, [kind]) for kind, (correct, owners) in answers.items()]
    return lambda weights: {kind: values for mean in means for kind, values in mean(weights).items()}


def mean_row(method: str, rows: Sequence[Row]) -> Row:
    """Mean scores and intervals over rows, one row for each seed."""
    scores = {column: float(np.mean([row.scores[column] for row in rows])) for column in rows[0].scores}
    intervals = {}
    for column in rows[0].intervals:
        low, high = np.mean([row.intervals[column] for row in rows], axis=0)
        intervals[column] = (float(low), float(high))
    return Row(method, scores, intervals)


def as_markdown(table: Table, intervals: bool = True) -> str:
    """Format a table as Markdown, with its title and notes."""
    lines = [f"| | {' | '.join(table.columns)} |", "|---" * (1 + len(table.columns)) + "|"]
    for row in table.rows:
        cells = [format_cell(row, column, intervals) for column in table.columns]
        lines.append(f"| {row.method} | {' | '.join(cells)} |")
    return "\n".join([f"**{table.title}**", "", *lines, *(["", *table.notes] if table.notes else [])])


def as_latex(table: Table) -> str:
    """Format a table as LaTeX (booktabs): its title becomes the caption, notes become comments."""
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}", r"\toprule"]
    lines += [" & ".join(["", *(name.translate(LATEX) for name in table.columns)]) + r" \\", r"\midrule"]
    for row in table.rows:
        cells = [format_cell(row, column, False).replace("–", "--") for column in table.columns]
        lines.append(" & ".join([row.method.translate(LATEX), *cells]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{table.title.translate(LATEX)}}}", r"\end{table}"]
    return "\n".join([*lines, *(f"% {note}" for note in table.notes)])


def format_cell(row: Row, column: str, intervals: bool = True) -> str:
    """Format a score, with its interval if requested; a dash if there is no score."""
    value = row.scores.get(column)
    if value is None or math.isnan(value):
        return "–"
    if intervals and column in row.intervals:
        low, high = (max(0.0, bound) for bound in row.intervals[column])
        return f"{value:.1f} ({low:.1f}-{high:.1f})"
    # Published numbers have no interval and keep the one or two digits of the paper.
    return f"{value:.1f}" if column in row.intervals else f"{value:.2f}".removesuffix("0")
