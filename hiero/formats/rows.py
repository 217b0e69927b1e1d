"""Shared by readers and writers of formats: steps as rows of a file, their names and times, and safe XML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from hiero.errors import InputError
from hiero.formatting import level_names, one_line
from hiero.storage.files import parse_json
from hiero.types import MAX_ID_LENGTH, MAX_TIME_S, Step

FRAME_RATE = 25.0  # frames per second in Label Studio and edit lists, and the default of other formats
FRAME_TOLERANCE = 1e-4  # rounding error of times, in frames
HIERO_PROPERTY = "hiero"  # where hiero stores what a format cannot express
DEFAULT_TITLE = re.compile(r"(Step|Part) \d+")  # of a step without a label
# control characters that JSON does not escape
RAW_CONTROLS = re.compile(r"[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
NO_THREAD = -1  # of a step that gets a thread later
MAX_NAMES = 4  # names in an error message

# the steps of each level without parents and children, and the length of the video or None
RowLevels = tuple[list[list[Step]], float | None]


def imported_step(
    start_s: float, end_s: float, name: Any = None, original: Any = None, *, id: Any = None, background: bool = False
) -> Step:
    """A step from a file of another tool. Later it gets a thread, and an id if it has none.

    `original` is the document of the step that hiero exported, whose details are restored.
    """
    label = None if name is None else one_line(str(name)) or None
    if isinstance(original, dict) and label is not None and label == original.get("title"):  # how people read its label
        label = one_line(str(original.get("label") or "")) or None
    row = Step(parse_id(id), start_s, end_s, NO_THREAD, background=background, label=label, origin="imported")
    step = _parse_step(original)
    return row if step is None else _restore_step(row, step)


def describe_step(step: Step) -> str:
    """The name and span in messages."""
    return f"{one_line(step.label or '') or 'a step'} ({step.start_s:.1f}-{step.end_s:.1f} s)"


# Text


def plain_id(step: Step) -> str:
    """An id without special characters."""
    return re.sub(r"[^\w.+ -]+", "_", step.id)


def to_json(document: object) -> str:
    """JSON without control characters and lone surrogates, which file names may contain."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    text = RAW_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text.encode("utf-8", "replace").decode() + "\n"


def parse_id(value: Any) -> str:
    """The id of a step, or an empty text if it is not valid."""
    return value if isinstance(value, str) and re.fullmatch(rf"[\w.+ -]{{1,{MAX_ID_LENGTH}}}", value) else ""


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


def frame_span(start_s: float, end_s: float, fps: float) -> tuple[int, int]:
    """First and last frame of a span, counted from 1. A span has at least one frame."""
    first = math.floor(start_s * fps + FRAME_TOLERANCE) + 1
    return first, max(first, math.floor(end_s * fps + FRAME_TOLERANCE))


def frame_step(first: int, last: int, fps: float, name: Any, original: Any = None) -> Step:
    """The step of a span of frames. Boundaries that were not moved keep the exact time of the exported step."""
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"the frame rate must be positive, got {fps}")
    start_s, end_s = (first - 1) / fps, max(first, last) / fps
    if step := _parse_step(original):
        exported = original.get("frames") or frame_span(step.start_s, step.end_s, fps)
        exact_s = step.start_s if first == exported[0] else start_s, step.end_s if last == exported[1] else end_s
        if exact_s[0] < exact_s[1]:
            start_s, end_s = exact_s
    return imported_step(start_s, end_s, name, original)


# Rows


def _parse_step(document: Any) -> Step | None:
    """An exported step, or None if hiero did not write the document, or another program changed it."""
    try:
        return None if document is None else Step.from_dict(document)
    except InputError:
        return None


def _restore_step(row: Step, step: Step) -> Step:
    """Restore the details of an exported step. A changed label stays, and then only the id is restored.

    A step that was renamed or moved in the other tool counts as imported.
    """
    label = one_line(step.label or "")
    is_unnamed = not label and (row.label is None or DEFAULT_TITLE.fullmatch(row.label))
    if row.label not in (label, one_line(step.shown_label or "")) and not is_unnamed:
        return replace(row, id=step.id)
    is_moved = (to_ms(row.start_s), to_ms(row.end_s)) != (to_ms(step.start_s), to_ms(step.end_s))
    origin = "imported" if is_moved else step.origin
    return replace(step, start_s=row.start_s, end_s=row.end_s, parent=None, children=(), origin=origin)


def index_steps(document: Any) -> tuple[dict[str, Any], float | None]:
    """The steps by the id of their annotation, and the length of the video, that hiero stored in another format."""
    if not isinstance(document, dict) or not isinstance(document.get("steps"), dict):
        return {}, None
    return document["steps"], parse_duration(document.get("duration_s"))


def mean_length(rows: Sequence[Step]) -> float:
    """Mean length of the rows in seconds."""
    return sum(row.end_s - row.start_s for row in rows) / len(rows)


def order_levels(by_name: Mapping[str, Sequence[Step]]) -> list[list[Step]]:
    """Levels from coarse to fine: by their names, or else by the mean length of their steps."""
    named = {name: list(rows) for name, rows in by_name.items() if rows}
    names = level_names(len(named))
    if set(names) == set(named):
        return [named[name] for name in names]
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
