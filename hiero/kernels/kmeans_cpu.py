"""K-Means of one video on a CPU: the clusters of `kmeans`, without computing again what did not change.

A step of Lloyd's algorithm moves few points after the first ones. Only centres that lost or got a point are somewhere else, so only
their row of the table of squared distances (K, N) is computed again, and their sums change by the points that moved. Each
restart ends by itself. Where points are few and wide, their inner products are computed once: the distance of point i to the
centre of a cluster c is then a sum of them,

    |xᵢ − mean_c|² = Gᵢᵢ − 2/|c| Σ_{j ∈ c} Gᵢⱼ + 1/|c|² Σ_{j, l ∈ c} Gⱼₗ,    G = X Xᵀ

and a step costs as much as points move, whatever their width. Restarts of large problems share the cores, one thread each: only
part of a step is a product that several threads speed up. `tests/oracle/kmeans.py` is the plain algorithm.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from hiero.devices import one_thread_each

MIN_GRAM_WIDTH = 48  # of points; of narrower ones distances are cheaper than sums of inner products
MAX_GRAM_POINTS = 4096  # whose inner products are held, 128 MiB
MAX_PRODUCT_CLUSTERS = 32  # whose sums are a product with ±1; of more, points are sorted by cluster
GRAM_SHARE = 24  # points a centre and restart up to which inner products pay
MIN_SHARED_SIZE = 2**20  # entries of the table of distances from which on restarts share the cores


class Centres(Protocol):
    """The centres of one restart, and the points that they are means of."""

    def seed(self, indices: np.ndarray) -> np.ndarray:
        """Begin with points (K,) as centres; squared distances of all points to them, (K, N)."""

    def move(self, points: np.ndarray, old: np.ndarray | None, new: np.ndarray, table: np.ndarray) -> None:
        """Points that change their cluster, and where the means then are.

        Args:
            points: Which, (m,).
            old: Their clusters so far, (m,); None where they had none.
            new: Their clusters from now on, (m,).
            table: Squared distances (K, N), of which the rows of these clusters are written. An empty cluster stays where it is.
        """


def kmeans_of_points(
    points: np.ndarray, num_clusters: int, numbers: np.ndarray, num_iterations: int, num_workers: int = 1
) -> np.ndarray:
    """The best of several restarts of Lloyd's algorithm from k-means++ seeds.

    Args:
        points: (N, C).
        num_clusters: K.
        numbers: Uniform in [0, 1), that seeds are drawn with, (K, restarts, trials).
        num_iterations: At most, of each restart.
        num_workers: Threads that restarts of a large problem are shared among.

    Returns:
        Labels (N,), in the order in which seeds were drawn.
    """
    points = np.ascontiguousarray(points, dtype=np.float32)
    num, width = points.shape
    use_gram = width >= MIN_GRAM_WIDTH and num <= min(MAX_GRAM_POINTS, GRAM_SHARE * num_clusters * numbers.shape[1])
    distances: GramDistances | PointDistances = GramDistances(points) if use_gram else PointDistances(points)

    def run(numbers: np.ndarray) -> list[tuple[np.ndarray, float]]:
        """Labels and inertia of some restarts."""
        return [_run_lloyd(distances.centres(num_clusters), seeds, num_iterations) for seeds in seed_points(distances, numbers)]

    num_workers = min(num_workers, numbers.shape[1])
    if num_workers > 1 and num * num_clusters >= MIN_SHARED_SIZE:
        with one_thread_each(), ThreadPoolExecutor(num_workers) as pool:
            results = [result for part in pool.map(run, np.array_split(numbers, num_workers, axis=1)) for result in part]
    else:
        results = run(numbers)
    return min(results, key=lambda result: result[1])[0]  # the first of those with the least inertia


def _run_lloyd(centres: Centres, indices: np.ndarray, num_iterations: int) -> tuple[np.ndarray, float]:
    """Labels (N,) and inertia of one restart."""
    table = centres.seed(indices)
    labels = table.argmin(0)
    moved, old = np.arange(len(labels)), None
    each = moved
    for _ in range(num_iterations):
        centres.move(moved, old, labels[moved], table)
        # Where a point has its least distance takes longer to find than what it is: only points with a nearer centre look.
        moved = np.flatnonzero(table.min(0) < table[labels, each])
        if not len(moved):
            break
        old = labels[moved]
        labels[moved] = table[:, moved].argmin(0)
    return labels, float(table[labels, each].sum(dtype=np.float64))


def seed_points(distances: GramDistances | PointDistances, numbers: np.ndarray) -> np.ndarray:
    """Greedy k-means++: of a few points drawn by squared distance, the one that lowers the inertia most.

    Args:
        distances: Of the points.
        numbers: As of `kmeans_of_points`, (K, R, trials).

    Returns:
        Points that restarts begin with, (R, K).
    """
    num_clusters, num_restarts, num_trials = numbers.shape
    weight = np.ones((num_restarts, distances.num), dtype=np.float32)
    nearest = np.full_like(weight, np.inf)  # squared distance to the nearest centre
    out = np.empty((num_restarts, num_clusters), dtype=np.int64)
    each = np.arange(num_restarts)
    for k in range(num_clusters):
        # Draw points with probability proportional to their weight, by inverting the cumulative sum.
        cumulative = np.cumsum(weight, axis=1, dtype=np.float64).astype(np.float32)
        targets = numbers[k] * cumulative[:, -1:]
        index = np.stack([np.searchsorted(row, target, side="right") for row, target in zip(cumulative, targets, strict=True)])
        index = np.minimum(index, distances.num - 1)
        updated = distances.to_points(index.ravel()).reshape(num_restarts, num_trials, -1)
        np.minimum(updated, nearest[:, None], out=updated)
        best = updated.sum(2).argmin(1)
        nearest = weight = updated[each, best]
        out[:, k] = index[each, best]
    return out


def _change_sums(sums: np.ndarray, counts: np.ndarray, rows: np.ndarray, old: np.ndarray | None, new: np.ndarray) -> np.ndarray:
    """Take rows (m, D) from the sums (K, D) and counts (K,) of their old clusters and add them to those of the new.

    Returns:
        Clusters that changed and have rows, (P,).
    """
    num_clusters = len(counts)
    difference = np.bincount(new, minlength=num_clusters)
    changed = difference > 0
    if old is not None:
        lost = np.bincount(old, minlength=num_clusters)
        changed |= lost > 0
        difference = difference - lost
    counts += difference
    used = np.flatnonzero(changed)
    if len(used) <= MAX_PRODUCT_CLUSTERS:
        number = np.empty(num_clusters, dtype=np.int64)
        number[used] = np.arange(len(used))
        sign = np.zeros((len(used), len(rows)), dtype=np.float32)
        each = np.arange(len(rows))
        sign[number[new], each] = 1
        if old is not None:
            sign[number[old], each] = -1
        sums[used] += sign @ rows
    else:
        for clusters, factor in ((new, 1), (old, -1)):
            if clusters is not None:
                order = np.argsort(clusters, kind="stable")
                ordered = clusters[order]
                starts = np.flatnonzero(np.diff(ordered, prepend=-1))
                sums[ordered[starts]] += factor * np.add.reduceat(rows[order], starts, axis=0)
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
        out = np.concatenate([-2 * centres, np.ones_like(square), square], axis=1) @ self.extended
        return np.maximum(out, 0, out=out)

    def to_points(self, indices: np.ndarray) -> np.ndarray:
        """Of points (P,) to all points, (P, N)."""
        return self.to_centres(self.points[indices])

    def centres(self, num_clusters: int) -> PointCentres:
        """Of one restart."""
        return PointCentres(self, num_clusters)


class PointCentres:
    """The centres of one restart as sums of points. See `Centres`."""

    def __init__(self, distances: PointDistances, num_clusters: int) -> None:
        self.distances = distances
        self.sums = np.zeros((num_clusters, distances.points.shape[1]))
        self.counts = np.zeros(num_clusters, dtype=np.int64)

    def seed(self, indices: np.ndarray) -> np.ndarray:
        return self.distances.to_centres(self.distances.points[indices])

    def move(self, points: np.ndarray, old: np.ndarray | None, new: np.ndarray, table: np.ndarray) -> None:
        rows = self.distances.points if old is None else self.distances.points[points]
        live = _change_sums(self.sums, self.counts, rows, old, new)
        centres = (self.sums[live] / self.counts[live, None]).astype(np.float32)
        table[live] = self.distances.to_centres(centres)


class GramDistances:
    """Squared distances from the inner products of all points, (N, N)."""

    def __init__(self, points: np.ndarray) -> None:
        self.gram = points @ points.T
        self.square = self.gram.diagonal().copy()
        self.num = len(points)

    def to_points(self, indices: np.ndarray) -> np.ndarray:
        """Of points (P,) to all points, (P, N)."""
        out = self.gram[indices] * np.float32(-2)
        out += self.square
        out += self.square[indices, None]
        return np.maximum(out, 0, out=out)

    def centres(self, num_clusters: int) -> GramCentres:
        """Of one restart."""
        return GramCentres(self, num_clusters)


class GramCentres:
    """The centres of one restart as sums of inner products. See `Centres`."""

    def __init__(self, distances: GramDistances, num_clusters: int) -> None:
        self.distances = distances
        self.sums = np.zeros((num_clusters, distances.num))  # Σ_{j ∈ c} Gᵢⱼ
        self.counts = np.zeros(num_clusters, dtype=np.int64)
        self.labels = np.zeros(distances.num, dtype=np.int64)
        self.all_points = np.arange(distances.num)

    def seed(self, indices: np.ndarray) -> np.ndarray:
        return self.distances.to_points(indices)

    def move(self, points: np.ndarray, old: np.ndarray | None, new: np.ndarray, table: np.ndarray) -> None:
        rows = self.distances.gram if old is None else self.distances.gram[points]
        live = _change_sums(self.sums, self.counts, rows, old, new)
        self.labels[points] = new
        counts = self.counts[live, None]
        own = np.bincount(self.labels, self.sums[self.labels, self.all_points], len(self.counts))[live, None]  # Σ_{j, l ∈ c} Gⱼₗ
        rows = self.sums[live] * (-2 / counts)
        rows += self.distances.square
        rows += own / counts**2
        table[live] = np.maximum(rows, 0, out=rows)
