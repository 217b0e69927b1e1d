"""The nouns that every part shares: plain, frozen, without tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hiero.errors import InputError


@dataclass(frozen=True)
class Clock:
    """When each segment of a video happens: segment i covers `stride` frames at `fps`, starting at `start_s`.

    The time of a node is the middle of its segment, start_s + (i + ½)·stride/fps.
    """

    fps: float = 30.0
    stride: float = 16.0
    start_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fps", "stride"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InputError(f"{name} must be a positive number, got {value}")
        if not 0 <= self.start_s < float("inf"):
            raise InputError(f"start_s must be zero or more seconds, got {self.start_s}")

    @property
    def spacing_s(self) -> float:
        return self.stride / self.fps

    def time_s(self, index: int) -> float:
        return self.start_s + (index + 0.5) * self.stride / self.fps

    def index(self, time_s: float) -> int:
        """The segment that a moment falls in; negative before the start."""
        return math.floor((time_s - self.start_s) * self.fps / self.stride)


@dataclass(frozen=True)
class Window:
    """A run of segments [start, end) cut out of a video, with the clock that its nodes keep."""

    start: int
    end: int
    clock: Clock

    @property
    def num_nodes(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class Narration:
    """A text at a time of a video."""

    video: str
    time_s: float
    text: str


@dataclass(frozen=True)
class Step:
    """A contiguous stretch of a video that belongs together, at one level of a hierarchy.

    `thread` groups steps of a level that are alike, wherever they happen; `parent` is the step of the coarser level that holds
    this one, `children` those of the finer level inside it. Label and score are empty until steps are named.
    """

    id: str
    start_s: float
    end_s: float
    thread: int
    parent: str | None = None
    children: tuple[str, ...] = ()
    background: bool = False
    label: str | None = None
    score: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id, "start_s": round(self.start_s, 3), "end_s": round(self.end_s, 3), "thread": self.thread,
            "label": self.label, "score": None if self.score is None else round(self.score, 4), "parent": self.parent,
            "children": list(self.children), "background": self.background,
        }  # fmt: skip


@dataclass(frozen=True)
class Hierarchy:
    """All levels of a video's steps, coarse to fine."""

    video: str
    model: str
    duration_s: float
    levels: tuple[tuple[Step, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": 1, "video": self.video, "model": self.model, "duration_s": round(self.duration_s, 3),
            "levels": [{"level": i, "steps": [step.to_dict() for step in level]} for i, level in enumerate(self.levels)],
        }  # fmt: skip


@dataclass(frozen=True)
class Match:
    """A stretch of a video that may be what a text says."""

    start_s: float
    end_s: float
    score: float

    def to_dict(self) -> dict[str, float]:
        return {"start_s": round(self.start_s, 3), "end_s": round(self.end_s, 3), "score": round(self.score, 4)}


@dataclass(frozen=True)
class Answer:
    """Where a query happens, best first. `present`: how likely it is in the video at all."""

    query: str
    present: float
    matches: tuple[Match, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"query": self.query, "present": round(self.present, 4), "matches": [match.to_dict() for match in self.matches]}


def clock_text(seconds: float) -> str:
    """m:ss, or h:mm:ss from an hour on."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
