"""Soft-NMS over spans in time (arXiv 1704.04503): a span that overlaps a better one of its class loses score."""

from __future__ import annotations

import numpy as np


def soft_nms(
    spans: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    sigma: float = 0.5,
    min_score: float = 1e-3,
    max_spans: int = 200,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower the scores of overlapping spans.

    Class by class the best span is selected and the scores of the others are multiplied by
    exp(−tIoU²/σ), again and again.
    """
    selected: list[np.ndarray] = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        box, score = spans[members].astype(np.float64), scores[members].astype(np.float64).copy()
        remaining = np.ones(len(members), dtype=bool)
        for _ in range(min(max_spans, len(members))):
            best = int(np.where(remaining, score, -1.0).argmax())
            if not remaining[best] or score[best] < min_score:
                break
            remaining[best] = False
            selected.append(np.array([*box[best], score[best], label]))
            intersection = np.minimum(box[:, 1], box[best, 1]) - np.maximum(box[:, 0], box[best, 0])
            intersection = np.maximum(intersection, 0)
            union = (box[:, 1] - box[:, 0]) + (box[best, 1] - box[best, 0]) - intersection
            iou = intersection / np.maximum(union, 1e-9)
            score = np.where(remaining, score * np.exp(-(iou**2) / sigma), score)
    if not selected:
        return np.zeros((0, 2)), np.zeros(0), np.zeros(0, dtype=int)
    rows = np.stack(selected)
    rows = rows[np.argsort(-rows[:, 2], kind="stable")][:max_spans]
    return rows[:, :2], rows[:, 2], rows[:, 3].astype(int)
