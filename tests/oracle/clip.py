"""CLIP's text side, written out: byte-pair encoding one merge at a time, and the transformer with
torch's own attention.
"""

from __future__ import annotations

from itertools import pairwise

import regex
import torch
from torch import Tensor
from torch.nn import functional as F

PATTERN = regex.compile(
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", regex.IGNORECASE
)


def bpe(text: str, vocabulary: dict[str, int], merges: list[tuple[str, str]], letters: dict[int, str]) -> list[int]:
    """Ids of a text without marks; letters: the printable letter of each byte."""
    rank = {pair: i for i, pair in enumerate(merges)}
    ids = []
    for word in PATTERN.findall(" ".join(text.split()).lower()):
        parts = [letters[byte] for byte in word.encode()]
        parts[-1] += "</w>"
        while len(parts) > 1:
            pairs = [(rank.get((a, b), float("inf")), i) for i, (a, b) in enumerate(pairwise(parts))]
            best, _ = min(pairs)
            if best == float("inf"):
                break
            merged, i = [], 0
            while i < len(parts):
                if i + 1 < len(parts) and rank.get((parts[i], parts[i + 1])) == best:
                    merged.append(parts[i] + parts[i + 1])
                    i += 2
                else:
                    merged.append(parts[i])
                    i += 1
            parts = merged
        ids += [vocabulary[part] for part in parts]
    return ids


def text_tower(state: dict[str, Tensor], ids: Tensor, heads: int) -> Tensor:
    """The state in OpenAI's names; ids (N, L) whose largest entry is the end mark → (N, width) there."""
    x = state["token_embedding.weight"][ids] + state["positional_embedding"][: ids.shape[1]]
    width = x.shape[-1]
    mask = torch.full((ids.shape[1], ids.shape[1]), -torch.inf).triu(1)
    layers = {int(name.split(".")[2]) for name in state if name.startswith("transformer.resblocks.")}
    for layer in sorted(layers):
        p = {
            k.removeprefix(f"transformer.resblocks.{layer}."): v for k, v in state.items() if f"resblocks.{layer}." in k
        }
        y = F.layer_norm(x, (width,), p["ln_1.weight"], p["ln_1.bias"])
        q, k, v = (y @ p["attn.in_proj_weight"].T + p["attn.in_proj_bias"]).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))
        weight = (q @ k.mT / (width // heads) ** 0.5 + mask).softmax(-1)
        y = (weight @ v).transpose(1, 2).flatten(2)
        x = x + y @ p["attn.out_proj.weight"].T + p["attn.out_proj.bias"]
        y = F.layer_norm(x, (width,), p["ln_2.weight"], p["ln_2.bias"])
        y = y @ p["mlp.c_fc.weight"].T + p["mlp.c_fc.bias"]
        y = y * torch.sigmoid(1.702 * y)
        x = x + y @ p["mlp.c_proj.weight"].T + p["mlp.c_proj.bias"]
    x = F.layer_norm(x, (width,), state["ln_final.weight"], state["ln_final.bias"])
    return x[torch.arange(len(ids)), ids.argmax(1)]
