"""Scores, as the official evaluators compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment


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


class ProcedureScores(NamedTuple):
    """How well clusters find key-steps. `f1` is that of the two means; `coverage` the share of the truth that found a partner."""

    precision: float
    recall: float
    iou: float
    f1: float
    coverage: float


def procedure_scores(
    predicted: np.ndarray,
    truth: np.ndarray,
    *,
    per_step: bool = True,
    skip_background: bool = False,
    num_steps: int | None = None,
    num_clusters: int | None = None,
) -> ProcedureScores:
    """EgoProceL's scores of a video: clusters are matched one to one with key-steps by their overlap (Hungarian), then compared.

    predicted, truth (T,): cluster and key-step of each frame; truth 0 is background. `per_step` averages over matched key-steps
    that occur, otherwise their frames are pooled. `skip_background` leaves background out of the matching (its frames still
    count against precision). num_steps and num_clusters, where more exist than occur, decide between equally good matchings only.
    """
    num = max(num_steps or 0, int(truth.max()) + 1)
    overlap = np.zeros((num, max(num_clusters or 0, int(predicted.max()) + 1)))
    np.add.at(overlap, (truth, predicted), 1)
    size = overlap.sum(0)  # of each cluster
    if skip_background:
        overlap = overlap[1:]
    # In single precision, as the official code has it: rounding decides between matchings that are equally good.
    steps, clusters = linear_sum_assignment(np.float32(1) - overlap.astype(np.float32) / np.float32(len(truth)))
    both, true, found = overlap[steps, clusters], overlap.sum(1)[steps], size[clusters]
    coverage = float(true.sum() / len(truth))
    if not per_step:
        both, true, found = (np.array([part.sum()]) for part in (both, true, found))
    here = true > 0
    both, true, found = both[here], true[here], found[here]
    if not len(true):
        return ProcedureScores(0.0, 0.0, 0.0, 0.0, coverage)
    precision = float(np.mean(np.where(found > 0, both / np.maximum(found, 1), 0)))
    recall, iou = float(np.mean(both / true)), float(np.mean(both / (true + found - both)))
    return ProcedureScores(precision, recall, iou, 2 * precision * recall / max(precision + recall, 1e-12), coverage)
