"""Entries: the videos of a server."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from hiero.features.files import FEATURE_SUFFIXES
from hiero.media.recordings import VIDEO_SUFFIXES
from hiero.media.source import LocalFile, SourceFile, VideoSource

PLAYABLE_S = 5.0  # time for which the playable file of an entry is cached


class NotFoundError(Exception):
    """The requested resource does not exist."""


class NotReadError(Exception):
    """The video must be processed first."""


@dataclass(eq=False)
class Entry:
    """A video: one file, or several that belong together."""

    id: str
    name: str
    source: VideoSource
    folder: str  # clients must not see the folders above it
    is_upload: bool = False
    was_read: bool = False
    key: str | None = None  # of the content when the server last looked at it
    duration_s: float | None = None
    num_steps: int | None = None
    names: tuple[str, ...] = ()  # of its finest steps, as far as they are known

    @property
    def path(self) -> Path:
        """The first file."""
        return self.source.path

    @property
    def is_video(self) -> bool:
        return self.path.suffix.lower() not in FEATURE_SUFFIXES

    @property
    def is_read(self) -> bool:
        """Whether it opens at once: it was processed before or is a feature file."""
        return self.was_read or not self.is_video

    @property
    def num_bytes(self) -> int:
        """Size of its files on this machine."""
        return sum(path.stat().st_size for path in self.source.paths if path.is_file())

    @cached_property
    def date(self) -> str:
        """The day on which its file was last changed, such as 2026-11-18. Empty if the file is not here."""
        with suppress(OSError):
            return time.strftime("%Y-%m-%d", time.localtime(self.path.stat().st_mtime))
        return ""

    @property
    def playable_files(self) -> list[SourceFile]:
        """The files for a player, for feature files the videos of the same name. Empty if any is missing."""
        period = int(time.monotonic() / PLAYABLE_S)
        playable = [_find_playable(file, period) for file in self.source.files]
        return [file for file in playable if file is not None] if None not in playable else []


@lru_cache(maxsize=10_000)
def _find_playable(file: SourceFile, period: int) -> SourceFile | None:
    """The video of a file. `period` limits how long the result is cached."""
    if file.path.suffix.lower() not in FEATURE_SUFFIXES:
        return file if file.exists() else None
    videos = (LocalFile(file.path.with_suffix(suffix)) for suffix in VIDEO_SUFFIXES)
    return next((video for video in videos if video.exists()), None)
