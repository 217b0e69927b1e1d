"""ActionFormer: every moment of a video predicts which step it is in and how far its start and end are
(arXiv 2202.07925).

Convolutions embed the features; transformer blocks with attention inside a window see them at ever
halved rates; on each level of the pyramid two small heads classify and regress. Moments near the
centre of a step are its positives, on the level that fits its length. Focal loss, DIoU loss,
Soft-NMS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import Config
from hiero.heads.detection import diou_loss, focal_loss, soft_nms
from hiero.heads.layers import ChannelLayerNorm, LocalAttention, MaskedConv, Standardise

UNASSIGNED = 1e6  # segments; longer than any step
PRIOR = 0.01  # share of moments that are positives of a class, which the classifier begins with
MOMENTUM = 0.9  # of the running mean of the number of positives
INITIAL_SCALE = 1e-4  # of the residual branches, which begin almost closed
MIN_LENGTH = 0.05  # segments; shorter detections are dropped


@dataclass(frozen=True)
class ActionFormerConfig(Config):
    """Size and training of an ActionFormer."""

    input_size: int
    num_classes: int
    hidden_size: int = 256
    num_heads: int = 4
    window: int = 19
    """Moments that attention sees, at each level's rate."""
    num_stem: int = 2
    num_levels: int = 6
    centre_radius: float = 1.5
    """Positives are this many strides around the centre of a step."""
    dropout: float = 0.0
    drop_path: float = 0.1
    reg_weight: float = 1.0
    max_length: int = 2304
    """Segments of a training example; longer videos are cropped at random."""


class ActionFormerInputs(NamedTuple):
    """A padded batch of videos with their steps."""

    video: Tensor
    mask: Tensor
    spans: Tensor
    labels: Tensor


class ActionFormerLosses(NamedTuple):
    classes: Tensor
    regression: Tensor
    total: Tensor


class AffineDropPath(nn.Module):
    """Stochastic depth: scales a residual branch and, in training, drops it for some of the videos."""

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
    """Pre-norm transformer block on (B, C, T) with local attention; with a stride the residual is max-pooled."""

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
    """Three convolutions, shared by all levels: (B, C, T) → (B, T, outputs)."""

    def __init__(self, width: int, outputs: int, bias: float = 0.0) -> None:
        super().__init__()
        self.convs = nn.ModuleList(MaskedConv(width, width, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(ChannelLayerNorm(width) for _ in range(2))
        self.last = MaskedConv(width, outputs)
        nn.init.constant_(self.last.conv.bias, bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x, mask)[0]))
        return self.last(x, mask)[0].mT


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
        self.register_buffer("usual", torch.tensor(100.0))  # running mean of the number of positives of a batch

    @property
    def multiple(self) -> int:
        """Lengths must be a multiple of this, so that the levels halve exactly."""
        return 1 << (self.config.num_levels - 1)

    def forward(self, video: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Predict a class and a span at each moment of each level."""
        x = torch.where(mask[..., None], self.standardise(video), 0).mT
        for conv, norm in zip(self.embed, self.norms, strict=True):
            x = F.relu(norm(conv(x, mask)[0]))
        for block in self.stem:
            x, mask = block(x, mask)
        levels = [(x, mask)]
        for block in self.branch:
            x, mask = block(x, mask)
            levels.append((x, mask))
        logits, distances, masks, points = [], [], [], []
        for level, (x, level_mask) in enumerate(levels):
            x = self.outs[level](x) * level_mask[:, None]
            stride = 1 << level
            logits.append(self.classes(x, level_mask))
            distances.append(F.relu(self.regression(x, level_mask) * self.scales[level]) * stride)
            masks.append(level_mask)
            positions = torch.arange(x.shape[2], device=x.device) * stride + 0.0
            points.append(torch.stack([positions, torch.full_like(positions, stride)], dim=1))
        return torch.cat(logits, 1), torch.cat(distances, 1), torch.cat(masks, 1), torch.cat(points)

    def losses(self, x: ActionFormerInputs) -> ActionFormerLosses:
        """Focal loss of all moments and DIoU loss of the positives, over the usual number of positives."""
        logits, distances, mask, points = self(x.video, x.mask)
        class_targets, distance_targets = assign_targets(points, x.spans, x.labels, self.config)
        positive = (class_targets.sum(-1) > 0) & mask
        if self.training:
            # A running mean: a batch with few positives does not get a huge loss.
            self.usual.mul_(MOMENTUM).add_((1 - MOMENTUM) * positive.sum().clamp_min(1))
        classes = torch.where(mask[..., None], focal_loss(logits, class_targets), 0).sum() / self.usual
        regression = torch.where(positive, diou_loss(distances, distance_targets), 0).sum() / self.usual
        return ActionFormerLosses(classes, regression, classes + self.config.reg_weight * regression)

    @torch.no_grad()
    def detect(
        self, video: Tensor, *, max_candidates: int = 2000, min_score: float = 1e-3
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Detect the steps of one video."""
        length = len(video)
        padded = F.pad(video, (0, 0, 0, -length % self.multiple))[None]
        mask = torch.arange(padded.shape[1], device=video.device)[None] < length
        logits, distances, mask, points = self(padded, mask)
        probabilities = (logits[0].float().sigmoid() * mask[0][:, None]).flatten()  # (M · C,)
        scores, indices = probabilities.topk(min(max_candidates, len(probabilities)))
        indices = indices[scores > min_score]
        scores = scores[scores > min_score]
        point, labels = indices // self.config.num_classes, indices % self.config.num_classes
        position = points[point, 0]
        spans = torch.stack([position - distances[0, point, 0], position + distances[0, point, 1]], dim=1).clamp(
            0, length
        )
        valid = spans[:, 1] - spans[:, 0] > MIN_LENGTH
        spans, scores, labels = spans[valid], scores[valid], labels[valid]
        return soft_nms(spans.cpu().numpy(), scores.cpu().numpy(), labels.cpu().numpy(), min_score=min_score)


def assign_targets(points: Tensor, spans: Tensor, labels: Tensor, config: ActionFormerConfig) -> tuple[Tensor, Tensor]:
    """What each moment should predict.

    A moment belongs to the shortest step that it is near the centre of, if the larger of its
    distances to start and end fits its level: 2 to 4 strides, on the first level less and on the
    last level more.
    """
    position, stride = points[:, 0, None], points[:, 1, None]  # (M, 1)
    start, end = spans[..., 0][:, None], spans[..., 1][:, None]  # (B, 1, N)
    to_start, to_end = position - start, end - position  # (B, M, N)

    # Centre sampling: at most `radius` from the centre, and inside the step.
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
    # steps over the same span: all their classes
    assigned = (length <= shortest[..., None] + 1e-3) & (length < UNASSIGNED)
    one_hot = F.one_hot(labels.clamp_min(0), config.num_classes).to(to_start.dtype) * (labels >= 0)[..., None]
    class_targets = (assigned.to(to_start.dtype) @ one_hot).clamp_max(1)
    distances = torch.stack([to_start, to_end], dim=3)
    return class_targets, distances.gather(2, step[..., None, None].expand(-1, -1, 1, 2)).squeeze(2)
