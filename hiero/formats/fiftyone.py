"""FiftyOne's datasets: temporal detections, a level for each field of a sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hiero.formats.rows import (
    HIERO_PROPERTY,
    RowLevels,
    StepRow,
    check_fps,
    choose_video,
    frame_row,
    order_levels,
    parse_duration,
    parse_label,
    parse_time,
    restore_row,
)
from hiero.storage.files import parse_json


def is_fiftyone_dataset(document: Any) -> bool:
    """Whether a JSON document is samples.json of a FiftyOneDataset, or labels.json of a
    FiftyOneTemporalDetectionDataset.
    """
    return isinstance(document, dict) and (
        isinstance(document.get("samples"), list)
        or ("classes" in document and isinstance(document.get("labels"), dict))
    )


def read_fiftyone(document: dict[str, Any], video: Path, find_fps: Callable[[], float]) -> RowLevels:
    """Rows of the temporal detections of a video."""
    if "samples" not in document:
        detections = choose_video(document["labels"], video)
        classes = document.get("classes")
        rows = [
            _to_row(detection, {}, find_fps, classes if isinstance(classes, list) else [])
            for detection in detections or []
        ]
        return [rows], None
    sample = choose_video({str(sample["filepath"]): sample for sample in document["samples"]}, video)
    metadata = sample.get("metadata") or {}
    levels = {
        name: [_to_row(detection, metadata, find_fps, []) for detection in value["detections"]]
        for name, value in sample.items()
        if isinstance(value, dict) and value.get("_cls") == "TemporalDetections"
    }
    if not any(levels.values()):
        raise ValueError("the sample has no temporal detections")
    return order_levels(levels), parse_duration(metadata.get("duration"))


def _to_row(
    detection: dict[str, Any], metadata: dict[str, Any], find_fps: Callable[[], float], classes: list[Any]
) -> StepRow:
    """The row of a temporal detection: of frames (`support`), or of seconds (`timestamps`)."""
    label = detection.get("label")
    if isinstance(label, int) and 0 <= label < len(classes):
        label = classes[label]
    text = detection.get(HIERO_PROPERTY) or (detection.get("attributes") or {}).get(HIERO_PROPERTY)
    try:
        original = parse_json(text) if isinstance(text, str) else None
    except ValueError:  # a person wrote into it
        original = None
    if "timestamps" in detection:
        start_s, end_s = map(parse_time, detection["timestamps"])
        return restore_row(StepRow(start_s, end_s, parse_label(label)), original)
    first, last = map(int, detection["support"])
    fps = metadata.get("frame_rate")
    return frame_row(first, last, check_fps(float(fps) if fps else find_fps()), parse_label(label), original)
