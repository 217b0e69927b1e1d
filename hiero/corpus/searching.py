"""The steps nearest to a vector, each moment once; of texts, in the order of all that is stored of
them and of what is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hiero.corpus.rows import HIT_COLUMNS, Hit
from hiero.corpus.table import SPEECH, CorpusTables, RowFilter
from hiero.errors import InputError
from hiero.speech.evidence import join_evidence, name_witness, shorten_quote, spoken_probability
from hiero.vectors import cosine_similarity

MAX_OVERLAP = 0.5  # IoU of two hits in one video, above which they are the same moment on two levels
OVERSAMPLING = 4  # rows that are fetched for each hit, since some repeat a moment
MIN_SCORED_ROWS = 500  # of the nearest by their vectors, that are compared with all that is stored of them


SPEECH_COLUMNS = ["video", "start_s", "end_s", "text"]
MIN_SPOKEN_PROBABILITY = 0.1  # that a text is said in a window; less is no evidence
WINDOWS_PER_HIT = 12  # rows that are fetched for each hit: windows overlap, and several fall into one step

ScoreSummaries = Callable[[list[bytes]], np.ndarray]  # how well steps fit, by their summaries


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


@dataclass(frozen=True)
class StepQuery:
    """What is searched for, and where: None as vector searches by `spoken` alone."""

    vector: np.ndarray | None
    num: int
    videos: Sequence[str] = ()
    level: int | None = None
    exclude: str | None = None
    exact: bool = False
    score: ScoreSummaries | None = None
    spoken: Sequence[SpokenMoment] | None = None

    @property
    def rows(self) -> RowFilter:
        levels = () if self.level is None else (self.level,)
        return RowFilter(self.videos, self.exclude, levels, only_steps=self.level is None)


def search_steps(tables: CorpusTables, query: StepQuery) -> list[Hit]:
    """The steps nearest to a vector, each moment once: of hits that overlap on two levels the nearer stays."""
    num, vector, width = query.num, query.vector, tables.width()
    if num < 1:
        raise InputError(f"-n is at least 1, got {num}")
    if vector is not None and width is not None and len(vector) != width:
        raise InputError(
            f"{tables.uri}: its vectors have {width} numbers, the query {len(vector)}; it was made by another model"
        )
    num_rows = OVERSAMPLING * num if query.score is None else max(OVERSAMPLING * num, MIN_SCORED_ROWS)
    columns = [*HIT_COLUMNS, *(["summary"] if query.score is not None else [])]
    by_step = _spoken_steps(tables, query.spoken, query.level) if query.spoken else {}
    spoken_rows = _step_rows(tables, list(by_step), columns, vector) if by_step else []
    while True:
        rows = [] if vector is None else tables.nearest(vector, query.rows, columns, num_rows, query.exact)
        near = {row_key(row) for row in rows}
        candidates = _score_rows([*rows, *(row for row in spoken_rows if row_key(row) not in near)], query.score)
        if query.spoken is not None:
            candidates = [join_speech(hit, by_step.get(hit.key)) for hit in candidates]
        hits = suppress_overlaps(sorted(candidates, key=lambda hit: -hit.score), num)
        if len(hits) >= num or len(rows) < num_rows:  # enough, or there are no more
            return hits
        num_rows *= 4


def find_spoken(
    tables: CorpusTables, vector: np.ndarray, num_hits: int, rows: RowFilter, exact: bool = False
) -> list[SpokenMoment]:
    """The moments at which a text is said most likely, best first."""
    found = tables.nearest(vector, rows, SPEECH_COLUMNS, WINDOWS_PER_HIT * num_hits, exact, SPEECH)
    moments = []
    for row in found:
        probability = float(spoken_probability(np.array(1 - row["_distance"])))
        if probability >= MIN_SPOKEN_PROBABILITY:
            quote = shorten_quote(row["text"])
            moments.append(SpokenMoment(row["video"], row["start_s"], row["end_s"], quote, probability))
    return moments


def _score_rows(rows: list[dict[str, Any]], score: ScoreSummaries | None) -> list[Hit]:
    """Hits of rows with a `_distance`: scored by their summaries where they have them, else by their vectors."""
    hits = [Hit.from_row(row, 1 - row["_distance"]) for row in rows]
    summaries = [row["summary"] for row in rows if score is not None and row["summary"]]
    if score is None or not summaries:
        return hits
    scores = iter(score(summaries))
    hits = [
        replace(hit, score=float(next(scores))) if row["summary"] else hit for hit, row in zip(hits, rows, strict=True)
    ]
    return average_with_coarser(hits)


def join_speech(hit: Hit, moment: SpokenMoment | None) -> Hit:
    """A hit by what is seen, with what is said there: two independent witnesses, and which of them speaks for it.

    A cosine is no probability; where no pictures were read it stands for one all the same. Related
    texts and steps have cosines of some tenths, so that words that are said come first, as they
    should.
    """
    if moment is None:
        return replace(hit, rests_on="pictures")
    seen = float(np.clip(hit.score, 0.0, 1.0))
    rests_on = name_witness(seen, moment.probability)
    quote = None if rests_on == "pictures" else moment.quote
    score = float(join_evidence(np.array(seen), np.array(moment.probability)))
    return replace(hit, score=score, rests_on=rests_on, quote=quote)


def row_key(row: dict[str, Any]) -> tuple[str, int, str]:
    """Identifies the step of a row, as `Hit.key`."""
    return row["video"], row["level"], row["step"]


def _spoken_steps(
    tables: CorpusTables, spoken: Sequence[SpokenMoment], level: int | None
) -> dict[tuple[str, int, str], SpokenMoment]:
    """The steps in which something is said, of a level or of the finest of each video, with the
    best moment of each.
    """
    names = list(dict.fromkeys(moment.video for moment in spoken))
    rows = StepQuery(None, 1, names, level).rows
    by_video: dict[str, list[Hit]] = {}
    for row in tables.read(rows, HIT_COLUMNS).to_pylist():
        by_video.setdefault(row["video"], []).append(Hit.from_row(row, 0.0))
    best: dict[tuple[str, int, str], SpokenMoment] = {}
    for moment in spoken:  # the most likely first
        steps = by_video.get(moment.video, [])  # none where the video was removed meanwhile
        finest = max((step.level for step in steps), default=0)
        inside = [step for step in steps if step.level == finest and step.start_s <= moment.middle_s < step.end_s]
        if inside:
            best.setdefault(inside[0].key, moment)
    return best


def _step_rows(
    tables: CorpusTables, keys: Sequence[tuple[str, int, str]], columns: list[str], vector: np.ndarray | None
) -> list[dict[str, Any]]:
    """Columns of steps, and the `_distance` of their vectors from a query; 1 without one."""
    uids = [f"{video}\n{level}\n{step}" for video, level, step in keys]
    rows: list[dict[str, Any]] = tables.read(RowFilter(uids=uids), [*columns, "vector"], len(uids)).to_pylist()
    for row in rows:
        stored = np.array([row.pop("vector")], dtype=np.float32)
        row["_distance"] = 1.0 if vector is None else 1 - float(cosine_similarity(stored, vector[None])[0, 0])
    return rows


def average_with_coarser(hits: list[Hit]) -> list[Hit]:
    """Hits with the mean of their scores and those of the coarser steps that they are parts of."""
    by_video: dict[str, list[Hit]] = {}
    for hit in hits:
        by_video.setdefault(hit.video, []).append(hit)
    out = []
    for hit in hits:
        around = [
            o for o in by_video[hit.video] if o is hit or (o.level < hit.level and o.start_s <= hit.start_s < o.end_s)
        ]
        out.append(replace(hit, score=sum(other.score for other in around) / len(around)))
    return out


def suppress_overlaps(hits: list[Hit], num: int) -> list[Hit]:
    """The first hits that are no repetition of a nearer one in the same video, at most `num`."""
    by_video: dict[str, list[Hit]] = {}
    out = []
    for hit in hits:
        nearer = by_video.setdefault(hit.video, [])
        if all(hit.overlap(other) <= MAX_OVERLAP for other in nearer):
            nearer.append(hit)
            out.append(hit)
            if len(out) == num:
                break
    return out
