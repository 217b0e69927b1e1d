"""Steps of many videos in one LanceDB table: nearest steps to a text, or to a moment of another video."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from hiero.corpus.rows import HIT_COLUMNS, VIDEO_LEVEL, build_rows, sql_string, sql_strings
from hiero.corpus.rows import Hit as Hit
from hiero.corpus.rows import IndexedVideo as IndexedVideo
from hiero.engine import Embedder, Engine, SpanSummaries, Video
from hiero.errors import InputError
from hiero.model.model_folder import SHIPPED
from hiero.steps.similarity import match_probability
from hiero.storage.cache import content_key
from hiero.types import Hierarchy

TABLE = "steps"
MIN_INDEXED_ROWS = 100_000  # fewer are compared one by one, which is exact
NUM_PROBES = 40  # parts of the index that a search visits
REFINE_FACTOR = 10  # candidates of the index that are compared exactly, for each result
MAX_OVERLAP = 0.5  # IoU of two hits in one video, above which they are the same moment on two levels
OVERSAMPLING = 4  # rows that are fetched for each hit, since some repeat a moment
MAX_ATTEMPTS = 20  # of a commit, while other processes write
MAX_BACKOFF_S = 0.1  # of the first attempt; it grows with each
COMMITS_PER_TIDY = 50  # each commit leaves small files, which are then put together
OLD_VERSION = timedelta(hours=1)  # who began to read a version before that has ended
MIN_SCORED_ROWS = 500  # of the nearest by their vectors, that are compared with all that is stored of them
ALL_ROWS = 100_000_000  # LanceDB returns 10 rows where no limit is given


@dataclass
class Corpus:
    """Videos whose steps are searched together: a folder, or any address that LanceDB knows (s3://…).

    All rows of a video are replaced in one commit, so a reader sees the old ones or the new ones, and writers of different videos
    do not disturb each other.

    Attributes:
        uri: The folder or address.
        create: Make the table with the first video that is added, where there is none.

    Raises:
        InputError: LanceDB is not installed, there is no corpus and none is to be made, or it cannot be opened.
    """

    uri: str
    create: bool = False
    _table: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            import lancedb
        except ImportError:
            raise InputError("a corpus needs LanceDB; run: pip install 'hiero-video[serve]'") from None
        is_local = "://" not in self.uri
        if is_local and not self.create and not Path(self.uri).is_dir():
            raise InputError(f"{self.uri}: no such corpus; make one: hiero index VIDEO… --to {self.uri}")
        if is_local and Path(self.uri).is_file():
            raise InputError(f"{self.uri}: is a file; a corpus is a folder")
        try:
            self._db = lancedb.connect(self.uri)
            if TABLE in self._db.list_tables().tables:
                self._table = self._db.open_table(TABLE)
        except (ValueError, OSError, RuntimeError) as error:
            raise InputError(f"{self.uri}: not a corpus that can be opened ({error})") from error
        if self._table is None and not self.create:
            raise InputError(f"{self.uri}: not a corpus; make one: hiero index VIDEO… --to {self.uri}")

    @property
    def table(self) -> Any:
        """The LanceDB table.

        Raises:
            InputError: No video was added yet.
        """
        if self._table is None:
            raise InputError(f"{self.uri}: is empty; add videos: hiero index VIDEO… --to {self.uri}")
        return self._table

    def __len__(self) -> int:
        """Number of steps of all videos."""
        return self.table.count_rows(f"level > {VIDEO_LEVEL}") if self._table is not None else 0

    # Writing

    def add(self, video: Video, steps: Hierarchy, name: str, sha256: str) -> IndexedVideo:
        """Put a video in, in place of what the corpus has under its name: in one commit.

        Args:
            video: As an engine read it.
            steps: Its hierarchy.
            name: What the corpus calls it.
            sha256: Of the content of its file.

        Returns:
            What the corpus has of it now.

        Raises:
            InputError: The corpus was made with another model, or too many processes write at a time.
        """
        record, rows = _describe(video, steps, name, sha256)
        self.check_model(video.engine)
        if self._table is None:
            self._create_table(rows.schema)
        self._commit(lambda table: _replace_rows(table, rows, name))
        return record

    def renew(self, engine: Engine, read: Callable[[Path], Video], labels: Sequence[str] | None = None) -> None:
        """Read all videos again with the present version of their model: in one commit, when all are read.

        Args:
            engine: With the model.
            read: Reads a file with the engine.
            labels: For the steps, as `Video.steps` takes them.

        Raises:
            InputError: A video is gone or cannot be read.
        """
        import pyarrow as pa

        records = self.videos()
        if missing := [record.path for record in records if not Path(record.path).is_file()]:
            raise InputError(
                f"{self.uri} was made by another version of {engine.name}, and {', '.join(missing)} cannot be read again: bring "
                f"it back, or take it out: hiero corpus remove {self.uri} VIDEO"
            )
        tables = []
        for record in records:
            path = Path(record.path)
            video = read(path)
            tables.append(_describe(video, video.steps(record.levels, labels=labels), record.video, content_key(path))[1])
        self._table = self._db.create_table(TABLE, pa.concat_tables(tables), mode="overwrite")

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
        existing = set(self.table.search().select(["video"]).limit(ALL_ROWS).to_arrow()["video"].to_pylist())
        if missing := [name for name in names if name not in existing]:
            raise InputError(f"{self.uri}: holds no {', '.join(missing)}")
        self._commit(lambda table: table.delete(f"video IN {sql_strings(list(names))}"))

    def optimize(self) -> None:
        """Put small files together, forget old versions, and index the vectors where there are many."""
        if self._table is None:
            return
        self.table.optimize(cleanup_older_than=OLD_VERSION)
        if self.table.count_rows() >= MIN_INDEXED_ROWS and not self.table.list_indices():
            from lancedb.index import IvfRq

            self.table.create_index("vector", config=IvfRq(distance_type="cosine"))

    def _create_table(self, schema: Any) -> None:
        try:
            self._table = self._db.create_table(TABLE, schema=schema, exist_ok=True)
        except (ValueError, OSError, RuntimeError):  # another process was first
            self._table = self._db.open_table(TABLE)

    def _commit(self, change: Callable[[Any], Any]) -> None:
        """Change the table; where another process has written in between, read its version and try again."""
        for attempt in range(MAX_ATTEMPTS):
            try:
                self.table.checkout_latest()
                change(self.table)
                break
            except (RuntimeError, OSError) as error:
                # LanceDB has no class for this error; its message is such as "Retryable commit conflict for version 7".
                if "onflict" not in str(error) and "retr" not in str(error).lower():
                    raise
                if attempt == MAX_ATTEMPTS - 1:
                    raise InputError(f"{self.uri}: too many writers at a time ({error})") from error
                time.sleep(random.uniform(0, MAX_BACKOFF_S * (attempt + 1)))
        if self.table.version % COMMITS_PER_TIDY == 0:
            self.optimize()

    # What fits

    def check_model(self, engine: Embedder) -> None:
        """Raise InputError where steps of an engine cannot be added: only those of one model can be compared with each other."""
        others = {record.model for record in self.videos() if record.model_key != engine.key}
        if self.is_stale(engine):
            raise InputError(f"{self.uri}: {self._advice(engine)}")
        if others:
            raise InputError(
                f"{self.uri}: its steps are in the space of {', '.join(sorted(others))}, {engine.name} has another; "
                "use that model (--model), or another corpus"
            )

    def check_query_model(self, engine: Embedder) -> None:
        """Raise InputError where queries of an engine cannot be searched for: they must be embedded by the model of the steps."""
        models = {record.model_key: record.model for record in self.videos()}
        if self.is_stale(engine):
            raise InputError(f"{self.uri}: {self._advice(engine)}")
        if models and engine.key not in models:
            raise InputError(f"{self.uri} was made with {', '.join(models.values())}; say where that model is: --model FOLDER")

    def is_stale(self, engine: Embedder) -> bool:
        """Whether the steps were made by another version of an engine's model: `renew` makes them anew."""
        made_by = {(record.model, record.model_key) for record in self.videos()}
        return any(model == engine.name and key != engine.key for model, key in made_by)

    def _advice(self, engine: Embedder) -> str:
        return f"was made by another version of {engine.name}; make its steps anew: hiero index --to {self.uri}"

    # Reading

    def videos(self) -> list[IndexedVideo]:
        """All videos, by name."""
        if self._table is None:
            return []
        self.table.checkout_latest()
        rows = self.table.search().where(f"level = {VIDEO_LEVEL}").select(["about"]).limit(ALL_ROWS).to_list()
        return sorted((IndexedVideo.from_json(row["about"]) for row in rows), key=lambda record: record.video)

    def find(self, name: str) -> IndexedVideo:
        """A video by its name, its path, or the name of its file.

        Raises:
            InputError: The corpus has no such video.
        """
        for record in self.videos():
            if name in (record.video, record.path, Path(record.path).name):
                return record
        raise InputError(f"{self.uri}: holds no video {name}; see: hiero corpus list {self.uri}")

    def steps(self, name: str, level: int | None = None) -> list[Hit]:
        """The steps of a video, level by level, in time order.

        Args:
            name: Of the video, as `IndexedVideo.video`.
            level: Only of this level, 0 the coarsest.

        Returns:
            The steps, each with score 1; none where there is no such video.
        """
        where = f"video = {sql_string(name)} AND level " + (f"> {VIDEO_LEVEL}" if level is None else f"= {level}")
        rows = self.table.search().where(where).select(HIT_COLUMNS).limit(ALL_ROWS).to_list()
        return sorted((Hit.from_row(row, 1.0) for row in rows), key=lambda hit: (hit.level, hit.start_s))

    def search_text(self, engine: Embedder, text: str, num: int = 20, **options: Any) -> list[Hit]:
        """The steps that fit a text best: found by their vectors, then compared with all that is stored of them.

        Args:
            engine: The model that the corpus was made with.
            text: What to look for.
            num: How many hits at most.
            options: More arguments of `search`.
        """
        vector = engine.embed_queries([text])[0]
        if not engine.has_pictures:
            return self.search(vector, num, **options)

        def score(summaries: list[bytes]) -> np.ndarray:
            similarity = SpanSummaries.from_bytes(summaries).similarity([text])
            return match_probability(similarity[0])

        return self.search(vector, num, score=score, **options)

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
        if num < 1:
            raise InputError(f"-n is at least 1, got {num}")
        self.table.checkout_latest()
        width = int(self.table.schema.field("vector").type.list_size)
        if len(vector) != width:
            raise InputError(f"{self.uri}: its vectors have {width} numbers, the query {len(vector)}; it was made by another model")
        conditions = [f"level > {VIDEO_LEVEL}" if level is None else f"level = {level}"]
        if videos:
            conditions.append(f"video IN {sql_strings(list(videos))}")
        if exclude is not None:
            conditions.append(f"video != {sql_string(exclude)}")
        num_rows = OVERSAMPLING * num if score is None else max(OVERSAMPLING * num, MIN_SCORED_ROWS)
        columns = [*HIT_COLUMNS, "_distance", *(["summary"] if score is not None else [])]
        while True:
            query = self.table.search(vector.astype(np.float32), vector_column_name="vector").distance_type("cosine")
            query = query.where(" AND ".join(conditions), prefilter=True).select(columns).limit(num_rows)
            query = query.bypass_vector_index() if exact else query.nprobes(NUM_PROBES).refine_factor(REFINE_FACTOR)
            rows = query.to_list()
            found = [Hit.from_row(row, 1 - row["_distance"]) for row in rows]
            summaries = [row["summary"] for row in rows if score is not None and row["summary"]]
            if score is not None and summaries:
                scores = iter(score(summaries))
                found = [replace(h, score=float(next(scores))) if row["summary"] else h for h, row in zip(found, rows, strict=True)]
                found = sorted(_in_context(found), key=lambda hit: -hit.score)
            hits = _suppress_overlaps(found)
            if len(hits) >= num or len(rows) < num_rows:  # enough, or there are no more
                return hits[:num]
            num_rows *= 4

    def like(self, name: str, time_s: float, num: int = 20, level: int | None = None, **options: Any) -> tuple[Hit, list[Hit]]:
        """The same step elsewhere: the step of a video at a moment, and the steps of other videos that are most like it.

        Args:
            name: Of the video, as `find` takes it.
            time_s: The moment.
            num: How many hits at most.
            level: Of the step and of the hits; by default the finest of the video.
            options: More arguments of `search`.

        Returns:
            The step at the moment, and the hits, nearest first.

        Raises:
            InputError: There is no such video, or no step of this level at that moment.
        """
        record = self.find(name)
        level = len(record.levels) - 1 if level is None else level
        where = f"video = {sql_string(record.video)} AND level = {level} AND start_s <= {time_s} AND end_s > {time_s}"
        rows = self.table.search().where(where).select([*HIT_COLUMNS, "vector"]).limit(1).to_list()
        if not rows:
            raise InputError(f"{record.video}: no step of level {level} at {time_s:g} s; it is {record.duration_s:.0f} s long")
        hits = self.search(np.array(rows[0]["vector"]), num, level=level, exclude=record.video, **options)
        return Hit.from_row(rows[0], 1.0), hits

    def check(self) -> list[str]:
        """What is wrong: rows that belong to no video, steps that are missing, files that are gone or have changed.

        Returns:
            A line for each problem, with what to do about it.
        """
        import pyarrow.compute as pc

        problems = []
        records = {record.video: record for record in self.videos()}
        rows = self.table.search().select(["video", "level"]).limit(ALL_ROWS).to_arrow()
        groups = rows.group_by(["video", "level"]).aggregate([("level", "count")]).to_pylist()
        num_rows = {(group["video"], group["level"]): group["level_count"] for group in groups}
        for name in pc.unique(rows["video"]).to_pylist():
            if name not in records:
                problems.append(f"{name}: steps without their video; run: hiero corpus remove {self.uri} {name}")
        for name, record in records.items():
            expected = {(name, VIDEO_LEVEL): 1, **{(name, level): num for level, num in enumerate(record.levels)}}
            if any(num_rows.get(key) != num for key, num in expected.items()):
                problems.append(f"{name}: steps are missing; index it again")
            path = Path(record.path)
            if not path.is_file():
                problems.append(f"{name}: {path} is gone")
            elif content_key(path) != record.sha256:
                problems.append(f"{name}: {path} has changed; index it again")
        return problems


def add_video(
    corpus: Corpus, engine: Engine, path: Path, read: Callable[[Path], Video], *, num_steps: Sequence[int] | None = None,
    labels: Sequence[str] | None = None, name: str | None = None, again: bool = False,
) -> tuple[IndexedVideo, bool]:  # fmt: skip
    """Index a video or feature file, unless the corpus has it unchanged.

    Args:
        corpus: Where it goes.
        engine: The model.
        path: The file.
        read: Reads it with the engine; called only where it must be read.
        num_steps: Number of steps of each level, as `Video.steps` takes them.
        labels: For the steps, likewise.
        name: What the corpus calls it; by default the name of the file without its ending.
        again: Also where it is unchanged.

    Returns:
        What the corpus has of it, and whether it was indexed now.

    Raises:
        InputError: There is no such file, it cannot be read, or the corpus was made with another model.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    name = name or path.stem
    sha256 = content_key(path)
    for record in corpus.videos() if not again else ():
        if (record.video, record.sha256, record.model_key) == (name, sha256, engine.key):
            return record, False
    video = read(path)
    return corpus.add(video, video.steps(num_steps, labels=labels), name, sha256), True


def corpus_model(corpus: Corpus) -> str | None:
    """The model that a corpus was made with, as `hiero.load` takes it; None where it is not to be found."""
    for record in corpus.videos():
        if record.model in (*SHIPPED, "raw"):
            return record.model
        if record.model_at and Path(record.model_at).is_dir():
            return record.model_at
    return None


def _describe(video: Video, steps: Hierarchy, name: str, sha256: str) -> tuple[IndexedVideo, Any]:
    """What a corpus has of a video: its record, and its rows."""
    record = IndexedVideo(
        name, str(video.path.resolve()), sha256, video.engine.name, video.engine.key, video.duration_s,
        tuple(len(level) for level in steps.levels), time.time(), _model_folder(video.engine),
    )  # fmt: skip
    return record, build_rows(video, steps, record)


def _model_folder(engine: Embedder) -> str:
    return "" if engine.folder is None or engine.name in SHIPPED else str(engine.folder.path.resolve())


def _replace_rows(table: Any, rows: Any, name: str) -> None:
    """Insert, update and delete rows of one video, in one commit."""
    merge = table.merge_insert("uid").when_matched_update_all().when_not_matched_insert_all()
    merge.when_not_matched_by_source_delete(f"video = {sql_string(name)}").execute(rows)


def _in_context(hits: list[Hit]) -> list[Hit]:
    """Hits with the mean of their scores and those of the steps around them: the coarser ones that they are parts of."""
    by_video: dict[str, list[Hit]] = {}
    for hit in hits:
        by_video.setdefault(hit.video, []).append(hit)
    out = []
    for hit in hits:
        around = [o for o in by_video[hit.video] if o is hit or (o.level < hit.level and o.start_s <= hit.start_s < o.end_s)]
        out.append(replace(hit, score=sum(other.score for other in around) / len(around)))
    return out


def _suppress_overlaps(hits: list[Hit]) -> list[Hit]:
    """Hits that are no repetition of a nearer one in the same video."""
    by_video: dict[str, list[Hit]] = {}
    out = []
    for hit in hits:
        nearer = by_video.setdefault(hit.video, [])
        if all(hit.overlap(other) <= MAX_OVERLAP for other in nearer):
            nearer.append(hit)
            out.append(hit)
    return out
