"""What readers and writers of formats share: steps as rows of a file, their names and times, and safe XML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.parsers import expat

from hiero.errors import InputError
from hiero.storage.files import parse_json
from hiero.types import MAX_ID_LENGTH, MAX_TIME_S, Step

FRAME_RATE = 25.0  # of Label Studio and edit lists, which count frames; of others where nothing says it
FRAME_SIZE = (1280, 720)  # where the video cannot be opened
FRAME_GRAIN = 1e-4  # of a frame
HIERO_PROPERTY = "hiero"  # name of what our exports add: all that a format itself has no place for
LEVEL_NAME = re.compile(r"level[ _]?(\d{1,3})")  # of our exports: of a tag, a track, a field
MAX_NAMES = 4  # that an error lists
MAX_XML_DEPTH = 64  # of elements in each other; ELAN's files have six


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


# Text


def one_line(text: str) -> str:
    """A text on one line, without control characters, which XML does not allow."""
    return " ".join("".join(c for c in text if c.isprintable() or c.isspace()).split())


def title(step: Step) -> str:
    """The label on one line, or the id of a step without one."""
    return one_line(step.label or "") or one_line(f"step {step.id}")


def plain_id(step: Step) -> str:
    """An id without signs that mean something in a format."""
    return re.sub(r"[^\w.+ -]+", "_", step.id)


def to_json(document: object) -> str:
    """JSON without lone surrogates, which names of files may hold and other tools cannot read."""
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n"


def step_json(step: Step) -> str:
    """A step without its relatives, which follow from the times."""
    document = {key: value for key, value in step.to_dict().items() if key not in ("parent", "children")}
    return json.dumps(document, ensure_ascii=False)


def parse_label(value: Any) -> str | None:
    """A name on one line; None where it is empty."""
    return one_line(str(value)) or None if value is not None else None


def parse_named(label: str | None, id: Any) -> tuple[str | None, str | None]:
    """Label and id of a row: no label where our export named a step without one, no id that steps cannot have."""
    if isinstance(id, str) and label == one_line(f"step {id}"):
        label = None
    return label, parse_id(id)


def parse_id(value: Any) -> str | None:
    """An id that steps may have; None for others, which get a new one."""
    return value if isinstance(value, str) and re.fullmatch(rf"[\w.+ -]{{1,{MAX_ID_LENGTH}}}", value) else None


def parse_object(text: Any) -> dict[str, Any]:
    """The JSON object that our export has put into a text; empty where there is none, or another program changed it."""
    try:
        document = parse_json(text) if isinstance(text, str) and text else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


# Times


def to_ms(time_s: float) -> int:
    return round(1000 * time_s)


def parse_time(value: Any) -> float:
    """Seconds out of JSON. Raises ValueError."""
    time_s = float(value)
    if isinstance(value, bool) or not math.isfinite(time_s):
        raise ValueError(f"{value} is no time in seconds")
    return time_s


def parse_duration(value: Any) -> float | None:
    """The length of a video in seconds; None where it cannot be one."""
    return float(value) if isinstance(value, int | float) and 0 < value <= MAX_TIME_S else None


@dataclass(frozen=True)
class FrameGrid:
    """How the frames of a video are counted."""

    fps: float = FRAME_RATE
    width: int = FRAME_SIZE[0]
    height: int = FRAME_SIZE[1]
    is_known: bool = False


def find_frame_grid(path: Path) -> FrameGrid:
    """The frames of a video as the file says; 25 a second where it is not on this disk, or does not say."""
    from hiero.decoding.decode import probe

    try:
        info = probe(path) if path.is_file() else None
    except (InputError, OSError):  # features, or a damaged video
        info = None
    if info is None or not info.fps:
        return FrameGrid()
    return FrameGrid(info.fps, info.width, info.height, is_known=True)


def frame_span(start_s: float, end_s: float, fps: float) -> tuple[int, int]:
    """First and last frame of a span, counted from 1; at least one frame."""
    # Times are sums of spacings: one that is a frame's own, but for rounding, is that frame's.
    first = math.floor(start_s * fps + FRAME_GRAIN) + 1
    return first, max(first, math.floor(end_s * fps + FRAME_GRAIN))


def frame_row(first: int, last: int, fps: float, label: str | None, original: Any = None) -> StepRow:
    """The row of a span of frames. A boundary that nobody moved has the exact time of the step that was exported."""
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"frames a second must be positive, got {fps}")
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
    """A row with what hiero's export says about the same step, as far as nobody has changed it."""
    try:
        step = Step.from_dict(original)
    except InputError:  # not an export of hiero, or another program changed it
        return row
    row = replace(row, id=step.id)
    if row.label != title(step):
        return row  # a person named it
    return replace(row, label=step.label, thread=step.thread, background=step.background, score=step.score)


def index_steps(document: Any) -> tuple[dict[str, Any], float | None]:
    """Steps by the id of their annotation, and the length of the video: what our exports add to other formats."""
    if not isinstance(document, dict) or not isinstance(document.get("steps"), dict):
        return {}, None
    return document["steps"], parse_duration(document.get("duration_s"))


def mean_length(rows: Sequence[StepRow]) -> float:
    """Seconds that a row lasts on average."""
    return sum(row.end_s - row.start_s for row in rows) / len(rows)


def order_levels(by_name: Mapping[str, Sequence[StepRow]]) -> list[list[StepRow]]:
    """Levels from coarse to fine: by their numbers where our export named them, else those of longer steps first."""
    named = {name: list(rows) for name, rows in by_name.items() if rows}
    numbers = {name: match for name in named if (match := LEVEL_NAME.fullmatch(name))}
    if len(numbers) == len(named):
        return [named[name] for name in sorted(named, key=lambda name: int(numbers[name][1]))]
    return sorted(named.values(), key=mean_length, reverse=True)


def choose_video(by_name: Mapping[str, Any], video: Path) -> Any:
    """The entry of a video: by its name with or without suffix; the only one, whatever its name."""
    for name, entry in by_name.items():
        file_name = unquote(re.split(r"[/\\?=]", name)[-1])  # Label Studio has addresses
        if video.name in (name, file_name) or video.stem in (name, file_name, file_name.rsplit(".", 1)[0]):
            return entry
    if len(by_name) == 1:
        return next(iter(by_name.values()))
    names = ", ".join(list(by_name)[:MAX_NAMES])
    raise ValueError(f"holds {len(by_name)} videos but none called {video.stem}; there are {names} …")


# XML


def read_xml(data: bytes, start: Callable[[str, dict[str, str]], None], end: Callable[[str, str], None]) -> None:
    """Read XML that anybody may have written, element by element: no document types, so no entities."""
    depth = 0
    text: list[str] = []

    def start_element(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_XML_DEPTH:
            raise ValueError("its elements are nested too deep")
        text.clear()
        start(name, attributes)

    def end_element(name: str) -> None:
        nonlocal depth
        depth -= 1
        end(name, "".join(text))
        text.clear()

    def refuse(*_: object) -> None:
        raise ValueError("has a document type declaration, which annotation tools never write; it is not read")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start_element
    parser.EndElementHandler = end_element
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ValueError(f"not XML ({error})") from error
