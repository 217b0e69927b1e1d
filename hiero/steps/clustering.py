"""Clusterings of a video's nodes by name: the paper's, those that it must be compared with, and those
of other packages.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hiero.errors import InputError
from hiero.plugins import load_plugin, registered
from hiero.steps.segmentation import LENGTH_PRIOR, cut_steps, step_labels

GROUP = "hiero.clusterings"


class Clustering(Protocol):
    """A function from nodes to labels, registered as an entry point of `hiero.clusterings`."""

    def __call__(self, x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
        """x (T, D) in time order → labels (T,) in 0 … num − 1."""


def cluster(x: np.ndarray, num: int, algorithm: str, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """Cluster the nodes of a video."""
    if algorithm not in registered(GROUP):
        raise InputError(f"no algorithm {algorithm}; known are {', '.join(clustering_names())}")
    clustering: Clustering = load_plugin(GROUP, algorithm)
    return np.asarray(clustering(x, min(num, len(x)), kappa=kappa, random_state=random_state))


def clustering_names() -> tuple[str, ...]:
    """Names that `cluster` takes."""
    return tuple(registered(GROUP))


def random_labels(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """A label at random for each node."""
    return np.random.default_rng(random_state).integers(0, num, len(x))


def equal_parts(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """Parts of equal length."""
    return np.arange(len(x)) * num // len(x)


def finch(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """TW-FINCH."""
    from hiero.steps.twfinch import tw_finch  # scipy takes long to import

    return tw_finch(x, num)


def pieces(
    x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0, length_prior: float = LENGTH_PRIOR
) -> np.ndarray:
    """The best contiguous pieces; `length_prior` is that of `cut_steps`."""
    return step_labels(cut_steps(x, num, length_prior=length_prior))


def spectral(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """The normalised cut of the paper."""
    import torch

    from hiero.model.spectral import spectral_cut

    points = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    return spectral_cut(points, num, kappa=kappa, random_state=random_state).numpy()


def kmeans_euclidean(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """K-Means on the nodes as they are."""
    import torch

    from hiero.kernels.kmeans import kmeans

    points = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    return kmeans(points[None], num, random_state=random_state)[0].numpy()


def kmeans_cosine(x: np.ndarray, num: int, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """K-Means on the nodes as unit vectors."""
    import torch

    from hiero.kernels.kmeans import kmeans

    points = torch.nn.functional.normalize(torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), dim=-1)
    return kmeans(points[None], num, random_state=random_state)[0].numpy()
