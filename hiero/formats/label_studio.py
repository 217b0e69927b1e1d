"""Label Studio's JSON: a level for each control tag of its labelling interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hiero.formats import rows
from hiero.formats.registry import Exporter, ImportSettings, StepReader
from hiero.formats.rows import HIERO_PROPERTY, RowLevels
from hiero.types import Hierarchy, Step


def is_label_studio(document: Any) -> bool:
    """Whether a JSON document is a task or a list of tasks."""
    if isinstance(document, dict):
        return "data" in document and ("annotations" in document or "predictions" in document)
    is_list = isinstance(document, list) and bool(document)
    return is_list and all(isinstance(task, dict) and "data" in task for task in document)


def read_label_studio(document: Any, settings: ImportSettings) -> RowLevels:
    """A level for each control tag (`from_name`) of the newest annotation, or else of a prediction."""
    tasks: list[dict[str, Any]] = [document] if isinstance(document, dict) else document
    fps = rows.FRAME_RATE if settings.fps is None else settings.fps
    task = tasks[0] if len(tasks) == 1 else _choose_task(tasks, settings.video)
    steps, duration_s = rows.index_steps(task["data"].get(HIERO_PROPERTY))
    levels: dict[str, list[Step]] = {}
    for result in _newest_annotation(task)["result"]:
        value = result.get("value", {})
        labels = value.get(result.get("type", "")) or value.get("labels") or value.get("timelinelabels") or []
        label = labels[0] if labels else None
        level = levels.setdefault(str(result.get("from_name", "")), [])
        if "ranges" in value:
            original = steps.get(str(result.get("id"))) if len(value["ranges"]) == 1 else None
            for span in value["ranges"]:
                level.append(rows.frame_step(int(span["start"]), int(span["end"]), fps, label, original))
        elif "start" in value and "end" in value:  # Audio and AudioPlus have seconds
            level.append(rows.imported_step(rows.parse_time(value["start"]), rows.parse_time(value["end"]), label))
    if not any(levels.values()):
        raise ValueError("no region has times; expected timelinelabels of a Video or labels of an Audio")
    return rows.order_levels(levels), duration_s


def _choose_task(tasks: list[dict[str, Any]], video: Path) -> dict[str, Any]:
    """The task of a video."""
    by_video: dict[str, dict[str, Any]] = {}
    for task in tasks:
        values = [value for key, value in task["data"].items() if isinstance(value, str) and key != HIERO_PROPERTY]
        by_video |= dict.fromkeys(values or [""], task)
    return rows.choose_video(by_video, video)


def _newest_annotation(task: dict[str, Any]) -> dict[str, Any]:
    annotations = [annotation for annotation in task.get("annotations") or [] if not annotation.get("was_cancelled")]
    # Exports through the API contain only the ids of predictions.
    annotations = annotations or [entry for entry in task.get("predictions") or [] if isinstance(entry, dict)]
    if not annotations:
        raise ValueError("the task has neither annotations nor predictions; submit an annotation first")
    annotations.reverse()  # max returns the first of equal times, and the last annotation is the newest
    return max(annotations, key=lambda annotation: str(annotation.get("updated_at") or ""))


def to_label_studio(hierarchy: Hierarchy) -> str:
    """One task with a prediction, with a timeline label for each step."""
    return rows.to_json([to_task(hierarchy)])


def to_task(hierarchy: Hierarchy) -> dict[str, Any]:
    """A task. Its data contains every step, so that unchanged steps are read back exactly."""
    results: list[dict[str, object]] = []
    steps: dict[str, dict[str, object]] = {}
    for level_name, level in zip(hierarchy.level_names, hierarchy.levels, strict=True):
        for step in level:
            first, last = rows.frame_span(step.start_s, step.end_s, rows.FRAME_RATE)
            region_id = rows.plain_id(step).replace(".", "_")
            region_id = f"{region_id}-{len(steps)}" if region_id in steps else region_id
            steps[region_id] = {**step.to_dict(), "frames": [first, last]}
            results.append(
                {
                    "id": region_id,
                    "type": "timelinelabels",
                    "from_name": level_name,
                    "to_name": "video",
                    "value": {"ranges": [{"start": first, "end": last}], "timelinelabels": [hierarchy.titles[step.id]]},
                    "score": step.probability or 0.0,
                }
            )
    hiero = {"duration_s": round(hierarchy.duration_s, 3), "steps": steps}
    data = {"video": Path(hierarchy.video).name, HIERO_PROPERTY: hiero}
    return {"data": data, "predictions": [{"model_version": hierarchy.model, "result": results}]}


LABEL_STUDIO = Exporter(
    "labelstudio.json", to_label_studio, reader=StepReader((".json",), read_label_studio, is_label_studio)
)
