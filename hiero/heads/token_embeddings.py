"""Token vectors of texts, for heads that look at single words."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from hiero.heads.layers import pad_batch
from hiero.storage import weights
from hiero.storage.cache import cache_folder, read_cached, store_cached
from hiero.storage.files import load_arrays, save_arrays
from hiero.text.minilm import MINILM_KEY, MiniLM


class TokenEmbeddings:
    """Token vectors of texts, encoded once and kept for the next run with the same texts."""

    def __init__(
        self, texts: Sequence[str], device: str | torch.device = "cpu", progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self.vectors: dict[str, np.ndarray] = {}
        texts = sorted(set(texts))
        if not texts:
            return
        named = hashlib.sha256("\0".join([MINILM_KEY, *texts]).encode()).hexdigest()[:32]
        kept = cache_folder("words") / f"{named}.safetensors"
        held = read_cached(kept, load_arrays)
        if held is None:
            model = MiniLM(weights.get("minilm")).to(device)
            rows: list[np.ndarray] = []
            for start in range(0, len(texts), 512):
                rows += [row.astype(np.float16) for row in model.encode_words(texts[start : start + 512])]
                progress(min(512, len(texts) - start))
            held = {"vectors": np.concatenate(rows), "ends": np.cumsum([len(row) for row in rows])}
            store_cached(functools.partial(save_arrays, kept, held))
        self.vectors = dict(zip(texts, np.split(held["vectors"], held["ends"][:-1]), strict=True))

    def batch(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        return pad_batch([self.vectors[text] for text in texts])
