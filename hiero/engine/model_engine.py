"""Engines by name: `load`, and the engine that puts a trained network between features and nodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hiero.devices import choose_device
from hiero.engine.embedder import CLASSES, PICTURES, RAW, NodeSettings, TextSpace
from hiero.engine.engine import Engine, Inputs
from hiero.errors import InputError
from hiero.model.model_folder import WEIGHTS_FILE, ModelFolder, is_installed, open_model_folder
from hiero.networks.joint_text import JOINT_SIZE, encode_joint_texts, joint_key
from hiero.networks.minilm import MINILM_SIZE, encode_minilm
from hiero.networks.registry import GROUP as BACKBONES
from hiero.networks.registry import Precision, backbone_for, find_backbone
from hiero.plugins import registered
from hiero.steps.prototypes import StepPrototypes
from hiero.steps.segmentation import NODE_LENGTH_PRIOR
from hiero.storage import weights
from hiero.storage.cache import content_key
from hiero.types import Clock, ProgressCallback, no_progress

if TYPE_CHECKING:
    from hiero.model.ensemble import HieroEnsemble
    from hiero.model.hiero import HiERO

DEFAULT_BACKBONES = (CLASSES, PICTURES)
DEEP_LEVEL = 2  # on which the paper finds procedures
FULL_WEIGHT_S = 120.0  # length below which the model, trained on recordings of minutes, gets less weight


def load(
    model: str | Path = "hiero-k400",
    *,
    device: str = "auto",
    precision: Precision = "auto",
    batch_size: int | None = None,
    progress: ProgressCallback = no_progress,
) -> Engine:
    """Load an engine that reads videos with a model.

    Args:
        model: A name from `hiero models`, a model folder, or a hub id. The name of a backbone, such as
            `egovlp`, gives its features without a model; `raw` takes feature files as they are. One of the
            authors' models, such as `hiero-egovlp`, is downloaded on first use.
        device: `auto`, `cpu`, `cuda` …
        precision: `auto` chooses the fastest one for the device.
        batch_size: Windows per forward pass. Defaults to 1 on a CPU and 16 on a GPU.
        progress: Called with a `ProgressEvent` from time to time while a model is downloaded.

    Raises:
        InputError: There is no such model.

    Examples:
        >>> engine = hiero.load("raw")
        >>> engine.read_array(np.eye(60, dtype=np.float32)).duration_s
        60.0
    """
    name, settings = str(model), (device, precision, batch_size)
    if name == RAW:
        return Engine(None, RAW, DEFAULT_BACKBONES[:1], *settings)
    if name in registered(BACKBONES):
        return Engine(None, find_backbone(name).name, (name,), *settings)
    if name in weights.RELEASED and not is_installed(name):
        from hiero.model.released import install_released

        install_released(name, progress)
    folder = open_model_folder(model)
    own = backbone_for(folder.config.backbone, folder.config.input_size)
    backbones = DEFAULT_BACKBONES if own is None or own in DEFAULT_BACKBONES else (own,)
    return ModelEngine(folder, Path(model).name, backbones, *settings)


class ModelEngine(Engine):
    """An engine with a trained network."""

    folder: ModelFolder
    has_text = True

    @cached_property
    def model(self) -> HiERO | HieroEnsemble:
        from hiero.model.ensemble import load_model

        model = load_model(self.folder.path).to(choose_device(self.device))
        model.configure(self.folder.config)
        return model

    @cached_property
    def prototypes(self) -> StepPrototypes | None:
        return StepPrototypes.load(self.folder.path)

    @cached_property
    def key(self) -> str:
        settings = [config.to_dict() for config in self.folder.networks] or self.folder.config.to_dict()
        described = json.dumps(settings, sort_keys=True) + content_key(self.folder.path / WEIGHTS_FILE)
        described += joint_key(self.image_text_head) if self.has_pictures else ""
        return hashlib.sha256(described.encode()).hexdigest()[:16]

    # Features

    @property
    def deep_level(self) -> int:
        return min(DEEP_LEVEL, max(1, self.folder.config.depth) - 1)

    @property
    def inputs(self) -> Inputs:
        config = self.folder.config
        backbone = backbone_for(config.backbone, config.input_size)
        # "k400" may be another network with the same classes
        return Inputs(config.input_size, backbone, config.clock, config.backbone == "k400")

    @property
    def spacing_s(self) -> float:
        return self.folder.config.clock.spacing_s if self.backbone.num_frames > 0 else self.backbone.spacing_s

    @property
    def node_settings(self) -> NodeSettings:
        return NodeSettings(NODE_LENGTH_PRIOR, FULL_WEIGHT_S)

    def check_video(self, path: Path) -> None:
        config, backbone = self.folder.config, self.backbone
        if config.input_size != backbone.width:
            needs = f"{self.name} needs {config.input_size}-d features ({config.backbone or 'unnamed'})"
            hint = "Give it a feature file, or leave out --model."
            raise InputError(f"{needs}, {backbone.name} produces {backbone.width}-d ones. {hint}")

    def node_width(self, features: np.ndarray) -> int:
        return self.folder.config.embedding_size

    def extra_features(self, features: np.ndarray) -> np.ndarray:
        return features

    def embed_nodes(self, features: np.ndarray, clock: Clock) -> np.ndarray:
        return self._forward(features, clock, 0, "projected0")

    def enrich(self, features: np.ndarray, clock: Clock, level: int) -> np.ndarray:
        return self._forward(features, clock, level, f"level{level}")

    def _forward(self, features: np.ndarray, clock: Clock, level: int, output: str) -> np.ndarray:
        import torch

        from hiero.model.ensemble import embed_features

        return embed_features(self.model, torch.from_numpy(features), clock, [level])[output].float().numpy()

    # Texts

    @cached_property
    def spaces(self) -> Mapping[str, TextSpace]:
        config, encoder = self.folder.config, self._encoder_name
        if self.folder.text_encoder is not None or encoder not in (None, "minilm") or config.text_size != MINILM_SIZE:
            return {}
        spaces = {
            CLASSES: TextSpace(MINILM_SIZE, lambda texts: self.encode(texts)[0]),
            PICTURES: TextSpace(2 * JOINT_SIZE, self._encode_for_pictures),
        }
        return {name: space for name, space in spaces.items() if name in (CLASSES, *self.backbones)}

    @property
    def _encoder_name(self) -> str | None:
        return (self.folder.extra.get("text_encoder") or {}).get("name")

    def _encode_for_pictures(self, texts: Sequence[str]) -> np.ndarray:
        return encode_joint_texts(texts, self.image_text_head).reshape(len(texts), -1)

    @property
    def image_text_head(self) -> str:
        return self.folder.image_text_head

    def fetch_text_encoder(self, progress: ProgressCallback | None = None) -> None:
        if self.spaces:
            weights.get("minilm", progress)

    def _encode(self, texts: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        config = self.folder.config
        if not texts:
            return np.zeros((0, config.text_size)), np.zeros((0, config.embedding_size))
        if self.folder.text_encoder is not None:
            from hiero.networks.text_encoders import encode_texts

            device = choose_device(self.device)
            vectors = encode_texts(list(texts), str(self.folder.path), device=device).float().numpy()
        elif self.spaces:
            vectors = encode_minilm(list(texts))
        else:
            missing = f"has no text_encoder.safetensors, the weights of its text encoder {self._encoder_name}"
            raise InputError(f"{self.name}: the model folder {missing}; train or import the model again")
        if vectors.shape[1] != config.text_size:
            needed = f"{config.text_size}-d texts"
            raise InputError(f"{self.name} needs {needed}, its encoder produces {vectors.shape[1]}-d ones")
        return vectors, self.folder.embed_text(vectors)
