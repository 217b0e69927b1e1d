"""Rows of the tables of a corpus: how a video is stored and read back.

A row of the steps table is a step with its times, label, vector, features, summary and thumbnail. The row of
level −1 is the video itself; its column `about` is an `IndexedVideo`. A row of the speech table is a
window of one to three utterances with its times, words and sentence vector.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hiero.corpus.table import VIDEO_LEVEL, vector_width
from hiero.engine import Video
from hiero.errors import InputError
from hiero.formats.transcripts import find_transcript
from hiero.media.source import VideoSource
from hiero.model.model_folder import SHIPPED
from hiero.storage.files import parse_json
from hiero.types import Hierarchy, Origin, RestsOn, Step, VideoFile

if TYPE_CHECKING:
    import pyarrow as pa

DAMAGED_RECORD = (ValueError, KeyError, TypeError, AttributeError)  # what `IndexedVideo.from_json` may raise
HIT_COLUMNS = ["video", "level", "step", "start_s", "end_s", "thread", "label", "origin"]


@dataclass(frozen=True)
class IndexedVideo:
    """A video of a corpus.

    Attributes:
        video: The name of the video, unique in the corpus.
        path: The absolute path of the file, or its address if it is remote.
        sha256: Hash of the content when the video was indexed. Several files are hashed in their order.
        model: Name of the model that found the steps.
        model_key: Identifies the weights. Only steps with the same key can be compared.
        duration_s: Length of the video.
        levels: Number of steps of each level, coarse to fine.
        indexed_at: When the video was indexed, in seconds since 1970.
        model_at: Folder of the model. Empty for shipped models, which are found by name.
        files: The files in time order if several were read as one video; `path` is then the first.
        transcripts: Identifies the transcripts next to the files. Empty if there were none.
        edits: Identifies the corrections of the steps. Empty if there were none.
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
    edits: str = ""

    @property
    def source(self) -> VideoSource:
        """The file of the video, or several files that are one video."""
        return VideoSource.of([file.path for file in self.files] or self.path)

    def to_dict(self) -> dict[str, Any]:
        """All fields, without `files`, `transcripts` and `edits` if they are empty."""
        optional = ("files", "transcripts", "edits")
        return {name: value for name, value in asdict(self).items() if value or name not in optional}

    def to_json(self) -> str:
        """The content of the column `about`."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> IndexedVideo:
        """The inverse of `to_json`."""
        fields = parse_json(text)
        files = tuple(VideoFile(**file) for file in fields.get("files", ()))
        return cls(**{**fields, "levels": tuple(fields["levels"]), "files": files})


@dataclass(frozen=True)
class Hit:
    """A step found by a search in a corpus.

    Attributes:
        video: Name of the video.
        level: Level of the step in its hierarchy (0 is the coarsest).
        step: Id of the step, unique in its video.
        start_s: When the step begins.
        end_s: When the step ends.
        thread: Steps of one level and video with the same thread are alike.
        label: Name of the step, if it has one, with a question mark if it is a guess.
        probability: Probability that the step shows the query, or that the query is spoken in it or is its
            name; for `Corpus.like`, the probability that it is the same step.
        rests_on: Whether the hit is supported by speech, pictures, both, or the name that a person gave.
            None if no video of the corpus has a transcript and no such name is similar to the query.
        quote: The words spoken there, if the hit was found by speech.
        origin: Whether the model found and named the step, a person corrected it, or it was imported.
    """

    video: str
    level: int
    step: str
    start_s: float
    end_s: float
    thread: int
    label: str | None
    probability: float
    rests_on: RestsOn | None = None
    quote: str | None = None
    origin: Origin = "model"

    @property
    def uid(self) -> str:
        """Identifies the step in its corpus."""
        return step_uid(self.video, self.level, self.step)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `hiero search`. Without speech, `rests_on` and `quote` are left out."""
        times = {"start_s": round(self.start_s, 3), "end_s": round(self.end_s, 3)}
        document = {**asdict(self), **times, "probability": round(self.probability, 4)}
        if self.rests_on is None:
            del document["rests_on"], document["quote"]
        return document

    @classmethod
    def from_row(cls, row: dict[str, Any], probability: float) -> Hit:
        """Build a hit from the HIT_COLUMNS of a row."""
        return cls(**{name: row[name] for name in HIT_COLUMNS}, probability=float(probability))

    @property
    def title(self) -> str:
        """The name of the step, or its number and level as in its id: "Step 3 (fine)" for fine-3."""
        level, dash, number = self.step.rpartition("-")
        return self.label or (f"Step {number} ({level})" if dash and number.isdecimal() else f"Step {self.step}")

    def overlap(self, other: Hit) -> float:
        """Intersection of two spans of one video as a share of the shorter one."""
        intersection_s = min(self.end_s, other.end_s) - max(self.start_s, other.start_s)
        shorter_s = min(self.end_s - self.start_s, other.end_s - other.start_s)
        return max(0.0, intersection_s) / max(shorter_s, 1e-9)


def step_uid(video: str, level: int, step: str) -> str:
    """The column `uid` of a step."""
    return f"{video}\n{level}\n{step}"


@dataclass(frozen=True)
class VideoRows:
    """The rows of a video."""

    record: IndexedVideo
    rows: pa.Table
    speech: pa.Table | None = None

    @property
    def width(self) -> int:
        """Size of the vectors."""
        return vector_width(self.rows.schema)

    @property
    def num_bytes(self) -> int:
        return int(self.rows.nbytes) + (0 if self.speech is None else int(self.speech.nbytes))

    def check_width(self, width: int, uri: str) -> None:
        """Raise InputError unless the vectors have the size of those in a corpus."""
        if self.width != width:
            sizes = f"its vectors have {self.width} numbers, but those of {uri} have {width}"
            raise InputError(f"{self.record.path}: {sizes}; use another corpus")

    def matches(self, stored: StoredVideo | None) -> bool:
        """Whether a stored video is complete and was made from the same content by the same model."""
        if stored is None or not stored.is_whole:
            return False
        old, new = stored.records[0], self.record
        return all(getattr(old, name) == getattr(new, name) for name in ("sha256", "model_key", "transcripts", "edits"))


@dataclass
class StoredVideo:
    """The rows stored under the name of a video, which may be incomplete or repeated."""

    records: list[IndexedVideo] = field(default_factory=list)
    num_rows: Counter[int] = field(default_factory=Counter)

    @property
    def is_whole(self) -> bool:
        """Whether the video is stored once, with all its steps."""
        return len(self.records) == 1 and self.num_rows == {VIDEO_LEVEL: 1, **dict(enumerate(self.records[0].levels))}


def group_by_video(rows: Iterable[dict[str, Any]]) -> dict[str, StoredVideo]:
    """Group rows with the columns `video`, `level` and `about` by the name of the video."""
    out: dict[str, StoredVideo] = {}
    for row in rows:
        stored = out.setdefault(row["video"], StoredVideo())
        stored.num_rows[row["level"]] += 1
        if row["level"] == VIDEO_LEVEL:
            with suppress(*DAMAGED_RECORD):
                stored.records.append(IndexedVideo.from_json(row["about"]))
    return out


def describe_video(video: Video, steps: Hierarchy, name: str, sha256: str, transcripts: str = "") -> VideoRows:
    """The rows of a video for a corpus. Raises InputError if its files are not those that were read and hashed."""
    engine = video.engine
    origin = video.origin
    paths = [file.stored_name for file in origin.files]
    model_folder = None if engine.name in SHIPPED else engine.folder
    record = IndexedVideo(
        video=name,
        path=paths[0],
        sha256=sha256,
        model=engine.name,
        model_key=engine.key,
        duration_s=video.duration_s,
        levels=tuple(len(level) for level in steps.levels),
        indexed_at=time.time(),
        model_at="" if model_folder is None else str(model_folder.path.resolve()),
        files=tuple(replace(f, path=p) for f, p in zip(video.files, paths, strict=True)) if video.is_joined else (),
        transcripts=transcripts,
        edits=edits_key(steps),
    )
    rows = VideoRows(record, _step_rows(video, steps, record), _speech_rows(video, name))
    if video.has_changed:
        raise InputError(f"{origin.name}: changed while it was read; index it again when it is complete")
    return rows


def _step_rows(video: Video, hierarchy: Hierarchy, record: IndexedVideo) -> pa.Table:
    """The row of the video itself, then those of its steps, level by level."""
    import pyarrow as pa

    whole = Step("whole", 0.0, video.duration_s, 0)
    steps = [(VIDEO_LEVEL, whole), *((i, step) for i, level in enumerate(hierarchy.levels) for step in level)]
    spans = [np.array([[0, len(video.nodes)]]), *(video.sight.level_spans(level) for level in hierarchy.levels)]
    summaries = video.sight.pack_summaries(np.concatenate(spans))
    features = video.sight.average_features(np.concatenate(spans))
    thumbnails = [video.source.thumbnail_of(step.start_s, step.end_s) for _, step in steps]
    return pa.table(
        {
            "uid": [step_uid(record.video, level, step.id) for level, step in steps],
            "video": [record.video] * len(steps),
            "level": pa.array([level for level, _ in steps], pa.int32()),
            "step": [step.id for _, step in steps],
            "start_s": [step.start_s for _, step in steps],
            "end_s": [step.end_s for _, step in steps],
            "thread": pa.array([step.thread for _, step in steps], pa.int32()),
            "label": pa.array([_find_title(hierarchy, step) for _, step in steps], pa.string()),
            "origin": [step.origin for _, step in steps],
            "named": [step.is_named_by_person for _, step in steps],
            "picture": pa.array(thumbnails, pa.binary()),
            "summary": pa.array([None] * len(steps) if summaries is None else summaries, pa.binary()),
            "features": pa.array([None] * len(steps) if features is None else _to_bytes(features), pa.binary()),
            "about": [record.to_json(), *("" for _ in steps[1:])],
            "vector": _vector_column(np.concatenate([video.sight.embed_spans(level_spans) for level_spans in spans])),
        }
    )


def _find_title(hierarchy: Hierarchy, step: Step) -> str | None:
    """The name of a step as people read it, from the steps in it if it has none; None if it has only a number."""
    title = hierarchy.shown_titles.get(step.id)
    return title if step.label or title != hierarchy.titles.get(step.id) else None


def _to_bytes(features: np.ndarray) -> list[bytes]:
    """Each row in half precision. All rows get the same scale, which cosines ignore."""
    scale = max(float(np.abs(features).max()), 1e-12)
    return [row.tobytes() for row in (features / scale).astype(np.float16)]


def read_features(rows: Sequence[bytes | None]) -> np.ndarray | None:
    """Read what `_to_bytes` wrote, (N, F); None unless all rows have features of one size."""
    known = [np.frombuffer(row, np.float16) for row in rows if row]
    if not known or len(known) != len(rows) or len({row.size for row in known}) > 1:
        return None
    return np.stack(known).astype(np.float32)


def _speech_rows(video: Video, name: str) -> pa.Table | None:
    if not video.transcript:
        return None
    import pyarrow as pa

    windows = video.speech.windows
    return pa.table(
        {
            "uid": [f"{name}\n{i}" for i in range(len(windows))],
            "video": [name] * len(windows),
            "start_s": [window.start_s for window in windows],
            "end_s": [window.end_s for window in windows],
            "text": pa.array([window.text for window in windows], pa.string()),
            "vector": _vector_column(video.speech.vectors),
        }
    )


def _vector_column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), vectors.shape[1])


def transcripts_key(source: VideoSource) -> str:
    """Identifies the transcripts next to the files of a video. Empty if there are none."""
    found = [find_transcript(path) for path in source.paths]
    contents = [b"" if transcript is None else transcript.read_bytes() for transcript in found]
    return hashlib.sha256(b"".join(content + b"\0" for content in contents)).hexdigest() if any(found) else ""


def edits_key(steps: Iterable[Step]) -> str:
    """Identifies the corrected spans and names among steps. Empty if there are none."""
    corrected = [
        (round(step.start_s, 3), round(step.end_s, 3), step.label if step.is_named_by_person else None)
        for step in steps
        if step.origin != "model"
    ]
    return hashlib.sha256(json.dumps(corrected).encode()).hexdigest() if corrected else ""
