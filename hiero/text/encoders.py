"""Text encoders behind one interface. The towers are transformers' own; here is how their weights are found and what is read off.

minilm       all-MiniLM-L6-v2: mean over tokens, normalised. Fetched by itself (`hiero weights`).
distilbert   first token, as HiERO with Omnivore and EgoVLP. From a hub, or FOLDER.
FILE         a text tower inside a checkpoint (.pth, .pt, .safetensors): EgoVLP's DistilBERT, or LaViLa's CLIP (end-of-text token).
FOLDER       a model folder of hiero with a text_encoder.safetensors, or a transformers folder of BERT or DistilBERT.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import TextConfig
from hiero.errors import InputError
from hiero.storage import weights
from hiero.storage.checkpoints import read_state_dict
from hiero.storage.files import load_tensors
from hiero.text.clip_text import clip_tokenizer, to_transformers
from hiero.text.minilm import MINILM_KEY, encode_by_length, tokenize, word_pieces
from hiero.text.registry import find_text_encoder
from hiero.text.vector_cache import TextCache

TowerKind = Literal["bert", "distilbert", "clip"]
LORA_TARGETS = {
    "bert": ["query", "key", "value"],
    "distilbert": ["q_lin", "k_lin", "v_lin"],
    "clip": ["q_proj", "k_proj", "v_proj"],
}
MARKS = {  # a name that only this kind of tower has, in the layouts that are around
    "distilbert": "embeddings.word_embeddings.weight",
    "clip": "token_embedding.weight",
}


@dataclass(frozen=True)
class EncoderFiles:
    """Where an encoder's weights are, what kind it is, and a key that names them."""

    kind: TowerKind
    files: Path
    key: str
    name: str


class TextEncoder(nn.Module):
    """Sentences to vectors (N, size)."""

    def __init__(self, kind: TowerKind, tower: nn.Module, tokenizer: Any, name: str = "") -> None:
        super().__init__()
        self.kind, self.tower, self.tokenizer, self.name = kind, tower, tokenizer, name
        config: Any = tower.config
        self.size: int = config.dim if kind == "distilbert" else config.hidden_size
        self.end: int = config.eos_token_id if kind == "clip" else -1

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """ids and mask (N, L), padded to the longest."""
        ids, mask = tokenize(self.tokenizer, texts)
        return torch.from_numpy(ids), torch.from_numpy(mask).long()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        tower: Any = self.tower
        if self.kind == "clip":  # causal: what follows the end mark is never seen from it
            hidden = tower(input_ids=ids).last_hidden_state
            return hidden[torch.arange(len(ids), device=ids.device), ids.eq(self.end).int().argmax(1)]
        hidden = tower(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.kind == "distilbert":
            return hidden[:, 0]
        weight = mask[..., None].to(hidden.dtype)
        return F.normalize((hidden * weight).sum(1) / weight.sum(1).clamp_min(1), dim=-1)

    @torch.no_grad()
    def encode(self, texts: Sequence[str], batch_size: int = 64) -> Tensor:
        """Vectors of any number of texts, dropout off. Texts of similar length share a batch."""
        was_training = self.training
        self.eval()
        device = next(self.parameters()).device

        def encode(part: list[str]) -> np.ndarray:
            found: Tensor = self(*(x.to(device) for x in self.tokenize(part)))
            return found.float().cpu().numpy()

        out = encode_by_length(texts, self.size, batch_size, encode)
        self.train(was_training)
        return torch.from_numpy(out)

    def add_lora(self, rank: int, alpha: int) -> None:
        """Freeze the tower and let low-rank corrections of its query, key and value learn."""
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise InputError("text.mode=lora needs peft; run: pip install 'hiero-video[text]'") from None
        settings = LoraConfig(r=rank, lora_alpha=alpha, target_modules=LORA_TARGETS[self.kind], lora_dropout=0.0)
        self.tower = get_peft_model(self.tower, settings)

    def plain_state(self) -> dict[str, Tensor]:
        """The tower's weights in transformers' layout, corrections added in."""
        tower: Any = self.tower
        if hasattr(tower, "merge_and_unload"):
            tower = copy.deepcopy(tower).merge_and_unload()
        return {name.removeprefix("text_model."): value for name, value in tower.state_dict().items() if "position_ids" not in name}

    def describe(self) -> dict[str, Any]:
        """What a model folder must say so that the tower can be built again."""
        config: Any = self.tower.config
        heads = config.n_heads if self.kind == "distilbert" else config.num_attention_heads
        return {"name": self.name, "kind": self.kind, "heads": heads}


def load_text_encoder(config: TextConfig) -> TextEncoder:
    """The encoder that a configuration names, ready to train in its mode."""
    _check_transformers()
    source = locate_encoder(config.encoder)
    encoder = _load(source)
    if config.mode == "lora":
        encoder.add_lora(config.lora_rank, config.lora_alpha)
    encoder.requires_grad_(config.mode == "full") if config.mode != "lora" else None
    if isinstance(pooler := getattr(encoder.tower, "pooler", None), nn.Module):  # BERT has one that is not used here
        pooler.requires_grad_(False)
    return encoder.train(config.mode != "frozen")


def encode_texts(
    texts: Sequence[str],
    encoder: str = "minilm",
    *,
    device: str | torch.device = "cpu",
    cache: Path | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """Vectors of texts (n, size) in half precision, from the cache where it has them. The encoder is loaded only when needed."""
    plugin = find_text_encoder(encoder, device)
    if plugin is not None:
        return torch.from_numpy(TextCache(plugin.key, cache).encode(texts, plugin.encode, progress))
    files = locate_encoder(encoder)
    loaded: list[TextEncoder] = []

    def encode(missing: list[str]) -> np.ndarray:
        if not loaded:
            _check_transformers()
            loaded.append(_load(files).to(device).eval())
        return np.asarray(loaded[0].encode(missing))

    return torch.from_numpy(TextCache(files.key, cache).encode(texts, encode, progress))


def encode_joint(checkpoint: Path, texts: Sequence[str]) -> Tensor:
    """Unit vectors (n, 256) of texts in the space of a checkpoint's visual tower: EgoVLP's or LaViLa's projected text tower."""
    encoder, weight, bias = _joint(checkpoint, checkpoint.stat().st_mtime_ns)
    vectors = encoder.encode(texts)
    if encoder.kind == "distilbert":
        vectors = F.relu(vectors)
    return F.normalize(F.linear(vectors, weight, bias), dim=-1)


@functools.lru_cache(1)
def _joint(checkpoint: Path, _: int) -> tuple[TextEncoder, Tensor, Tensor | None]:
    """A checkpoint's text tower with its projection (out, in); read again only when the file was replaced."""
    _check_transformers()
    state = read_state_dict(checkpoint)
    tower = _tower_in(state, checkpoint)
    kind: TowerKind = "clip" if MARKS["clip"] in tower else "distilbert"
    try:
        weight = state["text_projection"].mT if kind == "clip" else state["txt_proj.1.weight"]
    except KeyError as error:
        raise InputError(f"{checkpoint}: has a text tower, but no projection {error} into the space of its pictures") from error
    bias = None if kind == "clip" else state.get("txt_proj.1.bias")
    encoder = TextEncoder(kind, _build(kind, tower, None, checkpoint), _tokenizer(kind), checkpoint.stem).eval()
    return encoder, weight.float(), None if bias is None else bias.float()


def locate_encoder(name: str) -> EncoderFiles:
    """Resolve a name, folder or file; minilm and distilbert are fetched where they are not here."""
    if name == "minilm":
        return EncoderFiles("bert", weights.get("minilm"), MINILM_KEY, name)
    path = Path(name)
    if name == "distilbert":
        path = _from_hub("distilbert-base-uncased")
    if path.is_file():
        return EncoderFiles(_kind_of_state(path), path, f"{path.stem}-{_sha256(path)[:12]}", name)
    tower = path / "text_encoder.safetensors"
    if tower.is_file():
        settings = _json(path / "config.json").get("text_encoder") or {}
        kind: TowerKind = settings.get("kind") or ("clip" if settings.get("name") == "clip" else "distilbert")
        return EncoderFiles(kind, path, f"{kind}-{_sha256(tower)[:12]}", name)
    if (path / "config.json").is_file() and (path / "model.safetensors").is_file():
        found = _json(path / "config.json").get("model_type")
        if found not in ("bert", "distilbert"):
            raise InputError(f"{path}: a text encoder of type {found}; BERT, DistilBERT and CLIP checkpoints are supported")
        return EncoderFiles(found, path, f"{found}-{_sha256(path / 'model.safetensors')[:12]}", name)
    raise InputError(
        f"text.encoder {name}: not minilm or distilbert, and no file or folder with a text tower; "
        "an imported checkpoint is one (hiero import-checkpoint FILE.pth OUT/)"
    )


def _load(source: EncoderFiles) -> TextEncoder:
    if source.files.is_dir() and not (source.files / "text_encoder.safetensors").is_file():
        import transformers
        from transformers import AutoModel

        transformers.utils.logging.disable_progress_bar()
        tower = AutoModel.from_pretrained(source.files, local_files_only=True, use_safetensors=True)
        tokenizer_file = source.files / "tokenizer.json"
        if source.kind == "bert" and not tokenizer_file.is_file():
            raise InputError(f"{source.files}: tokenizer.json is missing; without it the words of this encoder are not known")
        return TextEncoder(source.kind, tower, _word_pieces(tokenizer_file if tokenizer_file.is_file() else None), source.name)
    if source.files.is_dir():
        state = load_tensors(source.files / "text_encoder.safetensors")
        heads = (_json(source.files / "config.json").get("text_encoder") or {}).get("heads")
    else:
        state, heads = _tower_state(source.files), None
    return TextEncoder(source.kind, _build(source.kind, state, heads, source.files), _tokenizer(source.kind), source.name)


def _tokenizer(kind: TowerKind) -> Any:
    return clip_tokenizer(weights.get("clip-bpe") / "bpe_simple_vocab_16e6.txt.gz") if kind == "clip" else _word_pieces()


def _build(kind: TowerKind, state: dict[str, Tensor], heads: int | None, where: Path) -> nn.Module:
    """A tower with sizes read off its weights, which must fit to the last name."""
    from transformers import BertConfig, BertModel, CLIPTextConfig, CLIPTextModel, DistilBertConfig, DistilBertModel

    tower: Any
    try:
        if kind == "clip":
            if "token_embedding.weight" in state:
                state = to_transformers(state)
            vocabulary, width = state["embeddings.token_embedding.weight"].shape
            tower = CLIPTextModel(CLIPTextConfig(
                vocab_size=vocabulary, hidden_size=width, intermediate_size=state["encoder.layers.0.mlp.fc1.weight"].shape[0],
                num_hidden_layers=_num_layers(state, "encoder.layers."), num_attention_heads=heads or max(1, width // 64),
                max_position_embeddings=len(state["embeddings.position_embedding.weight"]),
                bos_token_id=vocabulary - 2, eos_token_id=vocabulary - 1,
            ))  # fmt: skip
        elif kind == "distilbert":
            vocabulary, width = state["embeddings.word_embeddings.weight"].shape
            tower = DistilBertModel(DistilBertConfig(
                vocab_size=vocabulary, dim=width, hidden_dim=state["transformer.layer.0.ffn.lin1.weight"].shape[0],
                n_layers=_num_layers(state, "transformer.layer."), n_heads=heads or max(1, width // 64),
                max_position_embeddings=len(state["embeddings.position_embeddings.weight"]),
            ))  # fmt: skip
        else:
            vocabulary, width = state["embeddings.word_embeddings.weight"].shape
            tower = BertModel(BertConfig(
                vocab_size=vocabulary, hidden_size=width, num_hidden_layers=_num_layers(state, "encoder.layer."),
                intermediate_size=state["encoder.layer.0.intermediate.dense.weight"].shape[0], num_attention_heads=heads or 12,
                max_position_embeddings=len(state["embeddings.position_embeddings.weight"]),
            ))  # fmt: skip
        names = set(tower.state_dict())
        prefix = "text_model." if any(name.startswith("text_model.") for name in names) else ""  # transformers 4
        state = {prefix + name: value.float() for name, value in state.items() if "position_ids" not in name}
        tower.load_state_dict(state, strict=True)
    except (KeyError, ValueError, RuntimeError) as error:
        raise InputError(f"{where}: not the weights of a {kind} text tower ({error})") from error
    return tower


def _num_layers(state: dict[str, Tensor], prefix: str) -> int:
    return 1 + max(int(name.removeprefix(prefix).split(".")[0]) for name in state if name.startswith(prefix))


def _tower_state(path: Path) -> dict[str, Tensor]:
    """The text tower inside a checkpoint, whatever it is nested in: names after the common prefix."""
    return _tower_in(read_state_dict(path), path)


def _tower_in(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    for mark in MARKS.values():
        for name in state:
            if name == mark or name.endswith("." + mark):
                prefix = name.removesuffix(mark)
                own = ("embeddings.", "transformer.", "token_embedding.", "positional_embedding", "ln_final.")
                inside = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
                return {key: value for key, value in inside.items() if key.startswith(own)}
    raise InputError(f"{path}: holds no DistilBERT and no CLIP text tower")


def _kind_of_state(path: Path) -> TowerKind:
    return "clip" if MARKS["clip"] in _tower_state(path) else "distilbert"


def _word_pieces(file: Path | None = None) -> Any:
    """BERT's uncased word pieces; MiniLM carries the same vocabulary as DistilBERT."""
    return word_pieces(file or weights.get("minilm") / "tokenizer.json")


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["config.json", "tokenizer.json", "model.safetensors"]))
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name}: could not be fetched from the hub ({str(error).splitlines()[0]}); give a folder with its config.json, "
            "tokenizer.json and model.safetensors: --set text.encoder=FOLDER"
        ) from error


def _check_transformers() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise InputError("text encoders need transformers; run: pip install 'hiero-video[text]'") from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected a JSON object")
    return found
