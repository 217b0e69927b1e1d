"""What annotation files say of a video, whichever their layout."""

from __future__ import annotations

from dataclasses import dataclass

from hiero.types import AnnotatedStep


@dataclass(frozen=True)
class AnnotatedVideo:
    """A video, or a part of it, and its true steps."""

    video: str
    steps: tuple[AnnotatedStep, ...]
    start_s: float = 0.0
    end_s: float | None = None
    task: str = ""
    duration_s: float | None = None
