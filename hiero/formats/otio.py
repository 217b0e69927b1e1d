"""OpenTimelineIO's JSON and edit decision lists (CMX 3600), for video editors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hiero.formats.registry import Exporter
from hiero.formats.rows import FRAME_RATE, to_json, to_ms
from hiero.formatting import one_line
from hiero.storage.files import ASSETS, read_json
from hiero.types import Hierarchy, Step, VideoFile, split_by_file

TEMPLATE = ASSETS / "formats" / "otio.json"  # the objects of a timeline, without values
DETAILS = ("id", "thread", "probability", "parent", "origin")  # of a step, in the metadata of its clips
EDL_TITLE_LENGTH = 70  # characters


def to_otio(hierarchy: Hierarchy) -> str:
    """OpenTimelineIO: a track for each level, and a clip for each part of a step in a file."""
    objects = read_json(TEMPLATE)
    timeline = objects["timeline"]
    timeline["name"] = Path(hierarchy.video).stem
    timeline["metadata"] = {"hiero": {"model": hierarchy.model}}
    for name, level in zip(hierarchy.level_names, hierarchy.levels, strict=True):
        clips = []
        for step, file, start_s, end_s in _clips(hierarchy, level):
            media = {"target_url": Path(file.path).name, "available_range": _time_range(0, file.duration_s)}
            details = {name: value for name, value in step.to_dict().items() if name in DETAILS}
            values = {
                "name": hierarchy.titles[step.id],
                "metadata": {"hiero": details},
                "source_range": _time_range(start_s, end_s),
                "media_references": {"DEFAULT_MEDIA": {**objects["media"], **media}},
            }
            clips.append({**objects["clip"], **values})
        timeline["tracks"]["children"].append({**objects["track"], "name": name, "children": clips})
    return to_json(timeline)


def _clips(hierarchy: Hierarchy, level: tuple[Step, ...]) -> Iterator[tuple[Step, VideoFile, float, float]]:
    """The parts of the steps of a level in each file, in the file's own time."""
    for step in level:
        for file, start_s, end_s in split_by_file(hierarchy.media, step.start_s, step.end_s):
            yield step, file, start_s, end_s


def _time_range(start_s: float, end_s: float) -> dict[str, Any]:
    start_ms, end_ms = to_ms(start_s), to_ms(end_s)
    return {
        "OTIO_SCHEMA": "TimeRange.1",
        "start_time": _rational_time(start_ms),
        "duration": _rational_time(end_ms - start_ms),
    }


def _rational_time(time_ms: int) -> dict[str, Any]:
    return {"OTIO_SCHEMA": "RationalTime.1", "rate": 1000.0, "value": float(time_ms)}


def to_edl(hierarchy: Hierarchy) -> str:
    """CMX 3600 at 25 frames per second: an event for each step of the finest level, with its label as a comment."""
    lines = [f"TITLE: {_to_ascii(Path(hierarchy.video).stem)[:EDL_TITLE_LENGTH]}", "FCM: NON-DROP FRAME", ""]
    for event, (step, file, start_s, end_s) in enumerate(_clips(hierarchy, hierarchy.levels[-1]), start=1):
        source = f"{_timecode(start_s)} {_timecode(end_s)}"
        record = f"{_timecode(file.start_s + start_s)} {_timecode(file.start_s + end_s)}"
        lines += [
            f"{event:03d}  AX       V     C        {source} {record}",
            f"* FROM CLIP NAME: {_to_ascii(hierarchy.titles[step.id])}",
            f"* SOURCE FILE: {_to_ascii(Path(file.path).name)}",
        ]
    return "\n".join(lines) + "\n"


def _timecode(time_s: float) -> str:
    seconds, frame = divmod(round(time_s * FRAME_RATE), int(FRAME_RATE))
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{frame:02d}"


def _to_ascii(text: str) -> str:
    """One line of ASCII, as edit lists require."""
    return one_line(text).encode("ascii", "replace").decode()


OTIO = Exporter("steps.otio", to_otio)
EDL = Exporter("steps.edl", to_edl)
