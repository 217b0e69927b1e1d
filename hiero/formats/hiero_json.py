"""Steps in hiero's own JSON: steps.json, and the file beside a video that holds corrected steps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.storage.files import read_json, write_bytes
from hiero.types import Hierarchy, check_text

EDITS_SUFFIX = ".hiero.json"
MAX_LABEL_LENGTH = 500  # characters; longer labels are cut
DURATION_TOLERANCE_S = 1.0  # difference between the lengths of the video and of the document


def edits_file(video: Path) -> Path:
    """The file beside a video or feature file that holds its corrected steps."""
    return video.with_name(video.name + EDITS_SUFFIX)


def read_edits(video: Path) -> Hierarchy | None:
    """The corrected steps of a video, or None."""
    file = edits_file(video)
    if not file.is_file():
        return None
    document = read_json(file)
    try:
        return parse_hierarchy(document)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def encode_edits(hierarchy: Hierarchy) -> bytes:
    """The content of a file with corrected steps."""
    return (json.dumps(hierarchy.to_dict(), ensure_ascii=False, indent=1) + "\n").encode()


def write_edits(file: Path, hierarchy: Hierarchy) -> None:
    """Write corrected steps atomically."""
    write_bytes(file, encode_edits(hierarchy))


def parse_hierarchy(document: Any, duration_s: float | None = None) -> Hierarchy:
    """The steps of a document, for a video of this length. Long labels are cut. Raises InputError."""
    hierarchy = Hierarchy.from_dict(document)
    check_text(hierarchy.video)
    if duration_s is not None and abs(hierarchy.duration_s - duration_s) > DURATION_TOLERANCE_S:
        raise InputError(f"these steps belong to a video of {hierarchy.duration_s:.1f} s, not {duration_s:.1f} s")
    levels = [
        tuple(replace(step, label=step.label and step.label[:MAX_LABEL_LENGTH]) for step in level)
        for level in hierarchy.levels
    ]
    return replace(hierarchy, levels=tuple(levels))
