"""CLIP's text side: its byte-pair vocabulary as a tokenizer, and its released weights in transformers' layout."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

from torch import Tensor

from hiero.errors import InputError

CONTEXT = 77  # tokens of a text, with the two marks
NUM_MERGES = 49152 - 256 - 2  # that CLIP uses; the file holds more
START, END = "<|startoftext|>", "<|endoftext|>"
WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
RENAMED_LAYERS = {  # OpenAI's names → transformers'
    "attn.out_proj": "self_attn.out_proj",
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}


def byte_letters() -> list[str]:
    """A printable letter for each of the 256 bytes, in the order of the vocabulary: itself, or one from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + sum(1 for other in letters if other not in printable)))
    ordered = [*printable, *(byte for byte in range(256) if byte not in printable)]
    return [letters[byte] for byte in ordered]


def clip_tokenizer(merges_file: Path) -> Any:
    """CLIP's byte-pair tokenizer: lower case, start and end marks, 77 tokens at most, padded to the longest."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    with gzip.open(merges_file, "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")[1 : NUM_MERGES + 1]
    merges = [(first, second) for first, second in (line.split() for line in lines)]
    letters = byte_letters()
    # The order decides the ids: letters, letters that end a word, merges by rank, marks.
    tokens = [*letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in merges), START, END]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, end_of_word_suffix="</w>", unk_token=END))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(START, vocabulary[START]), (END, vocabulary[END])]
    )
    tokenizer.enable_truncation(CONTEXT)
    tokenizer.enable_padding(pad_id=0, pad_token="!")  # causal attention does not see what follows the end mark
    return tokenizer


def to_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state of OpenAI's or LaViLa's text tower as that of transformers' CLIPTextModel.

    A projection into the image space is left out, as in HiERO.
    """
    out: dict[str, Tensor] = {}
    for name, value in state.items():
        if name in ("token_embedding.weight", "positional_embedding"):
            kind = "token" if name.startswith("token") else "position"
            out[f"embeddings.{kind}_embedding.weight"] = value
        elif name.startswith("ln_final."):
            out[f"final_layer_norm.{name.split('.')[1]}"] = value
        elif match := re.fullmatch(r"transformer\.resblocks\.(\d+)\.(.+)\.(weight|bias)", name):
            layer = f"encoder.layers.{match[1]}"
            if match[2] not in RENAMED_LAYERS:
                raise InputError(f"{name}: not part of a CLIP text tower")
            out[f"{layer}.{RENAMED_LAYERS[match[2]]}.{match[3]}"] = value
        elif match := re.fullmatch(r"transformer\.resblocks\.(\d+)\.attn\.in_proj_(weight|bias)", name):
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                out[f"encoder.layers.{match[1]}.self_attn.{letter}_proj.{match[2]}"] = part
        elif name != "text_projection":
            raise InputError(f"{name}: not part of a CLIP text tower")
    return out
