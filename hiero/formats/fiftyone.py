"""FiftyOne datasets: temporal detections, with a level for each field of a sample (`coarse`, `medium`, `fine`)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiero.errors import InputError
from hiero.formats import rows
from hiero.formats.registry import Exporter, ImportSettings, StepReader
from hiero.formats.rows import HIERO_PROPERTY, RowLevels
from hiero.storage.files import ASSETS, read_json
from hiero.types import Hierarchy, Step, VideoFile, split_by_file

if TYPE_CHECKING:
    from hiero.media.decode import VideoInfo

# an empty dataset of FiftyOne 1.0, which later versions update when they load it
TEMPLATE = ASSETS / "formats" / "fiftyone.json"


def is_fiftyone_dataset(document: Any) -> bool:
    """Whether a document is samples.json of a FiftyOneDataset or labels.json of a FiftyOneTemporalDetectionDataset."""
    if not isinstance(document, dict):
        return False
    has_labels = "classes" in document and isinstance(document.get("labels"), dict)
    return has_labels or isinstance(document.get("samples"), list)


def read_fiftyone(document: dict[str, Any], settings: ImportSettings) -> RowLevels:
    """Rows of the temporal detections of a video."""
    if "samples" not in document:
        detections = rows.choose_video(document["labels"], settings.video)
        classes = document["classes"] if isinstance(document["classes"], list) else []
        return [[_to_step(detection, settings, classes=classes) for detection in detections or []]], None
    sample = rows.choose_video({str(sample["filepath"]): sample for sample in document["samples"]}, settings.video)
    metadata = sample.get("metadata") or {}
    fps = metadata.get("frame_rate")
    levels = {
        name: [_to_step(detection, settings, fps) for detection in value["detections"]]
        for name, value in sample.items()
        if isinstance(value, dict) and value.get("_cls") == "TemporalDetections"
    }
    if not any(levels.values()):
        raise ValueError("the sample has no temporal detections")
    return rows.order_levels(levels), rows.parse_duration(metadata.get("duration"))


def _to_step(
    detection: dict[str, Any], settings: ImportSettings, fps: float | None = None, classes: list[Any] | None = None
) -> Step:
    """The step of a temporal detection in frames (`support`) or in seconds (`timestamps`)."""
    label = detection.get("label")
    if classes and isinstance(label, int) and 0 <= label < len(classes):
        label = classes[label]
    attributes = detection.get("attributes") or {}
    original = rows.parse_object(detection.get(HIERO_PROPERTY) or attributes.get(HIERO_PROPERTY))
    if "timestamps" in detection:
        start_s, end_s = map(rows.parse_time, detection["timestamps"])
        return rows.imported_step(start_s, end_s, label, original)
    first, last = map(int, detection["support"])
    fps = fps or settings.fps or getattr(_probe(settings.video), "fps", None) or rows.FRAME_RATE
    return rows.frame_step(first, last, float(fps), label, original)


def _probe(path: Path) -> VideoInfo | None:
    """The frame rate and size of a video, or None if it cannot be opened."""
    from hiero.media.decode import probe

    try:
        info = probe(path) if path.is_file() else None
    except (InputError, OSError):  # features, or a damaged video
        return None
    return info if info is not None and info.fps else None


def to_fiftyone(hierarchy: Hierarchy) -> dict[str, str]:
    """A FiftyOneDataset with a sample for each video file."""
    document = read_json(TEMPLATE)
    document["info"] = {HIERO_PROPERTY: {"model": hierarchy.model, "duration_s": round(hierarchy.duration_s, 3)}}
    level_field = document["sample_fields"].pop()
    for name in hierarchy.level_names:
        document["sample_fields"].append({**level_field, "name": name, "db_field": name})
    samples = [_sample(hierarchy, video) for video in hierarchy.media]
    files = {"metadata": document, "samples": {"samples": samples}}
    return {f"fiftyone/{name}.json": rows.to_json(content) for name, content in files.items()}


def _sample(hierarchy: Hierarchy, video: VideoFile) -> dict[str, Any]:
    info, file_name = _probe(Path(video.path)), Path(video.path).name
    fps = (info and info.fps) or rows.FRAME_RATE
    metadata: dict[str, Any] = {
        "_cls": "VideoMetadata",
        "frame_rate": fps,
        "total_frame_count": rows.frame_span(0.0, video.duration_s, fps)[1],
        "duration": round(video.duration_s, 3),
    }
    if info is not None:
        metadata |= {"frame_width": info.width, "frame_height": info.height}
    sample: dict[str, Any] = {
        "_id": _object_id(file_name),
        "filepath": f"data/{file_name}",
        "tags": [],
        "metadata": metadata,
        "_media_type": "video",
        "_rand": int(_digest(file_name)[:8], 16) / 16**8,
    }
    for name, level in zip(hierarchy.level_names, hierarchy.levels, strict=True):
        detections = [
            _detection(replace(step, start_s=start_s, end_s=end_s), hierarchy.titles[step.id], file_name, name, fps)
            for step in level
            for file, start_s, end_s in split_by_file(hierarchy.media, step.start_s, step.end_s)
            if file == video
        ]
        sample[name] = {"_cls": "TemporalDetections", "detections": detections}
    return sample


def _detection(step: Step, title: str, file_name: str, level: str, fps: float) -> dict[str, Any]:
    """The detection of a step, or of its part in one of several files, in the time of the file."""
    return {
        "_id": _object_id(file_name, level, step.id),
        "_cls": "TemporalDetection",
        "tags": [],
        "label": title,
        "confidence": step.probability,
        "support": list(rows.frame_span(step.start_s, step.end_s, fps)),
        "step": step.id,
        "thread": step.thread,
        "background": step.background,
        "origin": step.origin,
        HIERO_PROPERTY: json.dumps(replace(step, parent=None, children=()).to_dict(), ensure_ascii=False),
    }


def _digest(*names: str) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()


def _object_id(*names: str) -> dict[str, str]:
    """A MongoDB id that only depends on the step, so that exports are reproducible."""
    return {"$oid": _digest(*names)[:24]}


FIFTYONE = Exporter(
    "fiftyone/samples.json",
    to_fiftyone,
    media_folder="fiftyone/data",
    opens_video=True,
    reader=StepReader((".json",), read_fiftyone, is_fiftyone_dataset),
)
