"""Clusterings of the nodes of a video by name: that of the paper, baselines, and those of other packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from hiero.plugins import load_plugin, registered
from hiero.steps.segmentation import LENGTH_PRIOR, cut_steps, step_labels
from hiero.vectors import unit_vectors

if TYPE_CHECKING:
    from torch import Tensor

GROUP = "hiero.clusterings"


class Clustering(Protocol):
    """A function from nodes to labels, registered as an entry point of `hiero.clusterings`."""

    def __call__(self, x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
        """x (T, D) in time order → labels (T,) in 0 … num − 1."""


def cluster(x: np.ndarray, num: int, algorithm: str, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """Cluster the nodes of a video."""
    clustering: Clustering = load_plugin(GROUP, algorithm)
    return np.asarray(clustering(x, min(num, len(x)), kappa=kappa, random_state=random_state))


def clustering_names() -> tuple[str, ...]:
    return tuple(registered(GROUP))


def random_labels(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """A random label for each node."""
    return np.random.default_rng(random_state).integers(0, num, len(x))


def equal_parts(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """Parts of equal length."""
    return np.arange(len(x)) * num // len(x)


def contiguous(
    x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0, length_prior: float = LENGTH_PRIOR
) -> np.ndarray:
    """The best contiguous steps, see `cut_steps`."""
    return step_labels(cut_steps(x, num, length_prior=length_prior))


def spectral(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """The normalised cut of the paper."""
    from hiero.model.spectral import spectral_cut

    return spectral_cut(_to_tensor(x), num, kappa=kappa, random_state=random_state).numpy()


def kmeans_euclidean(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """K-Means on the nodes."""
    from hiero.model.kmeans import kmeans

    return kmeans(_to_tensor(x)[None], num, random_state=random_state)[0].numpy()


def kmeans_cosine(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """K-Means on the nodes as unit vectors."""
    from torch.nn import functional as F

    return kmeans_euclidean(F.normalize(_to_tensor(x), dim=-1).numpy(), num, random_state=random_state)


def _to_tensor(x: np.ndarray) -> Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


# TW-FINCH (CVPR 2021) clusters by nearest neighbours and weighs the distance in features by that in time:
#
#     d(i, j) = (1 − cos(xᵢ, xⱼ)) · |tᵢ − tⱼ|,     t = (i + 1) / n
#
# Nodes join their nearest neighbour, and nodes with a common nearest neighbour are one cluster. The
# means of the clusters become nodes, and so on until one cluster is left. If no round has the
# required number of clusters, the closest pairs of the next larger round are merged.


def finch(
    x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0, rounds: list[np.ndarray] | None = None
) -> np.ndarray:
    """TW-FINCH. `rounds` are the natural partitions of the video, if they are known."""
    if num >= len(x):
        return np.arange(len(x))
    if not np.ptp(x, axis=0).any():  # only the times differ
        return np.arange(len(x)) * num // len(x)
    rounds = natural_partitions(x) if rounds is None else rounds
    larger = [labels for labels in [np.arange(len(x)), *rounds] if labels.max() + 1 >= num]
    return merge_closest(x, larger[-1], num)


def natural_partitions(x: np.ndarray) -> list[np.ndarray]:
    """Labels of each round with more than one cluster, fine to coarse."""
    labels = np.arange(len(x))
    node_times = _node_times(len(x))
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
    from scipy.sparse import csr_matrix  # importing scipy is slow

    size = np.bincount(labels)
    total = csr_matrix((np.ones(len(x)), (labels, np.arange(len(x))))) @ x
    times = np.bincount(labels, weights=node_times)
    return (total / size[:, None]).astype(np.float32), (times / size).astype(np.float32)


def _first_neighbours(means: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest other cluster of each cluster, and all distances."""
    unit = unit_vectors(means)
    distance = unit @ unit.T
    # In place: at 1,000 nodes, allocating new matrices takes longer than the product.
    np.subtract(1, distance, out=distance)
    np.clip(distance, 0, 2, out=distance)
    gap = times[:, None] - times[None]
    distance *= np.abs(gap, out=gap)
    np.fill_diagonal(distance, np.inf)
    return distance.argmin(1), distance


def _components(nearest: np.ndarray) -> np.ndarray:
    """Connected components of the links to nearest neighbours, numbered by first appearance."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    num = len(nearest)
    graph = coo_matrix((np.ones(num), (np.arange(num), nearest)), shape=(num, num))
    return np.asarray(connected_components(graph, directed=False)[1])


def merge_closest(x: np.ndarray, labels: np.ndarray, num: int) -> np.ndarray:
    """Merge the closest pair of clusters until `num` are left; only the mean of the pair is recomputed."""
    node_times = _node_times(len(x))
    means, times = _means(x, node_times, labels)
    while len(means) > num:
        _, distance = _first_neighbours(means, times)
        first, second = sorted(np.unravel_index(distance.argmin(), distance.shape))
        labels = np.where(labels == second, first, labels - (labels > second))
        members = labels == first
        means, times = np.delete(means, second, axis=0), np.delete(times, second)
        means[first] = x[members].sum(0, dtype=np.float64) / members.sum()
        times[first] = node_times[members].cumsum()[-1] / members.sum()  # sequential sum, as in `_means`
    return labels
