"""CVAT's XML ("CVAT for video 1.1", "CVAT for images 1.1"): a step is a track, or a run of frames with one tag."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from hiero.formats import rows
from hiero.formats.registry import Exporter, ImportSettings, StepReader
from hiero.formats.rows import HIERO_PROPERTY, RowLevels
from hiero.types import Hierarchy, Step, one_line

MAX_BYTES = 2**28  # CVAT writes a box for each frame of a step
SHAPES = ("box", "polygon", "polyline", "points", "ellipse", "cuboid", "mask", "skeleton")
NAME_ATTRIBUTE = "name"  # attribute of a track that names the step, if its label is a level


@dataclass
class Track:
    """A track, or the frames that have one tag."""

    label: str
    visible: set[int] = field(default_factory=set)
    outside: set[int] = field(default_factory=set)
    attributes: dict[str, str] = field(default_factory=dict)

    def spans(self, num_frames: int) -> list[tuple[int, int]]:
        """First and last frame, counted from 1, of each interval in which it is visible."""
        frames = sorted(self.visible | self.outside)
        changes = [
            frame
            for before, frame in zip([None, *frames], frames, strict=False)
            if (before in self.visible) != (frame in self.visible)
        ]
        if len(changes) % 2:  # it is visible until the end
            changes.append(max(frames[-1] + 1, num_frames))
        return [(start + 1, end) for start, end in zip(changes[::2], changes[1::2], strict=True)]


def _read_track(element: Element) -> Track:
    track = Track(element.attrib["label"])
    for shape in element:
        if shape.tag in SHAPES:
            frames = track.outside if shape.get("outside") == "1" else track.visible
            frames.add(int(shape.attrib["frame"]))
    for attribute in element.iter("attribute"):
        track.attributes.setdefault(attribute.get("name", ""), attribute.text or "")
    return track


def _read_tags(root: Element) -> dict[str, Track]:
    """The tagged frames by their tag. A tag ends at the first frame without it."""
    tags: dict[str, Track] = {}
    for image in root.iter("image"):
        for tag in image.findall("tag"):
            track = tags.setdefault(tag.attrib["label"], Track(tag.attrib["label"]))
            frame = int(image.attrib["id"])
            track.visible.add(frame)
            track.outside.add(frame + 1)
    return tags


def read_cvat(data: bytes, settings: ImportSettings) -> RowLevels:
    """Rows of an XML file of CVAT. Each label of a level of hiero is a level, and all others are one level."""
    root = rows.read_xml(data)
    if root.tag != "annotations":
        raise ValueError("not a file of CVAT: it has no <annotations>")
    tracks = [_read_track(track) for track in root.iter("track")]
    stops = [element.text or "" for element in root.iterfind(".//meta//stop_frame")]
    num_frames = max([int(stop) + 1 for stop in stops if stop.strip().isdigit()][-1:], default=0)
    header = rows.parse_object(root.findtext(f".//meta/{HIERO_PROPERTY}"))
    fps = float(header["fps"]) if isinstance(header.get("fps"), int | float) else settings.find_fps()
    levels: dict[str, list[Step]] = {}
    for track in [*tracks, *_read_tags(root).values()]:
        name = track.attributes.get(NAME_ATTRIBUTE)
        level, label = ("", track.label) if name is None else (track.label, name)
        spans = track.spans(num_frames)
        original = rows.parse_object(track.attributes.get(HIERO_PROPERTY)) if len(spans) == 1 else None
        levels.setdefault(level, []).extend(rows.frame_step(*span, fps, label, original) for span in spans)
    if not any(levels.values()):
        raise ValueError("has neither tracks nor tagged frames, which steps are read from")
    return rows.order_levels(levels), rows.parse_duration(header.get("duration_s"))


def to_cvat(hierarchy: Hierarchy) -> str:
    """CVAT for video 1.1, which has no intervals: each step is a track with a box around the whole frame.

    The labels are the levels, so that a task can be created before there are steps. The name of a
    step is an attribute of its track.
    """
    grid = rows.find_frame_grid(Path(hierarchy.media[0].path))
    num_frames = rows.frame_span(0.0, hierarchy.duration_s, grid.fps)[1]
    header = json.dumps({"fps": grid.fps, "duration_s": round(hierarchy.duration_s, 3)})
    levels = hierarchy.level_names
    steps = [(level, step) for level, steps in zip(levels, hierarchy.levels, strict=True) for step in steps]
    tracks = []
    for number, (level, step) in enumerate(steps):
        tracks.append(f'  <track id="{number}" label="{level}" source="file">')
        tracks += _box_lines(step, hierarchy.titles[step.id], grid, num_frames)
        tracks.append("  </track>")
    labels = [rows.fill_template("cvat_label.xml", level=level) for level in levels]
    return rows.fill_template(
        "cvat.xml",
        name=escape(one_line(Path(hierarchy.video).name)),
        num_frames=num_frames,
        last_frame=num_frames - 1,
        width=grid.width,
        height=grid.height,
        labels="".join(labels).rstrip("\n"),
        header=escape(header),
        tracks="\n".join(tracks),
    )


def _box_lines(step: Step, title: str, grid: rows.FrameGrid, num_frames: int) -> list[str]:
    """The first box of a track, and the one that ends it, unless it lasts until the end of the video."""
    first, last = rows.frame_span(step.start_s, step.end_s, grid.fps)
    attributes = [
        f'      <attribute name="{name}">{escape(_xml_text(value))}</attribute>'
        for name, value in ((NAME_ATTRIBUTE, title), (HIERO_PROPERTY, rows.step_json(step)))
    ]
    size = f'xtl="0.00" ytl="0.00" xbr="{grid.width:.2f}" ybr="{grid.height:.2f}" z_order="0"'
    lines = []
    for frame, outside in ((first - 1, 0), (last, 1)):
        if not outside or frame < num_frames:
            lines.append(f'    <box frame="{frame}" keyframe="1" outside="{outside}" occluded="0" {size}>')
            lines += [*attributes, "    </box>"]
    return lines


def _xml_text(text: str) -> str:
    """A text without characters that XML does not allow. They become \\u escapes, as in JSON."""
    return "".join(c if c.isprintable() or c == " " else json.dumps(c)[1:-1] for c in text)


CVAT = Exporter("cvat.xml", to_cvat, opens_video=True, reader=StepReader((".xml",), read_cvat, max_bytes=MAX_BYTES))
