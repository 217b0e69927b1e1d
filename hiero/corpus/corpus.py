"""A corpus: the steps of many videos, stored and searched together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hiero.corpus.reader import CorpusReader
from hiero.corpus.rows import Hit as Hit
from hiero.corpus.rows import IndexedVideo as IndexedVideo
from hiero.corpus.rows import VideoRows, describe_video, edits_key, transcripts_key
from hiero.corpus.table import SPEECH, STEPS, RowFilter, commit, drop_repeated, write_lock
from hiero.engine import Embedder, Engine, Video
from hiero.errors import InputError
from hiero.formats.hiero_json import read_edits
from hiero.media.source import VideoInput, VideoSource
from hiero.model.model_folder import SHIPPED
from hiero.types import Hierarchy

ReadVideo = Callable[[VideoSource], Video]


@dataclass(frozen=True)
class IndexSettings:
    """How videos are indexed. `num_steps` and `labels` are arguments of `Video.steps`, `again` also
    indexes unchanged videos, `transcripts` uses the transcripts next to the videos, and `edits` the
    corrections that people made to their steps.
    """

    num_steps: Sequence[int] | None = None
    labels: Sequence[str] | None = None
    again: bool = False
    transcripts: bool = True
    edits: bool = True


DEFAULT_SETTINGS = IndexSettings()


@dataclass
class Corpus(CorpusReader):
    """Videos whose steps are searched together, in a folder or at any address that LanceDB supports (s3://…).

    All rows of a video are replaced in one commit, so readers see either the old rows or the new
    ones. Any number of processes may write at the same time. In a folder they take turns (see
    `write_lock`); elsewhere each writer removes repeated rows after its commit.

    Attributes:
        uri: The folder or address.
        create: Create the corpus when the first video is added, if it does not exist.
        wait_s: Longest time to wait while another process writes to the corpus.

    Raises:
        InputError: LanceDB is not installed, or the corpus does not exist or cannot be opened.
    """

    def add(self, video: Video, steps: Hierarchy, name: str, sha256: str, transcripts: str = "") -> IndexedVideo:
        """Add a video with its steps, or replace the video with its name, in one commit.

        Args:
            video: The video as an engine read it.
            steps: Its steps.
            name: Its name in the corpus.
            sha256: Hash of the content of its file.
            transcripts: Identifies the transcripts next to it.

        Raises:
            InputError: The corpus was indexed with another model.
            BusyError: Another process keeps writing to it.
            OSError: The disk is full.
        """
        described = describe_video(video, steps, name, sha256, transcripts)
        self.add_all([described], video.engine, again=True)
        return described.record

    def add_all(self, videos: Sequence[VideoRows], engine: Embedder, again: bool = False) -> int:
        """Add videos of different names, or replace those with their names, in one commit. Returns how many.

        `engine` is the model that read them. Videos that the corpus has unchanged are only replaced
        `again`. Raises the errors of `add`.
        """
        import pyarrow as pa

        if not videos:
            return 0
        width = self.tables.width() or videos[0].width  # the first video decides
        for video in videos:
            video.check_width(width, self.uri)
        names = [video.record.video for video in videos]

        def put(is_locked: bool) -> int:
            self.check_model(engine)
            stored = self.stored(names)
            changed = [video for video in videos if again or not video.matches(stored.get(video.record.video))]
            if changed:
                self._put_speech(changed)
                rows = pa.concat_tables([video.rows for video in changed])
                self.tables.replace(STEPS, [video.record.video for video in changed], rows)
                if not is_locked:
                    commit(self.uri, lambda: drop_repeated(self.table, RowFilter(names)))
            return len(changed)

        return self.tables.change(put)

    def _put_speech(self, videos: Sequence[VideoRows]) -> None:
        """Replace the speech of videos. This must come before their steps (see `hiero.corpus.table`)."""
        import pyarrow as pa

        parts = [video.speech for video in videos if video.speech is not None]
        names = [video.record.video for video in videos]
        self.tables.replace(SPEECH, names, pa.concat_tables(parts) if parts else None)

    def renew(self, engine: Engine, read: ReadVideo, labels: Sequence[str] | None = None) -> None:
        """Index all videos again with the current version of their model, in one commit at the end.

        `read` reads a video with the engine, and `labels` are those of `Video.steps`. Raises InputError if a
        video is missing or cannot be read.
        """
        import pyarrow as pa

        renewed: dict[IndexedVideo, VideoRows] = {}
        while True:
            records = self.videos()
            if missing := [str(path) for record in records for path in record.source.missing_paths]:
                advice = f"restore it, or remove the video with: hiero corpus remove {self.uri} VIDEO"
                raise InputError(f"{self.uri}: cannot be indexed again: {', '.join(missing)} is missing; {advice}")
            for record in records:
                if record not in renewed:
                    # Corrected steps keep their own number.
                    settings = IndexSettings(None if record.edits else record.levels, labels)
                    key = transcripts_key(record.source)
                    renewed[record] = _read_video(record.source, read, settings, record.video, key)
            with write_lock(self.uri, self.wait_s):
                if self.videos() == records:  # otherwise another process has added videos in the meantime
                    self._put_speech([renewed[record] for record in records])
                    self.tables.overwrite(pa.concat_tables([renewed[record].rows for record in records]))
                    return

    def remove(self, names: Sequence[str]) -> None:
        """Remove videos by their names (`IndexedVideo.video`). Their files are kept.

        Raises:
            InputError: There are no names, or the corpus has no such video.
        """
        if not names:
            raise InputError("name the videos to remove: hiero corpus remove CORPUS VIDEO…")
        existing = self.stored(names)  # also finds steps whose video is missing
        if missing := [name for name in names if name not in existing]:
            raise InputError(f"{self.uri}: has no video {', '.join(missing)}")

        def delete(_: bool) -> None:
            self.tables.replace(STEPS, names, None)
            self.tables.replace(SPEECH, names, None)  # last (see `hiero.corpus.table`)

        self.tables.change(delete)

    def optimize(self) -> None:
        """Merge small files, prune old versions, and index the vectors of a large corpus."""
        self.tables.optimize()

    def check(self) -> list[str]:
        """Damage, repeated videos, missing steps, and files that are missing or have changed, each with what to do.

        Raises InputError if a table is damaged.
        """
        for table in (STEPS, SPEECH):
            self.tables.read_all(table)
        by_name = self.stored()
        problems = []
        for name, stored in sorted(by_name.items()):
            if len(stored.records) != 1 or not stored.is_whole:
                advice = f"index it again: hiero index VIDEO --to {self.uri} --again"
                problems.append(f"{name}: its rows are incomplete or repeated; {advice}")
            for record in stored.records[:1]:
                missing = [f"{name}: {path} is missing" for path in record.source.missing_paths]
                problems += missing or _check_content(record)
        return problems


def _check_content(record: IndexedVideo) -> list[str]:
    """Problems with the content of the files of a video. Remote files are not downloaded."""
    source = record.source
    try:
        key = source.known_key()
    except InputError as error:
        return [f"{record.video}: {error}"]
    # The key of a remote file is unknown if it was never downloaded or has changed since.
    is_unknown = key is None and source.is_remote and not any(file.was_downloaded for file in source.files)
    if is_unknown or key == record.sha256:
        return []
    return [f"{record.video}: {record.path} has changed; index it again"]


def add_video(
    corpus: Corpus,
    engine: Engine,
    source: VideoInput,
    read: ReadVideo,
    settings: IndexSettings = DEFAULT_SETTINGS,
    name: str | None = None,
) -> tuple[IndexedVideo, bool]:
    """Index a video or feature file unless it is unchanged. Returns its record and whether it was indexed."""
    source = VideoSource.of(source)
    name = name or source.path.stem
    known = {} if settings.again else corpus.lookup([name])
    described = read_changed(source, engine, read, settings, name, known.get(name))
    if described is None:
        return known[name], False
    return described.record, corpus.add_all([described], engine, settings.again) > 0


def read_changed(
    source: VideoSource,
    engine: Embedder,
    read: ReadVideo,
    settings: IndexSettings,
    name: str,
    known: IndexedVideo | None,
) -> VideoRows | None:
    """Read a video or feature file, or return None if it is unchanged since it was indexed (`known`)."""
    for path in source.missing_paths:
        raise InputError(f"{path}: no such file")
    transcripts = transcripts_key(source) if settings.transcripts else ""
    if known is not None and transcripts in ("", known.transcripts):
        sha256 = source.known_key()
        edits = read_edits(source.path, sha256) if settings.edits and not settings.num_steps else None
        key = "" if edits is None else edits_key(edits.hierarchy)
        if (known.sha256, known.model_key, known.edits) == (sha256, engine.key, key):
            return None
    return _read_video(source, read, settings, name, transcripts)


def _read_video(
    source: VideoSource, read: ReadVideo, settings: IndexSettings, name: str, transcripts: str
) -> VideoRows:
    video = read(source)
    steps = video.steps(settings.num_steps, labels=settings.labels)
    return describe_video(video, steps, name, source.key(), transcripts)


def corpus_model(corpus: Corpus) -> str | None:
    """The model of a corpus as an argument of `hiero.load`, or None if it cannot be found."""
    record = corpus.first_video()
    if record is None:
        return None
    if record.model in SHIPPED:
        return record.model
    if record.model_key.startswith("raw"):  # features of a backbone
        return record.model
    return record.model_at if record.model_at and Path(record.model_at).is_dir() else None
