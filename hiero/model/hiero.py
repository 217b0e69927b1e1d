"""HiERO, the whole network: input projection, encoder, decoder, and the heads into the space shared with text."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import LossConfig, ModelConfig
from hiero.data.batches import check_batch, uniform_spacing
from hiero.errors import InputError
from hiero.model.losses import Timed, alignment_loss, gather_reachable, thread_loss
from hiero.model.model_folder import ModelFolder
from hiero.model.pretrained import PretrainedMixin
from hiero.model.tdgc import gates_of_layers
from hiero.model.unet import FunctionAwareDecoder, Level, TemporalEncoder

MIN_SQUARE = 1e-6  # of all values of a video, so that a constant one is not divided by zero
MIN_RELATIVE_DEVIATION = 1e-4  # against the mean deviation of all channels; below it a channel counts as constant


class VideoHead(nn.Sequential):
    """h_v: Linear → LayerNorm → ReLU → Linear, into the shared space (not normalised)."""

    def __init__(self, size: int, embedding_size: int) -> None:
        super().__init__(
            nn.Linear(size, embedding_size),
            nn.LayerNorm(embedding_size),
            nn.ReLU(),
            nn.Linear(embedding_size, embedding_size),
        )


class TextHead(nn.Sequential):
    """h_t: Linear → ReLU → Linear on the text encoder's output, into the shared space (not normalised)."""

    def __init__(self, size: int, embedding_size: int) -> None:
        super().__init__(nn.Linear(size, embedding_size), nn.ReLU(), nn.Linear(embedding_size, embedding_size))


class Losses(NamedTuple):
    """The losses of a batch, scalars. `HiERO.losses` returns them.

    Attributes:
        alignment: L_vna, without its weight.
        threads: L_ft, without its weight; 0 where no threads were cut.
        total: The weighted sum, which training minimises.

    Examples:
        >>> import hiero, torch
        >>> losses = hiero.Losses(torch.tensor(2.0), torch.tensor(0.5), torch.tensor(2.5))
        >>> losses.total.item()
        2.5
    """

    alignment: Tensor
    threads: Tensor
    total: Tensor


class Peers(Protocol):
    """Other processes that hold parts of the same batch."""

    rank: int
    num: int

    def gather(self, part: Tensor) -> Tensor:
        """(B, …) of each process → (all B, …), with gradients."""

    def share(self, count: Tensor | int) -> Tensor:
        """Weight of this process's mean over `count` items in the mean over all processes, times their number."""


class HiERO(nn.Module, PretrainedMixin):
    """A hierarchy-aware encoder of video segments (ICCV 2025).

    A graph U-Net over the segments of a video: the Temporal Encoder halves the rate level by level,
    the Function-Aware Decoder goes back up and reasons inside threads, clusters of nodes with the
    same function. Two heads map nodes and narrations into one space. `save_pretrained` writes a
    model folder, `hiero.load_model` loads one.

    Args:
        config: Sizes and settings; defaults are the paper's.

    Examples:
        >>> import hiero, torch
        >>> model = hiero.HiERO(hiero.ModelConfig(input_size=256, hidden_size=64))
        >>> levels = model(torch.randn(1, 100, 256))
        >>> [tuple(level.features.shape) for level in levels]
        [(1, 100, 64), (1, 50, 64), (1, 25, 64)]
        >>> tuple(model.embed_video(levels[0].features).shape)
        (1, 100, 768)
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

    @classmethod
    def _make(cls, folder: ModelFolder) -> Self:
        if folder.networks:
            raise InputError(f"holds {len(folder.networks)} networks, not one; load it with hiero.load_model")
        return cls(folder.config)

    def configure(self, config: ModelConfig) -> None:
        """Run with other settings that change no weights: `behaviour`, `threads_at_inference`,
        `num_threads`, `kappa` …
        """
        self.config = config
        self.decoder.configure(config)

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        times: Tensor | None = None,
        *,
        spacing_s: float | None = None,
        threads: bool | None = None,
    ) -> list[Level]:
        """Enrich the nodes of a batch of videos.

        Args:
            features: Backbone features, (B, T, F).
            mask: True on the nodes of each video, which are a prefix of T, (B, T); by default all are.
            times: In seconds, not decreasing, (B, T); by default by the clock of the configuration.
            spacing_s: Time between nodes where it is the same everywhere and known; otherwise it is
                read off the times.
            threads: Cut & Match on or off; by default on while training and otherwise as configured.

        Returns:
            Levels 0 … depth − 1 of the decoder, finest first; with depth 0 the projected features alone.

        Raises:
            InputError: An argument has another shape or type, or holds what it must not; the message names it.

        Examples:
            >>> import hiero, torch
            >>> model = hiero.HiERO(hiero.ModelConfig(input_size=8, hidden_size=16)).eval()
            >>> levels = model(torch.randn(2, 40, 8), spacing_s=0.5, threads=True)
            >>> [None if level.threads is None else tuple(level.threads.shape) for level in levels]
            [None, (2, 20), (2, 10)]
        """
        mask, times = check_batch(features, mask, times, self.config)
        if threads is None:
            threads = self.training or self.config.threads_at_inference
        if self.config.behaviour.rounded_times:
            spacing_s = None
        elif spacing_s is None:
            spacing_s = uniform_spacing(times, mask)
        return self.forward_unchecked(features.to(self.project.weight.dtype), mask, times, spacing_s, threads=threads)

    def forward_unchecked(
        self, features: Tensor, mask: Tensor, times: Tensor, spacing_s: float | None, *, threads: bool
    ) -> list[Level]:
        """`forward` without a look at the data, so that nothing waits for the device.

        Args:
            features: (B, T, F).
            mask: Each video's nodes, a prefix of T, (B, T).
            times: In seconds, (B, T).
            spacing_s: Time between nodes where all are equally far apart; None for irregular times.
            threads: Whether Cut & Match is on.

        Returns:
            Levels 0 … depth − 1.
        """
        features = self._normalise_input(features, mask)
        features = self.project(torch.where(mask[..., None], features, 0))  # padding may hold anything, NaN included
        gates, depth = self._stage_gates(features.shape[1], spacing_s), len(self.encoder.stages)
        levels = self.encoder(Level(features, mask, times, spacing_s), None if gates is None else gates[:depth])
        return self.decoder(levels, None if gates is None else gates[depth:], cut=threads)

    def _stage_gates(self, length: int, spacing_s: float | None) -> list[list[Tensor]] | None:
        """Gates of all layers of each stage, encoder first; None where a stage computes its own: on
        CPUs and on irregular clocks.

        Such is the time inside threads with the release's quirk, too.
        """
        if spacing_s is None or self.config.behaviour.mixed_threads:
            return None
        stages = [*self.encoder.stages, *self.decoder.stages]
        if not all(stage.is_tdgc for stage in stages):
            return None
        distances = [*self.encoder.distances(length, spacing_s), *self.decoder.distances(length, spacing_s)]
        most = max([0, *[len(row) for row in distances]])
        layers, rows = [], []
        for stage, row in zip(stages, distances, strict=True):
            layers += list(stage.layers)
            rows += [row + [0.0] * (most - len(row))] * len(stage.layers)
        gates = gates_of_layers(layers, rows)
        if gates is None:
            return None
        num_layers = len(layers) // len(stages)
        return [[gates[i * num_layers + j, : len(row)] for j in range(num_layers)] for i, row in enumerate(distances)]

    def _normalise_input(self, features: Tensor, mask: Tensor) -> Tensor:
        """Shift and scale the features (B, T, F) as configured."""
        if self.config.centre:  # by the mean of the video, which takes the place of the training set's
            num_nodes = mask.sum(1)[:, None, None].clamp_min(1)
            features = features - torch.where(mask[..., None], features, 0).sum(1, keepdim=True) / num_nodes
        elif self.config.standardise:
            features = features - self.input_mean
        if self.config.standardise:
            features = features * self.input_scale
        if self.config.rescale:
            square = torch.where(mask[..., None], features, 0).square().sum((1, 2), keepdim=True)
            num_values = mask.sum(1)[:, None, None] * features.shape[2]
            features = features * (num_values / square.clamp_min(MIN_SQUARE)).sqrt()
        return features

    def standardise(self, mean: Tensor, deviation: Tensor) -> None:
        """Set how input channels are shifted and scaled (with `standardise` in the configuration).

        A channel that is constant in training is switched off: nothing was learned about what it
        says when it is not.

        Args:
            mean: Of each channel over the training videos, (F,).
            deviation: Standard deviation of each channel over the training videos, (F,).
        """
        self.input_mean.copy_(mean)
        varies = deviation > MIN_RELATIVE_DEVIATION * deviation.mean()
        self.input_scale.copy_(torch.where(varies, 1 / torch.where(varies, deviation, 1.0), 0.0))

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
        """L = L_vna + L_ft of a batch: nodes align with narrations, threads tighten.

        Args:
            levels: What `forward` returns.
            texts: Text encoder outputs of the narrations of each video, (B, M, text_size).
            text_times: When they are, in seconds, (B, M).
            text_mask: True on narrations, False on padding, (B, M).
            config: Weights, windows and temperature.
            peers: Other processes that hold the rest of the batch: all nodes are compared with the
                narrations of all.

        Examples:
            >>> import hiero, torch
            >>> model = hiero.HiERO(hiero.ModelConfig(input_size=8, hidden_size=16, text_size=4))
            >>> texts, text_times = torch.randn(2, 5, 4), 20 * torch.rand(2, 5)
            >>> text_mask = torch.ones(2, 5, dtype=torch.bool)
            >>> losses = model.losses(model(torch.randn(2, 40, 8)), texts, text_times, text_mask, hiero.LossConfig())
            >>> losses.total.backward()
        """
        texts = torch.where(text_mask[..., None], texts, 0)  # padding may hold anything, NaN included
        nodes = Timed(levels[0].features, levels[0].times, levels[0].mask)
        narrations = Timed(texts, text_times, text_mask)
        # Fewer nodes go through h_v, but how many depends on the data: compiled steps need fixed
        # shapes, peers equal ones.
        if peers is None and not torch.compiler.is_compiling():
            nodes = gather_reachable(nodes, narrations, config)
        nodes = nodes._replace(vectors=self.video_head(nodes.vectors))
        narrations = narrations._replace(vectors=self.text_head(narrations.vectors))
        if peers is not None:
            nodes, narrations = (Timed(*map(peers.gather, part)) for part in (nodes, narrations))
        alignment = alignment_loss(nodes, narrations, config)
        tightness = alignment.new_zeros(())
        clustered = [(level.features, level.threads) for level in levels if level.threads is not None]
        if clustered and config.thread_weight:
            if config.projected_threads:
                clustered = [(self.video_head(features), threads) for features, threads in clustered]
            tightness = thread_loss(clustered, config.temperature)
            if peers is not None:
                tightness = tightness * peers.share(sum((threads >= 0).sum() for _, threads in clustered))
        total = config.alignment_weight * alignment + config.thread_weight * tightness
        return Losses(alignment, tightness, total)
