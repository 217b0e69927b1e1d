"""Steps that several recordings of one task share: each recording has each shared step at most once.

The steps of a recording are assigned to shared steps by their vectors and positions (Hungarian
method), then each shared step becomes the mean of its members, until nothing changes. The cost of an
assignment is 1 − cosine + λ |difference of positions|. The search starts from the steps of each of
several recordings, and the cheapest result is used. λ was chosen in docs/experiments/together.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from hiero.errors import InputError
from hiero.steps.shared_activities import number_by_place
from hiero.vectors import unit_vectors

PLACE_WEIGHT = 0.5  # λ; positions are shares of the recording
MAX_STARTS = 8  # recordings whose steps the search starts from
MAX_ROUNDS = 20


def share_steps(
    vectors: Sequence[np.ndarray], places: Sequence[np.ndarray], num: int | None = None
) -> list[np.ndarray]:
    """Number of the shared step of each step (n, D) of each recording, in the usual order.

    There are `num` shared steps, by default as many as the longest recording has.
    """
    if len(vectors) < 2 or not all(map(len, vectors)):
        raise InputError("steps can only be shared by two or more recordings that have steps")
    counts = [len(rows) for rows in vectors]
    num = max(counts) if num is None else num
    if num < max(counts):
        raise InputError(f"there must be at least {max(counts)} shared steps, as many as one recording has; got {num}")
    ends = np.cumsum(counts)[:-1]
    x, positions = unit_vectors(np.concatenate(vectors).astype(np.float64)), np.concatenate(places)
    recordings = np.split(np.arange(len(x)), ends)
    starts = sorted(range(len(counts)), key=lambda i: -counts[i])[:MAX_STARTS]  # those that miss the fewest steps
    results = [_share_from(x, positions, recordings, _complete(x, recordings[i], num)) for i in starts]
    labels, _ = min(results, key=lambda result: result[1])
    return np.split(number_by_place(labels, positions), ends)


def _share_from(
    x: np.ndarray, positions: np.ndarray, recordings: Sequence[np.ndarray], chosen: list[int]
) -> tuple[np.ndarray, float]:
    """Labels of all steps and their cost, starting from some steps as the shared ones."""
    means, usual = x[chosen], positions[chosen]
    labels = np.full(len(x), -1)
    total = np.inf
    for _ in range(MAX_ROUNDS):
        cost = 1 - x @ means.T + PLACE_WEIGHT * np.abs(positions[:, None] - usual)
        assigned = np.empty(len(x), dtype=int)
        for rows in recordings:
            assigned[rows] = linear_sum_assignment(cost[rows])[1]
        total = float(cost[np.arange(len(x)), assigned].sum())
        if np.array_equal(assigned, labels):
            break
        labels = assigned
        for label in np.unique(labels):
            members = labels == label
            means[label] = unit_vectors(x[members].sum(0))
            usual[label] = np.median(positions[members])
    return labels, total


def _complete(x: np.ndarray, start: np.ndarray, num: int) -> list[int]:
    """The steps `start`, and others that are least similar to all chosen ones, `num` in all."""
    chosen = start.tolist()
    similarity = (x @ x[chosen].T).max(1)
    while len(chosen) < min(num, len(x)):
        similarity[chosen] = np.inf
        chosen.append(int(similarity.argmin()))
        similarity = np.maximum(similarity, x @ x[chosen[-1]])
    return chosen
