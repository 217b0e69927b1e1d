"""The same step elsewhere: videos that have steps like it, or are like its video, then their steps by
content and order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest

import numpy as np

from hiero.corpus.rows import HIT_COLUMNS, Hit
from hiero.corpus.table import VIDEO_LEVEL, CorpusTables, RowFilter, vector_width
from hiero.errors import InputError
from hiero.steps.correspondence import correspondence, same_step_probability
from hiero.vectors import cosine_similarity

MAX_ALIGNED_VIDEOS = 64  # that are compared step by step: the nearest by a step, and the nearest as a whole
NUM_NEAREST_STEPS = 500  # whose videos are candidates
MAX_READ_STEPS = 20_000  # of all candidates; their vectors are in memory together
CONTEXT_STEPS = 64  # before a step, and after it, that say which step it is


@dataclass(frozen=True)
class VideoSteps:
    """Steps of one video and level, in time order."""

    hits: list[Hit]
    vectors: np.ndarray

    def around(self, index: int) -> VideoSteps:
        """A step and those that are near it."""
        part = slice(max(0, index - CONTEXT_STEPS), index + CONTEXT_STEPS + 1)
        return VideoSteps(self.hits[part], self.vectors[part])

    def nearest(self, vector: np.ndarray) -> int:
        """The step whose vector has the largest cosine with another."""
        return int(cosine_similarity(self.vectors, vector[None])[:, 0].argmax())


def find_same_steps(
    tables: CorpusTables,
    name: str,
    level: int,
    time_s: float,
    num: int,
    videos: Sequence[str] = (),
    exact: bool = False,
) -> tuple[Hit, list[Hit]] | None:
    """The step of a video at a moment, and the steps of other videos that are most likely the same."""
    if num < 1:
        raise InputError(f"-n is at least 1, got {num}")
    rows = read_steps(tables, RowFilter([name], levels=(VIDEO_LEVEL, level)))
    own = next((steps for steps in rows if steps.hits[0].level == level), None)
    whole = next((steps for steps in rows if steps.hits[0].level == VIDEO_LEVEL), own)
    index = (
        next((i for i, hit in enumerate(own.hits) if hit.start_s <= time_s < hit.end_s), None)
        if own is not None
        else None
    )
    if own is None or whole is None or index is None:
        return None
    step, vector = own.hits[index], own.vectors[index]
    names = _candidate_videos(tables, name, level, vector, whole.vectors[0], videos, exact)
    others = read_steps(tables, RowFilter(names, levels=(level,))) if names else []
    others = [steps.around(steps.nearest(vector)) for steps in others]
    near = own.around(index)
    scores = correspondence(near.vectors, [steps.vectors for steps in others])
    row = near.hits.index(step)
    ranked = [
        (score, hit)
        for part, steps in zip(scores, others, strict=True)
        for score, hit in zip(part[row], steps.hits, strict=True)
    ]
    ranked = sorted(ranked, key=lambda pair: (-pair[0], pair[1].video, pair[1].start_s))[:num]
    return step, [replace(hit, score=float(same_step_probability(score))) for score, hit in ranked]


def _candidate_videos(
    tables: CorpusTables,
    name: str,
    level: int,
    vector: np.ndarray,
    whole: np.ndarray,
    videos: Sequence[str],
    exact: bool,
) -> list[str]:
    """Videos with the steps nearest to a step, and those nearest to its video, in turn; as many as
    are read together.
    """
    queries = [(vector, level, NUM_NEAREST_STEPS), (whole, VIDEO_LEVEL, MAX_ALIGNED_VIDEOS)]
    matches = [
        tables.nearest(query, RowFilter(videos, name, (of,)), ["video"], limit, exact) for query, of, limit in queries
    ]
    by_step, by_video = (list(dict.fromkeys(row["video"] for row in rows)) for rows in matches)
    names = [video for pair in zip_longest(by_step, by_video) for video in pair if video is not None]
    names = list(dict.fromkeys(names))[:MAX_ALIGNED_VIDEOS]
    while len(names) > 1 and tables.count(RowFilter(names, levels=(level,))) > MAX_READ_STEPS:
        names = names[: len(names) // 2]
    return names


def read_steps(tables: CorpusTables, rows: RowFilter) -> list[VideoSteps]:
    """Steps with their vectors, by level and video."""
    found = tables.read(rows, [*HIT_COLUMNS, "vector"])
    vectors = np.asarray(found["vector"].combine_chunks().flatten(), dtype=np.float32).reshape(
        len(found), vector_width(found.schema)
    )
    hits = [Hit.from_row(row, 1.0) for row in found.select(HIT_COLUMNS).to_pylist()]
    order = sorted(range(len(hits)), key=lambda i: (hits[i].level, hits[i].video, hits[i].start_s))
    groups = [list(group) for _, group in groupby(order, key=lambda i: (hits[i].level, hits[i].video))]
    return [VideoSteps([hits[i] for i in group], vectors[group]) for group in groups]
