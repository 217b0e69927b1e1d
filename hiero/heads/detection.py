"""Detection of spans in time: focal loss for classes, DIoU loss for spans, and Soft-NMS of what is detected."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def focal_loss(logits: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """−α_t (1 − p_t)^γ log p_t, of each class (arXiv 1708.02002)."""
    logits = _at_least_float32(logits)
    p = logits.sigmoid()
    p_t = p * targets + (1 - p) * (1 - targets)
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    return alpha_t * (1 - p_t) ** gamma * F.binary_cross_entropy_with_logits(logits, targets, reduction="none")


def diou_loss(predicted: Tensor, targets: Tensor, eps: float = 1e-8) -> Tensor:
    """1 − IoU + (distance of the centres / length of the hull)² (arXiv 1911.08287)."""
    predicted, targets = _at_least_float32(predicted), _at_least_float32(targets)
    intersection = torch.minimum(predicted, targets).sum(-1)
    union = predicted.sum(-1) + targets.sum(-1) - intersection
    hull = torch.maximum(predicted, targets).sum(-1)
    centre_distance = (predicted[..., 1] - predicted[..., 0] - targets[..., 1] + targets[..., 0]) / 2
    return 1 - intersection / union.clamp_min(eps) + (centre_distance / hull.clamp_min(eps)) ** 2


def _at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x  # half precision is too coarse for losses


def soft_nms(
    spans: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    sigma: float = 0.5,
    min_score: float = 1e-3,
    max_spans: int = 200,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower the scores of spans that overlap a better one of their class (arXiv 1704.04503).

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
