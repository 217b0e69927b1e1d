"""Unit vectors and cosine similarity of numpy arrays."""

from __future__ import annotations

import numpy as np

MIN_NORM = 1e-12  # as in torch.nn.functional.normalize


def unit_vectors(x: np.ndarray, min_norm: float = MIN_NORM) -> np.ndarray:
    """Scale rows (…, D) to length 1. Rows shorter than `min_norm` stay close to zero."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), min_norm))


def cosine_similarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine similarity (N, M) of the rows of a (N, D) and b (M, D); 0 for a zero row."""
    return np.asarray(unit_vectors(a) @ unit_vectors(b).T)
