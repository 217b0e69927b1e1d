"""MiniLM without torch and transformers, whose import takes seconds, so that a question is answered fast.

The arrays are numpy's or, with a device, torch's: the same code computes on both. Training uses
transformers, and a test checks that all give the same vectors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.networks.vector_cache import TextCache, encode_unknown, read_vectors
from hiero.storage import weights
from hiero.storage.files import ASSETS, load_arrays

EPSILON = 1e-12  # LayerNorm's
NUM_HEADS = 12
MASKED_SCORE = -1e9  # attention score of padding, whose weight is then 0
MAX_TOKENS = 128
BATCH_SIZE = 64
BATCH_TOKENS = 1024  # size of a batch of short texts, whose activations fit into the CPU's cache
MINILM_SIZE = 384
MINILM_KEY = f"minilm-{weights.REGISTRY['minilm'].files['model.safetensors'][1][:12]}"
LABEL_VECTORS = ASSETS / "labels.safetensors"  # written by: python -m tools.assets labels
MAX_NUMPY_TEXTS = 128  # number of texts from which importing torch is faster


class MiniLM:
    """Sentences to unit vectors (N, 384): the mean over tokens of a 6-layer BERT."""

    def __init__(self, folder: Path, device: Any = None) -> None:
        self.state: dict[str, Any] = {
            name: value.astype(np.float32, copy=False)
            for name, value in load_arrays(folder / "model.safetensors").items()
            if value.dtype.kind == "f"
        }
        self.tokenizer = word_pieces(folder / "tokenizer.json")
        self.num_layers = 1 + max(int(name.split(".")[2]) for name in self.state if name.startswith("encoder.layer."))
        self.size = self.state["embeddings.word_embeddings.weight"].shape[1]
        self.device = device
        if device is not None:
            import torch

            for name, value in self.state.items():
                if name.startswith("encoder.layer.") and value.ndim == 2:
                    value = np.ascontiguousarray(value.T)  # a CPU multiplies by (in, out) 10 % faster than by (out, in)
                self.state[name] = torch.as_tensor(value).to(device)

    def tuned(self, additions: Mapping[str, np.ndarray]) -> MiniLM:
        """A copy with LAYER.b @ LAYER.a added to the weights of each layer, which shares all other arrays."""
        out = copy.copy(self)
        out.state = dict(self.state)
        for layer in (name.removesuffix(".a") for name in additions if name.endswith(".a")):
            product = additions[f"{layer}.b"].astype(np.float32) @ additions[f"{layer}.a"].astype(np.float32)
            weight = self.state[f"{layer}.weight"]
            out.state[f"{layer}.weight"] = weight + (product if self.device is None else weight.new_tensor(product.T))
        return out

    def encode(self, texts: Sequence[str], batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Vectors of the texts, (n, 384). Texts of similar length share a batch, so that little is padded."""
        tokens = self.tokenizer.encode_batch(list(texts))
        lengths = np.array([sum(text.attention_mask) for text in tokens], dtype=int)
        order = np.argsort(lengths, kind="stable")
        out = np.empty((len(texts), self.size), dtype=np.float32)
        start = 0
        while start < len(order):
            size = max(batch_size, BATCH_TOKENS // int(lengths[order[start]]))
            indices = order[start : start + size]
            longest = int(lengths[indices[-1]])
            ids = np.array([tokens[i].ids[:longest] for i in indices])
            mask = (np.arange(longest) < lengths[indices, None]).astype(np.float32)
            out[indices] = self._compute(self.forward, ids, mask)
            start += size
        return out

    def encode_tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The contextual vectors of each text's tokens, (L, size), for heads that look at single words."""
        out: list[np.ndarray] = []
        for start in range(0, len(texts), BATCH_SIZE):
            ids, mask = tokenize(self.tokenizer, texts[start : start + BATCH_SIZE])
            hidden = self._compute(self._hidden, ids, mask)
            out += [tokens[: int(used.sum())] for tokens, used in zip(hidden, mask, strict=True)]
        return out

    def _compute(self, function: Callable[[Any, Any], Any], ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Call a function with arrays, or with tensors on the device."""
        if self.device is None:
            return np.asarray(function(ids, mask))
        import torch

        with torch.inference_mode():
            tensors = [torch.from_numpy(x).to(self.device) for x in (ids, mask)]
            return np.asarray(function(*tensors).cpu())

    def forward(self, ids: Any, mask: Any) -> Any:
        """ids and mask (N, L) → (N, size)."""
        total = (self._hidden(ids, mask) * mask[..., None]).sum(1)  # the mean up to its length
        return total / (total * total).sum(-1, keepdims=True) ** 0.5

    def _hidden(self, ids: Any, mask: Any) -> Any:
        """(N, L) → (N, L, size)."""
        state = self.state
        x = state["embeddings.word_embeddings.weight"][ids] + state["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x + state["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
        mask_scores = (1.0 - mask[:, None, None, :]) * MASKED_SCORE  # (N, 1, 1, L), added to the attention scores
        for i in range(self.num_layers):
            x = self._layer(x, mask_scores, f"encoder.layer.{i}")
        return x

    def _layer(self, x: Any, mask_scores: Any, name: str) -> Any:
        query, key, value = (
            self._linear(x, f"{name}.attention.self.{part}").reshape(*x.shape[:2], NUM_HEADS, -1).swapaxes(1, 2)
            for part in ("query", "key", "value")
        )
        attended = _attend(query, key, value, mask_scores)
        attended = self._linear(attended.swapaxes(1, 2).reshape(x.shape), f"{name}.attention.output.dense")
        x = self._norm(x + attended, f"{name}.attention.output.LayerNorm")
        hidden = gelu(self._linear(x, f"{name}.intermediate.dense"))
        return self._norm(x + self._linear(hidden, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _linear(self, x: Any, name: str) -> Any:
        weight, bias = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        if isinstance(x, np.ndarray):
            return x @ weight.T + bias
        import torch

        rows = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight)  # the weights are transposed
        return rows.reshape(*x.shape[:-1], -1)

    def _norm(self, x: Any, name: str) -> Any:
        if not isinstance(x, np.ndarray):
            from torch.nn import functional as F

            return F.layer_norm(x, x.shape[-1:], self.state[f"{name}.weight"], self.state[f"{name}.bias"], EPSILON)
        x = x - x.mean(-1, keepdims=True)
        deviation = ((x * x).mean(-1, keepdims=True) + EPSILON) ** 0.5
        return x / deviation * self.state[f"{name}.weight"] + self.state[f"{name}.bias"]


def compute_minilm(texts: Sequence[str], device: Any = None) -> np.ndarray:
    """Vectors of texts, (n, 384). Without a device, numpy encodes a few texts, and torch on the CPU a long list."""
    return load_minilm(device or device_for(len(texts))).encode(texts)


def device_for(num_texts: int) -> str | None:
    """Where to encode texts if the user did not say: numpy a few of them, and torch on the CPU a long list."""
    return "cpu" if num_texts > MAX_NUMPY_TEXTS else None


@cache
def load_minilm(device: Any = None) -> MiniLM:
    """MiniLM with numpy or on a device, loaded once."""
    return MiniLM(weights.get("minilm"), device)


def encode_minilm(texts: Sequence[str]) -> np.ndarray:
    """Cached vectors of texts, (n, 384). Those of the bundled labels come with the package."""

    def encode(missing: list[str]) -> np.ndarray:
        return encode_unknown(missing, shipped_vectors(), compute_minilm)

    return TextCache(MINILM_KEY).encode(texts, encode).astype(np.float32)


@cache
def shipped_vectors() -> dict[bytes, np.ndarray]:
    """Vectors of the bundled labels, by the digests of their texts."""
    return read_vectors(LABEL_VECTORS)


def _attend(query: Any, key: Any, value: Any, mask_scores: Any) -> Any:
    """Attention of heads (N, H, L, D). `mask_scores` (N, 1, 1, L) are added to the scores."""
    if not isinstance(query, np.ndarray):
        from torch.nn import functional as F

        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask_scores)
    scores = query @ key.swapaxes(2, 3) * query.shape[-1] ** -0.5 + mask_scores
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


def gelu(x: Any) -> Any:
    """GELU of an array or a tensor."""
    if isinstance(x, np.ndarray):
        return x * (0.5 + 0.5 * _erf(x * np.float32(0.5**0.5)))
    from torch.nn import functional as F

    return F.gelu(x)


def _erf(x: np.ndarray) -> np.ndarray:
    """The error function to 1.5e-7 (Abramowitz and Stegun 7.1.26). Importing scipy's takes long."""
    a = np.abs(x)
    t = 1 / (1 + 0.3275911 * a)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - series * np.exp(-a * a))


def tokenize(tokenizer: Any, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """ids and mask (N, L), padded to the longest."""
    encodings = tokenizer.encode_batch(list(texts))
    return np.array([e.ids for e in encodings]), np.array([e.attention_mask for e in encodings], dtype=np.float32)


def word_pieces(file: Path) -> Any:
    """A WordPiece tokenizer from its tokenizer.json: 128 tokens at most, padded to the longest."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError("texts need the package tokenizers; run: pip install 'hiero-video[text]'") from None
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]") or 0)
    return tokenizer
