"""Text towers of transformers, built from the weights in a checkpoint: sizes are read off, and names
must fit to the last.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

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


TowerKind = Literal["bert", "distilbert", "clip"]
EMBEDDING_KEYS = {  # a parameter that only this kind of tower has, in the layouts of released checkpoints
    "distilbert": "embeddings.word_embeddings.weight",
    "clip": "token_embedding.weight",
}
# of both kinds
TOWER_PREFIXES = ("embeddings.", "transformer.", "token_embedding.", "positional_embedding", "ln_final.")
HEAD_SIZE = 64  # width of an attention head in DistilBERT and CLIP, where nothing says how many there are
BERT_HEADS = 12  # of MiniLM and of BERT's usual sizes


def select_text_tower(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The text tower inside a checkpoint's state, whatever it is nested in, without the prefix of its names."""
    for key in EMBEDDING_KEYS.values():
        for name in state:
            if name == key or name.endswith("." + key):
                prefix = name.removesuffix(key)
                inside = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
                # Without a prefix, towers for other things are inside too.
                return {name: value for name, value in inside.items() if name.startswith(TOWER_PREFIXES)}
    raise InputError(f"{path}: holds no DistilBERT and no CLIP text tower")


def tower_kind(state: dict[str, Tensor]) -> TowerKind:
    """Of a state that `select_text_tower` gave."""
    return "clip" if EMBEDDING_KEYS["clip"] in state else "distilbert"


def build_tower(kind: TowerKind, state: dict[str, Tensor], num_heads: int | None, source: Path) -> nn.Module:
    """A tower with its weights."""
    build = {"clip": _build_clip, "distilbert": _build_distilbert, "bert": _build_bert}[kind]
    try:
        if kind == "clip" and EMBEDDING_KEYS["clip"] in state:
            state = to_transformers(state)
        tower = build(state, num_heads)
        # transformers 4
        prefix = "text_model." if any(name.startswith("text_model.") for name in tower.state_dict()) else ""
        state = {prefix + name: value.float() for name, value in state.items() if "position_ids" not in name}
        tower.load_state_dict(state, strict=True)
    except (KeyError, ValueError, RuntimeError) as error:
        raise InputError(f"{source}: not the weights of a {kind} text tower ({error})") from error
    return tower


def _build_clip(state: dict[str, Tensor], num_heads: int | None) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel

    num_tokens, width = state["embeddings.token_embedding.weight"].shape
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=num_tokens,
            hidden_size=width,
            intermediate_size=state["encoder.layers.0.mlp.fc1.weight"].shape[0],
            num_hidden_layers=_num_layers(state, "encoder.layers."),
            num_attention_heads=num_heads or max(1, width // HEAD_SIZE),
            max_position_embeddings=len(state["embeddings.position_embedding.weight"]),
            bos_token_id=num_tokens - 2,
            eos_token_id=num_tokens - 1,
        )
    )


def _build_distilbert(state: dict[str, Tensor], num_heads: int | None) -> Any:
    from transformers import DistilBertConfig, DistilBertModel

    num_tokens, width = state["embeddings.word_embeddings.weight"].shape
    return DistilBertModel(
        DistilBertConfig(
            vocab_size=num_tokens,
            dim=width,
            hidden_dim=state["transformer.layer.0.ffn.lin1.weight"].shape[0],
            n_layers=_num_layers(state, "transformer.layer."),
            n_heads=num_heads or max(1, width // HEAD_SIZE),
            max_position_embeddings=len(state["embeddings.position_embeddings.weight"]),
        )
    )


def _build_bert(state: dict[str, Tensor], num_heads: int | None) -> Any:
    from transformers import BertConfig, BertModel

    num_tokens, width = state["embeddings.word_embeddings.weight"].shape
    return BertModel(
        BertConfig(
            vocab_size=num_tokens,
            hidden_size=width,
            num_hidden_layers=_num_layers(state, "encoder.layer."),
            intermediate_size=state["encoder.layer.0.intermediate.dense.weight"].shape[0],
            num_attention_heads=num_heads or BERT_HEADS,
            max_position_embeddings=len(state["embeddings.position_embeddings.weight"]),
        )
    )


def _num_layers(state: dict[str, Tensor], prefix: str) -> int:
    return 1 + max(int(name.removeprefix(prefix).split(".")[0]) for name in state if name.startswith(prefix))
