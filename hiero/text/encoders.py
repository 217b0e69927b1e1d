"""Text encoders behind one interface. The towers are transformers' own; here is how their weights are
found and what is read off.

minilm       all-MiniLM-L6-v2: mean over tokens, normalised. Fetched by itself (`hiero weights`).
distilbert   first token, as HiERO with Omnivore and EgoVLP. From a hub, or FOLDER. FILE         a
text tower inside a checkpoint (.pth, .pt, .safetensors): EgoVLP's DistilBERT, or LaViLa's CLIP
(end-of-text token). FOLDER       a model folder of hiero with a text_encoder.safetensors, or a
transformers folder of BERT or DistilBERT.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import TextConfig
from hiero.errors import InputError
from hiero.storage import weights
from hiero.storage.cache import content_key
from hiero.storage.checkpoints import read_state_dict
from hiero.storage.files import load_tensors, read_json
from hiero.text.minilm import MINILM_KEY, tokenize, word_pieces
from hiero.text.registry import find_text_encoder
from hiero.text.towers import TowerKind, build_tower, clip_tokenizer, select_text_tower, tower_kind
from hiero.text.vector_cache import TextCache

LORA_TARGETS = {
    "bert": ["query", "key", "value"],
    "distilbert": ["q_lin", "k_lin", "v_lin"],
    "clip": ["q_proj", "k_proj", "v_proj"],
}
TOWER_FILE = "text_encoder.safetensors"  # in a model folder of hiero


@dataclass(frozen=True)
class EncoderFiles:
    """Where an encoder's weights are."""

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
        self.end_token_id: int = config.eos_token_id if kind == "clip" else -1

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """ids and mask (N, L), padded to the longest."""
        ids, mask = tokenize(self.tokenizer, texts)
        return torch.from_numpy(ids), torch.from_numpy(mask).long()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids and mask (N, L) → (N, size)."""
        tower: Any = self.tower
        if self.kind == "clip":  # no mask: attention is causal, so that the end token does not see what pads it
            hidden = tower(input_ids=ids).last_hidden_state
            return hidden[torch.arange(len(ids), device=ids.device), ids.eq(self.end_token_id).int().argmax(1)]
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
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        out = torch.empty(len(texts), self.size)
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            ids, mask = self.tokenize([texts[i] for i in indices])
            out[indices] = self(ids.to(device), mask.to(device)).float().cpu()
        self.train(was_training)
        return out

    def add_lora(self, rank: int, alpha: int) -> None:
        """Freeze the tower and let low-rank corrections of its query, key and value learn."""
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise InputError("text.mode=lora needs peft; run: pip install 'hiero-video[text]'") from None
        config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=LORA_TARGETS[self.kind], lora_dropout=0.0)
        with warnings.catch_warnings():
            # peft asks transformers by names that a later version will drop
            warnings.simplefilter("ignore", FutureWarning)
            self.tower = get_peft_model(self.tower, config)

    def plain_state(self) -> dict[str, Tensor]:
        """The tower's weights in transformers' layout, LoRA's corrections merged in."""
        tower: Any = self.tower
        if hasattr(tower, "merge_and_unload"):
            tower = copy.deepcopy(tower).merge_and_unload()
        return {
            name.removeprefix("text_model."): value
            for name, value in tower.state_dict().items()
            if "position_ids" not in name
        }

    def describe(self) -> dict[str, Any]:
        """What a model folder must say so that the tower can be built again."""
        config: Any = self.tower.config
        num_heads = config.n_heads if self.kind == "distilbert" else config.num_attention_heads
        return {"name": self.name, "kind": self.kind, "heads": num_heads}


def load_text_encoder(config: TextConfig) -> TextEncoder:
    """The encoder that a configuration names, ready to train in its mode."""
    _check_transformers()
    encoder = _load_encoder(locate_encoder(config.encoder))
    if config.mode == "lora":
        encoder.add_lora(config.lora_rank, config.lora_alpha)
    else:
        encoder.requires_grad_(config.mode == "full")
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
    """Vectors of texts (n, size) in half precision, from the cache where it has them. The encoder is
    loaded only when needed.
    """
    plugin = find_text_encoder(encoder, device)
    if plugin is not None:
        return torch.from_numpy(TextCache(plugin.key, cache).encode(texts, plugin.encode, progress))
    files = locate_encoder(encoder)
    loaded: list[TextEncoder] = []

    def encode(missing: list[str]) -> np.ndarray:
        if not loaded:
            _check_transformers()
            loaded.append(_load_encoder(files).to(device).eval())
        return np.asarray(loaded[0].encode(missing))

    return torch.from_numpy(TextCache(files.key, cache).encode(texts, encode, progress))


def encode_joint(checkpoint: Path, texts: Sequence[str]) -> Tensor:
    """Unit vectors (n, 256) of texts in the space of a checkpoint's visual tower: EgoVLP's or LaViLa's
    projected text tower.
    """
    encoder, weight, bias = _joint(checkpoint, checkpoint.stat().st_mtime_ns)
    vectors = encoder.encode(texts)
    if encoder.kind == "distilbert":
        vectors = F.relu(vectors)  # the first layer of EgoVLP's txt_proj
    return F.normalize(F.linear(vectors, weight, bias), dim=-1)


@functools.lru_cache(1)
def _joint(checkpoint: Path, _: int) -> tuple[TextEncoder, Tensor, Tensor | None]:
    """A checkpoint's text tower with its projection (out, in) and bias; read again only when the
    file was replaced.
    """
    _check_transformers()
    state = read_state_dict(checkpoint)
    tower = select_text_tower(state, checkpoint)
    kind = tower_kind(tower)
    try:
        weight = state["text_projection"].mT if kind == "clip" else state["txt_proj.1.weight"]
    except KeyError as error:
        raise InputError(
            f"{checkpoint}: has a text tower, but no projection {error} into the space of its pictures"
        ) from error
    bias = None if kind == "clip" else state.get("txt_proj.1.bias")
    encoder = TextEncoder(kind, build_tower(kind, tower, None, checkpoint), _tokenizer(kind), checkpoint.stem).eval()
    return encoder, weight.float(), None if bias is None else bias.float()


def locate_encoder(name: str) -> EncoderFiles:
    """Where an encoder is, by its name, folder or file; minilm and distilbert are fetched where they are missing."""
    if name == "minilm":
        return EncoderFiles("bert", weights.get("minilm"), MINILM_KEY, name)
    path = Path(name)
    if name == "distilbert":
        path = _fetch_from_hub("distilbert-base-uncased")
    if path.is_file():
        kind = tower_kind(select_text_tower(read_state_dict(path), path))
        return EncoderFiles(kind, path, f"{path.stem}-{content_key(path)[:12]}", name)
    tower_file = path / TOWER_FILE
    if tower_file.is_file():
        settings = _read_settings(path).get("text_encoder") or {}
        kind = settings.get("kind") or ("clip" if settings.get("name") == "clip" else "distilbert")
        return EncoderFiles(kind, path, f"{kind}-{content_key(tower_file)[:12]}", name)
    if (path / "config.json").is_file() and (path / "model.safetensors").is_file():
        model_type = _read_settings(path).get("model_type")
        if model_type not in ("bert", "distilbert"):
            raise InputError(
                f"{path}: a text encoder of type {model_type}; BERT, DistilBERT and CLIP checkpoints are supported"
            )
        return EncoderFiles(model_type, path, f"{model_type}-{content_key(path / 'model.safetensors')[:12]}", name)
    raise InputError(
        f"text.encoder {name}: not minilm or distilbert, and no file or folder with a text tower; "
        "an imported checkpoint is one (hiero import-checkpoint FILE.pth OUT/)"
    )


def _load_encoder(source: EncoderFiles) -> TextEncoder:
    if source.files.is_dir() and not (source.files / TOWER_FILE).is_file():
        return _load_transformers_folder(source)
    if source.files.is_dir():
        state = load_tensors(source.files / TOWER_FILE)
        num_heads = (_read_settings(source.files).get("text_encoder") or {}).get("heads")
    else:
        state, num_heads = select_text_tower(read_state_dict(source.files), source.files), None
    tower = build_tower(source.kind, state, num_heads, source.files)
    return TextEncoder(source.kind, tower, _tokenizer(source.kind), source.name)


def _load_transformers_folder(source: EncoderFiles) -> TextEncoder:
    import transformers
    from transformers import AutoModel

    transformers.utils.logging.disable_progress_bar()
    tower = AutoModel.from_pretrained(source.files, local_files_only=True, use_safetensors=True)
    tokenizer_file = source.files / "tokenizer.json"
    if source.kind == "bert" and not tokenizer_file.is_file():
        raise InputError(
            f"{source.files}: tokenizer.json is missing; without it the words of this encoder are not known"
        )
    tokenizer = word_pieces(tokenizer_file) if tokenizer_file.is_file() else _tokenizer(source.kind)
    return TextEncoder(source.kind, tower, tokenizer, source.name)


def _tokenizer(kind: TowerKind) -> Any:
    if kind == "clip":
        return clip_tokenizer(weights.get("clip-bpe") / "bpe_simple_vocab_16e6.txt.gz")
    return word_pieces(weights.get("minilm") / "tokenizer.json")  # MiniLM has the vocabulary of DistilBERT


def _fetch_from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["config.json", "tokenizer.json", "model.safetensors"]))
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name}: could not be fetched from the hub ({str(error).splitlines()[0]}); give a folder with its "
            "config.json, tokenizer.json and model.safetensors: --set text.encoder=FOLDER"
        ) from error


def _check_transformers() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise InputError("text encoders need transformers; run: pip install 'hiero-video[text]'") from None


def _read_settings(folder: Path) -> dict[str, Any]:
    """The config.json of a folder."""
    document = read_json(folder / "config.json")
    if not isinstance(document, dict):
        raise InputError(f"{folder / 'config.json'}: expected a JSON object")
    return document
