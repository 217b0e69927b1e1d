"""Token vectors of texts for VSLNet, which attends to single words."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from hiero.evaluation.heads.layers import pad_batch
from hiero.networks.minilm import MINILM_KEY, MiniLM
from hiero.storage import weights
from hiero.storage.cache import cache_folder, read_cached, store_cached
from hiero.storage.files import load_arrays, save_arrays

TEXT_BATCH = 512  # texts per progress update


class TokenEmbeddings:
    """MiniLM's token vectors of texts, cached for the next run with the same texts."""

    def __init__(
        self, texts: Sequence[str], device: str | torch.device = "cpu", progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self.vectors: dict[str, np.ndarray] = {}
        texts = sorted(set(texts))
        if not texts:
            return
        key = hashlib.sha256("\0".join([MINILM_KEY, *texts]).encode()).hexdigest()[:32]
        cache_file = cache_folder("words") / f"{key}.safetensors"
        arrays = read_cached(cache_file, load_arrays)
        if arrays is None:
            model = MiniLM(weights.get("minilm"), device)
            rows: list[np.ndarray] = []
            for start in range(0, len(texts), TEXT_BATCH):
                rows += [row.astype(np.float16) for row in model.encode_tokens(texts[start : start + TEXT_BATCH])]
                progress(min(TEXT_BATCH, len(texts) - start))
            arrays = {"vectors": np.concatenate(rows), "ends": np.cumsum([len(row) for row in rows])}
            store_cached(functools.partial(save_arrays, cache_file, arrays))
        self.vectors = dict(zip(texts, np.split(arrays["vectors"], arrays["ends"][:-1]), strict=True))

    def batch(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token vectors (B, L, S) and mask (B, L) of these texts."""
        return pad_batch([self.vectors[text] for text in texts])
