"""VSLNet: where in a video is the answer to a query? Span-based localization with query-guided highlighting (arXiv 2004.13931).

Video and query go through one encoder (position, separable convolutions, self-attention), attend to each other, and the query as a
whole joins every position. A highlight says which positions are near the answer; on what it lets through, a start and an end are
predicted. As in Ego4D's form a clip is pooled to a fixed number of positions, and words come from a frozen text encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import Config
from hiero.heads.layers import Standardise

NEVER = -1e9


@dataclass(frozen=True)
class VSLNetConfig(Config):
    input_size: int
    text_size: int = 384
    hidden_size: int = 128
    num_positions: int = 128
    """Positions that a clip is pooled to."""
    num_heads: int = 8
    num_convs: int = 4
    dropout: float = 0.2
    extend: float = 0.1
    """The highlighted foreground reaches this share of the answer's length beyond it, on both sides."""
    highlight_weight: float = 5.0


class VSLNetInputs(NamedTuple):
    video: Tensor
    """(B, P, D), pooled to at most num_positions."""
    mask: Tensor
    """(B, P)"""
    words: Tensor
    """(B, L, S)"""
    word_mask: Tensor
    """(B, L)"""
    span: Tensor
    """(B, 2): first and last position of the answer."""


class VSLNetLosses(NamedTuple):
    span: Tensor
    highlight: Tensor
    total: Tensor


class SeparableConv(nn.Module):
    """A depth-wise convolution, then one of single positions; normalised before, added after."""

    def __init__(self, width: int, size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.depth = nn.Conv1d(width, width, size, padding=size // 2, groups=width, bias=False)
        self.point = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        seen = torch.where(mask[..., None], self.norm(x), 0)
        return x + self.dropout(F.relu(self.point(self.depth(seen.mT).mT)))


class Encoder(nn.Module):
    """Positions, separable convolutions, self-attention, a feed-forward layer. Shared by video and query."""

    def __init__(self, config: VSLNetConfig, num_convs: int) -> None:
        super().__init__()
        width = config.hidden_size
        self.places = nn.Embedding(max(256, config.num_positions), width)
        self.convs = nn.ModuleList(SeparableConv(width, 7, config.dropout) for _ in range(num_convs))
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, config.num_heads, config.dropout, batch_first=True)
        self.feed = nn.Linear(width, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.places(torch.arange(x.shape[1], device=x.device))
        for conv in self.convs:
            x = conv(x, mask)
        y = self.before(x)
        x = x + self.dropout(self.attention(y, y, y, key_padding_mask=~mask, need_weights=False)[0])
        return x + self.dropout(self.feed(self.after(x)))


class ContextQueryAttention(nn.Module):
    """Each position reads the words, and the positions that those words read: [v; a; v⊙a; v⊙b] → width.

    Similarity is trilinear: w₁·v + w₂·q + w₃·(v⊙q).
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.video, self.query = nn.Linear(width, 1, bias=False), nn.Linear(width, 1, bias=False)
        self.both = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.both, std=width**-0.5)
        self.mix = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, video: Tensor, query: Tensor, mask: Tensor, word_mask: Tensor) -> Tensor:
        v, q = self.dropout(video), self.dropout(query)
        score = self.video(v) + self.query(q).mT + (v * self.both) @ q.mT  # (B, P, L)
        to_words = score.masked_fill(~word_mask[:, None], NEVER).softmax(2)
        to_video = score.masked_fill(~mask[..., None], NEVER).softmax(1)
        a = to_words @ query
        b = to_words @ to_video.mT @ video
        return self.mix(torch.cat([video, a, video * a, video * b], dim=-1))


class VSLNet(nn.Module):
    def __init__(self, config: VSLNetConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.standardise = Standardise(config.input_size)
        self.video = nn.Sequential(nn.Dropout(config.dropout), nn.Linear(config.input_size, width))
        self.words = nn.Sequential(nn.Dropout(config.dropout), nn.Linear(config.text_size, width))
        self.encoder = Encoder(config, config.num_convs)
        self.meet = ContextQueryAttention(width, config.dropout)
        self.pool = nn.Linear(width, 1, bias=False)
        self.join = nn.Linear(2 * width, width)
        self.highlight = nn.Linear(width, 1)
        self.start_encoder, self.end_encoder = Encoder(config, config.num_convs), Encoder(config, config.num_convs)
        self.start, self.end = (
            nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, 1)) for _ in range(2)
        )

    def forward(self, video: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of start, end and highlight, (B, P) each; padding is never chosen."""
        v = self.encoder(self.video(self.standardise(video)), mask)
        q = self.encoder(self.words(words), word_mask)
        x = self.meet(v, q, mask, word_mask)
        weight = self.pool(q).squeeze(-1).masked_fill(~word_mask, NEVER).softmax(1)
        whole = (weight[:, None] @ q).expand(-1, x.shape[1], -1)
        x = self.join(torch.cat([x, whole], dim=-1))
        light = self.highlight(x).squeeze(-1)
        x = x * light.sigmoid()[..., None]
        first = self.start_encoder(x, mask)
        last = self.end_encoder(first, mask)
        start = self.start(torch.cat([first, x], dim=-1)).squeeze(-1).masked_fill(~mask, NEVER)
        end = self.end(torch.cat([last, x], dim=-1)).squeeze(-1).masked_fill(~mask, NEVER)
        return start, end, light.masked_fill(~mask, NEVER)

    def losses(self, x: VSLNetInputs) -> VSLNetLosses:
        start, end, light = self(x.video, x.mask, x.words, x.word_mask)
        span = F.cross_entropy(start, x.span[:, 0]) + F.cross_entropy(end, x.span[:, 1])
        highlight = highlight_loss(light, foreground(x.span, x.mask, self.config.extend), x.mask)
        return VSLNetLosses(span, highlight, span + self.config.highlight_weight * highlight)


def foreground(span: Tensor, mask: Tensor, extend: float) -> Tensor:
    """Positions of the answer (B, 2), and `extend` of its length beyond it: (B, P) of 0 and 1."""
    place = torch.arange(mask.shape[1], device=mask.device)
    more = (extend * (span[:, 1] - span[:, 0] + 1).float()).round()
    inside = (place >= (span[:, 0] - more)[:, None]) & (place <= (span[:, 1] + more)[:, None])
    return (inside & mask).float()


def highlight_loss(light: Tensor, truth: Tensor, mask: Tensor) -> Tensor:
    """Binary cross-entropy over the positions that are there; the foreground weighs twice."""
    each = F.binary_cross_entropy_with_logits(light.float(), truth, reduction="none") * (1 + truth)
    return torch.where(mask, each, 0).sum() / mask.sum().clamp_min(1)


def best_spans(start: Tensor, end: Tensor, num: int = 5) -> tuple[Tensor, Tensor]:
    """The `num` most likely (first, last) positions with first ≤ last, (B, num, 2), and their probabilities."""
    both = start.float().softmax(1)[:, :, None] * end.float().softmax(1)[:, None, :]
    both = both.triu()
    score, place = both.flatten(1).topk(min(num, both.shape[1] ** 2), dim=1)
    return torch.stack([place // both.shape[2], place % both.shape[2]], dim=2), score
