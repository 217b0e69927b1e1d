"""HiERO, the whole network: input projection, encoder, decoder, and the heads into the space shared
with text. Networks are saved as model folders, on disk or on the Hugging Face hub.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.model.batches import check_batch, uniform_spacing
from hiero.model.model_folder import CONFIG_FILE, TEXT_ENCODER_FILE, WEIGHTS_FILE, ModelFolder, open_model_folder
from hiero.model.tdgc import layer_gates
from hiero.model.unet import FunctionAwareDecoder, Level, TemporalEncoder
from hiero.storage.checkpoints import dequantise, describe_mismatch
from hiero.storage.files import atomic_path, load_tensors, save_tensors, write_text

MIN_SQUARE = 1e-6  # smallest sum of squares of a video, for constant features
MIN_RELATIVE_DEVIATION = 1e-4  # a channel with less of the mean deviation is constant


class PretrainedModel(nn.Module):
    """A network with files. The text encoder and the other entries of config.json are kept and saved again."""

    config: ModelConfig
    video_head: Callable[[Tensor], Tensor]  # decoder features (…, D) → shared space (…, E), not normalised
    text_head: Callable[[Tensor], Tensor]
    _extra: dict[str, Any] | None = None  # other entries of config.json
    _text_encoder: Path | None = None

    def embed_video(self, features: Tensor) -> Tensor:
        """Decoder features (…, D) → unit vectors in the shared space (…, E)."""
        return F.normalize(self.video_head(features), dim=-1)

    def embed_text(self, vectors: Tensor) -> Tensor:
        """Text encoder outputs (…, text_size) → unit vectors in the shared space (…, E)."""
        return F.normalize(self.text_head(vectors), dim=-1)

    def fingerprint(self) -> str:
        """A hash of configuration and weights, which identifies results of this model."""
        settings = {**self.config.to_dict(), **self._network_settings()}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for name, value in self.state_dict().items():
            digest.update(name.encode() + value.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a model folder, which `hiero.load_model` loads."""
        folder = Path(folder)
        target = folder / TEXT_ENCODER_FILE
        if self._text_encoder is not None and self._text_encoder.resolve() != target.resolve():
            with atomic_path(target) as path:
                shutil.copyfile(self._text_encoder, path)
        write_model_folder(folder, self.config, self.state_dict(), {**self._network_settings(), **(self._extra or {})})

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Upload the model folder to the Hugging Face hub, and return the address of the commit.

        The repository is created if it does not exist. `private` and `token` default to the settings of
        the account and to the token of `hf auth login`.
        """
        from huggingface_hub import HfApi  # takes half a second to import

        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return str(api.upload_folder(repo_id=repo_id, folder_path=folder))

    def _network_settings(self) -> dict[str, Any]:
        """The settings of the networks of an ensemble, for config.json."""
        return {}

    @classmethod
    def from_pretrained(cls, name: str | Path, **hub_options: Any) -> Self:
        """Load a model of this class, in evaluation mode. `hiero.load_model` loads any model."""
        return cls.from_folder(open_model_folder(name, **hub_options))

    @classmethod
    def from_folder(cls, folder: ModelFolder) -> Self:
        """The model of an open folder, in evaluation mode."""
        try:
            model = cls._build(folder)
        except InputError as error:
            raise InputError(f"{folder.path}: {error}") from error
        state = dequantise(load_tensors(folder.path / WEIGHTS_FILE))
        if problems := describe_mismatch(model.state_dict(), state):
            file = folder.path / WEIGHTS_FILE
            raise InputError(f"{file}: does not fit its config.json ({problems}); take both files from one model")
        model.load_state_dict(state)
        model._extra, model._text_encoder = folder.extra, folder.text_encoder
        return model.eval()

    @classmethod
    def _build(cls, folder: ModelFolder) -> Self:
        """A network with the settings of a folder, without its weights."""
        raise NotImplementedError


def write_model_folder(
    folder: Path, config: ModelConfig, state: dict[str, Tensor], extra: dict[str, Any] | None = None
) -> None:
    """Write config.json and model.safetensors."""
    try:
        text = json.dumps({"model": config.to_dict(), **(extra or {})}, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"{folder}: the configuration must hold plain values only ({error})") from error
    save_tensors(folder / WEIGHTS_FILE, state)
    write_text(folder / CONFIG_FILE, text)


class HiERO(PretrainedModel):
    """A hierarchy-aware encoder of video segments (ICCV 2025).

    HiERO is a graph U-Net over the segments of a video. The Temporal Encoder halves the rate level
    by level. The Function-Aware Decoder goes back up and reasons inside threads, which are clusters
    of nodes with the same function. Two heads map nodes and narrations into one space.
    `save_pretrained` writes a model folder, and `hiero.load_model` loads one.

    Args:
        config: Sizes and settings. The defaults are those of the paper.

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
        size = config.embedding_size
        # h_v and h_t, into the shared space
        self.video_head = nn.Sequential(
            nn.Linear(config.hidden_size, size), nn.LayerNorm(size), nn.ReLU(), nn.Linear(size, size)
        )
        self.text_head = nn.Sequential(nn.Linear(config.text_size, size), nn.ReLU(), nn.Linear(size, size))

    @classmethod
    def _build(cls, folder: ModelFolder) -> Self:
        if folder.networks:
            raise InputError(f"is an ensemble of {len(folder.networks)} networks; load it with hiero.load_model")
        return cls(folder.config)

    def configure(self, config: ModelConfig) -> None:
        """Change settings that do not affect the weights: `behaviour`, `threads_at_inference`, `kappa` …"""
        self.config = self.encoder.config = self.decoder.config = config

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
            mask: True on the nodes of each video, which fill a prefix of T, (B, T). Defaults to all.
            times: Times in seconds, not decreasing, (B, T). Defaults to the clock of the configuration.
            spacing_s: Time between nodes if it is constant. Defaults to what the times say.
            threads: Whether Cut & Match is on. Defaults to on in training and to the configuration
                otherwise.

        Returns:
            Levels 0 … depth − 1 of the decoder, finest first. With depth 0, only the projected features.

        Raises:
            InputError: An argument has a wrong shape, type or value.

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
        """`forward` without its checks, which would wait for the device. The arguments are those of
        `forward`; `spacing_s` is None for irregular times.
        """
        features = self._normalise_input(features, mask)
        features = self.project(torch.where(mask[..., None], features, 0))  # padding may be NaN
        gates = self._stage_gates(features.shape[1], spacing_s)
        depth = len(self.encoder.stages)
        levels = self.encoder(Level(features, mask, times, spacing_s), None if gates is None else gates[:depth])
        return self.decoder(levels, None if gates is None else gates[depth:], cut=threads)

    def _stage_gates(self, length: int, spacing_s: float | None) -> list[list[Tensor]] | None:
        """Gates of all layers of each stage, encoder first, computed at once.

        None if the stages compute their own: on CPUs, for irregular times, and for ranks inside
        threads that follow the release.
        """
        stages = [*self.encoder.stages, *self.decoder.stages]
        if spacing_s is None or self.config.behaviour.mixed_threads or not all(stage.is_tdgc for stage in stages):
            return None
        distances = [*self.encoder.distances(length, spacing_s), *self.decoder.distances(length, spacing_s)]
        most = max([0, *[len(row) for row in distances]])
        layers, rows = [], []
        for stage, row in zip(stages, distances, strict=True):
            layers += list(stage.layers)
            rows += [row + [0.0] * (most - len(row))] * len(stage.layers)
        gates = layer_gates(layers, rows)
        if gates is None:
            return None
        num_layers = self.config.num_layers
        return [[gates[i * num_layers + j, : len(row)] for j in range(num_layers)] for i, row in enumerate(distances)]

    def _normalise_input(self, features: Tensor, mask: Tensor) -> Tensor:
        """Shift and scale the features (B, T, F) as configured."""
        if self.config.centre:  # the mean of the video replaces that of the training set
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
        """Set mean and standard deviation (F,) of the input channels over the training videos, with `standardise`.

        A channel that is constant in training is switched off, because nothing was learned about it.
        """
        self.input_mean.copy_(mean)
        varies = deviation > MIN_RELATIVE_DEVIATION * deviation.mean()
        self.input_scale.copy_(torch.where(varies, 1 / torch.where(varies, deviation, 1.0), 0.0))
