"""Ways to cut a video into clusters: the paper's, and those that it must be compared with."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from hiero.bench.twfinch import tw_finch
from hiero.errors import InputError
from hiero.steps.pieces import cut_pieces, piece_labels

Algorithm = Literal["random", "equal parts", "K-Means (L2)", "K-Means (cosine)", "TW-FINCH", "spectral", "pieces"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


def cluster(x: np.ndarray, num: int, algorithm: Algorithm, *, kappa: float = 0.5, random_state: int = 0) -> np.ndarray:
    """Label (T,) in 0 … num − 1 of each node x (T, D), in time order. Fewer nodes than clusters: each its own."""
    if algorithm not in ALGORITHMS:
        raise InputError(f"no algorithm {algorithm}; known are {', '.join(ALGORITHMS)}")
    num = min(num, len(x))
    if algorithm == "random":
        return np.random.default_rng(random_state).integers(0, num, len(x))
    if algorithm == "equal parts":
        return np.arange(len(x)) * num // len(x)
    if algorithm == "TW-FINCH":
        return tw_finch(x, num)
    if algorithm == "pieces":
        return piece_labels(cut_pieces(x, num))
    import torch

    from hiero.model.kmeans import kmeans
    from hiero.model.spectral import spectral_cut

    points = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    if algorithm == "spectral":
        return spectral_cut(points, num, kappa=kappa, random_state=random_state).numpy()
    if algorithm == "K-Means (cosine)":
        points = torch.nn.functional.normalize(points, dim=-1)
    return kmeans(points[None], num, random_state=random_state)[0].numpy()
