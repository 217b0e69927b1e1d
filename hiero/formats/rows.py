"""Rows of a step file: spans with names, as other tools hold them, and what hiero's exports add to each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from hiero.errors import InputError
from hiero.formats.edits import MAX_ID_LENGTH
from hiero.storage.files import parse_json
from hiero.types import MAX_TIME_S, Step

FRAME_RATE = 25.0  # of Label Studio, which counts frames; of others where neither the file nor the video says it
HIERO_PROPERTY = "hiero"  # name of what our exports add: all that a format itself has no place for
MAX_NAMES = 4  # that an error lists
FRAME_GRAIN = 1e-4  # of a frame
LEVEL_NAME = re.compile(r"level[ _]?(\d{1,3})")  # of our exports: of a tag, a track, a field


@dataclass(frozen=True)
class StepRow:
    """A step as a file has it: a span with a name, and what else the file holds about it."""

    start_s: float
    end_s: float
    label: str | None = None
    id: str | None = None
    thread: int | None = None
    background: bool = False
    score: float | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return f"{one_line(self.label or '') or 'a step'} ({self.start_s:.1f}-{self.end_s:.1f} s)"


# rows of each level, and the length of the video where the file says it
RowLevels = tuple[list[list[StepRow]], float | None]


def one_line(text: str) -> str:
    """A text on one line, without control characters, which XML does not allow."""
    return " ".join("".join(c for c in text if c.isprintable() or c.isspace()).split())


def parse_steps(text: str) -> dict[str, Any]:
    """Steps by the id of their annotation, and `duration_s`: what our exports of other formats hold.
    Empty for other files.
    """
    try:
        document = parse_json(text) if text else {}
    except ValueError:  # what another program made of it is not worth an error
        return {}
    return index_steps(document)


def index_steps(document: Any) -> dict[str, Any]:
    """`parse_steps` of JSON that was parsed already."""
    if not isinstance(document, dict) or not isinstance(document.get("steps"), dict):
        return {}
    rows: dict[str, Any] = dict(document["steps"])
    if (duration_s := parse_duration(document.get("duration_s"))) is not None:
        rows["duration_s"] = duration_s
    return rows


def parse_duration(value: Any) -> float | None:
    """The length of a video in seconds; None where it cannot be one."""
    return float(value) if isinstance(value, int | float) and 0 < value <= MAX_TIME_S else None


def restore_row(row: StepRow, original: Any) -> StepRow:
    """A row with what hiero's export says about the same step, as far as nobody has changed it."""
    if original is None:
        return row
    try:
        step = Step.from_dict(original)
    except InputError:
        return row
    row = replace(row, id=step.id[:MAX_ID_LENGTH])
    if row.label != (one_line(step.label or "") or one_line(f"step {step.id}")):
        return row  # a person named it
    return replace(row, label=step.label, thread=step.thread, background=step.background, score=step.score)


def mean_length(rows: Sequence[StepRow]) -> float:
    """Seconds that a row lasts on average."""
    return sum(row.end_s - row.start_s for row in rows) / len(rows)


def order_levels(by_name: Mapping[str, Sequence[StepRow]]) -> list[list[StepRow]]:
    """Levels from coarse to fine: by their numbers where our export named them, else those of longer steps first."""
    named = {name: list(rows) for name, rows in by_name.items() if rows}
    numbers = {name: match for name in named if (match := LEVEL_NAME.fullmatch(name))}
    if len(numbers) == len(named):
        return [named[name] for name in sorted(named, key=lambda name: int(numbers[name][1]))]
    return [named[name] for name in sorted(named, key=lambda name: -mean_length(named[name]))]


def frame_span(start_s: float, end_s: float, fps: float) -> tuple[int, int]:
    """First and last frame of a span, counted from 1; at least one frame."""
    # Times are sums of spacings: one that is a frame's own, but for rounding, is that frame's.
    first = math.floor(start_s * fps + FRAME_GRAIN) + 1
    return first, max(first, math.floor(end_s * fps + FRAME_GRAIN))


def frame_row(first: int, last: int, fps: float, label: str | None, original: Any = None) -> StepRow:
    """The row of a span of frames. A boundary that nobody moved has the exact time of the step that was exported."""
    row = StepRow((first - 1) / fps, max(first, last) / fps, label)
    try:
        step = Step.from_dict(original)
    except InputError:
        return row
    exported = original.get("frames") or frame_span(step.start_s, step.end_s, fps)
    start_s = step.start_s if first == exported[0] else row.start_s
    end_s = step.end_s if last == exported[1] else row.end_s
    return restore_row(replace(row, start_s=start_s, end_s=end_s) if start_s < end_s else row, original)


def check_fps(fps: float) -> float:
    """Frames a second, where they are. Raises ValueError."""
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"frames a second must be positive, got {fps}")
    return fps


def choose_video(by_name: dict[str, Any], video: Path) -> Any:
    """The entry of a video: by its name with or without suffix; the only one, whatever its name."""
    for name, entry in by_name.items():
        file_name = unquote(re.split(r"[/\\?=]", name)[-1])  # Label Studio has addresses
        if video.name in (name, file_name) or video.stem in (name, file_name, file_name.rsplit(".", 1)[0]):
            return entry
    if len(by_name) == 1:
        return next(iter(by_name.values()))
    names = ", ".join(list(by_name)[:MAX_NAMES])
    raise ValueError(f"holds {len(by_name)} videos but none called {video.stem}; there are {names} …")


def parse_time(value: Any) -> float:
    """Seconds out of JSON. Raises ValueError."""
    time_s = float(value)
    if isinstance(value, bool) or not math.isfinite(time_s):
        raise ValueError(f"{value} is no time in seconds")
    return time_s


def parse_label(value: Any) -> str | None:
    """A name on one line; None where it is empty."""
    return one_line(str(value)) or None if value is not None else None


def parse_id(value: Any) -> str | None:
    """An id that steps may have; None for others, which get a new one."""
    return value if isinstance(value, str) and re.fullmatch(rf"[\w.+ -]{{1,{MAX_ID_LENGTH}}}", value) else None
