"""COCO-like JSON: videos, categories and annotations."""

from __future__ import annotations

from pathlib import Path

from hiero.formats.registry import Exporter
from hiero.formats.rows import to_json
from hiero.types import Hierarchy


def to_coco(hierarchy: Hierarchy) -> str:
    """COCO-like JSON with segments [start_s, duration_s] instead of boxes."""
    labels = sorted(set(hierarchy.titles.values()))
    category_ids = {label: i for i, label in enumerate(labels, start=1)}
    steps = [(i, step) for i, level in enumerate(hierarchy.levels) for step in level]
    annotations = [
        {
            "id": id,
            "video_id": 1,
            "category_id": category_ids[hierarchy.titles[step.id]],
            "level": level,
            "segment": [round(step.start_s, 3), round(step.end_s - step.start_s, 3)],
            "thread": step.thread,
            "score": step.probability,
            "origin": step.origin,
            "iscrowd": 0,
        }
        for id, (level, step) in enumerate(steps, start=1)
    ]
    document = {
        "info": {"description": f"hiero {hierarchy.model}", "version": "1.0"},
        "videos": [{"id": 1, "file_name": Path(hierarchy.video).name, "duration": round(hierarchy.duration_s, 3)}],
        "categories": [{"id": i, "name": label, "supercategory": "step"} for label, i in category_ids.items()],
        "annotations": annotations,
    }
    return to_json(document)


COCO = Exporter("coco.json", to_coco)
