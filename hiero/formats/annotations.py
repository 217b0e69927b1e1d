"""Timed steps of many videos in one JSON file, as `hiero eval own` and `hiero adapt` read them.

{video: {"task": …, "duration_s": …, "steps": [{"start_s", "end_s", "text"}]}}
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.storage.files import read_json
from hiero.types import AnnotatedStep, format_count

LAYOUT = '{"video": {"steps": [{"start_s", "end_s", "text"}]}}'
MAX_ERRORS = 5  # unreadable videos that an error message names


@dataclass(frozen=True)
class AnnotatedVideo:
    """A video, or a part of it, and its annotated steps."""

    video: str
    steps: tuple[AnnotatedStep, ...]
    start_s: float = 0.0
    end_s: float | None = None
    task: str = ""
    duration_s: float | None = None


def read_annotations(path: Path) -> list[AnnotatedVideo]:
    """Read an annotation file; the videos are sorted by name."""
    content = read_json(path)
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: expected at least one {LAYOUT}")
    if isinstance(content.get("videos"), list):
        benchmarks = "run hiero eval goalstep-grounding or one of the other commands of hiero eval"
        raise InputError(f"{path}: has the layout of Ego4D, not {LAYOUT}; to score Goal-Step, {benchmarks}")
    annotated, errors = [], []
    for video, entry in content.items():
        try:
            if not isinstance(entry, dict):
                raise ValueError("must hold steps")
            steps = tuple(_parse_step(step) for step in entry["steps"])
            duration_s = None if entry.get("duration_s") is None else float(entry["duration_s"])
            annotated.append(AnnotatedVideo(video, steps, task=str(entry.get("task", "")), duration_s=duration_s))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            errors.append(f"{video} (no {error})" if isinstance(error, KeyError) else f"{video} ({error})")
    if errors:
        shown = "; ".join(errors[:MAX_ERRORS]) + (" …" if len(errors) > MAX_ERRORS else "")
        raise InputError(f"{path}: {format_count(len(errors), 'video')} cannot be read: {shown}")
    return sorted(annotated, key=lambda annotation: annotation.video)


def _parse_step(step: dict[str, object]) -> AnnotatedStep:
    start_s, end_s = float(step["start_s"]), float(step["end_s"])  # type: ignore[arg-type]
    if not 0 <= start_s <= end_s < math.inf:
        raise ValueError(f"a step must not run from {start_s} to {end_s} s")
    if not str(step["text"]).strip():
        raise ValueError("a step must have a text")
    return AnnotatedStep(start_s, end_s, str(step["text"]).strip())


def annotations_to_dicts(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The annotated steps of each video, as they can be sent as JSON."""
    videos = {video.video: [asdict(step) for step in video.steps] for video in read_annotations(path)}
    try:
        json.dumps(videos, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{path}: holds text that is not valid ({error})") from error
    return videos
