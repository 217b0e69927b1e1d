"""Embedder: features and texts in one space. torch is imported when it is needed: cached answers come without it.

`Embedder` takes the features of a backbone as they are. `ModelEngine` overrides what a trained network changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hiero.errors import InputError
from hiero.features.video_features import VideoFeatures
from hiero.model.model_folder import ModelFolder
from hiero.networks.joint_text import RESEARCH
from hiero.networks.registry import Backbone, Precision, fetch_weights, find_backbone
from hiero.networks.vector_cache import TextCache
from hiero.steps.prototypes import StepPrototypes
from hiero.steps.segmentation import LENGTH_PRIOR
from hiero.storage.cache import content_key
from hiero.storage.checkpoints import find_checkpoint
from hiero.types import TIME_GRAIN_S, Clock, ProgressCallback

if TYPE_CHECKING:
    from hiero.model.ensemble import HieroEnsemble
    from hiero.model.hiero import HiERO

RAW = "raw"  # a model name: the rows of feature files as they are
CLIP = "clip-vit-b32"
PICTURES = "dinov2-text"  # the backbone whose features share a space with texts
CLASSES = "i3d-k400"  # the backbone whose features are scores of named classes
NO_TEXT = (
    "these features cannot be compared with texts. Use a trained model, or a backbone with a text encoder "
    "(--model clip-vit-b32, egovlp or lavila-l)."
)
NUM_VOCABULARIES = 4  # lists of texts whose vectors stay in memory


@dataclass(frozen=True)
class TextSpace:
    """A space that a video's evidence shares with texts: its width, and the vectors of texts in it."""

    size: int
    encode: Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class NodeSettings:
    """How evidence uses the nodes of a model."""

    length_prior: float = LENGTH_PRIOR  # λ of `cut_steps`
    full_weight_s: float = 0.0  # length of a video below which nodes weigh less beside other evidence
    centre_for_texts: bool = False  # whether texts are compared with centred nodes
    centre_for_spans: bool = False  # whether vectors of spans are means of centred nodes

    def weight(self, source: VideoFeatures) -> float:
        """Weight of the nodes of a video beside other evidence."""
        return min(1.0, source.duration_s / max(self.full_weight_s, TIME_GRAIN_S)) if source.features else 1.0


@dataclass
class Embedder:
    """A model and the backbones that read videos for it.

    Attributes:
        folder: The model's folder, or None without a network.
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

    @cached_property
    def model(self) -> HiERO | HieroEnsemble | None:
        """The network, loaded on first use."""
        return None

    @cached_property
    def prototypes(self) -> StepPrototypes | None:
        """Named steps that were learned from corrected videos (`hiero adapt`), or None.

        They may be replaced: answers and labels then use the new ones.
        """
        return None

    @property
    def backbone(self) -> Backbone:
        """The backbone whose features the model uses."""
        return find_backbone(self.backbones[0])

    @cached_property
    def key(self) -> str:
        """Identifies the configuration and the weights, so that results of models are not mixed up."""
        return f"raw-{self.backbone.name}" if is_tower(self.backbone) else RAW

    # Features

    @property
    def deep_level(self) -> int:
        """The level on which the paper finds procedures, or the deepest one of this network."""
        return 0

    @property
    def spacing_s(self) -> float:
        """Seconds from row to row of a video."""
        return self.backbone.spacing_s

    @property
    def node_settings(self) -> NodeSettings:
        """How evidence uses the nodes."""
        return NodeSettings(centre_for_texts=True, centre_for_spans=self.backbones == (CLIP,))

    def embed_nodes(self, features: np.ndarray, clock: Clock) -> np.ndarray:
        """Unnormalised level-0 nodes (T, E) in the space shared with text, from features (T, F) on a clock.

        Without a network, the features themselves.
        """
        return features

    def enrich(self, features: np.ndarray, clock: Clock, level: int) -> np.ndarray:
        """The network's features of a level before h_v, (T / 2^level, D), from features (T, F) on a clock.

        Level 0 is the finest. Without a network, the features themselves.
        """
        return features

    # Texts

    @property
    def has_text(self) -> bool:
        """Whether texts can be compared with nodes."""
        return self.backbone.has_text

    def require_text(self) -> None:
        """Raise InputError if texts cannot be compared with nodes."""
        if not self.has_text:
            raise InputError(NO_TEXT)

    @property
    def spaces(self) -> Mapping[str, TextSpace]:
        """The spaces beside the model's own in which videos are compared with texts, by their backbone.

        All use MiniLM.
        """
        return {}

    @property
    def has_pictures(self) -> bool:
        """Whether an image-text network is used beside the model."""
        return PICTURES in self.spaces

    @property
    def image_text_head(self) -> str:
        """Name of the head that puts pictures and texts into one space."""
        return RESEARCH

    def fetch_text_encoder(self, progress: ProgressCallback | None = None) -> None:
        """Download the text encoder if it is missing, so that the progress is visible."""

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
        self.require_text()
        vectors = _encode_with_backbone(self.backbone, user_checkpoint(self.backbone), texts)
        return vectors, vectors

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors (n, D) of texts that can be compared with those of `Video.embed_spans`."""
        parts = [self.encode(texts)[1], *(space.encode(texts) for space in self.spaces.values())]
        return np.concatenate(parts, axis=1).astype(np.float32)


def is_tower(backbone: Backbone) -> bool:
    """Whether features that are used as they are must come from this backbone."""
    return backbone.has_text or backbone.num_frames > 0


def user_checkpoint(backbone: Backbone) -> Path:
    """The file with the user's own weights of a backbone."""
    return find_checkpoint(fetch_weights(backbone))


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
