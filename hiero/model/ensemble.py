"""Ensembles of networks, loading of any model, and embedding of one video.

The similarity of a text with a node is the mean over the networks. Networks trained with other
seeds and settings make different mistakes, so the mean is better than each network
(docs/results.md). The unit vectors of M networks side by side, divided by √M, have the mean of the
cosines as product; a projection keeps the space as small as that of one network.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.model.batches import node_times
from hiero.model.hiero import HiERO, PretrainedModel
from hiero.model.model_folder import ModelFolder, open_model_folder
from hiero.model.released import install_released
from hiero.model.unet import Level
from hiero.storage.weights import RELEASED
from hiero.types import Clock

SHARED_SETTINGS = ("input_size", "text_size", "depth", "backbone", "clock")
RUN_SETTINGS = (  # settings that do not affect the weights
    "thread_radius",
    "num_threads",
    "sample_points",
    "kappa",
    "threads_at_inference",
    "random_state",
    "behaviour",
)


class HieroEnsemble(PretrainedModel):
    """Several networks used together. It embeds like `HiERO`. To train further, use one of its `members`.

    Args:
        configs: Configuration of each network.
        embedding_size: Width of the space that video and text share.

    Attributes:
        config: Configuration of the first network, with the width of the shared space.
        networks: The networks as a ModuleList; `members` is the typed list.
        projection: Projection of the concatenated vectors into the shared space, (Σ E,
            embedding_size), with orthonormal columns.

    Raises:
        InputError: The networks do not read the same features and texts.

    Examples:
        >>> import hiero
        >>> model = hiero.load_model("hiero-k400")
        >>> type(model).__name__, [network.config.radius_s for network in model.members]
        ('HieroEnsemble', [2.5, 2.5, 5.0])
    """

    projection: Tensor

    def __init__(self, configs: Sequence[ModelConfig], embedding_size: int) -> None:
        super().__init__()
        for config in configs:
            different = [name for name in SHARED_SETTINGS if getattr(config, name) != getattr(configs[0], name)]
            if different:
                raise InputError(f"the networks of an ensemble must have the same {', '.join(different)}")
        total_size = sum(config.embedding_size for config in configs)
        if embedding_size > total_size:
            raise InputError(
                f"an ensemble of {embedding_size} dimensions needs networks with as many, got {total_size}"
            )
        self.config = configs[0].replace(embedding_size=embedding_size)
        self.networks = nn.ModuleList([HiERO(config) for config in configs])
        self.register_buffer("projection", torch.eye(total_size, embedding_size))

    @classmethod
    def _build(cls, folder: ModelFolder) -> Self:
        if not folder.networks:
            raise InputError("is a single network, not an ensemble; load it with hiero.load_model")
        return cls(folder.networks, folder.config.embedding_size)

    @property
    def members(self) -> list[HiERO]:
        """The networks."""
        return cast("list[HiERO]", list(self.networks))

    def _network_settings(self) -> dict[str, Any]:
        return {"networks": [network.config.to_dict() for network in self.members]}

    def configure(self, config: ModelConfig) -> None:
        """Change settings that do not affect the weights, in all networks."""
        changes = {name: getattr(config, name) for name in RUN_SETTINGS}
        self.config = self.config.replace(**changes)
        for network in self.members:
            network.configure(network.config.replace(**changes))

    def forward(self, *inputs: Tensor | None, **options: Any) -> list[Level]:
        """Enrich the nodes of a batch of videos. The arguments are those of `HiERO.forward`.

        Returns:
            Levels with the concatenated features of the networks, (B, T, Σ D), and the threads of
            the first network.
        """
        outputs = [network(*inputs, **options) for network in self.members]
        return [
            replace(levels[0], features=torch.cat([level.features for level in levels], dim=-1))
            for levels in zip(*outputs, strict=True)
        ]

    def video_head(self, features: Tensor) -> Tensor:
        """Concatenated features (…, Σ D) → shared space (…, E), not normalised."""
        parts = features.split([network.config.hidden_size for network in self.members], dim=-1)
        return self._join([network.embed_video(part) for network, part in zip(self.members, parts, strict=True)])

    def text_head(self, vectors: Tensor) -> Tensor:
        """Text encoder outputs (…, text_size) → shared space (…, E), not normalised."""
        return self._join([network.embed_text(vectors) for network in self.members])

    def _join(self, vectors: list[Tensor]) -> Tensor:
        return torch.cat(vectors, dim=-1) / len(vectors) ** 0.5 @ self.projection

    def fit_projection(self, vectors: Tensor) -> None:
        """Fit the projection to concatenated unit vectors (n, Σ E) of nodes and texts."""
        _, directions = torch.linalg.eigh((vectors.mT @ vectors).double())
        self.projection.copy_(directions.flip(1)[:, : self.projection.shape[1]])


def load_model(name: str | Path, **hub_options: Any) -> HiERO | HieroEnsemble:
    """Load a model in evaluation mode: one network or an ensemble.

    Both embed in the same way (`forward`, `embed_video`, `embed_text`, `config`).

    Args:
        name: A name from `hiero models`, such as `hiero-k400` or `hiero-egovlp`, a model folder, or a hub id.
        hub_options: Options of huggingface_hub, such as `revision`.

    Raises:
        InputError: The model does not exist, is damaged, or uses a part that is not registered.

    Examples:
        >>> import hiero
        >>> hiero.load_model("hiero-k400").config.depth
        3
    """
    folder = open_model_folder(install_released(str(name)) if name in RELEASED else name, **hub_options)
    return HieroEnsemble.from_folder(folder) if folder.networks else HiERO.from_folder(folder)


@torch.inference_mode()
def embed_features(
    model: HiERO | HieroEnsemble,
    features: Tensor,
    clock: Clock,
    levels: Collection[int] | None = None,
    threads: bool | None = None,
) -> dict[str, Tensor]:
    """Node features of one video at every level, as named tensors on the CPU.

    Args:
        model: The network, on any device. It runs in evaluation mode; its mode is restored.
        features: Backbone features of the video, (T, F).
        clock: Clock of the features.
        levels: Levels to return. Defaults to all.
        threads: Whether Cut & Match is on. Defaults to the configuration of the model.

    Returns:
        For each level l with Tₗ nodes: `level{l}`, the decoder's features, (Tₗ, D); `projected{l}`,
        the same after h_v, not normalised, (Tₗ, E); `times{l}` in seconds, (Tₗ,); and, with Cut &
        Match, `threads{l}`, (Tₗ,). Level 0 is never cut: its threads are −1, as in the release.

    Raises:
        InputError: A level does not exist, or the features do not fit the network.

    Examples:
        >>> import hiero, torch
        >>> model = hiero.HiERO(hiero.ModelConfig(input_size=8, hidden_size=16, embedding_size=32))
        >>> tensors = hiero.embed_features(model, torch.randn(100, 8), hiero.Clock(fps=30, stride=16), levels=[2])
        >>> {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        {'level2': (25, 16), 'projected2': (25, 32), 'times2': (25,), 'threads2': (25,)}
    """
    num_levels = max(1, model.config.depth)
    levels = range(num_levels) if levels is None else levels
    if not levels or any(not 0 <= level < num_levels for level in levels):
        chosen = ", ".join(map(str, levels)) or "none"
        raise InputError(f"levels must be some of {', '.join(map(str, range(num_levels)))}, got {chosen}")
    device = next(model.parameters()).device
    training = model.training
    try:
        times = node_times(len(features), clock, device)
        outputs = model.eval()(features[None].to(device), times=times[None], spacing_s=clock.spacing_s, threads=threads)
    finally:
        model.train(training)
    has_threads = any(level.threads is not None for level in outputs)
    tensors = {}
    for i in sorted(set(levels)):
        level = outputs[i]
        tensors[f"level{i}"] = level.features[0]
        tensors[f"projected{i}"] = model.video_head(level.features[0])
        tensors[f"times{i}"] = level.times[0]
        if has_threads:
            labels = torch.full_like(level.mask[0], -1, dtype=torch.long) if level.threads is None else level.threads[0]
            tensors[f"threads{i}"] = labels
    return {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
