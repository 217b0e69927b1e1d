"""ActionFormer: every moment of a video says which step it is in and how far its start and end are (arXiv 2202.07925).

Convolutions embed the features; transformer blocks with attention inside a window see them at ever halved rates; on each level of
the pyramid two small heads classify and regress. Moments near the centre of a step are its positives, on the level that fits its
length. Focal loss, DIoU loss, Soft-NMS. Attention is computed in blocks, so time and memory grow linearly with the video.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import Config
from hiero.heads.layers import MaskedConv, Normalise, Standardise, at_least_single
from hiero.heads.nms import soft_nms

FAR = 1e6


@dataclass(frozen=True)
class ActionFormerConfig(Config):
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
    video: Tensor
    """(B, T, D)"""
    mask: Tensor
    """(B, T)"""
    spans: Tensor
    """(B, N, 2) in segments."""
    labels: Tensor
    """(B, N), −1 where there is none."""


class ActionFormerLosses(NamedTuple):
    classes: Tensor
    regression: Tensor
    total: Tensor


class LocalAttention(nn.Module):
    """Attention on (B, C, T) that reaches window // 2 moments to each side; its inputs go through depth-wise convolutions."""

    def __init__(self, width: int, num_heads: int, window: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.reach, self.dropout = num_heads, window // 2, dropout
        self.query, self.key, self.value = (MaskedConv(width, width, 3, stride=stride, groups=width, bias=False) for _ in range(3))
        self.norms = nn.ModuleList(Normalise(width) for _ in range(3))
        self.linear = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(3))
        self.out = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        parts = []
        seen = mask
        for conv, norm, linear in zip((self.query, self.key, self.value), self.norms, self.linear, strict=True):
            y, seen = conv(x, mask)
            parts.append(linear(norm(y)).unflatten(1, (self.num_heads, -1)).mT)  # (B, H, T, c)
        query, key, value = parts
        heard = attend_locally(query, key, value, seen, self.reach, self.dropout if self.training else 0.0)
        return self.out(heard.mT.flatten(1, 2)) * seen[:, None], seen


def attend_locally(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, reach: int, dropout: float = 0.0) -> Tensor:
    """Softmax attention in which i sees j where |i − j| ≤ reach: (B, H, T, c) → (B, H, T, c), mask (B, T).

    In blocks of `reach`: a block sees itself and its two neighbours, so nothing of size T × T is ever made.
    """
    length, size = query.shape[2], max(1, reach)
    room = -length % size
    query, key, value = (F.pad(x, (0, 0, 0, room)) for x in (query, key, value))
    mask = F.pad(mask, (0, room))
    blocks = (length + room) // size

    def around(x: Tensor) -> Tensor:
        """(…, T, c) → (…, blocks, 3 · size, c): each block with the one before and the one after."""
        padded = F.pad(x, (0, 0, size, size))
        return padded.unfold(-2, 3 * size, size).mT

    place = torch.arange(3 * size, device=query.device) - size
    near = (place[None] - torch.arange(size, device=query.device)[:, None]).abs() <= reach  # (size, 3 size)
    there = around(mask[..., None].float())[..., 0].bool()  # (B, blocks, 3 size)
    allowed = near & there[:, None, :, None, :]
    allowed = allowed | ~allowed.any(-1, keepdim=True)  # padding sees something, so that it stays finite
    q = query.unflatten(2, (blocks, size))
    found = F.scaled_dot_product_attention(q, around(key), around(value), attn_mask=allowed, dropout_p=dropout)
    return found.flatten(2, 3)[:, :, :length]


class DropPath(nn.Module):
    """Leaves a whole branch out, in training, for some of the videos."""

    def __init__(self, share: float, width: int) -> None:
        super().__init__()
        self.share = share
        self.scale = nn.Parameter(1e-4 * torch.ones(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale
        if not self.training or not self.share:
            return x
        keep = torch.rand(len(x), 1, 1, device=x.device) >= self.share
        return x * keep / (1 - self.share)


class TransformerBlock(nn.Module):
    """Local attention and a feed-forward layer, normalised before, added after; with a stride the rest is pooled."""

    def __init__(self, config: ActionFormerConfig, stride: int) -> None:
        super().__init__()
        width = config.hidden_size
        self.stride = stride
        self.before, self.after = Normalise(width), Normalise(width)
        self.attention = LocalAttention(width, config.num_heads, config.window, stride, config.dropout)
        self.feed = nn.Sequential(
            nn.Conv1d(width, 4 * width, 1), nn.GELU(), nn.Dropout(config.dropout), nn.Conv1d(4 * width, width, 1)
        )
        self.drops = nn.ModuleList(DropPath(config.drop_path, width) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        heard, seen = self.attention(self.before(x), mask)
        if self.stride > 1:
            x = F.max_pool1d(x, self.stride + 1, self.stride, padding=(self.stride + 1) // 2)
        x = x * seen[:, None] + self.drops[0](heard)
        return (x + self.drops[1](self.feed(self.after(x)))) * seen[:, None], seen


class ConvHead(nn.Module):
    """Three convolutions, shared by all levels."""

    def __init__(self, width: int, outputs: int, bias: float = 0.0) -> None:
        super().__init__()
        self.convs = nn.ModuleList(MaskedConv(width, width, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(Normalise(width) for _ in range(2))
        self.last = MaskedConv(width, outputs)
        nn.init.constant_(self.last.conv.bias, bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x, mask)[0]))
        return self.last(x, mask)[0].mT


class ActionFormer(nn.Module):
    def __init__(self, config: ActionFormerConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.standardise = Standardise(config.input_size)
        self.embed = nn.ModuleList([MaskedConv(config.input_size, width, bias=False), MaskedConv(width, width, bias=False)])
        self.norms = nn.ModuleList(Normalise(width) for _ in range(2))
        self.stem = nn.ModuleList(TransformerBlock(config, 1) for _ in range(config.num_stem))
        self.branch = nn.ModuleList(TransformerBlock(config, 2) for _ in range(config.num_levels - 1))
        self.outs = nn.ModuleList(Normalise(width) for _ in range(config.num_levels))
        self.classes = ConvHead(width, config.num_classes, bias=-float(np.log(99)))  # one moment in a hundred is a positive
        self.regression = ConvHead(width, 2)
        self.scales = nn.Parameter(torch.ones(config.num_levels))
        self.usual: Tensor
        self.register_buffer("usual", torch.tensor(100.0))  # number of positives of a batch, a moving mean

    @property
    def multiple(self) -> int:
        """Lengths must be a multiple of this, so that the levels halve exactly."""
        return 1 << (self.config.num_levels - 1)

    def forward(self, video: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Moments of all levels together: class logits (B, M, C), distances to start and end in segments (B, M, 2), mask (B, M),
        and place and stride of each (M, 2)."""
        x = torch.where(mask[..., None], self.standardise(video), 0).mT
        for conv, norm in zip(self.embed, self.norms, strict=True):
            x = F.relu(norm(conv(x, mask)[0]))
        for block in self.stem:
            x, mask = block(x, mask)
        levels = [(x, mask)]
        for block in self.branch:
            x, mask = block(x, mask)
            levels.append((x, mask))
        classes, distances, masks, places = [], [], [], []
        for number, (x, seen) in enumerate(levels):
            x = self.outs[number](x) * seen[:, None]
            stride = 1 << number
            classes.append(self.classes(x, seen))
            distances.append(F.relu(self.regression(x, seen) * self.scales[number]) * stride)
            masks.append(seen)
            at = torch.arange(x.shape[2], device=x.device) * stride + 0.0
            places.append(torch.stack([at, torch.full_like(at, stride)], dim=1))
        return torch.cat(classes, 1), torch.cat(distances, 1), torch.cat(masks, 1), torch.cat(places)

    def losses(self, x: ActionFormerInputs) -> ActionFormerLosses:
        logits, distances, mask, places = self(x.video, x.mask)
        truth, wanted = assign(places, x.spans, x.labels, self.config)
        positive = (truth.sum(-1) > 0) & mask
        num = positive.sum()
        if self.training:
            self.usual.mul_(0.9).add_(0.1 * num.clamp_min(1))
        each = focal_loss(logits, truth)
        classes = torch.where(mask[..., None], each, 0).sum() / self.usual
        overlap = torch.where(positive, diou_loss(distances, wanted), 0).sum() / self.usual
        return ActionFormerLosses(classes, overlap, classes + self.config.reg_weight * overlap)

    @torch.no_grad()
    def detect(self, video: Tensor, *, most: int = 2000, min_score: float = 1e-3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Spans in segments (N, 2), scores and labels of one video (T, D), best first."""
        length = len(video)
        padded = F.pad(video, (0, 0, 0, -length % self.multiple))[None]
        mask = torch.arange(padded.shape[1], device=video.device)[None] < length
        logits, distances, mask, places = self(padded, mask)
        score = (logits[0].float().sigmoid() * mask[0][:, None]).flatten()
        best, at = score.topk(min(most, len(score)))
        at = at[best > min_score]
        best = best[best > min_score]
        moment, label = at // self.config.num_classes, at % self.config.num_classes
        spans = torch.stack([places[moment, 0] - distances[0, moment, 0], places[moment, 0] + distances[0, moment, 1]], dim=1)
        spans = spans.clamp(0, length)
        long = spans[:, 1] - spans[:, 0] > 0.05
        return soft_nms(spans[long].cpu().numpy(), best[long].cpu().numpy(), label[long].cpu().numpy(), min_score=min_score)


def assign(places: Tensor, spans: Tensor, labels: Tensor, config: ActionFormerConfig) -> tuple[Tensor, Tensor]:
    """Which classes each moment is a positive of (B, M, C), and its true distances (B, M, 2) in segments.

    A moment belongs to the shortest step that it is near the centre of, if the larger of its distances fits its level.
    """
    at, stride = places[:, 0], places[:, 1]
    start, end = spans[..., 0][:, None], spans[..., 1][:, None]  # (B, 1, N)
    left, right = at[:, None] - start, end - at[:, None]  # (B, M, N)
    centre = (start + end) / 2
    reach = config.centre_radius * stride[:, None]
    near = torch.minimum(at[:, None] - torch.maximum(centre - reach, start), torch.minimum(centre + reach, end) - at[:, None]) > 0
    far = torch.maximum(left, right)
    last = stride[:, None] >= (1 << (config.num_levels - 1))
    low = torch.where(stride[:, None] == 1, 0.0, 2 * stride[:, None])
    high = torch.where(last, FAR, 4 * stride[:, None])
    length = (end - start).expand_as(left)
    length = torch.where(near & (far >= low) & (far <= high) & (labels >= 0)[:, None], length, FAR)
    shortest, which = length.min(2)
    mine = (length <= shortest[..., None] + 1e-3) & (length < FAR)
    one_hot = F.one_hot(labels.clamp_min(0), config.num_classes).to(left.dtype) * (labels >= 0)[..., None]
    truth = (mine.to(left.dtype) @ one_hot).clamp_max(1)
    wanted = torch.stack([left, right], dim=3).gather(2, which[..., None, None].expand(-1, -1, 1, 2)).squeeze(2)
    return truth, wanted


def focal_loss(logits: Tensor, truth: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """−α_t (1 − p_t)^γ log p_t, of each class."""
    logits = at_least_single(logits)
    p = logits.sigmoid()
    right = p * truth + (1 - p) * (1 - truth)
    weight = alpha * truth + (1 - alpha) * (1 - truth)
    return weight * (1 - right) ** gamma * F.binary_cross_entropy_with_logits(logits, truth, reduction="none")


def diou_loss(found: Tensor, wanted: Tensor, small: float = 1e-8) -> Tensor:
    """1 − IoU + (distance of the centres / length of the hull)², of spans given by their distances to one moment (…, 2)."""
    found, wanted = at_least_single(found), at_least_single(wanted)
    inter = torch.minimum(found, wanted).sum(-1)
    union = found.sum(-1) + wanted.sum(-1) - inter
    hull = torch.maximum(found, wanted).sum(-1)
    apart = (found[..., 1] - found[..., 0] - wanted[..., 1] + wanted[..., 0]) / 2
    return 1 - inter / union.clamp_min(small) + (apart / hull.clamp_min(small)) ** 2
