"""K-Means for many small problems at once, with the same result on every device for a given seed.

Every video of a batch uses the same random numbers, so its clusters do not depend on the rest of the
batch. All restarts run at once. Without `early_stop` nothing waits for the host, so that a CUDA
graph can capture it. On a CPU, larger problems are solved one by one (`kmeans_of_points`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.devices import single_threaded_math

MIN_POINTS_PER_VIDEO = 256  # points of a video on a CPU from which it is clustered on its own
MAX_TABLE_SIZE = 2**18  # distances of restarts that step together, which fit into the processor's cache
MIN_SHARED_SIZE = 2**20  # distances from which restarts share the cores


def uniform_hash(*shape: int, random_state: int, device: torch.device) -> Tensor:
    """Numbers in [0, 1) from an integer hash of index and seed, the same on any device and in a CUDA graph."""
    x = torch.arange(math.prod(shape), device=device) + (random_state * 0x9E3779B9 & 0xFFFFFFFF)
    for _ in range(2):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    # Rounding to single precision could give 1.
    return ((x ^ (x >> 16)).float() / 2**32).clamp_max(1 - 2**-24).view(shape)


def num_seeding_trials(num_clusters: int) -> int:
    """Number of points that greedy k-means++ draws for each centre, as in scikit-learn."""
    return 2 + int(math.log(num_clusters))


def kmeans(
    points: Tensor,
    num_clusters: int,
    *,
    random_state: int = 0,
    num_restarts: int = 8,
    num_iterations: int = 50,
    early_stop: bool = True,
) -> Tensor:
    """Cluster of each point (B, N): the best of several restarts of Lloyd's algorithm from k-means++ seeds."""
    shape = num_clusters, num_restarts, num_seeding_trials(num_clusters)
    numbers = uniform_hash(*shape, random_state=random_state, device=points.device)
    on_cpu = points.dtype == torch.float32 and points.device.type == "cpu" and not torch.compiler.is_compiling()
    if on_cpu and early_stop and points.shape[1] >= MIN_POINTS_PER_VIDEO:
        settings = num_clusters, numbers.numpy(), num_iterations, torch.get_num_threads()
        videos = [torch.from_numpy(kmeans_of_points(video.numpy(), *settings)) for video in points.detach()]
        return renumber(torch.stack(videos), num_clusters)
    square = points.square().sum(-1)[:, None, :, None]

    def squared_distances(centres: Tensor) -> Tensor:
        """(B, R, k, C) → (B, R, N, k)."""
        cross = torch.einsum("bnc,brkc->brnk", points, centres)
        return (square - 2 * cross + centres.square().sum(-1)[:, :, None]).clamp_min(0)

    centres = _seed_centres(points, squared_distances, numbers.to(points.dtype))
    labels = squared_distances(centres).argmin(-1)  # (B, R, N)
    for _ in range(num_iterations):
        member = F.one_hot(labels, num_clusters).to(points.dtype)
        count = member.sum(2)[..., None]
        mean = torch.einsum("brnk,bnc->brkc", member, points) / count.clamp_min(1)
        centres = torch.where(count > 0, mean, centres)  # an empty cluster keeps its centre
        updated = squared_distances(centres).argmin(-1)
        if early_stop and torch.equal(updated, labels):
            break
        labels = updated
    inertia = squared_distances(centres).amin(-1).sum(-1)  # (B, R)
    best = inertia.argmin(1)[:, None, None].expand(-1, 1, labels.shape[-1])
    return renumber(labels.gather(1, best)[:, 0], num_clusters)


def _seed_centres(points: Tensor, squared_distances: Callable[[Tensor], Tensor], numbers: Tensor) -> Tensor:
    """Greedy k-means++ (B, R, K, C): of a few points drawn by squared distance, the one with the least inertia."""
    num_clusters, num_restarts, _num_trials = numbers.shape
    centres: list[Tensor] = []
    weight = points.new_ones(len(points), num_restarts, points.shape[1])  # uniform for the first centre
    nearest = torch.full_like(weight, torch.inf)  # squared distance to the nearest centre
    for k in range(num_clusters):
        # Draw points with probability proportional to their weight, by inverting the cumulative sum.
        cumulative = weight.cumsum(-1)
        target = numbers[k] * cumulative[..., -1:]  # (B, R, trials)
        index = torch.searchsorted(cumulative, target, right=True).clamp_max(points.shape[1] - 1)
        every_restart = points[:, None].expand(-1, num_restarts, -1, -1)
        trial = every_restart.gather(2, index[..., None].expand(*index.shape, points.shape[2]))
        updated = torch.minimum(nearest[..., None], squared_distances(trial))  # (B, R, N, trials)
        best = updated.sum(2).argmin(-1)[..., None, None]  # (B, R, 1, 1)
        nearest = weight = updated.gather(3, best.expand(*updated.shape[:3], 1))[..., 0]
        centres.append(trial.gather(2, best.expand(*best.shape[:3], points.shape[2]))[:, :, 0])
    return torch.stack(centres, dim=2)


def renumber(labels: Tensor, num_clusters: int) -> Tensor:
    """Number the clusters by first appearance, (B, N) → (B, N)."""
    index = torch.arange(labels.shape[1], device=labels.device)
    member = labels[..., None] == torch.arange(num_clusters, device=labels.device)
    first = torch.where(member, index[:, None], labels.shape[1]).amin(1)  # (B, K)
    num_earlier = (first[:, None] < first[..., None]).sum(-1)  # only empty clusters tie
    return num_earlier.gather(1, labels)


# K-Means of one video on a CPU
#
# After the first steps of Lloyd's algorithm few points move. Only the centres that lost or got a
# point change, so only their rows of the table of squared distances (K, N) are recomputed, and their
# sums change by the points that moved. Restarts of a small problem step together, because calls take
# longer than the arithmetic: cluster k of restart r is number r K + k. Restarts of large problems
# share the cores with one thread each. `tests/oracle/kmeans.py` is the plain algorithm.


def kmeans_of_points(
    points: np.ndarray, num_clusters: int, numbers: np.ndarray, num_iterations: int, num_workers: int = 1
) -> np.ndarray:
    """The best of several restarts of Lloyd's algorithm from k-means++ seeds."""
    points = np.ascontiguousarray(points, dtype=np.float32)
    distances = SquaredDistances(points)
    table_size = len(points) * num_clusters
    num_together = max(1, MAX_TABLE_SIZE // table_size)

    def run(numbers: np.ndarray) -> list[tuple[np.ndarray, float]]:
        """Labels and inertia of some restarts."""
        seeds = seed_points(distances, numbers)
        groups = [seeds[i : i + num_together] for i in range(0, len(seeds), num_together)]
        return [result for group in groups for result in _run_lloyd(distances, group, num_iterations)]

    # Products are small, so several threads would mostly wait for each other.
    num_workers = min(num_workers, numbers.shape[1]) if table_size >= MIN_SHARED_SIZE else 1
    with single_threaded_math(), ThreadPoolExecutor(num_workers) as pool:
        parts = np.array_split(numbers, num_workers, axis=1)
        results = [result for part in pool.map(run, parts) for result in part]
    return min(results, key=lambda result: result[1])[0]


def _run_lloyd(distances: SquaredDistances, indices: np.ndarray, num_iterations: int) -> list[tuple[np.ndarray, float]]:
    """Labels (N,) and inertia of restarts that start with points (R, K) as centres."""
    num_restarts, num_clusters = indices.shape
    sums = np.zeros((indices.size, distances.points.shape[1]))  # over the points of each cluster
    counts = np.zeros(indices.size, dtype=np.int64)
    table = distances.to_points(indices.ravel())
    each = np.arange(table.shape[1])
    running = np.arange(num_restarts)
    labels = table.reshape(*indices.shape, -1).argmin(1) + running[:, None] * num_clusters
    results = [(labels[0], np.inf)] * num_restarts
    points, old, new = np.tile(each, num_restarts), None, labels.ravel()
    for step in range(num_iterations + 1):
        if step < num_iterations:
            live = _change_sums(sums, counts, distances.points, points, old, new)
            table[live] = distances.to_centres((sums[live] / counts[live, None]).astype(np.float32))
            # A minimum is faster than its index, so only points with a nearer centre search for it.
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
            sums, counts, table = sums[clusters], counts[clusters], table[clusters]
            running, is_moving = running[goes_on], is_moving[goes_on]
            labels = labels[goes_on] % num_clusters + np.arange(len(running))[:, None] * num_clusters
        restarts, points = is_moving.nonzero()
        old = labels[is_moving]
        columns = table.reshape(len(running), num_clusters, -1)[restarts, :, points]
        new = np.maximum(columns, 0, out=columns).argmin(1) + restarts * num_clusters
        labels[is_moving] = new
    return results


def seed_points(distances: SquaredDistances, numbers: np.ndarray) -> np.ndarray:
    """Greedy k-means++ seeds (R, K): of a few points drawn by squared distance, the one with the least inertia."""
    num_clusters, num_restarts, num_trials = numbers.shape
    weight = np.ones((num_restarts, len(distances.points)), dtype=np.float32)
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
        index = np.minimum(index, len(distances.points) - 1)
        updated = distances.to_points(index.ravel()).reshape(num_restarts, num_trials, -1)
        np.minimum(updated, nearest[:, None], out=updated)
        best = updated.sum(2).argmin(1)
        nearest = weight = updated[each, best]
        out[:, k] = index[each, best]
    return out


def _change_sums(
    sums: np.ndarray, counts: np.ndarray, rows: np.ndarray, points: np.ndarray, old: np.ndarray | None, new: np.ndarray
) -> np.ndarray | slice:
    """Move rows of points from the sums of their old clusters to those of the new; returns the changed clusters."""
    clusters = new if old is None else np.concatenate([new, old])
    # Small integers are sorted faster.
    order = np.argsort(clusters.astype(np.min_scalar_type(len(counts))), kind="stable")
    ordered = clusters[order]
    is_first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    starts = is_first.nonzero()[0]
    used = ordered[starts]
    sign = np.where(order < len(new), np.float32(1), np.float32(-1))
    arrays = (points[order % len(new)], rows, starts, sign)
    index, table, offsets, weights = (torch.from_numpy(array) for array in arrays)
    signs = None if old is None else weights
    change = F.embedding_bag(index, table, offsets, mode="sum", per_sample_weights=signs).numpy()
    counts[used] += np.add.reduceat(sign, starts).astype(np.int64)
    if len(used) == len(counts) and counts.all():
        sums += change
        return slice(None)
    sums[used] += change
    return used[counts[used] > 0]


class SquaredDistances:
    """Squared distances of points (N, C) to centres by one product."""

    def __init__(self, points: np.ndarray) -> None:
        self.points = points
        square = np.einsum("nc,nc->n", points, points)
        # |x|² − 2 x·c + |c|² as one product of (x, |x|², 1) with (−2c, 1, |c|²).
        self.extended = np.concatenate([points.T, square[None], np.ones((1, len(points)), np.float32)])

    def to_points(self, indices: np.ndarray) -> np.ndarray:
        """Distances of points (P,) to all points, (P, N)."""
        out = self.to_centres(self.points[indices])
        return np.maximum(out, 0, out=out)

    def to_centres(self, centres: np.ndarray) -> np.ndarray:
        """Distances of centres (P, C) to all points, (P, N); rounding may make them negative."""
        square = np.einsum("nc,nc->n", centres, centres)[:, None]
        return np.concatenate([-2 * centres, np.ones_like(square), square], axis=1) @ self.extended
