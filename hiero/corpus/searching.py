"""The steps nearest to a vector, each moment once; of texts, in the order of all that is stored of
them and of what is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hiero.corpus.commits import read_latest
from hiero.corpus.rows import HIT_COLUMNS, VIDEO_LEVEL, Hit, vector_width
from hiero.corpus.speech_table import SpokenMoment
from hiero.corpus.sql import ALL_ROWS, sql_string, sql_strings
from hiero.corpus.vector_search import nearest_rows
from hiero.errors import InputError
from hiero.speech.evidence import join_evidence, name_witness
from hiero.vectors import cosine_similarity

MAX_OVERLAP = 0.5  # IoU of two hits in one video, above which they are the same moment on two levels
OVERSAMPLING = 4  # rows that are fetched for each hit, since some repeat a moment
MIN_SCORED_ROWS = 500  # of the nearest by their vectors, that are compared with all that is stored of them


def search_steps(
    open_table: Callable[[], Any],
    uri: str,
    vector: np.ndarray | None,
    num: int,
    *,
    videos: Sequence[str] = (),
    level: int | None = None,
    exclude: str | None = None,
    exact: bool = False,
    score: Callable[[list[bytes]], np.ndarray] | None = None,
    spoken: Sequence[SpokenMoment] | None = None,
) -> list[Hit]:
    """The steps nearest to a vector, each moment once: of hits that overlap on two levels the nearer stays."""
    if num < 1:
        raise InputError(f"-n is at least 1, got {num}")
    width = vector_width(open_table().schema)
    if vector is not None and len(vector) != width:
        raise InputError(
            f"{uri}: its vectors have {width} numbers, the query {len(vector)}; it was made by another model"
        )
    conditions = [f"level > {VIDEO_LEVEL}" if level is None else f"level = {level}"]
    if videos:
        conditions.append(f"video IN {sql_strings(list(videos))}")
    if exclude is not None:
        conditions.append(f"video != {sql_string(exclude)}")
    num_rows = OVERSAMPLING * num if score is None else max(OVERSAMPLING * num, MIN_SCORED_ROWS)
    columns = [*HIT_COLUMNS, *(["summary"] if score is not None else [])]
    by_step = read_latest(lambda: _spoken_steps(open_table(), spoken, level)) if spoken else {}
    spoken_rows = read_latest(lambda: _step_rows(open_table(), list(by_step), columns, vector)) if by_step else []

    def read(num_rows: int) -> list[dict[str, Any]]:
        if vector is None:
            return []
        return nearest_rows(open_table(), vector, " AND ".join(conditions), [*columns, "_distance"], num_rows, exact)

    while True:
        rows = read_latest(partial(read, num_rows))
        near = {row_key(row) for row in rows}
        candidates = _score_rows([*rows, *(row for row in spoken_rows if row_key(row) not in near)], score)
        if spoken is not None:
            candidates = [join_speech(hit, by_step.get(hit.key)) for hit in candidates]
        hits = suppress_overlaps(sorted(candidates, key=lambda hit: -hit.score), num)
        if len(hits) >= num or len(rows) < num_rows:  # enough, or there are no more
            return hits
        num_rows *= 4


def _score_rows(rows: list[dict[str, Any]], score: Callable[[list[bytes]], np.ndarray] | None) -> list[Hit]:
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
    table: Any, spoken: Sequence[SpokenMoment], level: int | None
) -> dict[tuple[str, int, str], SpokenMoment]:
    """The steps in which something is said, of a level or of the finest of each video, with the
    best moment of each.
    """
    names = list(dict.fromkeys(moment.video for moment in spoken))
    where = f"video IN {sql_strings(names)} AND level " + (f"> {VIDEO_LEVEL}" if level is None else f"= {level}")
    by_video: dict[str, list[Hit]] = {}
    for row in table.search().where(where).select(HIT_COLUMNS).limit(ALL_ROWS).to_arrow().to_pylist():
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
    table: Any, keys: Sequence[tuple[str, int, str]], columns: list[str], vector: np.ndarray | None
) -> list[dict[str, Any]]:
    """Columns of steps, and the `_distance` of their vectors from a query; 1 without one."""
    uids = [f"{video}\n{level}\n{step}" for video, level, step in keys]
    query = table.search().where(f"uid IN {sql_strings(uids)}").select([*columns, "vector"]).limit(len(uids))
    rows = list(query.to_arrow().to_pylist())
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
