"""K-Means of one video on a CPU: the clusters of `kmeans`, without computing again what did not change.

A step of Lloyd's algorithm moves few points after the first ones. Only centres that lost or got a
point are somewhere else, so only their row of the table of squared distances (K, N) is computed
again, and their sums change by the points that moved. Each restart ends by itself. Where points are
few and wide, their inner products are computed once: the distance of point i to the centre of a
cluster c is then a sum of them,

    |xᵢ − mean_c|² = Gᵢᵢ − 2/|c| Σ_{j ∈ c} Gᵢⱼ + 1/|c|² Σ_{j, l ∈ c} Gⱼₗ,    G = X Xᵀ

and a step costs as much as points move, whatever their width. Restarts of a small problem take
their steps together, because calls take longer than the arithmetic: clusters are then numbered
through, k of restart r is r K + k. Restarts of large problems share the cores, one thread each:
only part of a step is a product that several threads speed up. `tests/oracle/kmeans.py` is the
plain algorithm.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch
from torch.nn import functional as F

from hiero.devices import one_thread_each

MIN_GRAM_WIDTH = 48  # of points; of narrower ones distances are cheaper than sums of inner products
MAX_GRAM_POINTS = 4096  # whose inner products are held, 128 MiB
GRAM_SHARE = 24  # points a centre and restart up to which inner products pay
# entries of the distances of restarts that take their steps together: they stay in the processor's
# cache
MAX_TABLE_SIZE = 2**18
MIN_SHARED_SIZE = 2**20  # entries of the table of distances from which on restarts share the cores


class Centres(Protocol):
    """The centres of R restarts, and the points that they are means of."""

    def seed(self, indices: np.ndarray) -> np.ndarray:
        """Begin with points (R, K) as centres; squared distances of all points to them, (R · K, N)."""

    def move(
        self, labels: np.ndarray, points: np.ndarray, old: np.ndarray | None, new: np.ndarray, table: np.ndarray
    ) -> None:
        """Points that change their cluster, and where the means then are."""

    def select(self, clusters: np.ndarray) -> None:
        """Go on with some restarts: those of these clusters, (R · K,) of bool."""


def kmeans_of_points(
    points: np.ndarray, num_clusters: int, numbers: np.ndarray, num_iterations: int, num_workers: int = 1
) -> np.ndarray:
    """The best of several restarts of Lloyd's algorithm from k-means++ seeds."""
    points = np.ascontiguousarray(points, dtype=np.float32)
    num, width = points.shape
    use_gram = width >= MIN_GRAM_WIDTH and num <= min(MAX_GRAM_POINTS, GRAM_SHARE * num_clusters * numbers.shape[1])
    distances: GramDistances | PointDistances = GramDistances(points) if use_gram else PointDistances(points)
    num_together = max(1, MAX_TABLE_SIZE // (num * num_clusters))

    def run(numbers: np.ndarray) -> list[tuple[np.ndarray, float]]:
        """Labels and inertia of some restarts."""
        seeds = seed_points(distances, numbers)
        groups = [seeds[i : i + num_together] for i in range(0, len(seeds), num_together)]
        return [
            result for group in groups for result in _run_lloyd(distances.centres(group.size), group, num_iterations)
        ]

    # Products are small: several threads would wait for each other longer than they work.
    num_workers = min(num_workers, numbers.shape[1]) if num * num_clusters >= MIN_SHARED_SIZE else 1
    with one_thread_each(), ThreadPoolExecutor(num_workers) as pool:
        parts = np.array_split(numbers, num_workers, axis=1)
        results = [result for part in pool.map(run, parts) for result in part]
    return min(results, key=lambda result: result[1])[0]  # the first of those with the least inertia


def _run_lloyd(centres: Centres, indices: np.ndarray, num_iterations: int) -> list[tuple[np.ndarray, float]]:
    """Labels (N,) and inertia of restarts that begin with points (R, K)."""
    num_restarts, num_clusters = indices.shape
    table = centres.seed(indices)
    each = np.arange(table.shape[1])
    running = np.arange(num_restarts)
    labels = table.reshape(*indices.shape, -1).argmin(1) + running[:, None] * num_clusters
    results = [(labels[0], np.inf)] * num_restarts
    points, old, new = np.tile(each, num_restarts), None, labels.ravel()
    for step in range(num_iterations + 1):
        if step < num_iterations:
            centres.move(labels, points, old, new, table)
            # Where a point has its least distance takes longer to find than what it is: only points
            # with a nearer centre look.
            least = table.reshape(len(running), num_clusters, -1).min(1)
            is_moving = np.maximum(least, 0, out=least) < table[labels, each]
            goes_on = is_moving.any(1)
        else:
            goes_on = np.zeros(len(running), dtype=bool)
        if not goes_on.all():
            for i in np.flatnonzero(~goes_on):
                inertia = np.maximum(table[labels[i], each], 0).sum(dtype=np.float64)
                results[running[i]] = labels[i] - i * num_clusters, float(inertia)
            if not goes_on.any():
                break
            clusters = np.repeat(goes_on, num_clusters)
            centres.select(clusters)
            table, running, is_moving = table[clusters], running[goes_on], is_moving[goes_on]
            labels = labels[goes_on] % num_clusters + np.arange(len(running))[:, None] * num_clusters
        restarts, points = is_moving.nonzero()
        old = labels[is_moving]
        columns = table.reshape(len(running), num_clusters, -1)[restarts, :, points]
        new = np.maximum(columns, 0, out=columns).argmin(1) + restarts * num_clusters
        labels[is_moving] = new
    return results


def seed_points(distances: GramDistances | PointDistances, numbers: np.ndarray) -> np.ndarray:
    """Greedy k-means++: of a few points drawn by squared distance, the one that lowers the inertia most."""
    num_clusters, num_restarts, num_trials = numbers.shape
    weight = np.ones((num_restarts, distances.num), dtype=np.float32)
    nearest = np.full_like(weight, np.inf)  # squared distance to the nearest centre
    out = np.empty((num_restarts, num_clusters), dtype=np.int64)
    each = np.arange(num_restarts)
    for k in range(num_clusters):
        # Draw points with probability proportional to their weight, by inverting the cumulative sum.
        cumulative = np.cumsum(weight, axis=1, dtype=np.float64).astype(np.float32)
        targets = numbers[k] * cumulative[:, -1:]
        index = np.stack(
            [np.searchsorted(row, target, side="right") for row, target in zip(cumulative, targets, strict=True)]
        )
        index = np.minimum(index, distances.num - 1)
        updated = distances.to_points(index.ravel()).reshape(num_restarts, num_trials, -1)
        np.minimum(updated, nearest[:, None], out=updated)
        best = updated.sum(2).argmin(1)
        nearest = weight = updated[each, best]
        out[:, k] = index[each, best]
    return out


def _change_sums(
    sums: np.ndarray, counts: np.ndarray, rows: np.ndarray, points: np.ndarray, old: np.ndarray | None, new: np.ndarray
) -> np.ndarray | slice:
    """Take rows of points from the sums of their old clusters and add them to those of the new."""
    clusters = new if old is None else np.concatenate([new, old])
    # small numbers are sorted faster
    order = np.argsort(clusters.astype(np.min_scalar_type(len(counts))), kind="stable")
    ordered = clusters[order]
    is_first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    starts = is_first.nonzero()[0]
    used = ordered[starts]
    sign = np.where(order < len(new), np.float32(1), np.float32(-1))
    tensors = (torch.from_numpy(array) for array in (points[order % len(new)], rows, starts, sign))
    index, table, offsets, weights = tensors
    change = F.embedding_bag(
        index, table, offsets, mode="sum", per_sample_weights=None if old is None else weights
    ).numpy()
    counts[used] += np.add.reduceat(sign, starts).astype(np.int64)
    if len(used) == len(counts) and counts.all():
        sums += change
        return slice(None)
    sums[used] += change
    return used[counts[used] > 0]


class PointDistances:
    """Squared distances from the points themselves: one product of (N, C) with the centres that changed."""

    def __init__(self, points: np.ndarray) -> None:
        self.points = points
        self.num = len(points)
        square = np.einsum("nc,nc->n", points, points)
        # |x|² − 2 x·c + |c|² as one product of (x, |x|², 1) with (−2c, 1, |c|²).
        self.extended = np.concatenate([points.T, square[None], np.ones((1, self.num), np.float32)])

    def to_centres(self, centres: np.ndarray) -> np.ndarray:
        """Of centres (P, C) to all points, (P, N)."""
        square = np.einsum("nc,nc->n", centres, centres)[:, None]
        return np.concatenate([-2 * centres, np.ones_like(square), square], axis=1) @ self.extended

    def to_points(self, indices: np.ndarray) -> np.ndarray:
        """Of points (P,) to all points, (P, N)."""
        out = self.to_centres(self.points[indices])
        return np.maximum(out, 0, out=out)

    def centres(self, num_clusters: int) -> PointCentres:
        """So many, of all restarts together."""
        return PointCentres(self, num_clusters)


class PointCentres:
    """Centres as sums of points. See `Centres`."""

    def __init__(self, distances: PointDistances, num_clusters: int) -> None:
        self.distances = distances
        self.sums = np.zeros((num_clusters, distances.points.shape[1]))
        self.counts = np.zeros(num_clusters, dtype=np.int64)

    def seed(self, indices: np.ndarray) -> np.ndarray:
        return self.distances.to_points(indices.ravel())

    def move(
        self, labels: np.ndarray, points: np.ndarray, old: np.ndarray | None, new: np.ndarray, table: np.ndarray
    ) -> None:
        live = _change_sums(self.sums, self.counts, self.distances.points, points, old, new)
        centres = (self.sums[live] / self.counts[live, None]).astype(np.float32)
        table[live] = self.distances.to_centres(centres)

    def select(self, clusters: np.ndarray) -> None:
        self.sums, self.counts = self.sums[clusters], self.counts[clusters]


class GramDistances:
    """Squared distances from the inner products of all points, (N, N)."""

    def __init__(self, points: np.ndarray) -> None:
        self.gram = points @ points.T
        self.square = self.gram.diagonal().copy()
        self.square64 = self.square.astype(np.float64)
        self.num = len(points)

    def to_points(self, indices: np.ndarray) -> np.ndarray:
        """Of points (P,) to all points, (P, N)."""
        out = self.gram[indices] * np.float32(-2)
        out += self.square
        out += self.square[indices, None]
        return np.maximum(out, 0, out=out)

    def centres(self, num_clusters: int) -> GramCentres:
        """So many, of all restarts together."""
        return GramCentres(self, num_clusters)


class GramCentres:
    """Centres as sums of inner products. See `Centres`."""

    def __init__(self, distances: GramDistances, num_clusters: int) -> None:
        self.distances = distances
        self.sums = np.zeros((num_clusters, distances.num))  # Σ_{j ∈ c} Gᵢⱼ
        self.counts = np.zeros(num_clusters, dtype=np.int64)
        self.all_points = np.arange(distances.num)

    def seed(self, indices: np.ndarray) -> np.ndarray:
        return self.distances.to_points(indices.ravel())

    def move(
        self, labels: np.ndarray, points: np.ndarray, old: np.ndarray | None, new: np.ndarray, table: np.ndarray
    ) -> None:
        live = _change_sums(self.sums, self.counts, self.distances.gram, points, old, new)
        counts = self.counts[live, None]
        inside = self.sums[labels, self.all_points].ravel()
        own = np.bincount(labels.ravel(), inside, len(self.counts))[live, None]  # Σ_{j, l ∈ c} Gⱼₗ
        rows = self.sums[live] * (-2 / counts)
        rows += self.distances.square64
        rows += own / counts**2
        table[live] = rows

    def select(self, clusters: np.ndarray) -> None:
        self.sums, self.counts = self.sums[clusters], self.counts[clusters]
