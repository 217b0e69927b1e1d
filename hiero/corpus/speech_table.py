"""What is said in the videos of a corpus: a second LanceDB table beside that of the steps.

A row is a window of one to three utterances (`hiero.speech.evidence`): its video, when it is, its
words, and their vector by the sentence encoder. A corpus whose videos have no transcripts has no
such table, as those of earlier versions. It is written before the steps and removed after them, so
a process that is killed in between leaves speech of a video that is not in, or not in whole: a
search passes it over, and the next `hiero index` writes it anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hiero.corpus.sql import sql_strings
from hiero.corpus.vector_search import nearest_rows
from hiero.engine import Video
from hiero.formats.transcripts import find_transcript
from hiero.sources.source import VideoSource
from hiero.speech.evidence import shorten_quote, spoken_probability
from hiero.text.minilm import MINILM_SIZE

if TYPE_CHECKING:
    import pyarrow as pa

SPEECH_TABLE = "speech"
SPEECH_COLUMNS = ["video", "start_s", "end_s", "text", "_distance"]
MIN_PROBABILITY = 0.1  # that a text is said in a window; less is no evidence
WINDOWS_PER_HIT = 12  # rows that are fetched for each hit: windows overlap, and several fall into one step


@dataclass(frozen=True)
class SpokenMoment:
    """When something is said in a video of a corpus that is near to a query."""

    video: str
    start_s: float
    end_s: float
    quote: str
    probability: float

    @property
    def middle_s(self) -> float:
        """The moment that says which step it belongs to."""
        return (self.start_s + self.end_s) / 2


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


def replace_speech(table: Any, names: Sequence[str], rows: pa.Table | None) -> None:
    """Put speech of videos in place of what a table has of them, in one commit."""
    where = f"video IN {sql_strings(list(names))}"
    is_in = table.count_rows(where) > 0
    if rows is None:
        if is_in:
            table.delete(where)
        return
    if not is_in:
        table.add(rows)  # takes no longer where many are in
        return
    merge = table.merge_insert("uid").when_matched_update_all().when_not_matched_insert_all()
    merge.when_not_matched_by_source_delete(where).execute(rows)


def find_spoken(
    table: Any, vector: np.ndarray, num_hits: int, where: str | None, exact: bool = False
) -> list[SpokenMoment]:
    """The moments at which a text is said most likely, best first."""
    rows = nearest_rows(table, vector, where, SPEECH_COLUMNS, WINDOWS_PER_HIT * num_hits, exact)
    moments = []
    for row in rows:
        probability = float(spoken_probability(np.array(1 - row["_distance"])))
        if probability >= MIN_PROBABILITY:
            moments.append(
                SpokenMoment(row["video"], row["start_s"], row["end_s"], shorten_quote(row["text"]), probability)
            )
    return moments


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
