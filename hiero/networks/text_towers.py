"""Text towers of transformers, built from the weights in a checkpoint. The sizes follow from the weights."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from hiero.errors import InputError
from hiero.storage.checkpoints import select_prefix

TowerKind = Literal["bert", "distilbert", "clip"]
# a parameter that only this kind of tower has, in the layouts of released checkpoints
EMBEDDING_KEYS = {"distilbert": "embeddings.word_embeddings.weight", "clip": "token_embedding.weight"}
TOWER_PREFIXES = ("embeddings.", "transformer.", "token_embedding.", "positional_embedding", "ln_final.")
# names of the token and position embeddings and of the feed-forward layer in transformers
LAYOUTS = {
    "bert": ("word_embeddings", "position_embeddings", "encoder.layer.0.intermediate.dense.weight"),
    "distilbert": ("word_embeddings", "position_embeddings", "transformer.layer.0.ffn.lin1.weight"),
    "clip": ("token_embedding", "position_embedding", "encoder.layers.0.mlp.fc1.weight"),
}
HEAD_SIZE = 64  # default width of an attention head in DistilBERT and CLIP
BERT_HEADS = 12  # default number of heads in BERT
CONTEXT = 77  # tokens of a text, with start and end marks
NUM_MERGES = 49152 - 256 - 2  # number of merges in CLIP; the file holds more
START, END = "<|startoftext|>", "<|endoftext|>"
WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
RENAMED_LAYERS = {  # OpenAI's names → transformers'
    "attn.out_proj": "self_attn.out_proj",
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
LAYER_NAMES = "|".join(map(re.escape, RENAMED_LAYERS))


def clip_tokenizer(merges_file: Path) -> Any:
    """CLIP's byte-pair tokenizer: lower case, start and end marks, 77 tokens at most, padded to the longest."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    with gzip.open(merges_file, "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")[1 : NUM_MERGES + 1]
    merges = [(first, second) for first, second in (line.split() for line in lines)]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())  # a printable letter for each of the 256 bytes
    # The order determines the ids: letters, letters that end a word, merges by rank, marks.
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
    tokenizer.enable_padding(pad_id=0, pad_token="!")  # causal attention ignores everything after the end mark
    return tokenizer


def to_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert the state of OpenAI's or LaViLa's text tower, without its projection, to transformers' CLIPTextModel."""
    out: dict[str, Tensor] = {}
    for name, value in state.items():
        if name in ("token_embedding.weight", "positional_embedding"):
            kind = "token" if name.startswith("token") else "position"
            out[f"embeddings.{kind}_embedding.weight"] = value
        elif name.startswith("ln_final."):
            out[f"final_layer_norm.{name.split('.')[1]}"] = value
        elif match := re.fullmatch(rf"transformer\.resblocks\.(\d+)\.({LAYER_NAMES})\.(weight|bias)", name):
            out[f"encoder.layers.{match[1]}.{RENAMED_LAYERS[match[2]]}.{match[3]}"] = value
        elif match := re.fullmatch(r"transformer\.resblocks\.(\d+)\.attn\.in_proj_(weight|bias)", name):
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                out[f"encoder.layers.{match[1]}.self_attn.{letter}_proj.{match[2]}"] = part
        elif name != "text_projection":
            raise InputError(f"{name}: not part of a CLIP text tower")
    return out


def select_text_tower(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The text tower inside a checkpoint's state, without the prefix of its names."""
    for key in EMBEDDING_KEYS.values():
        for name in state:
            if name == key or name.endswith("." + key):
                tower = select_prefix(state, name.removesuffix(key))
                # Without a prefix, other towers are included.
                return {name: value for name, value in tower.items() if name.startswith(TOWER_PREFIXES)}
    raise InputError(f"{path}: holds no DistilBERT and no CLIP text tower")


def tower_kind(state: dict[str, Tensor]) -> TowerKind:
    """The kind of a tower from `select_text_tower`."""
    return "clip" if EMBEDDING_KEYS["clip"] in state else "distilbert"


def import_transformers() -> Any:
    """Import the optional package transformers."""
    try:
        import transformers
    except ImportError:
        raise InputError("text encoders need transformers; run: pip install 'hiero-video[text]'") from None
    return transformers


def build_tower(kind: TowerKind, state: dict[str, Tensor], num_heads: int | None, source: Path) -> nn.Module:
    """A tower with its weights."""
    import_transformers()
    try:
        if kind == "clip" and EMBEDDING_KEYS["clip"] in state:
            state = to_transformers(state)
        tower = _build_untrained(kind, state, num_heads)
        # CLIPTextModel has this prefix in transformers 4.
        prefix = "text_model." if any(name.startswith("text_model.") for name in tower.state_dict()) else ""
        state = {prefix + name: value.float() for name, value in state.items() if "position_ids" not in name}
        tower.load_state_dict(state, strict=True)
    except (KeyError, ValueError, RuntimeError) as error:
        raise InputError(f"{source}: not the weights of a {kind} text tower ({error})") from error
    return tower


def _build_untrained(kind: TowerKind, state: dict[str, Tensor], num_heads: int | None) -> nn.Module:
    transformers = import_transformers()
    words, positions, feed_forward = LAYOUTS[kind]
    num_tokens, width = state[f"embeddings.{words}.weight"].shape
    hidden_size = len(state[feed_forward])
    layers = feed_forward.partition("0.")[0]
    num_layers = 1 + max(int(name.removeprefix(layers).split(".")[0]) for name in state if name.startswith(layers))
    num_heads = num_heads or (BERT_HEADS if kind == "bert" else max(1, width // HEAD_SIZE))
    sizes = {"vocab_size": num_tokens, "max_position_embeddings": len(state[f"embeddings.{positions}.weight"])}
    if kind == "distilbert":
        sizes |= {"dim": width, "hidden_dim": hidden_size, "n_layers": num_layers, "n_heads": num_heads}
        return transformers.DistilBertModel(transformers.DistilBertConfig(**sizes))
    sizes |= {
        "hidden_size": width,
        "intermediate_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
    }
    if kind == "bert":
        return transformers.BertModel(transformers.BertConfig(**sizes))
    sizes |= {"bos_token_id": num_tokens - 2, "eos_token_id": num_tokens - 1}
    return transformers.CLIPTextModel(transformers.CLIPTextConfig(**sizes))
