"""Many files into a corpus: read one after the other, committed several at a time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hiero.corpus.corpus import DEFAULT_SETTINGS, Corpus, IndexSettings, ReadVideo, read_changed
from hiero.corpus.rows import IndexedVideo, VideoRows
from hiero.engine import Engine
from hiero.errors import InputError
from hiero.sources.source import VideoInput, VideoSource

LOOKUP_SIZE = 256  # files that are looked up together
# Of a commit, at most: what is lost, and read again by the next run, where the process is killed.
MAX_VIDEOS, MAX_BYTES, MAX_WAIT_S = 256, 2**26, 3.0


@dataclass
class IndexResult:
    """What happened to the files: how many were added, how many were in unchanged, and what is
    wrong with the others.
    """

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
    """Add videos or feature files to a corpus; one that cannot be read does not stop the others.

    Warns:
        UserWarning: It holds steps of another version of the model; they are made anew.
    """
    if corpus.is_stale(engine):
        warnings.warn(
            f"{corpus.uri} was made by another version of {engine.name}: its {corpus.num_videos} videos are "
            "indexed anew",
            stacklevel=2,
        )
        corpus.renew(engine, read, settings.labels)
    corpus.check_model(engine)  # before anything is read, which takes long
    batch = _Batch(corpus, engine, settings)
    try:
        for names in _batched(list(files), LOOKUP_SIZE):
            known = {} if settings.again else corpus.lookup(names)
            for name in names:
                batch.add_file(name, VideoSource.of(files[name]), read, known.get(name))
                progress(name)
    finally:
        batch.commit()  # also after an interruption: what was read is kept
    return batch.result


class _Batch:
    """Videos that were read and are not committed yet: a commit takes long beside the reading of a feature file."""

    def __init__(self, corpus: Corpus, engine: Engine, settings: IndexSettings) -> None:
        self.corpus, self.engine, self.settings = corpus, engine, settings
        self.result = IndexResult()
        self.videos: list[VideoRows] = []
        self.num_bytes = 0
        self.begin_s = time.monotonic()

    def add_file(self, name: str, source: VideoSource, read: ReadVideo, known: IndexedVideo | None) -> None:
        """Read a file, and commit what was read so far where it is time."""
        try:
            video = read_changed(source, self.engine, read, self.settings, name, known)
            if video is None:
                self.result.num_unchanged += 1
                return
            self.corpus.check_width(video)
        except (InputError, OSError) as error:
            self.result.problems.append(str(error))
            return
        if self.videos and self.videos[0].width != video.width:
            self.commit()  # the first ones of a corpus; then it is known whether this one fits
            try:
                self.corpus.check_width(video)
            except InputError as error:
                self.result.problems.append(str(error))
                return
        self.videos.append(video)
        self.num_bytes += video.rows.nbytes + (0 if video.speech is None else video.speech.nbytes)
        is_large = len(self.videos) >= MAX_VIDEOS or self.num_bytes >= MAX_BYTES
        if is_large or time.monotonic() - self.begin_s >= MAX_WAIT_S:
            self.commit()

    def commit(self) -> None:
        videos, self.videos, self.num_bytes = self.videos, [], 0
        num_added = self.corpus.add_all(videos, self.engine, self.settings.again)
        self.result.num_added += num_added
        self.result.num_unchanged += len(videos) - num_added  # another process was first
        self.begin_s = time.monotonic()


def _batched(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))
