"""TW-FINCH (CVPR 2021): clusters of a video from first neighbours, where distance in features is
weighed by distance in time.

    d(i, j) = (1 − cos(xᵢ, xⱼ)) · |tᵢ − tⱼ|,     t = (i + 1) / n

Nodes join their nearest neighbour, those with a common nearest neighbour are one cluster; clusters
become nodes (their means) and it begins again, until one is left. A number of clusters that no
round has is reached from the next larger one, by merging the closest pair each time.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components

from hiero.vectors import unit_vectors


def tw_finch(x: np.ndarray, num: int, rounds: list[np.ndarray] | None = None) -> np.ndarray:
    """Clusters of the nodes of a video."""
    if num >= len(x):
        return np.arange(len(x))
    if not np.ptp(x, axis=0).any():  # nothing differs but time
        return np.arange(len(x)) * num // len(x)
    rounds = natural_partitions(x) if rounds is None else rounds
    larger = [labels for labels in [np.arange(len(x)), *rounds] if labels.max() + 1 >= num]
    return merge_closest(x, larger[-1], num)


def natural_partitions(x: np.ndarray) -> list[np.ndarray]:
    """Labels of each round, fine to coarse; the last one with more than one cluster ends it."""
    labels, node_times = np.arange(len(x)), _node_times(len(x))
    out: list[np.ndarray] = []
    while True:
        nearest, _ = _first_neighbours(*_means(x, node_times, labels))
        merged = _components(nearest)[labels]
        if merged.max() == 0 or merged.max() == labels.max():
            return out
        labels = merged
        out.append(labels)


def _node_times(num: int) -> np.ndarray:
    return np.arange(1, num + 1) / num


def _means(x: np.ndarray, node_times: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean feature and mean time of each cluster."""
    size = np.bincount(labels)
    total = csr_matrix((np.ones(len(x)), (labels, np.arange(len(x))))) @ x
    times = np.bincount(labels, weights=node_times)
    return (total / size[:, None]).astype(np.float32), (times / size).astype(np.float32)


def _first_neighbours(means: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest other cluster of each, and all distances."""
    unit = unit_vectors(means)
    distance = unit @ unit.T
    # in place: at 1,000 nodes, writing new matrices takes longer than the product
    np.subtract(1, distance, out=distance)
    np.maximum(distance, 0, out=distance)
    np.minimum(distance, 2, out=distance)
    gap = times[:, None] - times[None]
    distance *= np.abs(gap, out=gap)
    np.fill_diagonal(distance, np.inf)
    return distance.argmin(1), distance


def _components(nearest: np.ndarray) -> np.ndarray:
    """Clusters that are linked to their nearest neighbours, numbered by first appearance."""
    num = len(nearest)
    graph = coo_matrix((np.ones(num), (np.arange(num), nearest)), shape=(num, num))
    return _in_order(connected_components(graph, directed=False)[1])


def merge_closest(x: np.ndarray, labels: np.ndarray, num: int) -> np.ndarray:
    """Merge the closest pair of clusters, again and again; only its mean is computed anew."""
    node_times = _node_times(len(x))
    means, times = _means(x, node_times, labels)
    while len(means) > num:
        _, distance = _first_neighbours(means, times)
        first, second = sorted(np.unravel_index(distance.argmin(), distance.shape))
        labels = np.where(labels == second, first, labels - (labels > second))
        members = labels == first
        means, times = np.delete(means, second, axis=0), np.delete(times, second)
        means[first] = x[members].sum(0, dtype=np.float64) / members.sum()
        times[first] = node_times[members].cumsum()[-1] / members.sum()  # added one after the other, as in `_means`
    return labels


def _in_order(labels: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
