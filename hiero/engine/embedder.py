"""Embedder: a model and its backbones, which put features and texts into one space.

torch is only imported when it is needed: answers from the cache come without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hiero.devices import choose_device
from hiero.errors import InputError
from hiero.model.model_folder import WEIGHTS_FILE, ModelFolder
from hiero.networks.joint_text import RESEARCH, encode_joint_texts, joint_key
from hiero.networks.minilm import MINILM_SIZE, encode_minilm
from hiero.networks.registry import Backbone, Precision, fetch_weights, find_backbone
from hiero.networks.vector_cache import TextCache
from hiero.steps.prototypes import StepPrototypes
from hiero.storage import weights
from hiero.storage.cache import content_key
from hiero.storage.checkpoints import find_checkpoint
from hiero.types import Clock, ProgressCallback

if TYPE_CHECKING:
    from hiero.model.ensemble import HieroEnsemble
    from hiero.model.hiero import HiERO

CLIP = "clip-vit-b32"
PICTURES = "dinov2-text"  # the backbone whose features share a space with words
NO_TEXT = (
    "these features cannot be compared with texts. Use a trained model, or a backbone with a text encoder "
    "(--model clip-vit-b32, egovlp or lavila-l)."
)
DEEP_LEVEL = 2  # on which the paper finds procedures
NUM_VOCABULARIES = 4  # lists of texts whose vectors stay in memory


@dataclass
class Embedder:
    """A model, and the backbones that read videos for it.

    Attributes:
        folder: The model's folder, or None for features without a model (`raw`).
        name: Name of the model in results.
        backbones: Names of backbones; the model uses the features of the first.
        device: `auto`, `cpu`, `cuda` …
        precision: Precision of the backbones.
        batch_size: Number of windows that go through the backbones together; None depends on the device.
    """

    folder: ModelFolder | None
    name: str
    backbones: tuple[str, ...]
    device: str = "auto"
    precision: Precision = "auto"
    batch_size: int | None = None

    @property
    def is_raw(self) -> bool:
        """Whether features are used as they are, without a model."""
        return self.folder is None

    @cached_property
    def model(self) -> HiERO | HieroEnsemble | None:
        """The network, loaded on first use; None for raw features."""
        if self.folder is None:
            return None
        from hiero.model.ensemble import load_model

        model = load_model(self.folder.path).to(choose_device(self.device))
        model.configure(self.folder.config)
        return model

    @cached_property
    def prototypes(self) -> StepPrototypes | None:
        """Named steps that were learned from corrected videos (`hiero adapt`), or None.

        They may be replaced: answers and labels then use the new ones.
        """
        return None if self.folder is None else StepPrototypes.load(self.folder.path)

    @property
    def backbone(self) -> Backbone:
        """The backbone whose features the model uses."""
        return find_backbone(self.backbones[0])

    @property
    def spacing_s(self) -> float:
        """Seconds from row to row of a video."""
        is_tower = self.backbone.num_frames > 0
        return self.folder.config.clock.spacing_s if is_tower and self.folder is not None else self.backbone.spacing_s

    @cached_property
    def key(self) -> str:
        """Identifies the configuration and the weights, so that results of models are not mixed up."""
        if self.folder is None:
            return f"raw-{self.backbone.name}" if self.backbone.has_text or self.backbone.num_frames else "raw"
        settings = [config.to_dict() for config in self.folder.networks] or self.folder.config.to_dict()
        described = json.dumps(settings, sort_keys=True) + content_key(self.folder.path / WEIGHTS_FILE)
        described += joint_key(self.image_text_head) if self.has_pictures else ""
        return hashlib.sha256(described.encode()).hexdigest()[:16]

    # Features

    @property
    def deep_level(self) -> int:
        """The level on which the paper finds procedures, or the deepest level of this network."""
        return 0 if self.folder is None else min(DEEP_LEVEL, max(1, self.folder.config.depth) - 1)

    def embed_nodes(self, features: np.ndarray, clock: Clock) -> np.ndarray:
        """Unnormalised level-0 nodes (T, E) in the space shared with text, from features (T, F) on a clock.

        Without a network, the features themselves.
        """
        return self._forward(features, clock, 0, "projected0")

    def enrich(self, features: np.ndarray, clock: Clock, level: int) -> np.ndarray:
        """The network's features of a level before h_v, (T / 2^level, D), from features (T, F) on a clock.

        Level 0 is the finest. Without a network, the features themselves.
        """
        return self._forward(features, clock, level, f"level{level}")

    def _forward(self, features: np.ndarray, clock: Clock, level: int, output: str) -> np.ndarray:
        if self.model is None:
            return features
        import torch

        from hiero.model.ensemble import embed_features

        return embed_features(self.model, torch.from_numpy(features), clock, [level])[output].float().numpy()

    # Texts

    @property
    def has_text(self) -> bool:
        """Whether texts can be compared with nodes."""
        return self.folder is not None or self.backbone.has_text

    @property
    def uses_minilm(self) -> bool:
        """Whether texts are encoded by MiniLM itself, so that class names and questions share a space."""
        if self.folder is None or self.folder.text_encoder is not None:
            return False
        return self._encoder_name in (None, "minilm") and self.folder.config.text_size == MINILM_SIZE

    @property
    def has_pictures(self) -> bool:
        """Whether pictures in a space with words are used beside the model."""
        return PICTURES in self.backbones and self.uses_minilm

    @property
    def image_text_head(self) -> str:
        """Name of the head that puts pictures and texts into one space."""
        return RESEARCH if self.folder is None else self.folder.image_text_head

    def fetch_text_encoder(self, progress: ProgressCallback | None = None) -> None:
        """Download the text encoder if it is missing, so that the progress is visible."""
        if self.uses_minilm:
            weights.get("minilm", progress)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encode texts.

        Returns:
            Vectors (n, S) of the text encoder, and unit vectors (n, E) in the space of the model.

        Raises:
            InputError: The model has no text encoder, or it cannot be found.
        """
        return self._encode_once(tuple(texts))

    @cached_property
    def _encode_once(self) -> Callable[[tuple[str, ...]], tuple[np.ndarray, np.ndarray]]:
        """`_encode`, which encodes the vocabulary that all videos share only once."""
        return lru_cache(NUM_VOCABULARIES)(self._encode)

    def _encode(self, texts: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        if self.folder is None:
            if not self.backbone.has_text:
                raise InputError(NO_TEXT)
            vectors = _encode_with_backbone(self.backbone, self.user_checkpoint, texts)
            return vectors, vectors
        if not texts:
            return np.zeros((0, self.folder.config.text_size)), np.zeros((0, self.folder.config.embedding_size))
        vectors = self._encode_with_model(texts)
        if vectors.shape[1] != self.folder.config.text_size:
            needed = f"{self.folder.config.text_size}-d texts"
            raise InputError(f"{self.name} needs {needed}, its encoder produces {vectors.shape[1]}-d ones")
        return vectors, self.folder.embed_text(vectors)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors (n, D) of texts that can be compared with those of `Video.embed_spans`."""
        vectors, projected = self.encode(texts)
        parts = [projected, vectors] if self.uses_minilm else [projected]
        if self.has_pictures:
            parts.append(encode_joint_texts(texts, self.image_text_head).reshape(len(texts), -1))
        return np.concatenate(parts, axis=1).astype(np.float32)

    @property
    def _encoder_name(self) -> str | None:
        return None if self.folder is None else (self.folder.extra.get("text_encoder") or {}).get("name")

    def _encode_with_model(self, texts: Sequence[str]) -> np.ndarray:
        assert self.folder is not None
        if self.folder.text_encoder is not None:
            from hiero.networks.text_encoders import encode_texts

            return encode_texts(list(texts), str(self.folder.path), device=choose_device(self.device)).float().numpy()
        if self.uses_minilm:
            return encode_minilm(list(texts))
        missing = f"has no text_encoder.safetensors, the weights of its text encoder {self._encoder_name}"
        raise InputError(f"{self.name}: the model folder {missing}; train or import the model again")

    @property
    def user_checkpoint(self) -> Path:
        """The file with the user's own weights of the backbone."""
        return find_checkpoint(fetch_weights(self.backbone))


def _encode_with_backbone(backbone: Backbone, checkpoint: Path, texts: Sequence[str]) -> np.ndarray:
    """Encode texts with the text tower of a backbone."""

    def encode(missing: list[str]) -> np.ndarray:
        if backbone.name == CLIP:
            from hiero.networks.clip import encode_clip_texts

            return encode_clip_texts(checkpoint.parent, missing).numpy()
        from hiero.networks.text_encoders import encode_joint

        return encode_joint(checkpoint, missing).numpy()

    module = backbone.module.removeprefix("hiero.networks.")
    key = f"{module}-{content_key(checkpoint)[:16]}"
    return TextCache(key).encode(texts, encode).astype(np.float32)
