"""Rows of the tables: what a corpus stores of a video, and what is read back.

A row of the steps is a step of some level: when it is, its label, a vector, a summary of what it
shows, a thumbnail. The row of level −1 is the video itself; its column `about` says what the steps
were made from. A row of the speech is a window of one to three utterances: its video, when it is,
its words, and their vector by the sentence encoder.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hiero.corpus.table import VIDEO_LEVEL, vector_width
from hiero.engine import Embedder, Video
from hiero.errors import InputError
from hiero.formats.transcripts import find_transcript
from hiero.model.model_folder import SHIPPED
from hiero.sources.source import VideoSource
from hiero.storage.files import parse_json
from hiero.text.minilm import MINILM_SIZE
from hiero.types import Hierarchy, RestsOn, Step, VideoFile

if TYPE_CHECKING:
    import pyarrow as pa

HIT_COLUMNS = ["video", "level", "step", "start_s", "end_s", "thread", "label"]


@dataclass(frozen=True)
class IndexedVideo:
    """A video of a corpus: where it was, what it was made from, by which model.

    Attributes:
        video: Its name, unique in the corpus.
        path: The file, absolute; the address of a remote one.
        sha256: Of the file's content, when it was indexed; of several files, of their contents in this order.
        model: Name of the model that found the steps.
        model_key: Identifies the weights; only steps with the same key can be compared.
        duration_s: Length of the video.
        levels: Number of steps of each level, coarse to fine.
        indexed_at: When it was indexed, in seconds since 1970.
        model_at: Folder of the model; empty for a shipped one, which is found by its name.
        files: Where several files were read as one video, these in time order, absolute; `path` is the first.
        transcripts: Identifies the transcripts that lay beside the files; empty where there were none.
    """

    video: str
    path: str
    sha256: str
    model: str
    model_key: str
    duration_s: float
    levels: tuple[int, ...]
    indexed_at: float = 0.0
    model_at: str = ""
    files: tuple[VideoFile, ...] = ()
    transcripts: str = ""

    @property
    def source(self) -> VideoSource:
        """What it is read from: the file, or several that are one video."""
        return VideoSource.of([file.path for file in self.files] or self.path)

    @property
    def missing_files(self) -> list[Path]:
        """Those of its files that are gone; what is remote counts as there."""
        return self.source.missing_paths

    def to_dict(self) -> dict[str, Any]:
        """All fields; `files` only where there are several, `transcripts` only where there are some."""
        return {name: value for name, value in asdict(self).items() if value or name not in ("files", "transcripts")}

    def to_json(self) -> str:
        """As in the column `about`."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> IndexedVideo:
        """The reverse of `to_json`."""
        fields = parse_json(text)
        files = tuple(VideoFile(**file) for file in fields.get("files", ()))
        return cls(**{**fields, "levels": tuple(fields["levels"]), "files": files})


@dataclass(frozen=True)
class Hit:
    """A step of some video of a corpus, as a search gives it.

    Attributes:
        video: Name of the video.
        level: Of the step in its hierarchy, 0 the coarsest.
        step: Id of the step, unique in its video.
        start_s: When it begins.
        end_s: When it ends.
        thread: Steps of a level of one video with the same thread are alike.
        label: Its name, if it has one.
        score: Cosine similarity with the query; where texts are compared with pictures, how likely
            the step shows it; of `Corpus.like`, how likely it is the same step. Where something is
            said there, joined with how likely the query is said.
        rests_on: What speaks for it: what is said, what is seen, or both. None where no video of
            the corpus has a transcript.
        quote: What is said there, where the hit rests on speech.
    """

    video: str
    level: int
    step: str
    start_s: float
    end_s: float
    thread: int
    label: str | None
    score: float
    rests_on: RestsOn | None = None
    quote: str | None = None

    @property
    def key(self) -> tuple[str, int, str]:
        """Identifies the step in its corpus."""
        return self.video, self.level, self.step

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of `hiero search`; times are rounded to milliseconds. `rests_on`, `quote`
        where there is speech.
        """
        document = {
            **asdict(self),
            "start_s": round(self.start_s, 3),
            "end_s": round(self.end_s, 3),
            "score": round(self.score, 4),
        }
        if self.rests_on is None:
            del document["rests_on"], document["quote"]
        return document

    @classmethod
    def from_row(cls, row: dict[str, Any], score: float) -> Hit:
        """From the HIT_COLUMNS of a row."""
        return cls(**{name: row[name] for name in HIT_COLUMNS}, score=float(score))

    def overlap(self, other: Hit) -> float:
        """Intersection over union of two spans of one video."""
        intersection_s = min(self.end_s, other.end_s) - max(self.start_s, other.start_s)
        union_s = max(self.end_s, other.end_s) - min(self.start_s, other.start_s)
        return max(0.0, intersection_s) / max(union_s, 1e-9)


@dataclass(frozen=True)
class VideoRows:
    """A video as a corpus will have it."""

    record: IndexedVideo
    rows: pa.Table
    speech: pa.Table | None = None

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return vector_width(self.rows.schema)


@dataclass
class StoredVideo:
    """What a table has under the name of a video, which may be more or less than one whole video."""

    records: list[IndexedVideo] = field(default_factory=list)
    num_rows: Counter[int] = field(default_factory=Counter)

    @property
    def is_whole(self) -> bool:
        """Whether it is in once, with all its steps."""
        return len(self.records) == 1 and self.num_rows == {VIDEO_LEVEL: 1, **dict(enumerate(self.records[0].levels))}

    @property
    def is_mixed(self) -> bool:
        """Whether it is in several times, made from different content or by different models."""
        return len({(record.sha256, record.model_key, record.levels) for record in self.records}) > 1


def group_by_video(rows: Iterable[dict[str, Any]]) -> dict[str, StoredVideo]:
    """The videos of rows with the columns `video`, `level` and `about`, by name."""
    out: dict[str, StoredVideo] = {}
    for row in rows:
        stored = out.setdefault(row["video"], StoredVideo())
        stored.num_rows[row["level"]] += 1
        if row["level"] == VIDEO_LEVEL:
            stored.records.append(IndexedVideo.from_json(row["about"]))
    return out


def describe_video(video: Video, steps: Hierarchy, name: str, sha256: str, transcripts: str = "") -> VideoRows:
    """A video as a corpus will have it."""
    origin = video.origin or VideoSource.of(video.path)
    stored = [file.stored_name for file in origin.files]
    files = tuple(map(_with_path, video.files, stored)) if video.is_joined else ()
    record = IndexedVideo(
        name,
        stored[0],
        sha256,
        video.engine.name,
        video.engine.key,
        video.duration_s,
        tuple(len(level) for level in steps.levels),
        time.time(),
        _model_folder(video.engine),
        files,
        transcripts,
    )
    return VideoRows(record, build_rows(video, steps, record), build_speech_rows(video, name))


def _with_path(file: VideoFile, path: str) -> VideoFile:
    return replace(file, path=path)


def _model_folder(engine: Embedder) -> str:
    return "" if engine.folder is None or engine.name in SHIPPED else str(engine.folder.path.resolve())


def build_rows(video: Video, hierarchy: Hierarchy, record: IndexedVideo) -> pa.Table:
    """All rows of a video: first that of the video itself, then its steps, level by level."""
    import pyarrow as pa

    whole = Step("whole", 0.0, video.duration_s, 0)
    steps = [(VIDEO_LEVEL, whole), *((i, step) for i, level in enumerate(hierarchy.levels) for step in level)]
    spans = [np.array([[0, len(video.nodes)]]), *(video.level_spans(level) for level in hierarchy.levels)]
    vectors = np.concatenate([video.embed_spans(level_spans) for level_spans in spans])
    summaries = video.summarise_spans(np.concatenate(spans))
    thumbnails = [video.source.thumbnail_at((step.start_s + step.end_s) / 2) for _, step in steps]
    return pa.table(
        {
            "uid": [f"{record.video}\n{level}\n{step.id}" for level, step in steps],
            "video": [record.video] * len(steps),
            "level": pa.array([level for level, _ in steps], pa.int32()),
            "step": [step.id for _, step in steps],
            "start_s": [step.start_s for _, step in steps],
            "end_s": [step.end_s for _, step in steps],
            "thread": pa.array([step.thread for _, step in steps], pa.int32()),
            "label": pa.array([step.label for _, step in steps], pa.string()),
            "picture": pa.array(thumbnails, pa.binary()),
            "summary": pa.array([None] * len(steps) if summaries is None else summaries.to_bytes(), pa.binary()),
            "about": [record.to_json(), *("" for _ in steps[1:])],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), vectors.shape[1]),
        }
    )


def build_speech_rows(video: Video, name: str) -> pa.Table | None:
    """Rows of what is said in a video; None where it has no transcript."""
    if not video.transcript:
        return None
    import pyarrow as pa

    windows, vectors = video.speech.windows, video.speech.vectors
    return pa.table(
        {
            "uid": [f"{name}\n{i}" for i in range(len(windows))],
            "video": [name] * len(windows),
            "start_s": [window.start_s for window in windows],
            "end_s": [window.end_s for window in windows],
            "text": pa.array([window.text for window in windows], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), MINILM_SIZE),
        }
    )


def transcripts_key(source: VideoSource) -> str:
    """Identifies the transcripts that lie beside the files of a video; empty where there are none."""
    digest, num = hashlib.sha256(), 0
    for path in source.paths:
        beside = find_transcript(path)
        if beside is not None:
            digest.update(beside.read_bytes())
            num += 1
        digest.update(b"\0")
    return digest.hexdigest() if num else ""


def select_changed(videos: Sequence[VideoRows], stored: Mapping[str, StoredVideo], again: bool) -> list[VideoRows]:
    """Those of some videos that are not in as they are."""

    def is_unchanged(video: VideoRows) -> bool:
        present = stored.get(video.record.video)
        if again or present is None or not present.is_whole:
            return False
        old, new = present.records[0], video.record
        return (old.sha256, old.model_key, old.transcripts) == (new.sha256, new.model_key, new.transcripts)

    return [video for video in videos if not is_unchanged(video)]


def check_content(record: IndexedVideo) -> list[str]:
    """What is wrong with the files of a video; what is remote is asked about, not brought."""
    source = record.source
    try:
        key = source.known_key()
    except InputError as error:
        return [f"{record.video}: {error}"]
    # Of a remote file that was never here, or has changed since, the key is not known.
    if key == record.sha256 or (
        key is None and source.is_remote and not any(file.was_downloaded for file in source.files)
    ):
        return []
    return [f"{record.video}: {record.path} has changed; index it again"]
