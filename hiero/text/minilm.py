"""BERT's forward pass alone, from its weights as they lie in the file: what asking a question needs, without the second that
importing transformers takes. Training towers uses transformers; a test holds that both give the same vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.files import load_tensors

EPSILON = 1e-12
NUM_HEADS = 12


class MiniLM:
    """Sentences to unit vectors (N, 384): the mean over tokens of a 6-layer BERT."""

    def __init__(self, folder: Path, device: str | torch.device = "cpu") -> None:
        self.state: dict[str, Tensor] = {
            name: value.float().to(device) for name, value in load_tensors(folder / "model.safetensors").items()
        }
        self.tokenizer = word_pieces(folder / "tokenizer.json")
        self.num_layers = 1 + max(int(name.split(".")[2]) for name in self.state if name.startswith("encoder.layer."))
        self.size = self.state["embeddings.word_embeddings.weight"].shape[1]

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], batch_size: int = 64) -> Tensor:
        return encode_by_length(texts, self.size, batch_size, lambda part: self.forward(*tokenize(self.tokenizer, part)))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        state = self.state
        device = state["embeddings.word_embeddings.weight"].device
        ids, mask = ids.to(device), mask.to(device)
        x = state["embeddings.word_embeddings.weight"][ids] + state["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x + state["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
        for i in range(self.num_layers):
            x = self._layer(x, mask, f"encoder.layer.{i}")
        weight = mask[..., None].float()
        return F.normalize((x * weight).sum(1) / weight.sum(1), dim=-1)

    def _layer(self, x: Tensor, mask: Tensor, name: str) -> Tensor:
        query, key, value = (
            self._linear(x, f"{name}.attention.self.{part}").unflatten(2, (NUM_HEADS, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        heard = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :].bool())
        heard = self._linear(heard.transpose(1, 2).flatten(2), f"{name}.attention.output.dense")
        x = self._norm(x + heard, f"{name}.attention.output.LayerNorm")
        wide = F.gelu(self._linear(x, f"{name}.intermediate.dense"))
        return self._norm(x + self._linear(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.state[f"{name}.weight"], self.state[f"{name}.bias"], EPSILON)


def tokenize(tokenizer: Any, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """ids and mask (N, L), padded to the longest."""
    found = tokenizer.encode_batch(list(texts))
    return torch.tensor([e.ids for e in found]), torch.tensor([e.attention_mask for e in found])


def encode_by_length(texts: Sequence[str], size: int, batch_size: int, encode: Callable[[list[str]], Tensor]) -> Tensor:
    """Vectors (n, size) of any number of texts; those of similar length share a batch, so that little is padded."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    out = torch.empty(len(texts), size)
    for start in range(0, len(order), batch_size):
        part = order[start : start + batch_size]
        out[torch.tensor(part)] = encode([texts[i] for i in part]).float().cpu()
    return out


def word_pieces(file: Path) -> Any:
    """A WordPiece tokenizer from its tokenizer.json: 128 tokens at most, padded to the longest."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError("text needs the package tokenizers; run: pip install 'hiero[text]'") from None
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]") or 0)
    return tokenizer
