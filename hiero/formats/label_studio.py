"""Label Studio's JSON: a level for each control tag of its labelling interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hiero.formats.rows import (
    FRAME_RATE,
    HIERO_PROPERTY,
    RowLevels,
    StepRow,
    check_fps,
    choose_video,
    frame_row,
    index_steps,
    order_levels,
    parse_label,
    parse_time,
)


def read_label_studio(tasks: list[dict[str, Any]], video: Path, fps: float = FRAME_RATE) -> RowLevels:
    """A level for each control tag (`from_name`); annotations of people before predictions, the newest of several."""
    check_fps(fps)
    by_video: dict[str, dict[str, Any]] = {}
    for task in tasks:
        values = [value for key, value in task["data"].items() if isinstance(value, str) and key != HIERO_PROPERTY]
        for value in values or [""]:
            by_video[value] = task
    task = choose_video(by_video, video) if len(tasks) > 1 else tasks[0]
    annotations = [annotation for annotation in task.get("annotations") or [] if not annotation.get("was_cancelled")]
    # Exports through the API have the numbers of predictions only.
    annotations = annotations or [entry for entry in task.get("predictions") or [] if isinstance(entry, dict)]
    if not annotations:
        raise ValueError("the task has neither annotations nor predictions; has somebody submitted it?")
    newest = max(enumerate(annotations), key=lambda pair: (str(pair[1].get("updated_at") or ""), pair[0]))[1]
    hiero = index_steps(task["data"].get(HIERO_PROPERTY))
    levels: dict[str, list[StepRow]] = {}
    for result in newest["result"]:
        value = result.get("value", {})
        labels = value.get(result.get("type", "")) or value.get("labels") or value.get("timelinelabels") or []
        label = parse_label(labels[0]) if labels else None
        level = levels.setdefault(str(result.get("from_name", "")), [])
        if "ranges" in value:
            for span in value["ranges"]:
                first, last = int(span["start"]), int(span["end"])
                original = hiero.get(str(result.get("id"))) if len(value["ranges"]) == 1 else None
                level.append(frame_row(first, last, fps, label, original))
        elif "start" in value and "end" in value:  # labels of Audio and of AudioPlus, in seconds
            level.append(StepRow(parse_time(value["start"]), parse_time(value["end"]), label))
    if not any(levels.values()):
        raise ValueError("its regions have no times; steps are timelinelabels of a Video, or labels of an Audio")
    return order_levels(levels), hiero.get("duration_s")
