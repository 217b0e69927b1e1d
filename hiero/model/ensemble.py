"""Several networks as one model: they read the same features, and a text is as similar to a node as it
is for them on average.

Networks that were trained with other seeds and settings are wrong about other words, so their mean
is better than each of them (docs/results.md). The unit vectors of M networks side by side, divided
by √M, have the mean of their cosines as product; a projection onto the directions that vary keeps
the space as small as that of one network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.model.hiero import HiERO
from hiero.model.model_folder import ModelFolder, open_model_folder
from hiero.model.pretrained import PretrainedMixin
from hiero.model.unet import Level

SHARED_SETTINGS = ("input_size", "text_size", "depth", "backbone", "clock")
RUN_SETTINGS = (  # those that change no weights
    "thread_radius",
    "num_threads",
    "sample_points",
    "kappa",
    "threads_at_inference",
    "random_state",
    "behaviour",
    "clustering",
)


class HieroEnsemble(PretrainedMixin, nn.Module):
    """Networks that are used together. It embeds as `HiERO` does; to train on, take one of its `members`.

    Args:
        configs: Settings of each network.
        embedding_size: Width of the space that video and text share.

    Attributes:
        config: That of the first network, with the width of the shared space.
        networks: The networks as torch's modules; `members` gives them as what they are.
        projection: From the networks' vectors side by side into the shared space, (Σ E,
            embedding_size), orthonormal columns.

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
                raise InputError(f"the networks of an ensemble have the same {', '.join(different)}")
        if embedding_size > sum(config.embedding_size for config in configs):
            raise InputError(
                f"{len(configs)} networks do not have the {embedding_size} dimensions of their ensemble together"
            )
        self.config = configs[0].replace(embedding_size=embedding_size)
        self.networks = nn.ModuleList([HiERO(config) for config in configs])
        self.register_buffer("projection", torch.eye(sum(config.embedding_size for config in configs), embedding_size))

    @classmethod
    def _make(cls, folder: ModelFolder) -> Self:
        if not folder.networks:
            raise InputError("holds one network, not an ensemble; load it with hiero.load_model")
        return cls(folder.networks, folder.config.embedding_size)

    @property
    def members(self) -> list[HiERO]:
        """The networks."""
        return cast("list[HiERO]", list(self.networks))

    def _network_settings(self) -> dict[str, Any]:
        return {"networks": [network.config.to_dict() for network in self.members]}

    def configure(self, config: ModelConfig) -> None:
        """Run with other settings that change no weights, as `HiERO.configure`: those of each network
        that are its own stay.
        """
        changes = {name: getattr(config, name) for name in RUN_SETTINGS}
        self.config = self.config.replace(**changes)
        for network in self.members:
            network.configure(network.config.replace(**changes))

    def forward(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        times: Tensor | None = None,
        *,
        spacing_s: float | None = None,
        threads: bool | None = None,
    ) -> list[Level]:
        """As `HiERO.forward`.

        Args:
            features: Backbone features, (B, T, F).
            mask: True on the nodes of each video, (B, T); by default all are.
            times: In seconds, (B, T); by default by the clock of the configuration.
            spacing_s: Time between nodes where it is known.
            threads: Cut & Match on or off; by default as configured.

        Returns:
            Levels with the networks' features side by side, (B, T, Σ D), and the threads of the first.
        """
        outputs = [network(features, mask, times, spacing_s=spacing_s, threads=threads) for network in self.members]
        return [
            replace(levels[0], features=torch.cat([level.features for level in levels], dim=-1))
            for levels in zip(*outputs, strict=True)
        ]

    def video_head(self, features: Tensor) -> Tensor:
        """h_v of each network on its part of the features (…, Σ D), in the shared space (…, E)."""
        parts = features.split([network.config.hidden_size for network in self.members], dim=-1)
        return self._join([network.embed_video(part) for network, part in zip(self.members, parts, strict=True)])

    def embed_video(self, features: Tensor) -> Tensor:
        """Decoder features (…, Σ D) → unit vectors in the shared space (…, E)."""
        return F.normalize(self.video_head(features), dim=-1)

    def embed_text(self, vectors: Tensor) -> Tensor:
        """Text encoder outputs (…, text_size) → unit vectors in the shared space (…, E)."""
        return F.normalize(self._join([network.embed_text(vectors) for network in self.members]), dim=-1)

    def _join(self, vectors: list[Tensor]) -> Tensor:
        return torch.cat(vectors, dim=-1) / len(vectors) ** 0.5 @ self.projection

    def fit_projection(self, vectors: Tensor) -> None:
        """Choose the projection that keeps most of some unit vectors (n, Σ E), of nodes and texts, side by side."""
        _, directions = torch.linalg.eigh((vectors.mT @ vectors).double())
        self.projection.copy_(directions.flip(1)[:, : self.projection.shape[1]])


def load_model(name: str | Path, **hub_options: Any) -> HiERO | HieroEnsemble:
    """Load a model, in evaluation mode: one network, or several that are used together.

    Both embed in the same way (`forward`, `embed_video`, `embed_text`, `config`).

    Args:
        name: A shipped model (`hiero-k400`, `hiero-omnivore-b`), a model folder, or a hub id.
        hub_options: Passed on to huggingface_hub, such as `revision`.

    Raises:
        InputError: There is no such model, it is damaged, or one of its parts is not registered.

    Examples:
        >>> import hiero
        >>> hiero.load_model("hiero-k400").config.depth
        3
    """
    folder = open_model_folder(name, **hub_options)
    return HieroEnsemble.from_folder(folder) if folder.networks else HiERO.from_folder(folder)
