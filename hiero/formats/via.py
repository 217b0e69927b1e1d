"""Projects of VIA, the VGG Image Annotator 3: temporal segments of a video."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hiero.formats.rows import (
    HIERO_PROPERTY,
    RowLevels,
    StepRow,
    choose_video,
    index_steps,
    order_levels,
    parse_label,
    parse_time,
    restore_row,
)

LEVEL_ATTRIBUTE = "level"  # of our projects: the rows of the timeline
NAME_ATTRIBUTE = "step"  # the name of each segment


def is_via_project(document: Any) -> bool:
    """Whether a JSON document is a project of VIA 3."""
    return isinstance(document, dict) and all(
        isinstance(document.get(key), dict) for key in ("project", "file", "view", "metadata")
    )


def read_via(document: dict[str, Any], video: Path) -> RowLevels:
    """Rows of a project: a level for each row of our timeline; of other projects one for each
    attribute of segments.
    """
    attributes = document.get("attribute") or {}
    by_name = {str(attribute.get("aname")): aid for aid, attribute in attributes.items()}
    is_ours = {LEVEL_ATTRIBUTE, NAME_ATTRIBUTE} <= set(by_name)
    view = _choose_view(document, video)
    hiero = index_steps(document.get(HIERO_PROPERTY))
    levels: dict[str, list[StepRow]] = {}
    for id, segment in document["metadata"].items():
        if str(segment["vid"]) != view or len(segment["z"]) != 2:
            continue  # of another video, or a region of a frame
        start_s, end_s = map(parse_time, segment["z"])
        values = {str(aid): _text(attributes.get(aid), value) for aid, value in segment["av"].items()}
        if is_ours:
            row = StepRow(start_s, end_s, parse_label(values.get(by_name[NAME_ATTRIBUTE])))
            levels.setdefault(values.get(by_name[LEVEL_ATTRIBUTE]) or "", []).append(restore_row(row, hiero.get(id)))
        for aid, value in values.items() if not is_ours else ():
            levels.setdefault(aid, []).append(StepRow(start_s, end_s, parse_label(value)))
    if not levels:
        raise ValueError("has no temporal segments of this video")
    return order_levels(levels), hiero.get("duration_s")


def _choose_view(document: dict[str, Any], video: Path) -> str:
    """The id of the view that shows a video."""
    views = {}
    for vid, view in document["view"].items():
        for fid in view["fid_list"]:
            views[str(document["file"][str(fid)]["fname"])] = str(vid)
    if not views:
        raise ValueError("has no video")
    chosen: str = choose_video(views, video)
    return chosen


def _text(attribute: Any, value: Any) -> str:
    """The text of a value; that of an option where the attribute has options."""
    options = attribute.get("options") if isinstance(attribute, dict) else None
    return str(options.get(str(value), value)) if isinstance(options, dict) else str(value)
