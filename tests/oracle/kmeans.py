"""K-Means as the textbook has it: every distance and every mean again in each step, in double precision."""

from __future__ import annotations

import numpy as np


def squared_distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Of points (N, C) to centres (K, C), (N, K)."""
    return ((points[:, None].astype(float) - centres[None].astype(float)) ** 2).sum(2)


def plain_kmeans(
    points: np.ndarray, num_clusters: int, numbers: np.ndarray, num_iterations: int
) -> tuple[np.ndarray, float]:
    """Labels (N,) and inertia of the best restart; arguments as of `kmeans_of_points`."""
    results = []
    for restart in range(numbers.shape[1]):
        centres = seed_centres(points, numbers[:, restart])
        labels = squared_distances(points, centres).argmin(1)
        for _ in range(num_iterations):
            for k in range(num_clusters):
                if (labels == k).any():
                    centres[k] = points[labels == k].astype(float).mean(0)
            updated = squared_distances(points, centres).argmin(1)
            if (updated == labels).all():
                break
            labels = updated
        results.append((float(squared_distances(points, centres).min(1).sum()), restart, labels))
    inertia, _, labels = min(results, key=lambda result: result[:2])
    return labels, inertia


def seed_centres(points: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Greedy k-means++ with numbers (K, trials): centres (K, C)."""
    weight, nearest = np.ones(len(points)), np.full(len(points), np.inf)
    centres = []
    for trials in numbers:
        cumulative = np.cumsum(weight)
        drawn = [min(int((cumulative <= number * cumulative[-1]).sum()), len(points) - 1) for number in trials]
        updated = [np.minimum(nearest, squared_distances(points, points[[i]])[:, 0]) for i in drawn]
        best = int(np.argmin([distances.sum() for distances in updated]))
        nearest = weight = updated[best]
        centres.append(points[drawn[best]].astype(float))
    return np.array(centres)


def has_seeding_tie(points: np.ndarray, numbers: np.ndarray) -> bool:
    """Whether two different points would lower the inertia equally in some draw of `seed_centres`:
    rounding decides then.

    Two points that are each other's nearest do: each takes its own distance away, and that of the
    other but for the same rest.
    """
    for restart in range(numbers.shape[1]):
        weight, nearest = np.ones(len(points)), np.full(len(points), np.inf)
        for trials in numbers[:, restart]:
            cumulative = np.cumsum(weight)
            drawn = {min(int((cumulative <= number * cumulative[-1]).sum()), len(points) - 1) for number in trials}
            updated = sorted(
                (np.minimum(nearest, squared_distances(points, points[[i]])[:, 0]) for i in drawn), key=np.sum
            )
            if len(updated) > 1 and updated[1].sum() - updated[0].sum() <= 1e-6 * updated[1].sum():
                return True
            nearest = weight = updated[0]
    return False
