"""Steps as hiero's own JSON: steps.json, the page's edits, and the file beside a video that holds these."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.storage.files import read_json, write_bytes
from hiero.types import Hierarchy, Step, check_text

EDITS_SUFFIX = ".hiero.json"  # of a file beside the video
MAX_LABEL_LENGTH = 500  # characters; longer labels are cut
DURATION_TOLERANCE_S = 1.0  # between the length of the video and that of the document


def edits_file(video: Path) -> Path:
    """The file beside a video, or beside its features, that holds its corrected steps."""
    return video.with_name(video.name + EDITS_SUFFIX)


def read_edits(video: Path) -> Hierarchy | None:
    """The corrected steps of a video; None where nobody has corrected any."""
    file = edits_file(video)
    if not file.is_file():
        return None
    document = read_json(file)
    try:
        return parse_hierarchy(document)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def encode_edits(hierarchy: Hierarchy) -> bytes:
    """The content of a file of corrected steps."""
    return (json.dumps(hierarchy.to_dict(), ensure_ascii=False, indent=1) + "\n").encode()


def write_edits(file: Path, hierarchy: Hierarchy) -> None:
    """Write corrected steps, whole or not at all."""
    write_bytes(file, encode_edits(hierarchy))


def parse_hierarchy(document: Any, duration_s: float | None = None) -> Hierarchy:
    """The steps of a document, for a video of this length. Long labels are cut. Raises InputError."""
    hierarchy = Hierarchy.from_dict(document)
    check_text(hierarchy.video)  # it is written into a file again
    if duration_s is not None and abs(hierarchy.duration_s - duration_s) > DURATION_TOLERANCE_S:
        raise InputError(f"the video is {duration_s:.1f} s long, these steps say {hierarchy.duration_s:.1f}")
    return replace(hierarchy, levels=tuple(tuple(map(_cut_label, level)) for level in hierarchy.levels))


def _cut_label(step: Step) -> Step:
    return step if step.label is None else replace(step, label=step.label[:MAX_LABEL_LENGTH])
