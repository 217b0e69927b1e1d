"""Texts in a space that they share with images: the text side of the head in assets/dinov2-text.

A text passes through MiniLM with the head's additions to its layers, then through two layers with a
shortcut. Half of the result is compared with whole images, half with their patches (see
`hiero.networks.dinov2`). It is written in numpy, so that a question does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from hiero.networks.minilm import MINILM_KEY, MiniLM, device_for, gelu, load_minilm
from hiero.networks.vector_cache import TextCache, encode_unknown, read_vectors
from hiero.storage.cache import content_key
from hiero.storage.files import ASSETS, load_arrays
from hiero.vectors import unit_vectors

HEAD_FILES = {name: ASSETS / "dinov2-text" / f"{name}.safetensors" for name in ("research", "permissive")}
RESEARCH = "research"  # name of the default head
JOINT_SIZE = 256  # width of the vector of an image, of a patch and of half a text
# The head was trained on sentences and on phrases. A question may be "cutting an onion" or "an onion".
PROMPTS = ("{}", "a person {}")


@cache
def load_text_head(head: str) -> dict[str, np.ndarray]:
    """The arrays of the text side and of the pooling, in single precision."""
    arrays = load_arrays(HEAD_FILES[head], "text.") | load_arrays(HEAD_FILES[head], "pooling")
    return {name: value.astype(np.float32) for name, value in arrays.items()}


@cache
def joint_key(head: str) -> str:
    """Identifies the head and the sentence encoder, for caches."""
    return f"{content_key(HEAD_FILES[head])[:12]}-{MINILM_KEY}"


def pooling_temperature(head: str) -> float:
    """Temperature of the softmax over the patches of an image."""
    return float(load_text_head(head)["pooling"][0])


def encode_joint_texts(texts: Sequence[str], head: str) -> np.ndarray:
    """Two unit vectors for each text, one for whole images and one for patches, (n, 2, 256). Cached."""
    return _encode_one(texts[0], head) if len(texts) == 1 else _encode(texts, head)


@lru_cache(maxsize=4096)
def _encode_one(text: str, head: str) -> np.ndarray:
    return _encode([text], head)


def _encode(texts: Sequence[str], head: str) -> np.ndarray:
    def encode(missing: list[str]) -> np.ndarray:
        return TextCache(joint_key(head)).encode(missing, partial(encode_new_texts, head=head))

    return unit_vectors(encode_unknown(texts, shipped_labels(head), encode).reshape(len(texts), 2, JOINT_SIZE))


def encode_new_texts(texts: Sequence[str], head: str) -> np.ndarray:
    """The vectors of `encode_joint_texts`, (n, 512), computed."""
    arrays = load_text_head(head)

    def linear(x: np.ndarray, layer: str) -> np.ndarray:
        return np.asarray(x @ arrays[f"text.{layer}.weight"].T + arrays[f"text.{layer}.bias"])

    prompted = [prompt.format(text) for prompt in PROMPTS for text in texts]
    vectors = _load_network(device_for(len(prompted)), head).encode(prompted)  # (n, 384)
    projected = linear(gelu(linear(vectors, "hidden")), "out") + linear(vectors, "skip")  # (n, 512)
    projected = unit_vectors(projected.reshape(len(PROMPTS), len(texts), 2, JOINT_SIZE))
    return unit_vectors(projected.mean(0)).reshape(len(texts), -1)


@cache
def _load_network(device: Any, head: str) -> MiniLM:
    additions = load_arrays(HEAD_FILES[head], "minilm.")
    return load_minilm(device).tuned({name.removeprefix("minilm."): value for name, value in additions.items()})


@cache
def shipped_labels(head: str) -> dict[bytes, np.ndarray]:
    """Vectors of the bundled labels, by the digests of their texts. Written by: python -m tools.assets labels."""
    return read_vectors(HEAD_FILES[head], "labels.")
