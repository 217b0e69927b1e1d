"""Unit vectors, their cosine similarity and their K-Means, of numpy arrays."""

from __future__ import annotations

import numpy as np

MIN_NORM = 1e-12  # as in torch.nn.functional.normalize
K_MEANS_ROUNDS = 6


def unit_vectors(x: np.ndarray, min_norm: float = MIN_NORM) -> np.ndarray:
    """Scale rows (…, D) to length 1. Rows shorter than `min_norm` stay close to zero."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), min_norm))


def cosine_similarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine similarity (N, M) of the rows of a (N, D) and b (M, D); 0 for a zero row."""
    return np.asarray(unit_vectors(a) @ unit_vectors(b).T)


def group_vectors(x: np.ndarray, num: int) -> np.ndarray:
    """K-Means of unit vectors (N, D) → unit vectors (num, D), as `dinov2.group_patches` without torch.

    The seeds are the first vector, then repeatedly the vector least similar to the seeds so far.
    """
    centres = x[:1]
    closest = x @ x[0]
    for _ in range(num - 1):
        least_alike = x[closest.argmin()]
        centres = np.concatenate([centres, least_alike[None]])
        closest = np.maximum(closest, x @ least_alike)
    for _ in range(K_MEANS_ROUNDS):
        group = np.eye(num, dtype=x.dtype)[(x @ centres.T).argmax(1)]
        centres = unit_vectors(group.T @ x + 1e-6 * centres)  # an empty group keeps its centre
    return centres
