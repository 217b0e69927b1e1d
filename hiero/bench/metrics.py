"""Scores, as the official evaluators compute them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def interval_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of intervals (…, 2) and (…, 2), as Ego4D computes it: the union is the hull of both."""
    overlap = np.minimum(a[..., 1], b[..., 1]) - np.maximum(a[..., 0], b[..., 0])
    hull = np.maximum(a[..., 1], b[..., 1]) - np.minimum(a[..., 0], b[..., 0])
    return np.maximum(0.0, overlap) / np.where(hull > 0, hull, 1.0)


def grounding_recall(
    predicted: Sequence[np.ndarray],
    truth: np.ndarray,
    thresholds: Sequence[float] = (0.3, 0.5),
    top: Sequence[int] = (1, 5),
) -> np.ndarray:
    """Share of queries with one of their first k spans above the IoU threshold (strictly, as Ego4D counts), (thresholds, top).

    predicted: for each query its ranked spans (n, 2); truth (Q, 2).
    """
    hits = np.zeros((len(thresholds), len(top)))
    for spans, true in zip(predicted, truth, strict=True):
        overlap = interval_iou(np.asarray(spans, dtype=float).reshape(-1, 2), np.asarray(true, dtype=float))
        for j, k in enumerate(top):
            best = overlap[:k].max(initial=0.0)
            hits[:, j] += [best > threshold for threshold in thresholds]
    return hits / max(1, len(truth))
