"""Moments of videos, as tables and as JSON. What `ask` and `search` find has one layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import hiero
from hiero.cli.console import plain_table, results_console
from hiero.formatting import format_percent, format_time, printable
from hiero.types import ANSWER_THRESHOLD, Match, Step, VideoFile, file_fields, locate_moment

if TYPE_CHECKING:
    from rich.text import Text

Cells: TypeAlias = "dict[str, str | Text]"  # cells of a row by column
COLUMNS = ("video", "from", "to", "probability", "step", "in file", "by", "words")


@dataclass(frozen=True)
class Moment:
    """A moment that was found: in which video, and in which files it consists of."""

    video: str
    found: Match | hiero.Hit
    files: Sequence[VideoFile] = ()
    step: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"video": self.video, **self.found.to_dict(), **file_fields(self.files, self.found)}


@dataclass
class Found:
    """The moments that were found for a query, best first.

    Attributes:
        query: What was looked for.
        probability: The probability that it occurs at all.
    """

    query: str
    probability: float = 0.0
    moments: list[Moment] = field(default_factory=list)

    @property
    def is_present(self) -> bool:
        """Whether the query probably occurs."""
        return self.probability >= ANSWER_THRESHOLD

    def to_dict(self) -> dict[str, Any]:
        head = {"query": self.query, "present": self.is_present, "probability": round(self.probability, 4)}
        return {**head, "matches": [moment.to_dict() for moment in self.moments]}


def print_found(queries: Sequence[Found], place: str, *, names_videos: bool, show_all: bool) -> None:
    """Print the probable moments of each query, or all of them.

    Args:
        queries: What was found for each query.
        place: Where it was looked for, such as "this video".
        names_videos: Whether to name the video of each moment.
        show_all: Whether to show improbable moments too.
    """
    console = results_console()
    for found in queries:
        shown = [m for m in found.moments if show_all or (found.is_present and m.found.probability >= ANSWER_THRESHOLD)]
        note = "" if found.is_present else f"   probably not in {place}"
        if not shown and found.moments:
            best = found.moments[0]
            span = f"{format_time(best.found.start_s)}–{format_time(best.found.end_s)}"
            name = f"{best.video} " if names_videos else ""
            note += f"; closest: {name}{span}, {format_percent(best.found.probability)}"
        console.print(f"{found.query}{note}", style="bold")
        if shown:
            print_moments(COLUMNS, [_cells(moment, names_videos) for moment in shown])


def _cells(moment: Moment, names_videos: bool) -> Cells:
    cells = {**moment_cells(moment.found, moment.files), **speech_cells(moment.found)}
    named = {"video": moment.video if names_videos else "", "step": moment.step}
    return {**cells, **{column: text for column, text in named.items() if text}}


def print_moments(columns: Sequence[str], rows: Sequence[Cells], title: str | None = None) -> None:
    """Print a table with one row of cells by column for each moment. Columns that no row has are left out.

    `style` of a row applies to all its cells.
    """
    shown = [column for column in columns if any(column in row for row in rows)]
    table = plain_table(*shown, right=("from", "to", "thread", "probability"))
    for row in rows:
        table.add_row(*(row.get(column, "") for column in shown), style=str(row.get("style", "")))
    results_console(title).print(table)


def moment_cells(moment: hiero.Hit | Match | Step, files: Sequence[VideoFile]) -> Cells:
    """The times and the probability of a moment, and if the video consists of several files, the place in its file."""
    cells: Cells = {"from": format_time(moment.start_s), "to": format_time(moment.end_s)}
    if moment.probability is not None:
        cells["probability"] = format_percent(moment.probability)
    if len(files) > 1:
        file, start_s = locate_moment(files, moment)
        cells["in file"] = f"{Path(file.path).name} {format_time(start_s)}"
    return cells


def speech_cells(found: hiero.Hit | Match) -> Cells:
    """What a moment was found by, and the matching words; empty without a transcript."""
    from rich.text import Text

    if found.rests_on is None:
        return {}
    by: Cells = {"by": Text(found.rests_on, style="cyan")}
    return by if found.quote is None else {**by, "words": Text(f"“{printable(found.quote)}”", style="dim")}
