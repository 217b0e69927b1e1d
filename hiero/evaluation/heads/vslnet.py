"""VSLNet for grounding a query in a video: span-based localization with query-guided highlighting
(arXiv 2004.13931).

One encoder reads video and query, which then attend to each other. A highlight weights the positions
near the answer before its start and end are predicted. As in Ego4D's version, a clip is pooled to a
fixed number of positions and a frozen text encoder provides the word vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import Config
from hiero.evaluation.heads.layers import Standardise

MASKED_LOGIT = -1e9  # gives padding a probability of 0
MIN_POSITION_EMBEDDINGS = 256  # a query may have more words than the video has positions
KERNEL_SIZE = 7  # kernel size of the separable convolutions


@dataclass(frozen=True)
class VSLNetConfig(Config):
    """Size and training of a VSLNet."""

    input_size: int
    text_size: int = 384
    hidden_size: int = 128
    num_positions: int = 128
    """Number of positions that a clip is pooled to."""
    num_heads: int = 8
    num_convs: int = 4
    dropout: float = 0.2
    extend: float = 0.1
    """The highlight extends beyond the answer by this share of its length, on both sides."""
    highlight_weight: float = 5.0


class VSLNetLosses(NamedTuple):
    span: Tensor
    highlight: Tensor
    total: Tensor


class SeparableConv(nn.Module):
    """Residual pre-norm block on (B, P, C): depth-wise, then point-wise convolution."""

    def __init__(self, width: int, size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.depth = nn.Conv1d(width, width, size, padding=size // 2, groups=width, bias=False)
        self.point = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        masked = torch.where(mask[..., None], self.norm(x), 0)
        return x + self.dropout(F.relu(self.point(self.depth(masked.mT).mT)))


class Encoder(nn.Module):
    """Position embeddings, separable convolutions, self-attention and a feed-forward layer."""

    def __init__(self, config: VSLNetConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.places = nn.Embedding(max(MIN_POSITION_EMBEDDINGS, config.num_positions), width)
        self.convs = nn.ModuleList(SeparableConv(width, KERNEL_SIZE, config.dropout) for _ in range(config.num_convs))
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
    """Each position attends to the words, and through them to the other positions: [v; a; v⊙a; v⊙b] → width.

    a is the attended words of a position, b the attended video of those words. The similarity is
    trilinear: w₁·v + w₂·q + w₃·(v⊙q).
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.video, self.query = nn.Linear(width, 1, bias=False), nn.Linear(width, 1, bias=False)
        self.both = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.both, std=width**-0.5)
        self.mix = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, video: Tensor, query: Tensor, mask: Tensor, word_mask: Tensor) -> Tensor:
        """(B, P, C) and (B, L, C) → (B, P, C)."""
        v, q = self.dropout(video), self.dropout(query)
        similarity = self.video(v) + self.query(q).mT + (v * self.both) @ q.mT  # (B, P, L)
        to_words = similarity.masked_fill(~word_mask[:, None], MASKED_LOGIT).softmax(2)
        to_video = similarity.masked_fill(~mask[..., None], MASKED_LOGIT).softmax(1)
        a = to_words @ query
        b = to_words @ to_video.mT @ video
        return self.mix(torch.cat([video, a, video * a, video * b], dim=-1))


class VSLNet(nn.Module):
    """Natural language video localization: predicts the start and end of the answer to a query."""

    def __init__(self, config: VSLNetConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.standardise = Standardise(config.input_size)
        self.video = nn.Sequential(nn.Dropout(config.dropout), nn.Linear(config.input_size, width))
        self.words = nn.Sequential(nn.Dropout(config.dropout), nn.Linear(config.text_size, width))
        self.encoder = Encoder(config)
        self.meet = ContextQueryAttention(width, config.dropout)
        self.pool = nn.Linear(width, 1, bias=False)
        self.join = nn.Linear(2 * width, width)
        self.highlight = nn.Linear(width, 1)
        self.start_encoder, self.end_encoder = Encoder(config), Encoder(config)
        self.start, self.end = (
            nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, 1))
            for _ in range(2)
        )

    def forward(self, video: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of start, end and highlight, (B, P) each, with `MASKED_LOGIT` for padding."""
        v = self.encoder(self.video(self.standardise(video)), mask)
        q = self.encoder(self.words(words), word_mask)
        x = self.meet(v, q, mask, word_mask)
        word_weights = self.pool(q).squeeze(-1).masked_fill(~word_mask, MASKED_LOGIT).softmax(1)
        sentence = (word_weights[:, None] @ q).expand(-1, x.shape[1], -1)
        x = self.join(torch.cat([x, sentence], dim=-1))
        highlight = self.highlight(x).squeeze(-1)
        x = x * highlight.sigmoid()[..., None]
        start_features = self.start_encoder(x, mask)
        end_features = self.end_encoder(start_features, mask)
        start = self.start(torch.cat([start_features, x], dim=-1)).squeeze(-1).masked_fill(~mask, MASKED_LOGIT)
        end = self.end(torch.cat([end_features, x], dim=-1)).squeeze(-1).masked_fill(~mask, MASKED_LOGIT)
        return start, end, highlight.masked_fill(~mask, MASKED_LOGIT)

    def losses(self, video: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor, spans: Tensor) -> VSLNetLosses:
        """Cross-entropy of start and end, plus the weighted highlight loss, for clips with one query each."""
        start, end, highlight = self(video, mask, words, word_mask)
        span_loss = F.cross_entropy(start, spans[:, 0]) + F.cross_entropy(end, spans[:, 1])
        highlighting = highlight_loss(highlight, foreground(spans, mask, self.config.extend), mask)
        return VSLNetLosses(span_loss, highlighting, span_loss + self.config.highlight_weight * highlighting)


def foreground(span: Tensor, mask: Tensor, extend: float) -> Tensor:
    """Target of the highlight, (B, P): 1 inside the extended span and 0 elsewhere."""
    position = torch.arange(mask.shape[1], device=mask.device)
    margin = (extend * (span[:, 1] - span[:, 0] + 1).float()).round()
    inside = (position >= (span[:, 0] - margin)[:, None]) & (position <= (span[:, 1] + margin)[:, None])
    return (inside & mask).float()


def highlight_loss(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Mean binary cross-entropy over the unmasked positions, with the foreground weighted twice."""
    losses = F.binary_cross_entropy_with_logits(logits.float(), targets, reduction="none") * (1 + targets)
    return torch.where(mask, losses, 0).sum() / mask.sum().clamp_min(1)


def top_spans(start: Tensor, end: Tensor, num_spans: int = 5) -> tuple[Tensor, Tensor]:
    """The most likely spans, (B, N, 2), and their probabilities, (B, N)."""
    joint = start.float().softmax(1)[:, :, None] * end.float().softmax(1)[:, None, :]
    joint = joint.triu()  # a span must not end before it starts
    scores, indices = joint.flatten(1).topk(min(num_spans, joint.shape[1] ** 2), dim=1)
    return torch.stack([indices // joint.shape[2], indices % joint.shape[2]], dim=2), scores
