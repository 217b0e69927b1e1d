"""Shared by readers and writers of formats: steps as rows of a file, their names and times, and safe XML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from hiero.errors import InputError
from hiero.storage.files import ASSETS, parse_json
from hiero.types import MAX_ID_LENGTH, MAX_TIME_S, Step

FRAME_RATE = 25.0  # frames per second in Label Studio and edit lists, and the default of other formats
FRAME_SIZE = (1280, 720)  # default
FRAME_TOLERANCE = 1e-4  # rounding error of times, in frames
HIERO_PROPERTY = "hiero"  # where hiero stores what a format cannot express
LEVEL_NAME = re.compile(r"level[ _]?(\d{1,3})")  # tags, tracks and fields that hiero exports
MAX_NAMES = 4  # names in an error message


@dataclass(frozen=True)
class StepRow:
    """A step in a file: a span with a name and optional details."""

    start_s: float
    end_s: float
    label: str | None = None
    id: str | None = None
    thread: int | None = None
    background: bool = False
    probability: float | None = None

    @property
    def name(self) -> str:
        """The name and span in messages."""
        return f"{one_line(self.label or '') or 'a step'} ({self.start_s:.1f}-{self.end_s:.1f} s)"


# the rows of each level, and the length of the video or None
RowLevels = tuple[list[list[StepRow]], float | None]


# Text


def one_line(text: str) -> str:
    """A text on one line, without control characters, which XML does not allow."""
    return " ".join("".join(c for c in text if c.isprintable() or c.isspace()).split())


def title(step: Step) -> str:
    """The label on one line, or the id of a step without one."""
    return one_line(step.label or "") or one_line(f"step {step.id}")


def plain_id(step: Step) -> str:
    """An id without special characters."""
    return re.sub(r"[^\w.+ -]+", "_", step.id)


def to_json(document: object) -> str:
    """JSON without lone surrogates, which file names may contain and other tools cannot read."""
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n"


def step_json(step: Step) -> str:
    """A step without parent and children, which follow from the times."""
    document = {key: value for key, value in step.to_dict().items() if key not in ("parent", "children")}
    return json.dumps(document, ensure_ascii=False)


def parse_label(value: Any) -> str | None:
    """A name on one line, or None if it is empty."""
    return None if value is None else one_line(str(value)) or None


def parse_label_and_id(label: str | None, id: Any) -> tuple[str | None, str | None]:
    """Label and id of a row. The label that hiero writes for a step without one is removed."""
    if isinstance(id, str) and label == one_line(f"step {id}"):
        label = None
    return label, parse_id(id)


def parse_id(value: Any) -> str | None:
    """A valid id of a step, or None."""
    return value if isinstance(value, str) and re.fullmatch(rf"[\w.+ -]{{1,{MAX_ID_LENGTH}}}", value) else None


def parse_object(text: Any) -> dict[str, Any]:
    """The JSON object that hiero stored in a text, or an empty one if another program changed it."""
    try:
        document = parse_json(text) if isinstance(text, str) and text else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


# Times


def to_ms(time_s: float) -> int:
    return round(1000 * time_s)


def parse_time(value: Any) -> float:
    """Seconds from JSON. Raises ValueError."""
    time_s = float(value)
    if isinstance(value, bool) or not math.isfinite(time_s):
        raise ValueError(f"{value} is not a time in seconds")
    return time_s


def parse_duration(value: Any) -> float | None:
    """The length of a video in seconds, or None if it is invalid."""
    return float(value) if isinstance(value, int | float) and 0 < value <= MAX_TIME_S else None


@dataclass(frozen=True)
class FrameGrid:
    """Frame rate and size of a video."""

    fps: float = FRAME_RATE
    width: int = FRAME_SIZE[0]
    height: int = FRAME_SIZE[1]
    is_known: bool = False


def find_frame_grid(path: Path) -> FrameGrid:
    """The frame rate and size of a video, or defaults if it cannot be opened."""
    from hiero.decoding.decode import probe

    try:
        info = probe(path) if path.is_file() else None
    except (InputError, OSError):  # features, or a damaged video
        info = None
    if info is None or not info.fps:
        return FrameGrid()
    return FrameGrid(info.fps, info.width, info.height, is_known=True)


def frame_span(start_s: float, end_s: float, fps: float) -> tuple[int, int]:
    """First and last frame of a span, counted from 1. A span has at least one frame."""
    first = math.floor(start_s * fps + FRAME_TOLERANCE) + 1
    return first, max(first, math.floor(end_s * fps + FRAME_TOLERANCE))


def frame_row(first: int, last: int, fps: float, label: str | None, original: Any = None) -> StepRow:
    """The row of a span of frames. Boundaries that were not moved keep the exact time of the exported step."""
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"the frame rate must be positive, got {fps}")
    row = StepRow((first - 1) / fps, max(first, last) / fps, label)
    try:
        step = Step.from_dict(original)
    except InputError:
        return row
    exported = original.get("frames") or frame_span(step.start_s, step.end_s, fps)
    start_s = step.start_s if first == exported[0] else row.start_s
    end_s = step.end_s if last == exported[1] else row.end_s
    return restore_row(replace(row, start_s=start_s, end_s=end_s) if start_s < end_s else row, original)


# Rows


def restore_row(row: StepRow, original: Any) -> StepRow:
    """Restore the details of an exported step. A changed label stays, and then only the id is restored."""
    try:
        step = Step.from_dict(original)
    except InputError:  # not an export of hiero, or another program changed it
        return row
    if row.label != title(step):
        return replace(row, id=step.id)
    return StepRow(row.start_s, row.end_s, step.label, step.id, step.thread, step.background, step.probability)


def index_steps(document: Any) -> tuple[dict[str, Any], float | None]:
    """The steps by the id of their annotation, and the length of the video, that hiero stored in another format."""
    if not isinstance(document, dict) or not isinstance(document.get("steps"), dict):
        return {}, None
    return document["steps"], parse_duration(document.get("duration_s"))


def mean_length(rows: Sequence[StepRow]) -> float:
    """Mean length of the rows in seconds."""
    return sum(row.end_s - row.start_s for row in rows) / len(rows)


def order_levels(by_name: Mapping[str, Sequence[StepRow]]) -> list[list[StepRow]]:
    """Levels from coarse to fine: by the numbers in their names, or else by the mean length of their steps."""
    named = {name: list(rows) for name, rows in by_name.items() if rows}
    numbers = {name: match for name in named if (match := LEVEL_NAME.fullmatch(name))}
    if len(numbers) == len(named):
        return [named[name] for name in sorted(named, key=lambda name: int(numbers[name][1]))]
    return sorted(named.values(), key=mean_length, reverse=True)


def choose_video(by_name: Mapping[str, Any], video: Path) -> Any:
    """The entry of a video by its name with or without suffix, or the only entry."""
    for name, entry in by_name.items():
        file_name = unquote(re.split(r"[/\\?=]", name)[-1])  # Label Studio has addresses
        if video.name in (name, file_name) or video.stem in (name, file_name, file_name.rsplit(".", 1)[0]):
            return entry
    if len(by_name) == 1:
        return next(iter(by_name.values()))
    names = ", ".join(list(by_name)[:MAX_NAMES])
    raise ValueError(f"holds {len(by_name)} videos but none named {video.stem}; the names are {names} …")


# XML


class _NoDocumentType(TreeBuilder):
    """Refuses document types, and with them entities."""

    def doctype(self, *_: object) -> None:
        raise InputError("has a document type declaration, which annotation tools never write; remove it")


def read_xml(data: bytes) -> Element:
    """Parse untrusted XML. Raises ValueError."""
    parser = XMLParser(target=_NoDocumentType())
    try:
        parser.feed(data)
        return parser.close()
    except InputError:
        raise
    except ParseError as error:
        raise ValueError(f"not XML ({error})") from error
    except (LookupError, ValueError) as error:  # the declaration may name any codec of Python
        raise ValueError(f"XML in an encoding that cannot be read ({error}); save it as UTF-8") from error


def fill_template(template: str, /, **values: object) -> str:
    """The text of a template in assets/formats with its `$name` placeholders filled in."""
    return Template((ASSETS / "formats" / template).read_text(encoding="utf-8")).substitute(values)
