"""Frozen text encoders by name: MiniLM, and those that other packages bring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hiero.plugins import load_plugin, registered

if TYPE_CHECKING:
    import torch

GROUP = "hiero.text_encoders"


class TextEncoderPlugin(Protocol):
    """A frozen sentence encoder.

    Attributes:
        key: Names its weights: cached vectors of one key are never taken for another's.
        size: Width of its vectors.
    """

    key: str
    size: int

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of the texts, (n, size)."""


def find_text_encoder(name: str, device: str | torch.device = "cpu") -> TextEncoderPlugin | None:
    """The encoder that an entry point of `hiero.text_encoders` names; None where there is none of that name.

    The entry point is a class or function that takes a device and returns the encoder. It is called
    before anything is encoded, so weights should be loaded by the first `encode`.
    """
    if name not in registered(GROUP):
        return None
    encoder: TextEncoderPlugin = load_plugin(GROUP, name)(device)
    return encoder
