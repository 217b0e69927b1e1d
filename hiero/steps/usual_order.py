"""The usual order of activities in several videos."""

from __future__ import annotations

import numpy as np


def precedence(times: np.ndarray) -> np.ndarray:
    """Number of videos in which one activity comes before another, (A, A)."""
    with np.errstate(invalid="ignore"):
        return np.asarray((times[:, :, None] < times[:, None, :]).sum(0))


def usual_order(times: np.ndarray) -> list[int]:
    """Activities in the order with the fewest reversed pairs in the videos (Kemeny).

    The search starts with the order of mean ranks (Borda) and moves one activity at a time while
    that helps.
    """
    before = precedence(times).astype(np.float64)
    both = before + before.T
    borda = (before / np.maximum(both, 1)).sum(1) / np.maximum((both > 0).sum(1), 1)
    places = np.array([np.nanmean(column) if np.isfinite(column).any() else np.inf for column in times.T])
    order = sorted(range(times.shape[1]), key=lambda a: (-borda[a], places[a], a))
    preference = before - before.T  # gain if the row comes before the column
    is_better = True
    while is_better:
        is_better = False
        for position in range(len(order)):
            activity = order[position]
            rest = order[:position] + order[position + 1 :]
            # Cost of each position relative to the first one
            cost = np.concatenate([[0.0], np.cumsum(preference[activity, rest])])
            best = int(cost.argmin())
            if cost[best] < cost[position] - 1e-9:
                rest.insert(best, activity)
                order, is_better = rest, True
    return order


def number_by_place(labels: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Number groups in their usual order, that of their median positions, from their labels (N,)."""
    used, labels = np.unique(labels, return_inverse=True)
    usual_places = [float(np.median(places[labels == label])) for label in range(len(used))]
    rank = np.argsort(np.argsort(usual_places, kind="stable"), kind="stable")
    return np.asarray(rank[labels])
