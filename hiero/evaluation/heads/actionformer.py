"""ActionFormer for temporal action localization (arXiv 2202.07925).

Convolutions embed the features, and a pyramid of transformer blocks with windowed attention halves
their rate level by level. Each moment of each level predicts a class and its distances to the start
and end of its step. Trained with focal and DIoU loss; detections go through Soft-NMS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import Config
from hiero.evaluation.heads.layers import ChannelLayerNorm, LocalAttention, MaskedConv, Standardise

UNASSIGNED = 1e6  # a length in segments beyond that of any step
PRIOR = 0.01  # initial probability of each class
MOMENTUM = 0.9  # momentum of the running mean of the number of positives
INITIAL_SCALE = 1e-4  # initial scale of the residual branches
MIN_LENGTH = 0.05  # shortest detection, in segments
MIN_SCORE = 1e-3  # lowest score of a detection
MAX_CANDIDATES = 2000  # most detections before Soft-NMS


@dataclass(frozen=True)
class ActionFormerConfig(Config):
    """Size and training of an ActionFormer."""

    input_size: int
    num_classes: int
    hidden_size: int = 256
    num_heads: int = 4
    window: int = 19
    """Number of moments in the attention window, at each level's rate."""
    num_stem: int = 2
    num_levels: int = 6
    centre_radius: float = 1.5
    """Moments within this many strides of the centre of a step are positives."""
    dropout: float = 0.0
    drop_path: float = 0.1
    reg_weight: float = 1.0
    max_length: int = 2304
    """Maximum length of a training example in segments. Longer videos are cropped at random."""


class ActionFormerLosses(NamedTuple):
    classes: Tensor
    regression: Tensor
    total: Tensor


class AffineDropPath(nn.Module):
    """Scale a residual branch and, in training, drop it for a random part of the batch (stochastic depth)."""

    def __init__(self, drop_probability: float, width: int) -> None:
        super().__init__()
        self.drop_probability = drop_probability
        self.scale = nn.Parameter(INITIAL_SCALE * torch.ones(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale
        if not self.training or not self.drop_probability:
            return x
        survives = torch.rand(len(x), 1, 1, device=x.device) >= self.drop_probability
        return x * survives / (1 - self.drop_probability)


class TransformerBlock(nn.Module):
    """Pre-norm transformer block on (B, C, T) with local attention. With a stride, the residual is max-pooled."""

    def __init__(self, config: ActionFormerConfig, stride: int) -> None:
        super().__init__()
        width = config.hidden_size
        self.stride = stride
        self.before, self.after = ChannelLayerNorm(width), ChannelLayerNorm(width)
        self.attention = LocalAttention(width, config.num_heads, config.window, stride, config.dropout)
        self.feed = nn.Sequential(
            nn.Conv1d(width, 4 * width, 1), nn.GELU(), nn.Dropout(config.dropout), nn.Conv1d(4 * width, width, 1)
        )
        self.drops = nn.ModuleList(AffineDropPath(config.drop_path, width) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        attended, out_mask = self.attention(self.before(x), mask)
        if self.stride > 1:
            x = F.max_pool1d(x, self.stride + 1, self.stride, padding=(self.stride + 1) // 2)
        x = x * out_mask[:, None] + self.drops[0](attended)
        return (x + self.drops[1](self.feed(self.after(x)))) * out_mask[:, None], out_mask


class ConvHead(nn.Module):
    """Three convolutions shared by all levels: (B, C, T) → (B, T, outputs)."""

    def __init__(self, width: int, outputs: int, bias: float = 0.0) -> None:
        super().__init__()
        self.convs = nn.ModuleList(MaskedConv(width, width, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(ChannelLayerNorm(width) for _ in range(2))
        self.last = MaskedConv(width, outputs)
        nn.init.constant_(self.last.conv.bias, bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x, mask)))
        return self.last(x, mask).mT


class ActionFormer(nn.Module):
    """Temporal action localization with a transformer pyramid: (B, T, D) → classes and spans of M moments.

    M is the number of moments of all levels together, T + T/2 + T/4 + …
    """

    def __init__(self, config: ActionFormerConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.standardise = Standardise(config.input_size)
        self.embed = nn.ModuleList(
            [MaskedConv(config.input_size, width, bias=False), MaskedConv(width, width, bias=False)]
        )
        self.norms = nn.ModuleList(ChannelLayerNorm(width) for _ in range(2))
        self.stem = nn.ModuleList(TransformerBlock(config, 1) for _ in range(config.num_stem))
        self.branch = nn.ModuleList(TransformerBlock(config, 2) for _ in range(config.num_levels - 1))
        self.outs = nn.ModuleList(ChannelLayerNorm(width) for _ in range(config.num_levels))
        self.classes = ConvHead(width, config.num_classes, bias=-float(np.log((1 - PRIOR) / PRIOR)))
        self.regression = ConvHead(width, 2)
        self.scales = nn.Parameter(torch.ones(config.num_levels))
        self.usual: Tensor
        self.register_buffer("usual", torch.tensor(100.0))  # running mean of the positives per batch

    @property
    def multiple(self) -> int:
        """Input lengths must be a multiple of this so that each level has exactly half the length."""
        return 1 << (self.config.num_levels - 1)

    def forward(self, video: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Class logits, distances to start and end, mask, and (position, stride) of the moments of all levels."""
        x = torch.where(mask[..., None], self.standardise(video), 0).mT
        for conv, norm in zip(self.embed, self.norms, strict=True):
            x = F.relu(norm(conv(x, mask)))
        for block in self.stem:
            x, mask = block(x, mask)
        logits, distances, masks, points = [], [], [], []
        for level, norm in enumerate(self.outs):
            if level > 0:
                x, mask = self.branch[level - 1](x, mask)
            y = norm(x) * mask[:, None]
            stride = 1 << level
            logits.append(self.classes(y, mask))
            distances.append(F.relu(self.regression(y, mask) * self.scales[level]) * stride)
            masks.append(mask)
            positions = torch.arange(y.shape[2], device=y.device) * stride + 0.0
            points.append(torch.stack([positions, torch.full_like(positions, stride)], dim=1))
        return torch.cat(logits, 1), torch.cat(distances, 1), torch.cat(masks, 1), torch.cat(points)

    def losses(self, video: Tensor, mask: Tensor, spans: Tensor, labels: Tensor) -> ActionFormerLosses:
        """Focal loss of all moments and DIoU loss of the positives, divided by the running mean of positives."""
        logits, distances, mask, points = self(video, mask)
        class_targets, distance_targets = assign_targets(points, spans, labels, self.config)
        positive = (class_targets.sum(-1) > 0) & mask
        if self.training:
            # A running mean keeps the loss of a batch with few positives from becoming huge.
            self.usual.mul_(MOMENTUM).add_((1 - MOMENTUM) * positive.sum().clamp_min(1))
        classes = torch.where(mask[..., None], focal_loss(logits, class_targets), 0).sum() / self.usual
        regression = torch.where(positive, diou_loss(distances, distance_targets), 0).sum() / self.usual
        return ActionFormerLosses(classes, regression, classes + self.config.reg_weight * regression)

    @torch.no_grad()
    def detect(self, video: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Spans in segments, scores and labels of the steps of one video, best first."""
        length = len(video)
        padded = F.pad(video, (0, 0, 0, -length % self.multiple))[None]
        mask = torch.arange(padded.shape[1], device=video.device)[None] < length
        logits, distances, mask, points = self(padded, mask)
        probabilities = (logits[0].float().sigmoid() * mask[0][:, None]).flatten()  # (M · C,)
        scores, indices = probabilities.topk(min(MAX_CANDIDATES, len(probabilities)))
        point, labels = indices // self.config.num_classes, indices % self.config.num_classes
        offsets = distances[0, point] * distances.new_tensor([-1, 1])
        spans = (points[point, :1] + offsets).clamp(0, length)
        valid = (scores > MIN_SCORE) & (spans[:, 1] - spans[:, 0] > MIN_LENGTH)
        return soft_nms(*(x[valid].cpu().numpy() for x in (spans, scores, labels)))


def assign_targets(points: Tensor, spans: Tensor, labels: Tensor, config: ActionFormerConfig) -> tuple[Tensor, Tensor]:
    """Target classes (B, M, C) and target distances to start and end (B, M, 2) of each moment.

    A moment is assigned to the shortest step whose centre it is near, if the larger of its distances
    to start and end is 2 to 4 strides (no lower limit on the first level, no upper one on the last).
    """
    position, stride = points[:, 0, None], points[:, 1, None]  # (M, 1)
    start, end = spans[..., 0][:, None], spans[..., 1][:, None]  # (B, 1, N)
    to_start, to_end = position - start, end - position  # (B, M, N)

    # Centre sampling: at most `radius` from the centre and inside the step.
    centre, radius = (start + end) / 2, config.centre_radius * stride
    first, last = torch.maximum(centre - radius, start), torch.minimum(centre + radius, end)
    near_centre = torch.minimum(position - first, last - position) > 0

    farthest = torch.maximum(to_start, to_end)
    is_coarsest = stride >= (1 << (config.num_levels - 1))
    lowest = torch.where(stride == 1, 0.0, 2 * stride)
    highest = torch.where(is_coarsest, UNASSIGNED, 4 * stride)
    fits_level = (farthest >= lowest) & (farthest <= highest)

    length = (end - start).expand_as(to_start)
    length = torch.where(near_centre & fits_level & (labels >= 0)[:, None], length, UNASSIGNED)
    shortest, step = length.min(2)
    # Steps with the same span: the moment gets all their classes.
    assigned = (length <= shortest[..., None] + 1e-3) & (length < UNASSIGNED)
    one_hot = F.one_hot(labels.clamp_min(0), config.num_classes).to(to_start.dtype) * (labels >= 0)[..., None]
    class_targets = (assigned.to(to_start.dtype) @ one_hot).clamp_max(1)
    distances = torch.stack([to_start, to_end], dim=3)
    return class_targets, distances.gather(2, step[..., None, None].expand(-1, -1, 1, 2)).squeeze(2)


def focal_loss(logits: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """Focal loss of each class: −α_t (1 − p_t)^γ log p_t (arXiv 1708.02002)."""
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
    min_score: float = MIN_SCORE,
    max_spans: int = 200,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Soft-NMS: select the best span, multiply the scores of the other spans of its class by
    exp(−tIoU²/σ), and repeat (arXiv 1704.04503).
    """
    order = np.argsort(labels, kind="stable")  # of equal scores, the one with the smaller label is selected first
    spans, labels = spans[order].astype(np.float64), labels[order].astype(int)
    start, end = spans.T
    remaining = scores[order].astype(np.float64)  # −inf once selected
    selected: list[int] = []
    selected_scores: list[float] = []
    while len(selected) < min(max_spans, len(spans)):
        best = int(remaining.argmax())
        if remaining[best] < min_score:
            break
        selected.append(best)
        selected_scores.append(float(remaining[best]))
        remaining[best] = -np.inf
        intersection = np.maximum(np.minimum(end, end[best]) - np.maximum(start, start[best]), 0)
        iou = intersection / np.maximum((end - start) + (end[best] - start[best]) - intersection, 1e-9)
        remaining = np.where(labels == labels[best], remaining * np.exp(-(iou**2) / sigma), remaining)
    return spans[selected], np.array(selected_scores), labels[selected]
