"""CVAT's XML ("CVAT for video 1.1", "CVAT for images 1.1"): a step is a track, or a run of frames
with the same tag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hiero.formats.edits import MAX_STEPS
from hiero.formats.rows import (
    HIERO_PROPERTY,
    RowLevels,
    StepRow,
    check_fps,
    frame_row,
    order_levels,
    parse_duration,
    parse_label,
)
from hiero.formats.xml_reader import read_xml
from hiero.storage.files import parse_json

SHAPES = ("box", "polygon", "polyline", "points", "ellipse", "cuboid", "mask", "skeleton")
NAME_ATTRIBUTE = "name"  # of a track: the name of the step, where its label is a level


@dataclass
class CvatTrack:
    """A track, or the frames that have one tag."""

    label: str
    visible: set[int] = field(default_factory=set)
    outside: set[int] = field(default_factory=set)
    attributes: dict[str, str] = field(default_factory=dict)

    def spans(self, num_frames: int | None) -> list[tuple[int, int]]:
        """First and last frame, counted from 1, of each stretch in which a track is seen."""
        out: list[tuple[int, int]] = []
        start: int | None = None
        for frame in sorted(self.visible | self.outside):
            if frame in self.visible and start is None:
                start = frame
            elif frame in self.outside and frame not in self.visible and start is not None:
                out.append((start + 1, frame))
                start = None
        if start is not None:
            out.append((start + 1, max(max(self.visible) + 1, num_frames or 0)))
        return out

    def runs(self) -> list[tuple[int, int]]:
        """First and last frame, counted from 1, of each run of frames that follow each other: of tags."""
        frames = sorted(self.visible)
        starts = [frame for frame in frames if frame - 1 not in self.visible]
        ends = [frame for frame in frames if frame + 1 not in self.visible]
        return [(first + 1, last + 1) for first, last in zip(starts, ends, strict=True)]


class CvatReader:
    """What an XML file of CVAT says."""

    def __init__(self, data: bytes) -> None:
        self.tracks: list[CvatTrack] = []
        self.tags: dict[str, CvatTrack] = {}
        self.num_frames: int | None = None
        self.hiero = ""
        self._path: list[str] = []
        self._frame = 0
        self._track: CvatTrack | None = None
        self._attribute = ""
        self._is_annotations = False
        read_xml(data, self._start, self._end)
        if not self._is_annotations:
            raise ValueError("not a file of CVAT: it has no <annotations>")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if len(self._path) == 1:
            self._is_annotations = name == "annotations"
        elif name == "track":
            self._track = CvatTrack(attributes["label"])
            self.tracks.append(self._track)
            if len(self.tracks) > MAX_STEPS:
                raise ValueError(f"more than {MAX_STEPS} tracks")
        elif name == "image":
            self._frame = int(attributes["id"])
        elif name == "tag" and self._path[-2] == "image":
            label = attributes["label"]
            self.tags.setdefault(label, CvatTrack(label)).visible.add(self._frame)
        elif name in SHAPES and self._path[-2] == "track" and self._track is not None:
            frames = self._track.outside if attributes.get("outside") == "1" else self._track.visible
            frames.add(int(attributes["frame"]))
        elif name == "attribute":
            self._attribute = attributes.get("name", "")

    def _end(self, name: str, text: str) -> None:
        self._path.pop()
        if name == "track":
            self._track = None
        elif name == "attribute" and self._track is not None:
            self._track.attributes.setdefault(self._attribute, text)
        elif name == "stop_frame" and "meta" in self._path and text.strip().isdigit():
            self.num_frames = int(text) + 1
        elif name == HIERO_PROPERTY and self._path[-1:] == ["meta"]:
            self.hiero = text


def read_cvat(data: bytes, find_fps: Callable[[], float]) -> RowLevels:
    """Rows of an XML file of CVAT: a level for each label `level 0`, `level 1` …; of others all tracks
    and tags are one level.
    """
    document = CvatReader(data)
    header = _parse_object(document.hiero)
    fps = check_fps(float(header["fps"]) if isinstance(header.get("fps"), int | float) else find_fps())
    levels: dict[str, list[StepRow]] = {}
    for track in document.tracks:
        name = track.attributes.get(NAME_ATTRIBUTE)
        level = levels.setdefault(track.label if name is not None else "", [])
        spans = track.spans(document.num_frames)
        original = _parse_object(track.attributes.get(HIERO_PROPERTY)) if len(spans) == 1 else None
        for first, last in spans:
            level.append(frame_row(first, last, fps, parse_label(track.label if name is None else name), original))
    for tag in document.tags.values():
        levels.setdefault("", []).extend(
            frame_row(first, last, fps, parse_label(tag.label)) for first, last in tag.runs()
        )
    if not any(levels.values()):
        raise ValueError("has neither tracks nor tags of frames; steps are one of these")
    return order_levels(levels), parse_duration(header.get("duration_s"))


def _parse_object(text: str | None) -> dict[str, Any]:
    """The JSON that our export has put into the header or an attribute; empty where there is none."""
    try:
        document = parse_json(text) if text else {}
    except ValueError:  # a person wrote into it
        return {}
    return document if isinstance(document, dict) else {}
