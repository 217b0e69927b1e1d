"""Unit vectors and cosine similarity of numpy arrays."""

from __future__ import annotations

import numpy as np

MIN_NORM = 1e-12  # as torch.nn.functional.normalize


def unit_vectors(x: np.ndarray, min_norm: float = MIN_NORM) -> np.ndarray:
    """Rows (…, D) scaled to length 1; those shorter than `min_norm` stay close to zero, zero rows stay zero."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), min_norm))


def cosine_similarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of each row of a (N, D) with each row of b (M, D), (N, M); 0 for a zero row."""
    return np.asarray(unit_vectors(a) @ unit_vectors(b).T)
