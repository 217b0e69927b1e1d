"""Texts in the space that they share with pictures: the text side of the head that ships as assets/dinov2-text.

A text goes through MiniLM, then through two layers with a shortcut. Half of the result is compared
with whole pictures, half with their patches (`hiero.backbones.dinov2` makes both). In numpy, so
that a question imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np

from hiero.storage.cache import content_key
from hiero.storage.files import ASSETS, load_arrays
from hiero.text.minilm import MINILM_KEY, encode_minilm, gelu
from hiero.vectors import unit_vectors

HEAD_FILE = ASSETS / "dinov2-text" / "model.safetensors"
JOINT_SIZE = 256  # of a picture's, a patch's and half a text's vector
# The head learned from sentences and from phrases; a question may be "cutting an onion", "cut the onion" or "an onion".
PROMPTS = ("{}", "a person {}")


@cache
def load_head() -> dict[str, np.ndarray]:
    """The arrays of the text side, and how it pools, in single precision."""
    arrays = load_arrays(HEAD_FILE, "text.") | load_arrays(HEAD_FILE, "pooling")
    return {name: value.astype(np.float32) for name, value in arrays.items()}


@cache
def joint_key() -> str:
    """Names head and sentence encoder, so that what one made is not taken for another's."""
    return f"{content_key(HEAD_FILE)[:12]}-{MINILM_KEY}"


def pooling_temperature() -> float:
    """How sharply a text chooses among the patches of a picture."""
    return float(load_head()["pooling"][0])


def encode_joint_texts(texts: Sequence[str]) -> np.ndarray:
    """Texts as two unit vectors each, one for whole pictures and one for patches, (n, 2, 256)."""
    return _encode_one(texts[0]) if len(texts) == 1 else _encode(texts)


@lru_cache(maxsize=4096)  # people ask the same again
def _encode_one(text: str) -> np.ndarray:
    return _encode([text])


def _encode(texts: Sequence[str]) -> np.ndarray:
    vectors = encode_minilm([prompt.format(text) for prompt in PROMPTS for text in texts])
    projected = unit_vectors(_two_layers(vectors).reshape(len(PROMPTS), len(texts), 2, JOINT_SIZE))
    return unit_vectors(projected.mean(0))


def _two_layers(x: np.ndarray) -> np.ndarray:
    """MiniLM's vectors (n, 384) → (n, 512)."""
    head = load_head()

    def linear(x: np.ndarray, layer: str) -> np.ndarray:
        return x @ head[f"text.{layer}.weight"].T + head[f"text.{layer}.bias"]

    return np.asarray(linear(gelu(linear(x, "hidden")), "out") + linear(x, "skip"))
