"""Steps of many videos in one LanceDB table: nearest steps to a text, or to a moment of another video.

A row is a step of some level: when, what, a vector, a small picture. The row of level −1 is the video itself and says what it was
made from. All rows of a video are replaced in one commit, so a reader sees the old ones or the new ones, and two writers of
different videos do not disturb each other. A folder, or any address that LanceDB knows.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from hiero.engine import Embedder, Engine, Video
from hiero.errors import InputError
from hiero.model.model_folder import SHIPPED
from hiero.storage.cache import content_key
from hiero.types import Hierarchy, Step

TABLE = "steps"
WHOLE = -1  # the level of a video's own row
INDEXED_FROM = 100_000  # rows; fewer are compared one by one, which is exact
PROBES, REFINE = 40, 10  # of the index: parts that are looked at, and candidates that are compared exactly, for each result
OVERLAP = 0.5  # of two hits in one video, above which they are the same moment on two levels
ATTEMPTS = 20
TIDY_EVERY = 50  # commits, after which small files are put together


@dataclass(frozen=True)
class IndexedVideo:
    """A video of the corpus: where it was, what it was made from, by which model."""

    video: str
    path: str
    sha256: str
    model: str
    model_key: str
    duration_s: float
    levels: tuple[int, ...]
    indexed_at: float = 0.0
    model_at: str = ""
    """Where the model was; a shipped one is found by its name."""

    @classmethod
    def read(cls, text: str) -> IndexedVideo:
        held = json.loads(text)
        return cls(**{**held, "levels": tuple(held["levels"])})


@dataclass(frozen=True)
class Hit:
    """A step of some video, and how near it is (1: the same)."""

    video: str
    level: int
    step: str
    start_s: float
    end_s: float
    thread: int
    label: str | None
    score: float

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "start_s": round(self.start_s, 3), "end_s": round(self.end_s, 3), "score": round(self.score, 4)}


@dataclass
class Corpus:
    """An opened corpus. `create` makes the table with the first video."""

    uri: str
    create: bool = False
    _held: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            import lancedb
        except ImportError:
            raise InputError("a corpus needs LanceDB; run: pip install 'hiero-video[serve]'") from None
        local = "://" not in self.uri
        if local and not self.create and not Path(self.uri).is_dir():
            raise InputError(f"{self.uri}: no such corpus; make one: hiero index VIDEO… --to {self.uri}")
        if local and Path(self.uri).is_file():
            raise InputError(f"{self.uri}: is a file; a corpus is a folder")
        try:
            self._db = lancedb.connect(self.uri)
            if TABLE in self._db.list_tables().tables:
                self._held.append(self._db.open_table(TABLE))
        except (ValueError, OSError, RuntimeError) as error:
            raise InputError(f"{self.uri}: not a corpus that can be opened ({error})") from error
        if not self._held and not self.create:
            raise InputError(f"{self.uri}: not a corpus; make one: hiero index VIDEO… --to {self.uri}")

    @property
    def table(self) -> Any:
        if not self._held:
            raise InputError(f"{self.uri}: is empty; add videos: hiero index VIDEO… --to {self.uri}")
        return self._held[0]

    def __len__(self) -> int:
        """Steps of all videos."""
        return self.table.count_rows(f"level > {WHOLE}") if self._held else 0

    # Writing

    def add(self, video: Video, steps: Hierarchy, name: str, sha256: str) -> IndexedVideo:
        """Put a video in, in place of what is there of it: in one commit."""
        about = IndexedVideo(
            name, str(video.path.resolve()), sha256, video.engine.name, video.engine.key, video.duration_s,
            tuple(len(level) for level in steps.levels), time.time(), _place(video.engine),
        )  # fmt: skip
        rows = self._rows(video, steps, about)
        self.check_model(video.engine)
        if not self._held:
            self._make_table(rows.schema)
        self._commit(lambda table: _replace(table, rows, name))
        return about

    def remove(self, names: Sequence[str]) -> None:
        if not names:
            raise InputError("say which videos to remove: hiero corpus remove CORPUS VIDEO…")
        known = set(self.table.search().select(["video"]).limit(100_000_000).to_arrow()["video"].to_pylist())
        if missing := [name for name in names if name not in known]:
            raise InputError(f"{self.uri}: holds no {', '.join(missing)}")
        self._commit(lambda table: table.delete(f"video IN ({', '.join(map(_quoted, names))})"))

    def tidy(self) -> None:
        """Put small files together, forget old versions, and index the vectors where there are many."""
        if not self._held:
            return
        self.table.optimize(cleanup_older_than=timedelta(hours=1))  # who began to read before that has ended
        if self.table.count_rows() >= INDEXED_FROM and not self.table.list_indices():
            from lancedb.index import IvfRq

            self.table.create_index("vector", config=IvfRq(distance_type="cosine"))

    def _make_table(self, schema: Any) -> None:
        try:
            self._held.append(self._db.create_table(TABLE, schema=schema, exist_ok=True))
        except (ValueError, OSError, RuntimeError):  # another process was first
            self._held.append(self._db.open_table(TABLE))

    def _commit(self, change: Callable[[Any], Any]) -> None:
        """Another writer's commit in between is not an error: look again, and try again."""
        for attempt in range(ATTEMPTS):
            try:
                self.table.checkout_latest()
                change(self.table)
                break
            except (RuntimeError, OSError) as error:
                if "onflict" not in str(error) and "retr" not in str(error).lower():
                    raise
                if attempt == ATTEMPTS - 1:
                    raise InputError(f"{self.uri}: too many writers at a time ({error})") from error
                time.sleep(random.uniform(0, 0.1 * (attempt + 1)))
        if self.table.version % TIDY_EVERY == 0:
            self.tidy()

    def _rows(self, video: Video, steps: Hierarchy, about: IndexedVideo) -> Any:
        import pyarrow as pa

        flat: list[tuple[int, Step]] = [(number, step) for number, level in enumerate(steps.levels) for step in level]
        whole = Step("whole", 0.0, video.duration_s, 0)
        vectors = np.concatenate([video.embed_spans(np.array([[0, len(video.nodes)]]))]
                                 + [video.embed_spans(video.level_spans(level)) for level in steps.levels])  # fmt: skip
        listed = [(WHOLE, whole), *flat]
        texts = [json.dumps(asdict(about)), *("" for _ in flat)]
        width = vectors.shape[1]
        columns = {
            "uid": [f"{about.video}\n{number}\n{step.id}" for number, step in listed],
            "video": [about.video] * len(listed),
            "level": pa.array([number for number, _ in listed], pa.int32()),
            "step": [step.id for _, step in listed],
            "start_s": [step.start_s for _, step in listed],
            "end_s": [step.end_s for _, step in listed],
            "thread": pa.array([step.thread for _, step in listed], pa.int32()),
            "label": pa.array([step.label for _, step in listed], pa.string()),
            "picture": pa.array(
                [video.source.thumbnail_at((step.start_s + step.end_s) / 2) for _, step in listed], pa.binary()
            ),
            "about": texts,
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), width),
        }  # fmt: skip
        return pa.table(columns)

    def check_model(self, engine: Embedder) -> None:
        """Only one model's steps can be compared with each other."""
        others = {about.model for about in self.videos() if about.model_key != engine.key}
        if others:
            raise InputError(
                f"{self.uri}: its steps are in the space of {', '.join(sorted(others))}, {engine.name} has another; "
                "use that model (--model), or another corpus"
            )

    def check_words(self, engine: Embedder) -> None:
        """A question must be put in the words of the model that made the steps."""
        made = {about.model_key: about.model for about in self.videos()}
        if made and engine.key not in made:
            raise InputError(f"{self.uri} was made with {', '.join(made.values())}; say where that model is: --model FOLDER")

    # Reading

    def videos(self) -> list[IndexedVideo]:
        if not self._held:
            return []
        self.table.checkout_latest()
        found = self.table.search().where(f"level = {WHOLE}").select(["about"]).limit(10_000_000).to_list()
        return sorted((IndexedVideo.read(row["about"]) for row in found), key=lambda about: about.video)

    def find(self, name: str) -> IndexedVideo:
        for about in self.videos():
            if name in (about.video, about.path, Path(about.path).name):
                return about
        raise InputError(f"{self.uri}: holds no video {name}; see: hiero corpus list {self.uri}")

    def steps(self, name: str, level: int | None = None) -> list[Hit]:
        """The steps of a video in time order."""
        where = f"video = {_quoted(name)} AND level " + (f"> {WHOLE}" if level is None else f"= {level}")
        rows = self.table.search().where(where).select(COLUMNS).limit(10_000_000).to_list()
        return sorted((_hit(row, 1.0) for row in rows), key=lambda hit: (hit.level, hit.start_s))

    def search(
        self,
        vector: np.ndarray,
        num: int = 20,
        *,
        videos: Sequence[str] = (),
        level: int | None = None,
        without: str | None = None,
        exact: bool = False,
    ) -> list[Hit]:
        """The nearest steps, each moment once: of hits that overlap on two levels the nearer stays."""
        if num < 1:
            raise InputError(f"-n is at least 1, got {num}")
        self.table.checkout_latest()
        width = _width(self.table)
        if len(vector) != width:
            raise InputError(f"{self.uri}: its vectors have {width} numbers, the query {len(vector)}; it was made by another model")
        where = [f"level > {WHOLE}" if level is None else f"level = {level}"]
        if videos:
            where.append(f"video IN ({', '.join(map(_quoted, videos))})")
        if without is not None:
            where.append(f"video != {_quoted(without)}")
        found: list[Hit] = []
        wanted = num
        while True:
            query = self.table.search(vector.astype(np.float32), vector_column_name="vector").distance_type("cosine")
            query = query.where(" AND ".join(where), prefilter=True).select([*COLUMNS, "_distance"]).limit(4 * wanted)
            query = query.bypass_vector_index() if exact else query.nprobes(PROBES).refine_factor(REFINE)
            rows = query.to_list()
            found = _suppress_overlaps([_hit(row, 1 - row["_distance"]) for row in rows])
            if len(found) >= num or len(rows) < 4 * wanted:
                return found[:num]
            wanted *= 4

    def like(self, name: str, time_s: float, num: int = 20, level: int | None = None, **options: Any) -> tuple[Hit, list[Hit]]:
        """The step of a video at a moment, and the steps of other videos that are most like it."""
        about = self.find(name)
        level = len(about.levels) - 1 if level is None else level
        where = f"video = {_quoted(about.video)} AND level = {level} AND start_s <= {time_s} AND end_s > {time_s}"
        rows = self.table.search().where(where).select([*COLUMNS, "vector"]).limit(1).to_list()
        if not rows:
            raise InputError(f"{about.video}: no step of level {level} at {time_s:g} s; it is {about.duration_s:.0f} s long")
        return _hit(rows[0], 1.0), self.search(np.array(rows[0]["vector"]), num, level=level, without=about.video, **options)

    def check(self) -> list[str]:
        """What is wrong: rows that belong to no video, steps that are missing, files that are gone or have changed."""
        import pyarrow.compute as pc

        problems = []
        videos = {about.video: about for about in self.videos()}
        held = self.table.search().select(["video", "level"]).limit(100_000_000).to_arrow()
        counts = held.group_by(["video", "level"]).aggregate([("level", "count")]).to_pylist()
        there = {(row["video"], row["level"]): row["level_count"] for row in counts}
        for name in pc.unique(held["video"]).to_pylist():
            if name not in videos:
                problems.append(f"{name}: steps without their video; run: hiero corpus remove {self.uri} {name}")
        for name, about in videos.items():
            if there.get((name, WHOLE)) != 1 or any(there.get((name, i)) != n for i, n in enumerate(about.levels)):
                problems.append(f"{name}: steps are missing; index it again")
            path = Path(about.path)
            if not path.is_file():
                problems.append(f"{name}: {path} is gone")
            elif content_key(path) != about.sha256:
                problems.append(f"{name}: {path} has changed; index it again")
        return problems


COLUMNS = ["video", "level", "step", "start_s", "end_s", "thread", "label"]


def add_video(
    corpus: Corpus, engine: Engine, path: Path, read: Callable[[Path], Video], *, num_steps: Sequence[int] | None = None,
    labels: Sequence[str] | None = None, name: str | None = None, again: bool = False,
) -> tuple[IndexedVideo, bool]:  # fmt: skip
    """Index a video or feature file, unless it is there unchanged. → what is there of it, and whether it was done now."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    name = name or path.stem
    sha256 = content_key(path)
    for about in corpus.videos() if not again else ():
        if (about.video, about.sha256, about.model_key) == (name, sha256, engine.key):
            return about, False
    video = read(path)
    return corpus.add(video, video.steps(num_steps, labels=labels), name, sha256), True


def _place(engine: Embedder) -> str:
    return "" if engine.folder is None or engine.name in SHIPPED else str(engine.folder.path.resolve())


def corpus_model(corpus: Corpus) -> str | None:
    """The model that a corpus was made with, as `hiero.load` takes it; None where it is not to be found."""
    for about in corpus.videos():
        if about.model in (*SHIPPED, "raw"):
            return about.model
        if Path(about.model_at).is_dir() and about.model_at:
            return about.model_at
    return None


def _replace(table: Any, rows: Any, name: str) -> None:
    merge = table.merge_insert("uid").when_matched_update_all().when_not_matched_insert_all()
    merge.when_not_matched_by_source_delete(f"video = {_quoted(name)}").execute(rows)


def _quoted(text: str) -> str:
    """A string for LanceDB's SQL."""
    return "'" + text.replace("'", "''") + "'"


def _width(table: Any) -> int:
    return int(table.schema.field("vector").type.list_size)


def _hit(row: dict[str, Any], score: float) -> Hit:
    return Hit(**{name: row[name] for name in COLUMNS}, score=float(score))


def _suppress_overlaps(hits: list[Hit]) -> list[Hit]:
    """Hits that are no repetition of a nearer one in the same video."""
    kept: dict[str, list[Hit]] = {}
    out = []
    for hit in hits:
        others = kept.setdefault(hit.video, [])
        if all(_overlap(hit, other) <= OVERLAP for other in others):
            others.append(hit)
            out.append(hit)
    return out


def _overlap(a: Hit, b: Hit) -> float:
    """Intersection over union in time."""
    both = min(a.end_s, b.end_s) - max(a.start_s, b.start_s)
    return max(0.0, both) / max(max(a.end_s, b.end_s) - min(a.start_s, b.start_s), 1e-9)
