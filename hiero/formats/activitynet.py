"""ActivityNet's JSON, and the annotations of `hiero eval own`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hiero.formats import rows
from hiero.formats.registry import Exporter, ImportSettings, StepReader
from hiero.formats.rows import HIERO_PROPERTY, RowLevels
from hiero.types import Hierarchy, Step


def is_activitynet(document: Any) -> bool:
    """Whether a JSON document is ActivityNet's or has annotations by video."""
    if not isinstance(document, dict) or not document:
        return False
    if any(_is_filled(document.get(key)) for key in ("database", "results")):
        return True
    return all(isinstance(entry, dict) and ("steps" in entry or "timestamps" in entry) for entry in document.values())


def _is_filled(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def read_activitynet(document: dict[str, Any], settings: ImportSettings) -> RowLevels:
    """Rows of ActivityNet's `database` or `results`, of `steps`, or of `timestamps` and `sentences`."""
    database = next((document[key] for key in ("database", "results") if _is_filled(document.get(key))), None)
    entry = rows.choose_video(document if database is None else database, settings.video)
    if database is not None:
        annotations = entry["annotations"] if isinstance(entry, dict) else entry
        duration_s = entry.get("duration") if isinstance(entry, dict) else None
        parts = [(row["segment"], row.get("label"), row.get(HIERO_PROPERTY), row.get("id")) for row in annotations]
        return [[_step(*part) for part in parts]], duration_s
    if "steps" in entry:
        return [[_step((row["start_s"], row["end_s"]), row["text"]) for row in entry["steps"]]], entry.get("duration_s")
    spans = zip(entry["timestamps"], entry["sentences"], strict=True)
    return [[_step(span, text) for span, text in spans]], entry.get("duration")


def _step(span: Any, text: Any, original: Any = None, id: Any = None) -> Step:
    start_s, end_s = map(rows.parse_time, span)
    return rows.imported_step(start_s, end_s, text, original, id=id)


def to_activitynet(hierarchy: Hierarchy) -> str:
    """ActivityNet's JSON with the finest level as annotations (`database`) and as a submission (`results`)."""
    name = Path(hierarchy.video).stem
    entries = [
        (step, {"segment": [round(step.start_s, 3), round(step.end_s, 3)], "label": hierarchy.titles[step.id]})
        for step in hierarchy.levels[-1]
    ]
    video = {
        "duration": round(hierarchy.duration_s, 3),
        "subset": "validation",
        "url": "",
        "annotations": [{**entry, "id": step.id, HIERO_PROPERTY: step.to_dict()} for step, entry in entries],
    }
    document = {
        "version": "VERSION 1.3",
        "database": {name: video},
        "results": {name: [{**entry, "score": step.probability or 0.0} for step, entry in entries]},
        "external_data": {"used": False, "details": ""},
    }
    return rows.to_json(document)


ACTIVITYNET = Exporter(
    "activitynet.json", to_activitynet, reader=StepReader((".json",), read_activitynet, is_activitynet)
)
