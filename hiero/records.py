"""The nouns that every part shares: plain, frozen, without tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
