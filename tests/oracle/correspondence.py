"""All monotone alignments of two videos, one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hiero.steps.correspondence import MIN_COSINE, STEP_WEIGHT, TEMPERATURE, VIDEO_WEIGHT


def alignments(num: int, other: int) -> Iterator[list[tuple[int, int]]]:
    """The matches of each path through the lattice of num × other steps."""

    def walk(i: int, j: int, matches: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        if (i, j) == (num, other):
            yield matches
        if i < num:
            yield from walk(i + 1, j, matches)
        if j < other:
            yield from walk(i, j + 1, matches)
        if i < num and j < other:
            yield from walk(i + 1, j + 1, [*matches, (i, j)])

    yield from walk(0, 0, [])


def match_posterior(gain: np.ndarray) -> tuple[np.ndarray, float]:
    """P (n, m) and Z of one pair of videos with log weights of matches (n, m)."""
    total, through = 0.0, np.zeros_like(gain)
    for matches in alignments(*gain.shape):
        weight = math.exp(sum(gain[match] for match in matches))
        total += weight
        for match in matches:
            through[match] += weight
    return through / total, total


def correspondence(steps: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Scores (n, m) of one pair of videos, from the equations."""

    def centre(vectors: np.ndarray) -> np.ndarray:
        shared = vectors.mean(0) * (1 - 1 / len(vectors))
        return np.stack([(vector - shared) / max(np.linalg.norm(vector - shared), 1e-6) for vector in vectors])

    cosines = centre(steps) @ centre(other).T
    posterior, total = match_posterior((cosines - MIN_COSINE) / TEMPERATURE)
    num, num_other = cosines.shape
    alike = math.log(total / math.comb(num + num_other, num)) / math.sqrt(num * num_other)
    return np.maximum(np.log(np.maximum(posterior, 1e-300)), -10) + VIDEO_WEIGHT * alike + STEP_WEIGHT * cosines
