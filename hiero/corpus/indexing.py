"""Indexing of many files, and watching of folders for new ones."""

from __future__ import annotations

import functools
import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hiero.corpus.corpus import DEFAULT_SETTINGS, Corpus, IndexSettings, ReadVideo, read_changed
from hiero.corpus.rows import IndexedVideo, VideoRows
from hiero.engine import Engine
from hiero.errors import InputError
from hiero.media.recordings import NoFilesError, find_files, join_chapters
from hiero.media.source import VideoInput, VideoSource

LOOKUP_SIZE = 256  # files looked up together
# Limits of a commit. A killed process loses at most this much work, and the next run repeats it.
MAX_VIDEOS, MAX_BYTES, MAX_WAIT_S = 256, 2**26, 3.0
MAX_PAUSE = 64  # longest pause before an unreadable file is retried, in scans


@dataclass
class IndexResult:
    """How many files were added, how many were unchanged, and the problems with the others."""

    num_added: int = 0
    num_unchanged: int = 0
    problems: list[str] = field(default_factory=list)


def index_files(
    corpus: Corpus,
    engine: Engine,
    files: Mapping[str, VideoInput],
    read: ReadVideo,
    settings: IndexSettings = DEFAULT_SETTINGS,
    progress: Callable[[str], None] = lambda _: None,
) -> IndexResult:
    """Add videos or feature files to a corpus. If one cannot be read, the others are still added."""
    if corpus.is_stale(engine):
        message = f"was indexed with another version of {engine.name}; indexing its {corpus.num_videos} videos again"
        warnings.warn(f"{corpus.uri}: {message}", stacklevel=2)
        corpus.renew(engine, read, settings.labels)
    corpus.check_model(engine)  # before reading, which takes long
    batch = _Batch(corpus, engine, settings)
    names = iter(files)
    try:
        while chunk := list(itertools.islice(names, LOOKUP_SIZE)):
            known = {} if settings.again else corpus.lookup(chunk)
            for name in chunk:
                batch.add_file(name, VideoSource.of(files[name]), read, known.get(name))
                progress(name)
    finally:
        batch.commit()  # also after an interruption
    return batch.result


class _Batch:
    """Videos that are not committed yet. A commit takes long compared with reading a feature file."""

    def __init__(self, corpus: Corpus, engine: Engine, settings: IndexSettings) -> None:
        self.corpus, self.engine, self.settings = corpus, engine, settings
        self.result = IndexResult()
        self.videos: list[VideoRows] = []
        self.width = corpus.tables.width()
        self.begin_s = time.monotonic()

    def add_file(self, name: str, source: VideoSource, read: ReadVideo, known: IndexedVideo | None) -> None:
        """Read a file, and commit the batch if it is large or old enough."""
        try:
            video = read_changed(source, self.engine, read, self.settings, name, known)
            if video is None:
                self.result.num_unchanged += 1
                return
            self.width = self.width or video.width  # the first video decides
            video.check_width(self.width, self.corpus.uri)
        except (InputError, OSError) as error:
            self.result.problems.append(str(error))
            return
        self.videos.append(video)
        is_large = len(self.videos) >= MAX_VIDEOS or sum(video.num_bytes for video in self.videos) >= MAX_BYTES
        if is_large or time.monotonic() - self.begin_s >= MAX_WAIT_S:
            self.commit()

    def commit(self) -> None:
        videos, self.videos = self.videos, []
        num_added = self.corpus.add_all(videos, self.engine, self.settings.again)
        self.result.num_added += num_added
        self.result.num_unchanged += len(videos) - num_added  # added by another process in the meantime
        self.begin_s = time.monotonic()


@dataclass
class ArrivalWatcher:
    """Scans folders for new files. A file is complete once its state is the same in two scans in a row."""

    paths: Sequence[Path | str]
    join: bool | None = None
    log: Callable[[str], None] = lambda _: None
    _states: dict[VideoSource, object] = field(default_factory=dict)  # by file, at the last scan
    _done: dict[str, tuple[object, ...]] = field(default_factory=dict)  # by name, when it was processed
    _failed: dict[str, tuple[int, int]] = field(default_factory=dict)  # by name: number of attempts, scan of the next
    _num_scans: int = 0

    def __post_init__(self) -> None:
        self._log_once = functools.cache(self.log)

    def look(self) -> dict[str, VideoSource]:
        """Complete files that are new or have changed since they were processed, by name."""
        begin = time.monotonic()
        self._num_scans += 1
        files = self._find_files()
        before = self._states
        states = {file: _growth(file, begin) for file in files.values()}
        self._states = {file: state for file, state in states.items() if state is not None}
        complete = {file.path for file, state in self._states.items() if before.get(file) == state}
        # A recording whose next chapter is still growing waits for it, so all files are joined.
        recordings = join_chapters(files, self.join, self._log_once) if complete else {}
        return {
            name: source
            for name, source in recordings.items()
            if all(path in complete for path in source.paths)
            and self._done.get(name) != self._states_of(source)
            and self._failed.get(name, (0, 0))[1] <= self._num_scans
        }

    def _find_files(self) -> dict[str, VideoSource]:
        """All files by name. Of two with the same name, the one that was found first keeps it."""
        found: dict[str, list[VideoSource]] = {}
        for path in self.paths:
            with suppress(NoFilesError):  # nothing has arrived yet
                for name, file in find_files([path], resolve_clashes=True).items():
                    found.setdefault(name, []).append(file)
        files = {name: next(filter(self._states.__contains__, same), same[0]) for name, same in found.items()}
        for name, same in found.items():
            for other in same:
                if other != files[name]:
                    clash = f"left out, because {files[name].name} has the same name"
                    self._log_once(f"{other.name}: {clash}; rename one, or index their folders into separate corpora")
        return files

    def _states_of(self, source: VideoSource) -> tuple[object, ...]:
        return tuple((str(file.path), self._states[VideoSource((file,))]) for file in source.files)

    def finish(self, processed: Mapping[str, VideoSource], failed: Sequence[str] = ()) -> None:
        """Remember processed files. Failed ones are retried with exponential back-off, counted in scans."""
        for name, source in processed.items():
            if name in failed:
                num_attempts = self._failed.get(name, (0, 0))[0] + 1
                self._failed[name] = num_attempts, self._num_scans + min(MAX_PAUSE, 2 ** (num_attempts - 1))
            else:
                self._failed.pop(name, None)
                self._done[name] = self._states_of(source)


def _growth(source: VideoSource, since: float) -> object | None:
    """What changes while a file is written, or None if it no longer exists."""
    try:
        return source.files[0].growth(time.monotonic() - since)
    except (OSError, InputError):
        return None
