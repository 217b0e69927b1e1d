"""ActivityNet's JSON, and annotations as `hiero eval own` takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hiero.formats.rows import RowLevels, StepRow, choose_video, one_line, parse_id, parse_label, parse_time


def read_annotations(document: dict[str, Any], video: Path) -> RowLevels | None:
    """Rows of ActivityNet's JSON, or of annotations by video; None where it is neither."""
    for key in ("database", "results"):
        if isinstance(document.get(key), dict) and document[key]:
            entry = choose_video(document[key], video)
            if isinstance(entry, dict):
                return [[_activitynet_row(row) for row in entry["annotations"]]], entry.get("duration")
            return [[_activitynet_row(row) for row in entry]], None
    if document and all(
        isinstance(entry, dict) and ("steps" in entry or "timestamps" in entry) for entry in document.values()
    ):
        entry = choose_video(document, video)
        if "steps" in entry:
            steps = entry["steps"]
            return [
                [
                    StepRow(parse_time(row["start_s"]), parse_time(row["end_s"]), parse_label(row["text"]))
                    for row in steps
                ]
            ], (entry.get("duration_s"))
        spans = zip(entry["timestamps"], entry["sentences"], strict=True)
        return [[StepRow(parse_time(a), parse_time(b), parse_label(text)) for (a, b), text in spans]], entry.get(
            "duration"
        )
    return None


def _activitynet_row(row: dict[str, Any]) -> StepRow:
    start_s, end_s = row["segment"]
    label = parse_label(row.get("label"))
    id = row.get("id")
    if isinstance(id, str) and label == one_line(f"step {id}"):
        label = None  # as our export names a step without a name
    return StepRow(parse_time(start_s), parse_time(end_s), label, id=parse_id(id))
