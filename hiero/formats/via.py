"""Projects of VIA 3, the VGG Image Annotator: temporal segments of a video."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from hiero.formats import rows
from hiero.formats.registry import Exporter, ImportSettings, StepReader
from hiero.formats.rows import HIERO_PROPERTY, RowLevels
from hiero.storage.files import ASSETS, read_json
from hiero.types import Hierarchy, Step

TEMPLATE = ASSETS / "formats" / "via.json"  # an empty project with the two attributes below
LEVEL_ATTRIBUTE = "level"
NAME_ATTRIBUTE = "step"


def is_via_project(document: Any) -> bool:
    """Whether a JSON document is a project of VIA 3."""
    keys = ("project", "file", "view", "metadata")
    return isinstance(document, dict) and all(isinstance(document.get(key), dict) for key in keys)


def read_via(document: dict[str, Any], settings: ImportSettings) -> RowLevels:
    """Rows of a project. Projects of hiero have levels, and others have a level for each attribute of segments."""
    attributes = document.get("attribute") or {}
    by_name = {str(attribute.get("aname")): aid for aid, attribute in attributes.items()}
    is_ours = {LEVEL_ATTRIBUTE, NAME_ATTRIBUTE} <= set(by_name)
    view = _choose_view(document, settings.video)
    steps, duration_s = rows.index_steps(document.get(HIERO_PROPERTY))
    levels: dict[str, list[Step]] = {}
    for id, segment in document["metadata"].items():
        if str(segment["vid"]) != view or len(segment["z"]) != 2:
            continue  # another video, or a region of a frame
        start_s, end_s = map(rows.parse_time, segment["z"])
        values = {str(aid): _text(attributes.get(aid), value) for aid, value in segment["av"].items()}
        if is_ours:
            level = levels.setdefault(values.get(by_name[LEVEL_ATTRIBUTE]) or "", [])
            level.append(rows.imported_step(start_s, end_s, values.get(by_name[NAME_ATTRIBUTE]), steps.get(id)))
            continue
        for aid, value in values.items():
            levels.setdefault(aid, []).append(rows.imported_step(start_s, end_s, value))
    if not levels:
        raise ValueError("has no temporal segments of this video")
    return rows.order_levels(levels), duration_s


def _choose_view(document: dict[str, Any], video: Path) -> str:
    """The id of the view that shows a video."""
    views = {}
    for vid, view in document["view"].items():
        for fid in view["fid_list"]:
            views[str(document["file"][str(fid)]["fname"])] = str(vid)
    if not views:
        raise ValueError("has no video")
    return rows.choose_video(views, video)


def _text(attribute: Any, value: Any) -> str:
    """The text of a value, or of the option that it selects."""
    options = attribute.get("options") if isinstance(attribute, dict) else None
    return str(options.get(str(value), value)) if isinstance(options, dict) else str(value)


def to_via(hierarchy: Hierarchy) -> str:
    """A project whose timeline has a row for each level."""
    project = read_json(TEMPLATE)
    file_name = Path(hierarchy.video).name
    project["project"]["pname"] = Path(file_name).stem
    project["file"]["1"]["fname"] = file_name
    project["config"]["ui"]["gtimeline_visible_row_count"] = str(max(4, len(hierarchy.levels)))
    project["attribute"]["1"]["options"] = {str(i): name for i, name in enumerate(hierarchy.level_names)}
    steps: dict[str, Any] = {}
    for i, level in enumerate(hierarchy.levels):
        for step in level:
            digest = hashlib.sha256(f"{i}\0{step.id}".encode("utf-8", "replace")).hexdigest()
            id = f"1_{digest[:8]}"
            id = id if id not in steps else f"{id}{len(steps)}"
            times_s = [round(step.start_s, 3), round(step.end_s, 3)]
            values = {"1": str(i), "2": hierarchy.titles[step.id]}
            segment = {"vid": "1", "flg": 0, "z": times_s, "xy": [], "av": values}
            project["metadata"][id] = segment
            steps[id] = step.to_dict()
    duration_s = round(hierarchy.duration_s, 3)
    project[HIERO_PROPERTY] = {"model": hierarchy.model, "duration_s": duration_s, "steps": steps}
    return rows.to_json(project)


VIA = Exporter("via.json", to_via, reader=StepReader((".json",), read_via, is_via_project))
