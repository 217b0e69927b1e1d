"""The steps nearest to a vector, each moment once; of texts, in the order of all that is stored of the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hiero.corpus.commits import read_latest
from hiero.corpus.rows import HIT_COLUMNS, VIDEO_LEVEL, Hit, sql_string, sql_strings, vector_width
from hiero.errors import InputError

NUM_PROBES = 40  # parts of the index that a search visits
REFINE_FACTOR = 10  # candidates of the index that are compared exactly, for each result
MAX_OVERLAP = 0.5  # IoU of two hits in one video, above which they are the same moment on two levels
OVERSAMPLING = 4  # rows that are fetched for each hit, since some repeat a moment
MIN_SCORED_ROWS = 500  # of the nearest by their vectors, that are compared with all that is stored of them


def search_steps(
    open_table: Callable[[], Any],
    uri: str,
    vector: np.ndarray,
    num: int,
    *,
    videos: Sequence[str] = (),
    level: int | None = None,
    exclude: str | None = None,
    exact: bool = False,
    score: Callable[[list[bytes]], np.ndarray] | None = None,
) -> list[Hit]:
    """The steps nearest to a vector, each moment once: of hits that overlap on two levels the nearer stays.

    Args:
        open_table: Gives the table as the last writer left it.
        uri: Of the corpus, for messages.
        vector: (D,).
        num: How many hits at most.
        videos: Only in these; by default in all.
        level: Only steps of this level; by default of all.
        exclude: Not in this video.
        exact: Compare with every step; without it a large corpus is searched by its index.
        score: How well steps fit by their summaries: the nearest ones are then ordered by it.

    Returns:
        Hits, nearest first.

    Raises:
        InputError: `num` is below 1, or the vectors of the corpus have another size.
    """
    if num < 1:
        raise InputError(f"-n is at least 1, got {num}")
    width = vector_width(open_table().schema)
    if len(vector) != width:
        raise InputError(f"{uri}: its vectors have {width} numbers, the query {len(vector)}; it was made by another model")
    conditions = [f"level > {VIDEO_LEVEL}" if level is None else f"level = {level}"]
    if videos:
        conditions.append(f"video IN {sql_strings(list(videos))}")
    if exclude is not None:
        conditions.append(f"video != {sql_string(exclude)}")
    num_rows = OVERSAMPLING * num if score is None else max(OVERSAMPLING * num, MIN_SCORED_ROWS)
    columns = [*HIT_COLUMNS, "_distance", *(["summary"] if score is not None else [])]

    def read(num_rows: int) -> list[dict[str, Any]]:
        return nearest_rows(open_table(), vector, " AND ".join(conditions), columns, num_rows, exact)

    while True:
        rows = read_latest(partial(read, num_rows))
        found = [Hit.from_row(row, 1 - row["_distance"]) for row in rows]
        summaries = [row["summary"] for row in rows if score is not None and row["summary"]]
        if score is not None and summaries:
            scores = iter(score(summaries))
            found = [replace(h, score=float(next(scores))) if row["summary"] else h for h, row in zip(found, rows, strict=True)]
            found = sorted(average_with_coarser(found), key=lambda hit: -hit.score)
        hits = suppress_overlaps(found, num)
        if len(hits) >= num or len(rows) < num_rows:  # enough, or there are no more
            return hits
        num_rows *= 4


def nearest_rows(table: Any, vector: np.ndarray, where: str, columns: list[str], num: int, exact: bool) -> list[dict[str, Any]]:
    """The rows whose vectors have the largest cosine with one, nearest first.

    Args:
        table: Of a corpus.
        vector: (D,).
        where: Which rows, in LanceDB's SQL.
        columns: Of the rows; `_distance` is 1 − cosine.
        num: How many at most.
        exact: Compare with every row; without it a large corpus is searched by its index.
    """
    query = table.search(vector.astype(np.float32), vector_column_name="vector").distance_type("cosine")
    query = query.where(where, prefilter=True).select(columns).limit(num)
    query = query.bypass_vector_index() if exact else query.nprobes(NUM_PROBES).refine_factor(REFINE_FACTOR)
    return list(query.to_list())


def average_with_coarser(hits: list[Hit]) -> list[Hit]:
    """Hits with the mean of their scores and those of the coarser steps that they are parts of."""
    by_video: dict[str, list[Hit]] = {}
    for hit in hits:
        by_video.setdefault(hit.video, []).append(hit)
    out = []
    for hit in hits:
        around = [o for o in by_video[hit.video] if o is hit or (o.level < hit.level and o.start_s <= hit.start_s < o.end_s)]
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
