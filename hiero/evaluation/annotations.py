"""What annotation files say of a video, whichever their layout."""

from __future__ import annotations

from dataclasses import dataclass

from hiero.types import AnnotatedStep


@dataclass(frozen=True)
class AnnotatedVideo:
    """A video, or a part of it, and its true steps.

    Attributes:
        video: Its name.
        steps: In any order. A step's text is its description or its category.
        start_s: Where the annotated part begins, in seconds of the video.
        end_s: Where it ends; None with the video.
        task: What is done in it, such as a recipe.
        duration_s: How long the annotations say that the video is.
    """

    video: str
    steps: tuple[AnnotatedStep, ...]
    start_s: float = 0.0
    end_s: float | None = None
    task: str = ""
    duration_s: float | None = None
