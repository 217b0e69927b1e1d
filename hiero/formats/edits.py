"""Steps as a person changed them: out of JSON into a hierarchy that is checked, and the file beside a
video that holds it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.storage.files import read_json, write_bytes
from hiero.types import Hierarchy, Step, Utterance, VideoFile, link_levels

EDITS_SUFFIX = ".hiero.json"  # of a file beside the video
MAX_LEVELS = 16
MAX_STEPS = 100_000  # of all levels
MAX_ID_LENGTH = 64  # characters; longer ids and labels are cut
MAX_LABEL_LENGTH = 500
MAX_THREAD = 2**31 - 1  # what other tools read
TOLERANCE_S = 0.05  # between boundaries that should be the same
DURATION_TOLERANCE_S = 1.0  # between the length of the video and that of the document


def edits_file(video: Path) -> Path:
    """The file beside a video, or beside its features, that holds its corrected steps."""
    return video.with_name(video.name + EDITS_SUFFIX)


def read_edits(video: Path) -> Hierarchy | None:
    """The corrected steps of a video; None where nobody has corrected any."""
    file = edits_file(video)
    if not file.is_file():
        return None
    try:
        return parse_hierarchy(read_json(file), None)
    except InputError as error:
        message = str(error)
        raise InputError(message if message.startswith(str(file)) else f"{file}: {message}") from error


def encode_edits(hierarchy: Hierarchy) -> bytes:
    """The content of a file of corrected steps."""
    return (json.dumps(hierarchy.to_dict(), ensure_ascii=False, indent=1) + "\n").encode()


def write_edits(file: Path, hierarchy: Hierarchy) -> None:
    """Write corrected steps, whole or not at all."""
    write_bytes(file, encode_edits(hierarchy))


def parse_hierarchy(document: Any, duration_s: float | None) -> Hierarchy:
    """A hierarchy out of its JSON, checked: each level covers the video in order, ids differ, parents
    hold their children.
    """
    try:
        length_s = float(document["duration_s"])
        levels = [tuple(_parse_step(row) for row in level["steps"]) for level in document["levels"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        cause = error.__cause__ or error  # of an error of Step.from_dict
        if isinstance(cause, InputError):
            raise
        raise InputError(f"not a hierarchy of steps ({type(cause).__name__}: {cause})") from error
    is_empty = not levels or not all(levels)
    if is_empty or not np.isfinite(length_s) or len(levels) > MAX_LEVELS or sum(map(len, levels)) > MAX_STEPS:
        raise InputError(f"a hierarchy has between 1 and {MAX_LEVELS} levels, each with steps")
    if duration_s is not None and abs(length_s - duration_s) > DURATION_TOLERANCE_S:
        raise InputError(f"the video is {duration_s:.1f} s long, these steps say {length_s:.1f}")
    _check_ids(levels)
    for number, level in enumerate(levels):
        _check_coverage(number, level, length_s)
    for coarse, fine in pairwise(levels):
        _check_nesting(coarse, fine)
    # Links are made anew: children of the document may be out of date.
    linked = link_levels([[replace(step, parent=None, children=()) for step in level] for level in levels])
    names = check_text(str(document.get("video", ""))), check_text(str(document.get("model", "")))
    try:
        files = tuple(VideoFile.from_dict(file) for file in document.get("files", ()))
        speech = tuple(Utterance.from_dict(utterance) for utterance in document.get("speech", ()))
    except TypeError as error:
        raise InputError(f"not a hierarchy of steps ({error})") from error
    return Hierarchy(*names, length_s, tuple(map(tuple, linked)), files, speech)


def check_text(text: str) -> str:
    """The text itself. Raises InputError where it holds half a character (a lone surrogate), which no
    file and no answer can.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{text.encode(errors='replace').decode()}: not a text, it holds half a character") from None
    return text


def _parse_step(row: Any) -> Step:
    score, parent = row.get("score"), row.get("parent")
    # Step.from_dict would turn any parent into a string, and lets a score be NaN, which JSON cannot hold.
    if not (parent is None or isinstance(parent, str)) or not np.isfinite(float(score or 0)):
        raise ValueError("a parent is an id, a score a number")
    step = Step.from_dict(row)
    if abs(step.thread) > MAX_THREAD:
        raise ValueError(f"thread {step.thread:.3g} is too large")
    for text in (step.id, step.label or "", step.parent or ""):
        check_text(text)
    return replace(
        step, id=step.id[:MAX_ID_LENGTH], label=None if step.label is None else step.label[:MAX_LABEL_LENGTH]
    )


def _check_ids(levels: Sequence[Sequence[Step]]) -> None:
    ids = [step.id for level in levels for step in level]
    if len(set(ids)) < len(ids):
        raise InputError("two steps have the same id")


def _check_coverage(number: int, level: Sequence[Step], length_s: float) -> None:
    """Steps of a level follow each other without gap or overlap, from 0 to the end."""
    boundaries_s = [0.0, *(step.end_s for step in level)]
    for step, begin_s in zip(level, boundaries_s, strict=False):
        if not (abs(step.start_s - begin_s) < TOLERANCE_S and step.end_s > step.start_s):
            raise InputError(f"level {number}: step {step.id} must begin where the one before it ends, and last")
    if abs(boundaries_s[-1] - length_s) > TOLERANCE_S:
        raise InputError(f"level {number} ends at {boundaries_s[-1]:.1f} s, the video at {length_s:.1f}")


def _check_nesting(coarse: Sequence[Step], fine: Sequence[Step]) -> None:
    parents = {step.id: step for step in coarse}
    for step in fine:
        parent = parents.get(step.parent or "")
        if parent is None or step.start_s < parent.start_s - TOLERANCE_S or step.end_s > parent.end_s + TOLERANCE_S:
            raise InputError(f"step {step.id} must lie inside its parent")
