"""Which videos were processed before: by this server, another one, or a command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from hiero.engine import Engine
from hiero.errors import InputError
from hiero.serve.entries import Entry
from hiero.serve.state import KnownVideo, State
from hiero.types import Hierarchy


class Memory:
    """What is known about processed videos by the keys of their contents: from the corpus, the state and the cache."""

    def __init__(self) -> None:
        self.known: dict[str, KnownVideo] = {}
        self._engine: Engine | None = None
        self._state = State()

    def open(self, engine: Engine, state: State) -> None:
        """Use the cache of an engine, and what a state knows of the same model."""
        self._engine, self._state = engine, state
        self.known.update(state.known_videos(engine.key))

    def recognise(self, entries: Sequence[Entry], *, may_read: bool = False) -> None:
        """Mark the videos as processed that were processed before.

        Contents are recognised that are known without reading large files; with `may_read`, afterwards also those of
        the same length as a video that was processed, because that may have been moved.
        """
        unknown = [entry for entry in entries if not self._recognise(entry, entry.source.quick_key)]
        lengths = {video.num_bytes for video in self.known.values()} if may_read else set()
        for entry in unknown:
            if entry.key is None and entry.num_bytes in lengths:
                self._recognise(entry, entry.source.known_key)

    def _recognise(self, entry: Entry, find_key: Callable[[], str | None]) -> bool:
        """Whether a video was processed before."""
        if entry.is_read or self._engine is None:
            return entry.is_read
        with suppress(InputError, OSError):  # for example a file that is missing now
            if (key := find_key()) is None:
                return False
            if (video := self.known.get(key)) is not None:
                entry.duration_s, entry.num_steps, entry.names = video.duration_s, video.num_steps, video.names
            entry.key = key
            is_cached, files = self._engine.is_cached, entry.source.files
            entry.was_read = video is not None or all(is_cached(file, file.quick_key()) for file in files)
        return entry.is_read

    def remember(self, entry: Entry, steps: Hierarchy) -> None:
        """Keep what the list shows about a processed video."""
        entry.names = finest_names(steps)
        if entry.key is None or self._engine is None:
            return
        video = KnownVideo(entry.key, entry.num_bytes, entry.duration_s, entry.num_steps, entry.names)
        if entry.was_read and self.known.get(entry.key) != video:
            with suppress(InputError):  # for example a full disk; it can be found out again
                self._state.save_video(self._engine.key, video)
                self.known[entry.key] = video


def finest_names(hierarchy: Hierarchy) -> tuple[str, ...]:
    """The names of the finest steps in time order, each once."""
    return tuple(dict.fromkeys(step.label for step in hierarchy.levels[-1] if step.label))
