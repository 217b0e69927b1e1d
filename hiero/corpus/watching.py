"""Files that arrive in a folder, or below an address: which of them are whole and were not indexed yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hiero.errors import InputError
from hiero.extraction.collection import NoFilesError, find_files, join_chapters
from hiero.sources.source import VideoSource

MAX_PAUSE = 64  # looks between two attempts at a file that cannot be read

FileState = tuple[object, ...]


@dataclass
class ArrivalWatcher:
    """Looks at folders again and again. A file is whole when its size and time are the same in two
    looks, one after the other.
    """

    paths: Sequence[Path | str]
    join: bool | None = None
    log: Callable[[str], None] = lambda _: None
    _states: dict[VideoSource, FileState] = field(default_factory=dict)  # of the last look
    _done: dict[str, tuple[FileState, ...]] = field(default_factory=dict)  # by name: as it was when it was taken
    _failed: dict[str, tuple[int, int]] = field(default_factory=dict)  # by name: attempts, and the look of the next one
    _lines: set[str] = field(default_factory=set)
    _num_scans: int = 0

    def look(self) -> dict[str, VideoSource]:
        """What is whole and new, or has changed since it was taken, by name."""
        begin = time.monotonic()
        self._num_scans += 1
        files: dict[str, VideoSource] = {}
        for path in self.paths:
            try:
                named = find_files([path], resolve_clashes=True)
            except NoFilesError:  # nothing has arrived yet
                continue
            for name, file in named.items():
                if files.setdefault(name, file) != file:
                    raise InputError(f"two folders have a file named {name}; watch them into two corpora")
        before, self._states = (
            self._states,
            {file: state for file in files.values() if (state := _file_state(file, begin)) is not None},
        )
        whole = {
            name: file
            for name, file in files.items()
            if file in self._states and before.get(file) == self._states[file]
        }
        # All files decide what is one recording: one whose next chapter is still growing waits for it.
        recordings = join_chapters(files, self.join, self._log_once) if whole else {}
        return {
            name: source
            for name, source in recordings.items()
            if self._is_due(name, source, {file.path for file in whole.values()})
        }

    def _is_due(self, name: str, source: VideoSource, whole: set[Path]) -> bool:
        if not all(path in whole for path in source.paths):
            return False
        if self._done.get(name) == self._states_of(source):
            return False
        return self._failed.get(name, (0, 0))[1] <= self._num_scans

    def _states_of(self, source: VideoSource) -> tuple[FileState, ...]:
        return tuple((str(file.path), *self._states[VideoSource((file,))]) for file in source.files)

    def finish(self, taken: Mapping[str, VideoSource], failed: Sequence[str] = ()) -> None:
        """Remember what was taken. What failed is tried again, each time after twice as many looks."""
        for name, source in taken.items():
            if name in failed:
                num_attempts = self._failed.get(name, (0, 0))[0] + 1
                self._failed[name] = num_attempts, self._num_scans + min(MAX_PAUSE, 2 ** (num_attempts - 1))
            else:
                self._failed.pop(name, None)
                self._done[name] = self._states_of(source)

    def _log_once(self, line: str) -> None:
        if line not in self._lines:
            self._lines.add(line)
            self.log(line)


def _file_state(source: VideoSource, since: float) -> FileState | None:
    """What changes while somebody writes to a file; None where it no longer exists. Nothing else of
    a remote file is read.
    """
    try:
        return source.files[0].growth(time.monotonic() - since)
    except (OSError, InputError):
        return None
