"""Text towers of transformers, built from the weights in a checkpoint: sizes are read off, and names
must fit to the last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from hiero.errors import InputError
from hiero.text.clip_text import to_transformers

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
