"""Losses of detection: focal loss for classes, DIoU loss for spans."""

from __future__ import annotations

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
