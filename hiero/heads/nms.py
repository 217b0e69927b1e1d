"""Soft-NMS over spans in time: a span that overlaps a better one of its class loses score instead of its life."""

from __future__ import annotations

import numpy as np


def soft_nms(
    spans: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    sigma: float = 0.5,
    min_score: float = 1e-3,
    most: int = 200,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spans (N, 2), scores and labels (N,) → the same for those that are kept, best first.

    Class by class the best span is taken and the others of the class are weighed by exp(−tIoU²/σ), again and again.
    """
    kept: list[np.ndarray] = []
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        box, score = spans[mine].astype(np.float64), scores[mine].astype(np.float64).copy()
        alive = np.ones(len(mine), dtype=bool)
        for _ in range(min(most, len(mine))):
            best = int(np.where(alive, score, -1.0).argmax())
            if not alive[best] or score[best] < min_score:
                break
            alive[best] = False
            kept.append(np.array([*box[best], score[best], label]))
            inter = np.minimum(box[:, 1], box[best, 1]) - np.maximum(box[:, 0], box[best, 0])
            inter = np.maximum(inter, 0)
            union = (box[:, 1] - box[:, 0]) + (box[best, 1] - box[best, 0]) - inter
            score = np.where(alive, score * np.exp(-((inter / np.maximum(union, 1e-9)) ** 2) / sigma), score)
    if not kept:
        return np.zeros((0, 2)), np.zeros(0), np.zeros(0, dtype=int)
    rows = np.stack(kept)
    rows = rows[np.argsort(-rows[:, 2], kind="stable")][:most]
    return rows[:, :2], rows[:, 2], rows[:, 3].astype(int)
