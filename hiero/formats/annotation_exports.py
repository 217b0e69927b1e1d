"""Steps for annotation tools: datasets of FiftyOne, tracks of CVAT, projects of VIA.

Each also holds the steps as they are (`hiero`), so that `hiero import-steps` gives back exactly
those that nobody changed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from hiero.errors import InputError
from hiero.formats.cvat import NAME_ATTRIBUTE as CVAT_NAME
from hiero.formats.exports import Exporter, title, to_json
from hiero.formats.reading import HIERO_PROPERTY, frame_span, one_line
from hiero.formats.rows import FRAME_RATE
from hiero.formats.via import LEVEL_ATTRIBUTE, NAME_ATTRIBUTE
from hiero.types import Hierarchy, Step, split_by_file

FRAME_SIZE = (1280, 720)  # of boxes in CVAT, where the video cannot be opened
FIFTYONE_VERSION = "1.0.0"  # whose documents these are; later versions bring them up to date when they load them
VIA_FORMAT = "3.1.1"
VIA_TEXT, VIA_SELECT = 1, 4  # kinds of attributes
VIA_VIDEO, VIA_LOCAL = 4, 1  # kinds of files, and of their places
VIA_SEGMENT = "FILE1_Z2_XY0"  # an attribute of a stretch of time


@dataclass(frozen=True)
class FrameGrid:
    """How the frames of a video are counted."""

    fps: float = FRAME_RATE
    width: int = FRAME_SIZE[0]
    height: int = FRAME_SIZE[1]
    is_known: bool = False


def find_frame_grid(path: str) -> FrameGrid:
    """The frames of a video as the file says; 25 a second where it is not on this disk, or does not say."""
    from hiero.decoding.decode import probe

    try:
        info = probe(path) if Path(path).is_file() else None
    except (InputError, OSError):  # features, or a damaged video
        info = None
    if info is None or not info.fps:
        return FrameGrid()
    return FrameGrid(info.fps, info.width, info.height, is_known=True)


def _step_json(step: Step) -> str:
    """A step without its relatives, which follow from the times."""
    return json.dumps(
        {key: value for key, value in step.to_dict().items() if key not in ("parent", "children")}, ensure_ascii=False
    )


# FiftyOne


def to_fiftyone(hierarchy: Hierarchy) -> dict[str, str]:
    """A FiftyOneDataset: a sample for each video file, with temporal detections of each level in a
    field (`level0`, `level1` …).
    """
    names = [f"level{i}" for i in range(len(hierarchy.levels))]
    samples: list[dict[str, Any]] = []
    for video in hierarchy.media:
        grid = find_frame_grid(video.path)
        file_name = Path(video.path).name
        num_frames = frame_span(0.0, video.duration_s, grid.fps)[1]
        metadata: dict[str, Any] = {
            "_cls": "VideoMetadata",
            "frame_rate": grid.fps,
            "total_frame_count": num_frames,
            "duration": round(video.duration_s, 3),
        }
        if grid.is_known:
            metadata |= {"frame_width": grid.width, "frame_height": grid.height}
        sample: dict[str, Any] = {
            "_id": _object_id(file_name),
            "filepath": f"data/{file_name}",
            "tags": [],
            "metadata": metadata,
            "_media_type": "video",
            "_rand": int(_digest(file_name)[:8], 16) / 16**8,
        }
        for name, level in zip(names, hierarchy.levels, strict=True):
            detections = [
                {
                    "_id": _object_id(file_name, name, step.id),
                    "_cls": "TemporalDetection",
                    "tags": [],
                    "label": title(step),
                    "confidence": step.score,
                    "support": list(frame_span(start_s, end_s, grid.fps)),
                    "step": step.id,
                    "thread": step.thread,
                    "background": step.background,
                    HIERO_PROPERTY: _step_json(step),
                }
                for step in level
                for file, start_s, end_s in split_by_file(hierarchy.media, step.start_s, step.end_s)
                if file == video
            ]
            sample[name] = {"_cls": "TemporalDetections", "detections": detections}
        samples.append(sample)
    document = {
        "version": FIFTYONE_VERSION,
        "media_type": "video",
        "group_media_types": {},
        "tags": [],
        "app_config": {},
        "classes": {},
        "default_classes": [],
        "mask_targets": {},
        "default_mask_targets": {},
        "skeletons": {},
        "info": {HIERO_PROPERTY: {"model": hierarchy.model, "duration_s": round(hierarchy.duration_s, 3)}},
        "sample_fields": _sample_fields(names),
        "frame_fields": _frame_fields(),
        "saved_views": [],
        "workspaces": [],
        "annotation_runs": {},
        "brain_methods": {},
        "evaluations": {},
        "runs": {},
    }
    return {"fiftyone/metadata.json": to_json(document), "fiftyone/samples.json": to_json({"samples": samples})}


def _sample_fields(levels: list[str]) -> list[dict[str, Any]]:
    """FiftyOne's description of the fields of a sample."""
    metadata = [
        _field("size_bytes", "Int"),
        _field("mime_type", "String"),
        _field("frame_width", "Int"),
        _field("frame_height", "Int"),
        _field("frame_rate", "Float"),
        _field("total_frame_count", "Int"),
        _field("duration", "Float"),
        _field("encoding_str", "String"),
    ]
    detection = [
        _field("id", "ObjectId", db_field="_id"),
        _field("tags", "List", subfield="String"),
        _field("label", "String"),
        _field("confidence", "Float"),
        _field("support", "FrameSupport", subfield="Int"),
        _field("step", "String"),
        _field("thread", "Int"),
        _field("background", "Boolean"),
        _field(HIERO_PROPERTY, "String"),
    ]
    detections = _field("detections", "List", "fiftyone.core.labels.TemporalDetection", "EmbeddedDocument", detection)
    return [
        _field("id", "ObjectId", db_field="_id"),
        _field("filepath", "String"),
        _field("tags", "List", subfield="String"),
        _field("metadata", "EmbeddedDocument", "fiftyone.core.metadata.VideoMetadata", fields=metadata),
        _field("_media_type", "String"),
        _field("_rand", "Float"),
        _field("_dataset_id", "ObjectId"),
        *(
            _field(name, "EmbeddedDocument", "fiftyone.core.labels.TemporalDetections", fields=[detections])
            for name in levels
        ),
    ]


def _frame_fields() -> list[dict[str, Any]]:
    return [
        _field("id", "ObjectId", db_field="_id"),
        _field("frame_number", "FrameNumber"),
        _field("_sample_id", "ObjectId"),
        _field("_dataset_id", "ObjectId"),
    ]


def _field(
    name: str,
    kind: str,
    embedded: str | None = None,
    subfield: str | None = None,
    fields: list[Any] | None = None,
    db_field: str = "",
) -> dict[str, Any]:
    return {
        "name": name,
        "ftype": f"fiftyone.core.fields.{kind}Field",
        "embedded_doc_type": embedded,
        "subfield": subfield and f"fiftyone.core.fields.{subfield}Field",
        "fields": fields or [],
        "db_field": db_field or name,
        "description": None,
        "info": None,
    }


def _digest(*names: str) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()


def _object_id(*names: str) -> dict[str, str]:
    """An id of MongoDB; the same for the same step, so that an export is the same file each time."""
    return {"$oid": _digest(*names)[:24]}


# CVAT


def to_cvat(hierarchy: Hierarchy) -> str:
    """CVAT for video 1.1: a track for each step, a box around the frame from its first to its last frame.

    CVAT's formats for video know no stretches of time. Its labels are the levels, which a task can
    be made with before there are steps; the name of a step is an attribute of its track.
    """
    grid = find_frame_grid(hierarchy.media[0].path)
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
        *(line for label in cvat_labels(len(hierarchy.levels)) for line in _label_lines(label)),
        "      </labels>",
        f"      <original_size><width>{grid.width}</width><height>{grid.height}</height></original_size>",
        "    </task>",
        f"    <{HIERO_PROPERTY}>{escape(header)}</{HIERO_PROPERTY}>",
        "  </meta>",
    ]
    box = f'xtl="0.00" ytl="0.00" xbr="{grid.width:.2f}" ybr="{grid.height:.2f}" z_order="0"'
    number = 0
    for level_index, level in enumerate(hierarchy.levels):
        for step in level:
            first, last = frame_span(step.start_s, step.end_s, grid.fps)
            attributes = [
                f"      <attribute name={quoteattr(name)}>{escape(_xml_text(value))}</attribute>"
                for name, value in ((CVAT_NAME, title(step)), (HIERO_PROPERTY, _step_json(step)))
            ]
            lines.append(f'  <track id="{number}" label="level {level_index}" source="file">')
            number += 1
            # The last box says from which frame on it is no longer seen; there is none at the end of the video.
            for frame, outside in ((first - 1, 0), (last, 1)):
                if not outside or frame < num_frames:
                    lines.append(f'    <box frame="{frame}" keyframe="1" outside="{outside}" occluded="0" {box}>')
                    lines += attributes
                    lines.append("    </box>")
            lines.append("  </track>")
    return "\n".join([*lines, "</annotations>"]) + "\n"


def cvat_labels(num_levels: int) -> list[dict[str, Any]]:
    """Labels that a task of CVAT needs, as its label constructor takes them ("Raw")."""
    attributes = [
        {"name": name, "input_type": "text", "mutable": False, "default_value": "", "values": [""]}
        for name in (CVAT_NAME, HIERO_PROPERTY)
    ]
    return [{"name": f"level {i}", "type": "rectangle", "attributes": attributes} for i in range(num_levels)]


def _label_lines(label: dict[str, Any]) -> list[str]:
    lines = [
        "        <label>",
        f"          <name>{label['name']}</name>",
        f"          <type>{label['type']}</type>",
        "          <attributes>",
    ]
    for attribute in label["attributes"]:
        lines.append(
            f"            <attribute><name>{attribute['name']}</name><mutable>{attribute['mutable']}</mutable>"
            f"<input_type>{attribute['input_type']}</input_type><default_value></default_value><values></values></attribute>"
        )
    return [*lines, "          </attributes>", "        </label>"]


def _xml_text(text: str) -> str:
    """A text without characters that XML does not allow: JSON writes them as \\u escapes, titles have none."""
    return "".join(c if c.isprintable() or c == " " else json.dumps(c)[1:-1] for c in text)


# VIA


def to_via(hierarchy: Hierarchy) -> str:
    """A project of the VGG Image Annotator 3: temporal segments; the rows of its timeline are the levels."""
    name = Path(hierarchy.video).name
    levels = {str(i): f"level {i}" for i in range(len(hierarchy.levels))}
    metadata: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for level_index, level in enumerate(hierarchy.levels):
        for step in level:
            id = f"1_{_digest(str(level_index), step.id)[:8]}"
            id = id if id not in metadata else f"{id}{len(metadata)}"
            times_s = [round(step.start_s, 3), round(step.end_s, 3)]
            metadata[id] = {
                "vid": "1",
                "flg": 0,
                "z": times_s,
                "xy": [],
                "av": {"1": str(level_index), "2": title(step)},
            }
            steps[id] = step.to_dict()
    document = {
        "project": {
            "pid": "__VIA_PROJECT_ID__",
            "rev": "__VIA_PROJECT_REV_ID__",
            "rev_timestamp": "__VIA_PROJECT_REV_TIMESTAMP__",
            "pname": Path(name).stem,
            "creator": "hiero",
            "created": 0,
            "data_format_version": VIA_FORMAT,
            "vid_list": ["1"],
        },
        "config": {
            "file": {"loc_prefix": {"1": "", "2": "", "3": "", "4": ""}},
            "ui": {
                "file_content_align": "center",
                "file_metadata_editor_visible": True,
                "spatial_metadata_editor_visible": False,
                "spatial_region_label_attribute_id": "",
                "gtimeline_visible_row_count": str(max(4, len(levels))),
            },
        },
        "attribute": {
            "1": {
                "aname": LEVEL_ATTRIBUTE,
                "anchor_id": VIA_SEGMENT,
                "type": VIA_SELECT,
                "desc": "0 is the coarsest",
                "options": levels,
                "default_option_id": "",
            },
            "2": {
                "aname": NAME_ATTRIBUTE,
                "anchor_id": VIA_SEGMENT,
                "type": VIA_TEXT,
                "desc": "name of the step",
                "options": {},
                "default_option_id": "",
            },
        },
        "file": {"1": {"fid": "1", "fname": name, "type": VIA_VIDEO, "loc": VIA_LOCAL, "src": ""}},
        "metadata": metadata,
        "view": {"1": {"fid_list": ["1"]}},
        HIERO_PROPERTY: {"model": hierarchy.model, "duration_s": round(hierarchy.duration_s, 3), "steps": steps},
    }
    return to_json(document)


FIFTYONE = Exporter("fiftyone/samples.json", to_fiftyone, media_folder="fiftyone/data", opens_video=True)
CVAT = Exporter("cvat.xml", to_cvat, opens_video=True)
VIA = Exporter("via.json", to_via)
