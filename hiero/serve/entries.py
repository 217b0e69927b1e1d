"""The videos that a server shows, each known by an id."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hiero.data.features import FEATURE_SUFFIXES
from hiero.decoding.recordings import VIDEO_SUFFIXES
from hiero.sources.source import LocalFile, SourceFile, VideoSource

PLAYABLE_S, MAX_PLAYABLE = 5.0, 10_000  # how long it is believed which file a player opens, and of how many videos


class NotFoundError(Exception):
    """What a client asked for does not exist."""


class NotReadError(Exception):
    """A video must be read first, which takes its time."""


@dataclass(frozen=True)
class Entry:
    """A file that may be looked at, or several that are one video."""

    id: str
    name: str
    source: VideoSource
    was_read: bool = False
    duration_s: float | None = None
    num_steps: int | None = None

    @property
    def path(self) -> Path:
        """The first file."""
        return self.source.path

    @property
    def is_video(self) -> bool:
        return self.path.suffix.lower() not in FEATURE_SUFFIXES

    @property
    def playable_files(self) -> list[SourceFile]:
        """What a player opens, in time order: the files themselves, or videos of the same name beside
        feature files; none where one of them is missing.
        """
        period = int(time.monotonic() / PLAYABLE_S)
        playable = [_find_playable(file, period) for file in self.source.files]
        return [file for file in playable if file is not None] if None not in playable else []


@lru_cache(maxsize=MAX_PLAYABLE)
def _find_playable(file: SourceFile, period: int) -> SourceFile | None:
    """A video itself, or one of the same name beside a feature file. Looked for once in a period: a
    list asks for many.
    """
    if file.path.suffix.lower() not in FEATURE_SUFFIXES:
        return file if file.exists() else None
    beside = (LocalFile(file.path.with_suffix(suffix)) for suffix in VIDEO_SUFFIXES)
    return next((video for video in beside if video.exists()), None)
