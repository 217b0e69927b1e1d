"""HiERO, the whole network: input projection, encoder, decoder, and the heads into the space shared with text."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import LossConfig, ModelConfig
from hiero.data.batches import check_batch, uniform_spacing
from hiero.model.losses import alignment_loss, gather_reachable, thread_loss
from hiero.model.pretrained import PretrainedMixin
from hiero.model.unet import FunctionAwareDecoder, Level, TemporalEncoder


class VideoHead(nn.Sequential):
    """h_v: Linear → LayerNorm → ReLU → Linear, into the shared space (not normalised)."""

    def __init__(self, size: int, embedding_size: int) -> None:
        super().__init__(
            nn.Linear(size, embedding_size), nn.LayerNorm(embedding_size), nn.ReLU(), nn.Linear(embedding_size, embedding_size)
        )


class TextHead(nn.Sequential):
    """h_t: Linear → ReLU → Linear on the text encoder's output, into the shared space (not normalised)."""

    def __init__(self, size: int, embedding_size: int) -> None:
        super().__init__(nn.Linear(size, embedding_size), nn.ReLU(), nn.Linear(embedding_size, embedding_size))


class Losses(NamedTuple):
    alignment: Tensor
    threads: Tensor
    total: Tensor


class Peers(Protocol):
    """Other processes that hold parts of the same batch: this one is number `rank` of `num`."""

    rank: int
    num: int

    def gather(self, part: Tensor) -> Tensor:
        """(B, …) of each process → (all B, …), with gradients."""

    def share(self, count: Tensor | int) -> Tensor:
        """What this process's mean over `count` things weighs in the mean over all processes, times their number."""


class HiERO(nn.Module, PretrainedMixin):
    """A hierarchy-aware encoder of video segments (ICCV 2025).

    >>> model = HiERO(ModelConfig(input_size=256))
    >>> levels = model(torch.randn(1, 100, 256))
    >>> [tuple(level.features.shape) for level in levels]
    [(1, 100, 768), (1, 50, 768), (1, 25, 768)]
    """

    input_mean: Tensor
    input_scale: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if config.standardise:
            self.register_buffer("input_mean", torch.zeros(config.input_size))
            self.register_buffer("input_scale", torch.ones(config.input_size))
        self.project = nn.Linear(config.input_size, config.hidden_size)
        self.encoder = TemporalEncoder(config)
        self.decoder = FunctionAwareDecoder(config)
        self.video_head = VideoHead(config.hidden_size, config.embedding_size)
        self.text_head = TextHead(config.text_size, config.embedding_size)

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        times: Tensor | None = None,
        *,
        spacing_s: float | None = None,
        threads: bool | None = None,
    ) -> list[Level]:
        """Enrich a batch of videos: features (B, T, F), mask (B, T), times (B, T) in seconds → levels 0 … depth − 1.

        mask marks each video's nodes, a prefix of T (default: all). times default to the clock of the config.
        spacing_s: time between nodes where all are equally far apart and it is known; otherwise it is read off the times.
        threads: Cut & Match on or off; by default on while training and otherwise as configured.
        Bad input raises InputError and names the argument.
        """
        mask, times = check_batch(features, mask, times, self.config)
        if threads is None:
            threads = self.training or self.config.threads_at_inference
        if self.config.behaviour.rounded_times:
            spacing_s = None
        elif spacing_s is None:
            spacing_s = uniform_spacing(times, mask)
        return self.enrich(features.to(self.project.weight.dtype), mask, times, spacing_s, threads=threads)

    def enrich(self, features: Tensor, mask: Tensor, times: Tensor, spacing_s: float | None, *, threads: bool) -> list[Level]:
        """`forward` without looking at the data: no checks, and the spacing is given (None: irregular times)."""
        if self.config.centre:
            num = mask.sum(1)[:, None, None].clamp_min(1)
            features = features - torch.where(mask[..., None], features, 0).sum(1, keepdim=True) / num
        elif self.config.standardise:
            features = features - self.input_mean
        if self.config.standardise:
            features = features * self.input_scale
        if self.config.rescale:
            square = torch.where(mask[..., None], features, 0).square().sum((1, 2), keepdim=True)
            features = features * (mask.sum(1)[:, None, None] * features.shape[2] / square.clamp_min(1e-6)).sqrt()
        features = self.project(torch.where(mask[..., None], features, 0))  # whatever stands in the padding
        levels = self.encoder(Level(features, mask, times, spacing_s))
        return self.decoder(levels, cut=threads)

    def standardise(self, mean: Tensor, deviation: Tensor) -> None:
        """Fix how input channels are shifted and scaled (with `standardise` in the configuration).

        A channel that never moved in training is switched off: nothing was learned about what it says when it does.
        """
        self.input_mean.copy_(mean)
        moves = deviation > 1e-4 * deviation.mean()
        self.input_scale.copy_(torch.where(moves, 1 / torch.where(moves, deviation, 1.0), 0.0))

    def embed_video(self, features: Tensor) -> Tensor:
        """Decoder features (…, D) → unit vectors in the shared space (…, E)."""
        return F.normalize(self.video_head(features), dim=-1)

    def embed_text(self, vectors: Tensor) -> Tensor:
        """Text encoder outputs (…, text_size) → unit vectors in the shared space (…, E)."""
        return F.normalize(self.text_head(vectors), dim=-1)

    def losses(
        self,
        levels: list[Level],
        texts: Tensor,
        text_times: Tensor,
        text_mask: Tensor,
        config: LossConfig,
        peers: Peers | None = None,
    ) -> Losses:
        """L = L_vna + L_ft for a batch: texts (B, M, text_size), text_times and text_mask (B, M).

        With `peers`, other processes hold the rest of the batch: all nodes and narrations are compared with all.
        """
        texts = torch.where(text_mask[..., None], texts, 0)  # whatever stands in the padding
        nodes, times, mask = levels[0].features, levels[0].times, levels[0].mask
        if peers is None and not torch.compiler.is_compiling():  # compiled steps have fixed shapes, as have those of peers
            nodes, times, mask = gather_reachable(nodes, times, mask, text_times, text_mask, config)
        pairs = (self.video_head(nodes), times, mask, self.text_head(texts), text_times, text_mask)
        if peers is not None:
            pairs = tuple(peers.gather(part) for part in pairs)  # type: ignore[assignment]
        alignment = alignment_loss(*pairs, config)
        tighten = alignment.new_zeros(())
        cut = [(level.features, level.threads) for level in levels if level.threads is not None]
        if cut and config.thread_weight:
            if config.projected_threads:
                cut = [(self.video_head(features), threads) for features, threads in cut]
            tighten = thread_loss(cut, config.temperature)
            if peers is not None:
                tighten = tighten * peers.share(sum((threads >= 0).sum() for _, threads in cut))
        total = config.alignment_weight * alignment + config.thread_weight * tighten
        return Losses(alignment, tighten, total)
