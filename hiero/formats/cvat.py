"""CVAT's XML ("CVAT for video 1.1", "CVAT for images 1.1"): a step is a track, or a run of frames with the same tag."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from hiero.formats.registry import Exporter, ImportSettings, StepReader
from hiero.formats.rows import (
    HIERO_PROPERTY,
    FrameGrid,
    RowLevels,
    StepRow,
    find_frame_grid,
    frame_row,
    frame_span,
    one_line,
    order_levels,
    parse_duration,
    parse_label,
    parse_object,
    read_xml,
    step_json,
    title,
)
from hiero.types import MAX_STEPS, Hierarchy, Step

MAX_BYTES = 2**28  # CVAT writes a box for each frame of a step
SHAPES = ("box", "polygon", "polyline", "points", "ellipse", "cuboid", "mask", "skeleton")
NAME_ATTRIBUTE = "name"  # of a track: the name of the step, where its label is a level


@dataclass
class Track:
    """A track, or the frames that have one tag."""

    label: str
    visible: set[int] = field(default_factory=set)
    outside: set[int] = field(default_factory=set)
    attributes: dict[str, str] = field(default_factory=dict)

    def spans(self, num_frames: int) -> list[tuple[int, int]]:
        """First and last frame, counted from 1, of each stretch in which a track is seen."""
        out: list[tuple[int, int]] = []
        start: int | None = None
        for frame in sorted(self.visible | self.outside):
            if frame in self.visible and start is None:
                start = frame
            elif frame not in self.visible and start is not None:
                out.append((start + 1, frame))
                start = None
        if start is not None:
            out.append((start + 1, max(max(self.visible) + 1, num_frames)))
        return out

    def runs(self) -> list[tuple[int, int]]:
        """First and last frame, counted from 1, of each run of frames that follow each other: of tags."""
        frames = sorted(self.visible)
        starts = [frame for frame in frames if frame - 1 not in self.visible]
        ends = [frame for frame in frames if frame + 1 not in self.visible]
        return [(first + 1, last + 1) for first, last in zip(starts, ends, strict=True)]


class CvatDocument:
    """What an XML file of CVAT says, read by `read_xml`."""

    def __init__(self, data: bytes) -> None:
        self.tracks: list[Track] = []
        self.tags: dict[str, Track] = {}
        self.num_frames = 0  # 0 where it is not known
        self.hiero = ""
        self._path: list[str] = []
        self._frame = 0
        self._track: Track | None = None
        self._attribute = ""
        read_xml(data, self._start, self._end)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if self._path[0] != "annotations":
            raise ValueError("not a file of CVAT: it has no <annotations>")
        if name == "track":
            self._track = Track(attributes["label"])
            self.tracks.append(self._track)
            if len(self.tracks) > MAX_STEPS:
                raise ValueError(f"more than {MAX_STEPS} tracks")
        elif name == "image":
            self._frame = int(attributes["id"])
        elif name == "tag" and self._path[-2] == "image":
            label = attributes["label"]
            self.tags.setdefault(label, Track(label)).visible.add(self._frame)
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


def read_cvat(data: bytes, settings: ImportSettings) -> RowLevels:
    """Rows of an XML file of CVAT: a level for each of our labels `level 0`, `level 1` …; all others are one level."""
    document = CvatDocument(data)
    header = parse_object(document.hiero)
    fps = float(header["fps"]) if isinstance(header.get("fps"), int | float) else settings.find_fps()
    levels: dict[str, list[StepRow]] = {}
    for track in document.tracks:
        name = track.attributes.get(NAME_ATTRIBUTE)
        level, label = ("", track.label) if name is None else (track.label, name)
        spans = track.spans(document.num_frames)
        original = parse_object(track.attributes.get(HIERO_PROPERTY)) if len(spans) == 1 else None
        rows = [frame_row(first, last, fps, parse_label(label), original) for first, last in spans]
        levels.setdefault(level, []).extend(rows)
    for tag in document.tags.values():
        rows = [frame_row(first, last, fps, parse_label(tag.label)) for first, last in tag.runs()]
        levels.setdefault("", []).extend(rows)
    if not any(levels.values()):
        raise ValueError("has neither tracks nor tags of frames; steps are one of these")
    return order_levels(levels), parse_duration(header.get("duration_s"))


def to_cvat(hierarchy: Hierarchy) -> str:
    """CVAT for video 1.1: a track for each step, a box around the frame from its first to its last frame.

    CVAT's formats for video know no stretches of time. Its labels are the levels, which a task can
    be made with before there are steps; the name of a step is an attribute of its track.
    """
    grid = find_frame_grid(Path(hierarchy.media[0].path))
    num_frames = frame_span(0.0, hierarchy.duration_s, grid.fps)[1]
    header = json.dumps({"fps": grid.fps, "duration_s": round(hierarchy.duration_s, 3)})
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        "<annotations>",
        "  <version>1.1</version>",
        "  <meta>",
        "    <task>",
        f"      <name>{escape(one_line(Path(hierarchy.video).name))}</name>",
        f"      <size>{num_frames}</size>",
        "      <mode>interpolation</mode>",
        "      <overlap>0</overlap>",
        "      <start_frame>0</start_frame>",
        f"      <stop_frame>{num_frames - 1}</stop_frame>",
        "      <labels>",
        *(line for i in range(len(hierarchy.levels)) for line in _label_lines(f"level {i}")),
        "      </labels>",
        f"      <original_size><width>{grid.width}</width><height>{grid.height}</height></original_size>",
        "    </task>",
        f"    <{HIERO_PROPERTY}>{escape(header)}</{HIERO_PROPERTY}>",
        "  </meta>",
    ]
    number = 0
    for level_index, level in enumerate(hierarchy.levels):
        for step in level:
            lines.append(f'  <track id="{number}" label="level {level_index}" source="file">')
            lines += _box_lines(step, grid, num_frames)
            lines.append("  </track>")
            number += 1
    return "\n".join([*lines, "</annotations>"]) + "\n"


def _label_lines(name: str) -> list[str]:
    attributes = [
        f"            <attribute><name>{attribute}</name><mutable>False</mutable><input_type>text</input_type>"
        "<default_value></default_value><values></values></attribute>"
        for attribute in (NAME_ATTRIBUTE, HIERO_PROPERTY)
    ]
    return [
        "        <label>",
        f"          <name>{name}</name>",
        "          <type>rectangle</type>",
        "          <attributes>",
        *attributes,
        "          </attributes>",
        "        </label>",
    ]


def _box_lines(step: Step, grid: FrameGrid, num_frames: int) -> list[str]:
    """The boxes of a track. The last one says from which frame on it is not seen; at the end of the video is none."""
    first, last = frame_span(step.start_s, step.end_s, grid.fps)
    attributes = [
        f"      <attribute name={quoteattr(name)}>{escape(_xml_text(value))}</attribute>"
        for name, value in ((NAME_ATTRIBUTE, title(step)), (HIERO_PROPERTY, step_json(step)))
    ]
    size = f'xtl="0.00" ytl="0.00" xbr="{grid.width:.2f}" ybr="{grid.height:.2f}" z_order="0"'
    lines = []
    for frame, outside in ((first - 1, 0), (last, 1)):
        if not outside or frame < num_frames:
            lines.append(f'    <box frame="{frame}" keyframe="1" outside="{outside}" occluded="0" {size}>')
            lines += [*attributes, "    </box>"]
    return lines


def _xml_text(text: str) -> str:
    """A text without characters that XML does not allow: JSON writes them as \\u escapes, titles have none."""
    return "".join(c if c.isprintable() or c == " " else json.dumps(c)[1:-1] for c in text)


CVAT = Exporter("cvat.xml", to_cvat, opens_video=True, reader=StepReader((".xml",), read_cvat, max_bytes=MAX_BYTES))
