"""Corpus: steps of many videos in LanceDB; nearest steps to a text, or to a moment of another video."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hiero.corpus.reader import CorpusReader
from hiero.corpus.rows import Hit as Hit
from hiero.corpus.rows import IndexedVideo as IndexedVideo
from hiero.corpus.rows import VideoRows, check_content, describe_video, select_changed, transcripts_key
from hiero.corpus.table import ANY_ROW, SPEECH, STEPS, RowFilter, commit, drop_repeated, write_lock
from hiero.engine import Embedder, Engine, Video
from hiero.errors import InputError
from hiero.model.model_folder import SHIPPED
from hiero.sources.source import VideoInput, VideoSource
from hiero.types import Hierarchy

ReadVideo = Callable[[VideoSource], Video]  # reads a file, or several as one video


@dataclass(frozen=True)
class IndexSettings:
    """How videos are indexed: numbers of steps and labels as `Video.steps` takes them; `again` also indexes
    what is in unchanged, and without `transcripts` those beside the videos are not used.
    """

    num_steps: Sequence[int] | None = None
    labels: Sequence[str] | None = None
    again: bool = False
    transcripts: bool = True


DEFAULT_SETTINGS = IndexSettings()


@dataclass
class Corpus(CorpusReader):
    """Videos whose steps are searched together: a folder, or any address that LanceDB knows (s3://…).

    All rows of a video are replaced in one commit, so a reader sees the old ones or the new ones.
    Any number of processes may write at a time, also the same videos: each is in once. In a folder
    they take turns (`write_lock`); elsewhere a writer looks after its commit whether another has
    inserted the same videos, and removes what is there twice.

    Attributes:
        uri: The folder or address.
        create: Make the table with the first video that is added, where there is none.

    Raises:
        InputError: LanceDB is not installed, there is no corpus and none is to be made, or it cannot be opened.
    """

    _width: int | None = field(default=None, init=False, repr=False)  # of the vectors, once it was looked up

    def add(self, video: Video, steps: Hierarchy, name: str, sha256: str, transcripts: str = "") -> IndexedVideo:
        """Put a video in, in place of what the corpus has under its name: in one commit.

        Args:
            video: As an engine read it.
            steps: Its hierarchy.
            name: What the corpus calls it.
            sha256: Of the content of its file.
            transcripts: Identifies the transcripts beside it.

        Returns:
            What the corpus has of it now.

        Raises:
            InputError: The corpus was made with another model, or too many processes write at a time.
            OSError: The disk is full.
        """
        described = describe_video(video, steps, name, sha256, transcripts)
        self.check_width(described)
        self.add_all([described], video.engine, again=True)
        return described.record

    def add_all(self, videos: Sequence[VideoRows], engine: Embedder, again: bool = False) -> int:
        """Put videos in, in place of what the corpus has under their names: all in one commit.

        Args:
            videos: With different names.
            engine: The model that read them.
            again: Also those that are in unchanged, such as by another process meanwhile.

        Returns:
            How many were put in.

        Raises:
            InputError: The corpus was made with another model, or too many processes write at a time.
            OSError: The disk is full.
        """
        import pyarrow as pa

        if not videos:
            return 0
        names = [video.record.video for video in videos]

        def put(is_locked: bool) -> int:
            self.check_model(engine)
            changed = select_changed(videos, self.stored(names), again)
            if changed:
                self._put_speech(changed)
                rows = pa.concat_tables([video.rows for video in changed])
                self.tables.replace(STEPS, [video.record.video for video in changed], rows)
                if not is_locked:
                    commit(self.uri, lambda: drop_repeated(self.table, RowFilter(names)))
            return len(changed)

        return self.tables.change(put, videos[0].rows.schema)

    def _put_speech(self, videos: Sequence[VideoRows]) -> None:
        """What is said in videos, in place of what the corpus has of them: before their steps, see
        `hiero.corpus.table`.
        """
        import pyarrow as pa

        parts = [video.speech for video in videos if video.speech is not None]
        names = [video.record.video for video in videos]
        self.tables.replace(SPEECH, names, pa.concat_tables(parts) if parts else None)

    def renew(self, engine: Engine, read: ReadVideo, labels: Sequence[str] | None = None) -> None:
        """Read all videos again with the present version of their model: in one commit, when all are read.

        Args:
            engine: With the model.
            read: Reads a file, or several as one video, with the engine.
            labels: For the steps, as `Video.steps` takes them.

        Raises:
            InputError: A video is gone or cannot be read.
            OSError: The disk is full.
        """
        import pyarrow as pa

        renewed: dict[IndexedVideo, VideoRows] = {}
        while True:
            records = self.videos()
            if missing := [str(path) for record in records for path in record.missing_files]:
                raise InputError(
                    f"{self.uri} was made by another version of {engine.name}, and {', '.join(missing)} cannot be "
                    f"read again: bring it back, or take it out: hiero corpus remove {self.uri} VIDEO"
                )
            for record in records:
                if record not in renewed:
                    settings = IndexSettings(record.levels, labels)
                    beside = transcripts_key(record.source)
                    renewed[record] = _read_video(record.source, read, settings, record.video, beside)
            with write_lock(self.uri):
                if self.videos() == records:  # else another process has written meanwhile: that too
                    self._put_speech([renewed[record] for record in records])
                    self.tables.overwrite(pa.concat_tables([renewed[record].rows for record in records]))
                    self._width = None
                    return

    def remove(self, names: Sequence[str]) -> None:
        """Take videos out; their files stay.

        Args:
            names: Of the videos, as `IndexedVideo.video`.

        Raises:
            InputError: There are no names, or the corpus has no such video.
        """
        if not names:
            raise InputError("say which videos to remove: hiero corpus remove CORPUS VIDEO…")
        # Of all rows, not only those of whole videos: steps whose video is missing can be removed too.
        existing = self.stored(names)
        if missing := [name for name in names if name not in existing]:
            raise InputError(f"{self.uri}: holds no {', '.join(missing)}")
        self.tables.change(lambda _: self.tables.delete(names))

    def optimize(self) -> None:
        """Put small files together, prune old versions, and index the vectors where there are many."""
        self.tables.optimize()

    def check_model(self, engine: Embedder) -> None:
        """Raise InputError where steps of an engine cannot be added: only those of one model can be
        compared with each other.
        """
        if model := self.other_model(engine):
            raise InputError(
                f"{self.uri}: its steps are in the space of {model}, {engine.name} has another; use that model "
                "(--model), or another corpus"
            )

    def check_width(self, video: VideoRows) -> None:
        """Raise InputError where a video's vectors are not as wide as those of the corpus, as raw features may be."""
        if self._width is None:
            self._width = self.tables.width()
        if self._width not in (None, video.width):
            raise InputError(
                f"{video.record.path}: its vectors have {video.width} numbers, those of {self.uri} have {self._width}; "
                "use another corpus"
            )

    def check(self) -> list[str]:
        """What is wrong: videos that are in several times, steps that are missing, files that are gone
        or have changed.

        Returns:
            A line for each problem, with what to do about it.
        """
        problems = []
        advice = f"run: hiero corpus check {self.uri} --repair"
        for name, stored in sorted(self.stored().items()):
            if not stored.records:
                problems.append(f"{name}: steps without their video; {advice}")
                continue
            if len(stored.records) > 1:
                problems.append(f"{name}: is in {len(stored.records)} times; {advice}")
            elif not stored.is_whole:
                problems.append(f"{name}: steps are missing, or are in twice; {advice}")
            record = stored.records[0]
            if record.missing_files:
                problems += [f"{name}: {path} is gone" for path in record.missing_files]
            else:
                problems += check_content(record)
        return problems

    def repair(self, read: ReadVideo) -> None:
        """Mend what `check` finds in the table: each video is in once then, with all its steps.

        What is in several times is removed but for one. Steps without their video are removed. A
        video whose steps are missing is read again, if its file is there; one whose file is gone
        stays as it is.

        Args:
            read: Reads a file with the model of the corpus; called only where steps are missing.

        Raises:
            InputError: A file cannot be read.
            OSError: The disk is full.
        """
        if self.tables.find(STEPS) is None:
            return
        mixed = {name for name, stored in self.stored().items() if stored.is_mixed}
        self.tables.change(lambda _: drop_repeated(self.table))
        broken = {name: stored for name, stored in self.stored().items() if not stored.is_whole or name in mixed}
        if orphans := [name for name, stored in broken.items() if not stored.records]:
            self.remove(orphans)
        self._drop_speech_without_video()
        for name, stored in broken.items():
            if stored.records and not (record := stored.records[0]).missing_files:
                video = read(record.source)
                self.add(video, video.steps(record.levels), name, record.source.key(), record.transcripts)

    def _drop_speech_without_video(self) -> None:
        """Remove what is said in videos that are not in: a process was killed before it had written their steps."""
        if self.tables.find(SPEECH) is None:
            return
        names = self.tables.read(ANY_ROW, ["video"], name=SPEECH)["video"].to_pylist()
        if orphans := sorted(set(names) - {record.video for record in self.videos()}):
            self.tables.change(lambda _: self.tables.delete(orphans, [SPEECH]))


def add_video(
    corpus: Corpus,
    engine: Engine,
    source: VideoInput,
    read: ReadVideo,
    settings: IndexSettings = DEFAULT_SETTINGS,
    name: str | None = None,
) -> tuple[IndexedVideo, bool]:
    """Index a video or feature file, unless the corpus has it unchanged."""
    source = VideoSource.of(source)
    name = name or source.path.stem
    known = {} if settings.again else corpus.lookup([name])
    described = read_changed(source, engine, read, settings, name, known.get(name))
    if described is None:
        return known[name], False
    corpus.check_width(described)
    return described.record, corpus.add_all([described], engine, settings.again) > 0


def read_changed(
    source: VideoSource,
    engine: Embedder,
    read: ReadVideo,
    settings: IndexSettings,
    name: str,
    known: IndexedVideo | None,
) -> VideoRows | None:
    """Read a video or feature file, unless it is known unchanged."""
    for path in source.missing_paths:
        raise InputError(f"{path}: no such file")
    beside = transcripts_key(source) if settings.transcripts else ""
    if known is not None and (known.sha256, known.model_key) == (source.known_key(), engine.key):
        has_new_transcript = beside not in ("", known.transcripts)
        if not has_new_transcript:
            return None
    return _read_video(source, read, settings, name, beside)


def _read_video(
    source: VideoSource, read: ReadVideo, settings: IndexSettings, name: str, transcripts: str
) -> VideoRows:
    known_sha256 = source.known_key()  # None where a remote file must be downloaded, which the reader shows
    video = read(source)
    sha256 = known_sha256 or source.key()
    steps = video.steps(settings.num_steps, labels=settings.labels)
    described = describe_video(video, steps, name, sha256, transcripts)
    if source.key() != sha256:
        raise InputError(f"{source.name}: changed while it was read; index it again when it is whole")
    return described


def corpus_model(corpus: Corpus) -> str | None:
    """The model that a corpus was made with, as `hiero.load` takes it; None where it is not to be found."""
    record = corpus.first_video()
    if record is None or record.model in (*SHIPPED, "raw"):
        return None if record is None else record.model
    return record.model_at if record.model_at and Path(record.model_at).is_dir() else None
