"""Steps of many videos in one LanceDB table: nearest steps to a text, or to a moment of another video."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hiero.corpus.commits import commit, is_disk_full, is_local, read_latest, write_lock
from hiero.corpus.rows import (
    HIT_COLUMNS,
    VIDEO_LEVEL,
    StoredVideo,
    VideoRows,
    describe_video,
    vector_width,
)
from hiero.corpus.rows import Hit as Hit
from hiero.corpus.rows import IndexedVideo as IndexedVideo
from hiero.corpus.same_step import find_same_steps
from hiero.corpus.searching import search_steps
from hiero.corpus.speech_table import SPEECH_TABLE, SpokenMoment, find_spoken, replace_speech, transcripts_key
from hiero.corpus.sql import ALL_ROWS, sql_string, sql_strings
from hiero.corpus.stored_rows import check_content, drop_repeated, find_stored, put_rows, query_rows, select_changed
from hiero.engine import Embedder, Engine, SpanSummaries, Video
from hiero.errors import InputError
from hiero.model.model_folder import SHIPPED
from hiero.sources.source import VideoInput, VideoSource
from hiero.steps.similarity import match_probability
from hiero.text.minilm import encode_minilm
from hiero.types import Hierarchy

TABLE = "steps"
MIN_INDEXED_ROWS = 100_000  # fewer are compared one by one, which is exact
# Each commit leaves a small file. They are put together, which writes all rows anew, when there are
# so many of them and these hold such a share of the rows: so a row is written a few times, however
# many follow. Or when there are far too many.
MIN_FILES, MIN_NEW_SHARE, MAX_FILES = 32, 0.25, 256
OLD_VERSION = timedelta(minutes=1)  # older ones are pruned; who reads one meanwhile reads the latest instead

Result = TypeVar("Result")
ReadVideo = Callable[[VideoSource], Video]  # reads a file, or several as one video


@dataclass
class Corpus:
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

    uri: str
    create: bool = False
    _table: Any = field(default=None, init=False, repr=False)
    _speech: Any = field(default=None, init=False, repr=False)  # the table of what is said
    _silent_at: int | None = field(default=None, init=False, repr=False)  # version of the steps when nothing was said
    _width: int | None = field(default=None, init=False, repr=False)  # of the vectors, once it was looked up

    def __post_init__(self) -> None:
        try:
            import lancedb
        except ImportError:
            raise InputError("a corpus needs LanceDB; run: pip install 'hiero-video[serve]'") from None
        if is_local(self.uri) and not self.create and not Path(self.uri).is_dir():
            raise InputError(f"{self.uri}: no such corpus; make one: hiero index VIDEO… --to {self.uri}")
        if is_local(self.uri) and Path(self.uri).is_file():
            raise InputError(f"{self.uri}: is a file; a corpus is a folder")
        try:
            self._db = lancedb.connect(self.uri)
            self._latest()
        except (ValueError, OSError, RuntimeError) as error:
            raise InputError(f"{self.uri}: not a corpus that can be opened ({_reason(error)})") from error
        if self._table is None and not self.create:
            raise InputError(f"{self.uri}: not a corpus; make one: hiero index VIDEO… --to {self.uri}")

    def _latest(self) -> Any:
        """The table as the last writer left it; None where there is none yet."""
        if self._table is not None:
            self._table.checkout_latest()
        elif TABLE in self._db.list_tables().tables:
            try:
                self._table = self._db.open_table(TABLE)
            except ValueError as error:
                if "not found" not in str(error):
                    raise
                # Another process makes it just now, or was killed then: there is a folder, and no version in it yet.
        return self._table

    @property
    def table(self) -> Any:
        """The LanceDB table, as the last writer left it.

        Raises:
            InputError: No video was added yet.
        """
        table = self._latest()
        if table is None:
            raise InputError(f"{self.uri}: is empty; add videos: hiero index VIDEO… --to {self.uri}")
        return table

    @property
    def speech_table(self) -> Any:
        """The LanceDB table of what is said, as the last writer left it; None where no video has a transcript."""
        if self._speech is not None:
            self._speech.checkout_latest()
        elif self._silent_at != (version := getattr(self._latest(), "version", None)):
            # Speech is written before steps: while these are of the same version, no such table has come.
            if SPEECH_TABLE in self._db.list_tables().tables:
                self._speech = self._db.open_table(SPEECH_TABLE)
            else:
                self._silent_at = version
        return self._speech

    def __len__(self) -> int:
        """Number of steps of all videos."""
        return self._count(f"level > {VIDEO_LEVEL}")

    @property
    def num_videos(self) -> int:
        """Number of videos."""
        return self._count(f"level = {VIDEO_LEVEL}")

    def _count(self, where: str) -> int:
        return 0 if self._latest() is None else read_latest(lambda: int(self.table.count_rows(where)))

    # Writing

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
        if not videos:
            return 0

        def put(table: Any, is_locked: bool) -> int:
            self.check_model(engine)
            names = [video.record.video for video in videos]
            stored = find_stored(table, names)
            changed = select_changed(videos, stored, again)
            self._put_speech(changed)
            num_added = put_rows(table, changed, stored)
            if num_added and not is_locked:
                commit(self.uri, lambda: drop_repeated(self.table, f"video IN {sql_strings(names)}"))
            return num_added

        return self._commit(put, videos[0].rows.schema)

    def _put_speech(self, videos: Sequence[VideoRows]) -> None:
        """What is said in videos, in place of what the corpus has of them: before their steps, see
        `hiero.corpus.speech_table`.
        """
        import pyarrow as pa

        parts = [video.speech for video in videos if video.speech is not None]
        table = self.speech_table
        if table is None and parts:
            table = self._db.create_table(SPEECH_TABLE, schema=parts[0].schema, exist_ok=True)
        if table is not None and videos:
            replace_speech(table, [video.record.video for video in videos], pa.concat_tables(parts) if parts else None)

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
                    "read again: "
                    f"bring it back, or take it out: hiero corpus remove {self.uri} VIDEO"
                )
            for record in records:
                if record not in renewed:
                    renewed[record] = _read_video(
                        record.source, read, record.levels, labels, record.video, transcripts_key(record.source)
                    )
            with write_lock(self.uri):
                if self.videos() == records:  # else another process has written meanwhile: that too
                    self._put_speech([renewed[record] for record in records])
                    rows = pa.concat_tables([renewed[record].rows for record in records])
                    self._table = commit(
                        self.uri, functools.partial(self._db.create_table, TABLE, rows, mode="overwrite")
                    )
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
        existing = self._stored_videos(names)
        if missing := [name for name in names if name not in existing]:
            raise InputError(f"{self.uri}: holds no {', '.join(missing)}")
        where = f"video IN {sql_strings(list(names))}"

        def delete(table: Any, _: bool) -> None:
            table.delete(where)
            if (speech := self.speech_table) is not None:
                speech.delete(where)

        self._commit(delete)

    def optimize(self) -> None:
        """Put small files together, prune old versions, and index the vectors where there are many."""
        if self._latest() is not None:
            with write_lock(self.uri) as is_locked:
                commit(self.uri, lambda: self._optimize(is_locked))

    def _optimize(self, is_locked: bool) -> None:
        for table in filter(None, (self.table, self.speech_table)):
            # Files that no version refers to are of writers that were killed, if no other can be at work now.
            table.optimize(cleanup_older_than=OLD_VERSION, delete_unverified=is_locked)
            if table.count_rows() >= MIN_INDEXED_ROWS and not table.list_indices():
                from lancedb.index import IvfSq

                table.create_index("vector", config=IvfSq(distance_type="cosine"))

    def _commit(self, change: Callable[[Any, bool], Result], schema: Any = None) -> Result:
        """Change the latest version of the table, and tidy it up where that is due."""
        with write_lock(self.uri) as is_locked:
            if schema is not None and self._latest() is None:
                commit(self.uri, lambda: self._create_table(schema))
            result = commit(self.uri, lambda: change(self.table, is_locked))
            self._tidy(is_locked)
        return result

    def _tidy(self, is_locked: bool) -> None:
        """`optimize` where it is due. It needs as much space as the table; what was committed is in,
        also where there is none.
        """
        stats = self.table.stats()
        files, num_rows = stats["fragment_stats"], stats["num_rows"]
        num_new = num_rows - files["lengths"]["max"]  # all but those of the largest file
        num_files = files["num_small_fragments"]
        if num_files < MIN_FILES or (num_new < MIN_NEW_SHARE * num_rows and num_files < MAX_FILES):
            return
        try:
            commit(self.uri, lambda: self._optimize(is_locked))
        except InputError:
            return  # too many others write: one of them will
        except OSError as error:
            if not is_disk_full(error):
                raise
            warnings.warn(f"{self.uri}: no space to put its files together; searches will take longer", stacklevel=2)

    def _create_table(self, schema: Any) -> None:
        try:
            self._table = self._db.create_table(TABLE, schema=schema, exist_ok=True)
        except (ValueError, OSError, RuntimeError) as error:
            if is_disk_full(error):
                raise
            try:
                self._table = self._db.open_table(TABLE)  # another process was first
            except ValueError:
                raise error from None

    # What fits

    def check_model(self, engine: Embedder) -> None:
        """Raise InputError where steps of an engine cannot be added: only those of one model can be
        compared with each other.
        """
        if model := self._other_model(engine):
            raise InputError(
                f"{self.uri}: its steps are in the space of {model}, {engine.name} has another; use that model "
                "(--model), or "
                "another corpus"
            )

    def check_query_model(self, engine: Embedder) -> None:
        """Raise InputError where queries of an engine cannot be searched for: they must be embedded by
        the model of the steps.
        """
        if model := self._other_model(engine):
            raise InputError(f"{self.uri} was made with {model}; say where that model is: --model FOLDER")

    def _other_model(self, engine: Embedder) -> str | None:
        """The name of the model of the corpus, if that is not an engine's."""
        record = self.first_video()
        if record is None or record.model_key == engine.key:
            return None
        if record.model == engine.name:
            raise InputError(
                f"{self.uri}: was made by another version of {engine.name}; make its steps anew: hiero index --to "
                f"{self.uri}"
            )
        return record.model

    def check_width(self, video: VideoRows) -> None:
        """Raise InputError where a video's vectors are not as wide as those of the corpus, as raw features may be."""
        if self._width is None and self._latest() is not None:
            self._width = vector_width(self._table.schema)
        if self._width not in (None, video.width):
            raise InputError(
                f"{video.record.path}: its vectors have {video.width} numbers, those of {self.uri} have "
                f"{self._width}; use another "
                "corpus"
            )

    def is_stale(self, engine: Embedder) -> bool:
        """Whether the steps were made by another version of an engine's model: `renew` makes them anew."""
        record = self.first_video()
        return record is not None and record.model == engine.name and record.model_key != engine.key

    def first_video(self) -> IndexedVideo | None:
        """Any of the videos: all are of one model."""
        rows = self._records(f"level = {VIDEO_LEVEL}", 1)
        return rows[0] if rows else None

    # Reading

    def videos(self) -> list[IndexedVideo]:
        """All videos, by name."""
        return sorted(self._records(f"level = {VIDEO_LEVEL}"), key=lambda record: record.video)

    def find(self, name: str) -> IndexedVideo:
        """A video by its name, its path, or the name of its file.

        Raises:
            InputError: The corpus has no such video.
        """
        for record in self._records(f"level = {VIDEO_LEVEL} AND video = {sql_string(name)}") or self.videos():
            if name in (record.video, record.path, Path(record.path).name):
                return record
        raise InputError(f"{self.uri}: holds no video {name}; see: hiero corpus list {self.uri}")

    def lookup(self, names: Iterable[str]) -> dict[str, IndexedVideo]:
        """Those of some videos that are in, whole, by name."""
        return {name: stored.records[0] for name, stored in self._stored_videos(list(names)).items() if stored.is_whole}

    def _records(self, where: str, num: int = ALL_ROWS) -> list[IndexedVideo]:
        if self._latest() is None:
            return []
        rows = self._query(where, ["about"], num)
        return [IndexedVideo.from_json(row["about"]) for row in rows]

    def _query(self, where: str | None, columns: list[str], num: int = ALL_ROWS) -> list[dict[str, Any]]:
        return read_latest(lambda: list(query_rows(self.table, where, columns, num).to_arrow().to_pylist()))

    def _stored_videos(self, names: Sequence[str] | None = None) -> dict[str, StoredVideo]:
        """What the table has under names, or under all: whole videos, and what else there may be."""
        if self._latest() is None or (names is not None and not names):
            return {}
        return read_latest(lambda: find_stored(self.table, names))

    def steps(self, name: str, level: int | None = None) -> list[Hit]:
        """The steps of a video, level by level, in time order.

        Args:
            name: Of the video, as `IndexedVideo.video`.
            level: Only of this level, 0 the coarsest.

        Returns:
            The steps, each with score 1; none where there is no such video.
        """
        where = f"video = {sql_string(name)} AND level " + (f"> {VIDEO_LEVEL}" if level is None else f"= {level}")
        hits = [Hit.from_row(row, 1.0) for row in self._query(where, HIT_COLUMNS)]
        return sorted(hits, key=lambda hit: (hit.level, hit.start_s))

    def described_steps(self, name: str, level: int) -> list[tuple[Hit, np.ndarray, bytes | None]]:
        """The steps of one level of a video in time order, each with its vector and its picture.

        Args:
            name: Of the video, as `IndexedVideo.video`.
            level: 0 the coarsest.
        """
        where = f"video = {sql_string(name)} AND level = {level}"
        rows = sorted(self._query(where, [*HIT_COLUMNS, "vector", "picture"]), key=lambda row: row["start_s"])
        return [(Hit.from_row(row, 1.0), np.array(row["vector"], dtype=np.float32), row["picture"]) for row in rows]

    def search_text(self, engine: Embedder, text: str, num: int = 20, **options: Any) -> list[Hit]:
        """The steps that fit a text best: near by their vectors, then compared with all that is stored of them.

        Where videos have transcripts, also what is said is searched: see `Hit.rests_on`. By speech
        alone where the model has no text encoder.

        Args:
            engine: The model that the corpus was made with.
            text: What to look for.
            num: How many hits at most.
            options: More arguments of `search`.
        """

        def score(summaries: list[bytes]) -> np.ndarray:
            similarity = SpanSummaries.from_bytes(summaries).similarity([text])
            return match_probability(similarity[0])

        filters = {name: options[name] for name in ("videos", "exclude", "exact") if name in options}
        spoken = self.search_speech(text, num, **filters)
        vector = None if spoken is not None and not engine.has_text else engine.embed_queries([text])[0]
        return search_steps(
            lambda: self.table,
            self.uri,
            vector,
            num,
            score=score if engine.has_pictures else None,
            spoken=spoken,
            **options,
        )

    def search_speech(
        self, text: str, num: int = 20, *, videos: Sequence[str] = (), exclude: str | None = None, exact: bool = False
    ) -> list[SpokenMoment] | None:
        """When a text, or something near to it, is said in videos of the corpus; None where none has a transcript.

        Args:
            text: What to look for.
            num: How many steps are wanted; there are some times as many moments.
            videos: Only in these; by default in all.
            exclude: Not in this video.
            exact: Compare with all that is said; without it a large corpus is searched by its index.
        """
        if num < 1 or self.speech_table is None or not read_latest(lambda: self.speech_table.count_rows()):
            return None
        conditions = [f"video IN {sql_strings(list(videos))}"] if videos else []
        conditions += [f"video != {sql_string(exclude)}"] if exclude is not None else []
        vector, where = encode_minilm([text])[0], " AND ".join(conditions) or None
        return read_latest(lambda: find_spoken(self.speech_table, vector, num, where, exact))

    def search(
        self,
        vector: np.ndarray,
        num: int = 20,
        *,
        videos: Sequence[str] = (),
        level: int | None = None,
        exclude: str | None = None,
        exact: bool = False,
        score: Callable[[list[bytes]], np.ndarray] | None = None,
    ) -> list[Hit]:
        """The steps nearest to a vector, each moment once: of hits that overlap on two levels the nearer stays.

        Args:
            vector: (D,), such as a row of `Engine.embed_queries` or `Video.embed_spans`.
            num: How many hits at most.
            videos: Only in these; by default in all.
            level: Only steps of this level, 0 the coarsest; by default of all.
            exclude: Not in this video.
            exact: Compare with every step; without it a large corpus is searched by its index.
            score: How well steps fit by their summaries: the nearest ones are then ordered by it.

        Returns:
            Hits, nearest first.

        Raises:
            InputError: `num` is below 1, the corpus is empty, or its vectors have another size.
        """
        return search_steps(
            lambda: self.table,
            self.uri,
            vector,
            num,
            videos=videos,
            level=level,
            exclude=exclude,
            exact=exact,
            score=score,
        )

    def like(
        self,
        name: str,
        time_s: float,
        num: int = 20,
        level: int | None = None,
        *,
        videos: Sequence[str] = (),
        exact: bool = False,
    ) -> tuple[Hit, list[Hit]]:
        """The same step elsewhere: the step of a video at a moment, and the steps of other videos that
        are most likely the same.

        Steps are compared by what they show and by what comes before and after them
        (`hiero.steps.correspondence`): of the videos that have the nearest steps, and of those that
        are nearest as a whole.

        Args:
            name: Of the video, as `find` takes it.
            time_s: The moment.
            num: How many hits at most.
            level: Of the step and of the hits; by default the finest of the video.
            videos: Only in these; by default in all others.
            exact: Compare with every step to find the videos; without it a large corpus is searched by its index.

        Returns:
            The step at the moment, and the hits, most likely first; their score is how likely it is the same step.

        Raises:
            InputError: There is no such video, no step of this level at that moment, or `num` is below 1.
        """
        record = self.find(name)
        level = len(record.levels) - 1 if level is None else level
        answer = read_latest(lambda: find_same_steps(self.table, record.video, level, time_s, num, videos, exact))
        if answer is None:
            raise InputError(
                f"{record.video}: no step of level {level} at {time_s:g} s; it is {record.duration_s:.0f} s long"
            )
        return answer

    def check(self) -> list[str]:
        """What is wrong: videos that are in several times, steps that are missing, files that are gone
        or have changed.

        Returns:
            A line for each problem, with what to do about it.
        """
        problems = []
        advice = f"run: hiero corpus check {self.uri} --repair"
        for name, stored in sorted(self._stored_videos().items()):
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
        if self._latest() is None:
            return
        mixed = {name for name, stored in self._stored_videos().items() if stored.is_mixed}
        self._commit(lambda table, _: drop_repeated(table))
        broken = {
            name: stored for name, stored in self._stored_videos().items() if not stored.is_whole or name in mixed
        }
        if orphans := [name for name, stored in broken.items() if not stored.records]:
            self.remove(orphans)
        self._drop_speech_without_video()
        for name, stored in broken.items():
            if stored.records and not (record := stored.records[0]).missing_files:
                video = read(record.source)
                self.add(video, video.steps(record.levels), name, record.source.key(), record.transcripts)

    def _drop_speech_without_video(self) -> None:
        """Remove what is said in videos that are not in: a process was killed before it had written their steps."""
        if self.speech_table is None:
            return
        rows = read_latest(lambda: query_rows(self.speech_table, None, ["video"]).to_arrow().to_pylist())
        names = {record.video for record in self.videos()}
        if orphans := sorted({row["video"] for row in rows} - names):
            self._commit(lambda *_: self.speech_table.delete(f"video IN {sql_strings(orphans)}"))


def add_video(
    corpus: Corpus,
    engine: Engine,
    source: VideoInput,
    read: ReadVideo,
    *,
    num_steps: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    name: str | None = None,
    again: bool = False,
    transcripts: bool = True,
) -> tuple[IndexedVideo, bool]:
    """Index a video or feature file, unless the corpus has it unchanged."""
    source = VideoSource.of(source)
    name = name or source.path.stem
    known = {} if again else corpus.lookup([name])
    described = read_changed(source, engine, read, num_steps, labels, name, known.get(name), transcripts)
    if described is None:
        return known[name], False
    corpus.check_width(described)
    return described.record, corpus.add_all([described], engine, again) > 0


def read_changed(
    source: VideoSource,
    engine: Embedder,
    read: ReadVideo,
    num_steps: Sequence[int] | None,
    labels: Sequence[str] | None,
    name: str,
    known: IndexedVideo | None,
    transcripts: bool = True,
) -> VideoRows | None:
    """Read a video or feature file, unless it is known unchanged."""
    for path in source.missing_paths:
        raise InputError(f"{path}: no such file")
    beside = transcripts_key(source) if transcripts else ""
    is_spoken_anew = known is not None and beside not in ("", known.transcripts)
    if known is not None and (known.sha256, known.model_key) == (source.known_key(), engine.key) and not is_spoken_anew:
        return None
    return _read_video(source, read, num_steps, labels, name, beside)


def _read_video(
    source: VideoSource,
    read: ReadVideo,
    num_steps: Sequence[int] | None,
    labels: Sequence[str] | None,
    name: str,
    transcripts: str,
) -> VideoRows:
    known_sha256 = source.known_key()  # None where a remote file must be brought, which the reader shows
    video = read(source)
    sha256 = known_sha256 or source.key()
    described = describe_video(video, video.steps(num_steps, labels=labels), name, sha256, transcripts)
    if source.key() != sha256:
        raise InputError(f"{source.name}: changed while it was read; index it again when it is whole")
    return described


def corpus_model(corpus: Corpus) -> str | None:
    """The model that a corpus was made with, as `hiero.load` takes it; None where it is not to be found."""
    record = corpus.first_video()
    if record is None or record.model in (*SHIPPED, "raw"):
        return None if record is None else record.model
    return record.model_at if record.model_at and Path(record.model_at).is_dir() else None


def _reason(error: Exception) -> str:
    """What LanceDB says, in a line: of an object store it passes on all that it has, in braces."""
    text = str(error)
    message = re.search(r"<Message>(.*?)</Message>", text) or re.search(r'message: \\?"([^"\\]+)', text)
    return f"{text.split('{')[0].strip(' :')}: {message[1]}" if message else text.split("{")[0].strip(" :")
