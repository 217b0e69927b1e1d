"""Text encoders behind one interface. The networks are those of transformers.

minilm       all-MiniLM-L6-v2: mean over tokens, normalised. Downloaded automatically.
distilbert   First token, as in HiERO with Omnivore and EgoVLP. From a hub, or FOLDER.
FILE         A text tower inside a checkpoint (.pth, .pt, .safetensors), or a folder with one: EgoVLP's
             DistilBERT, or LaViLa's CLIP (end-of-text token).
FOLDER       A model folder of hiero with a text_encoder.safetensors, or a transformers folder of
             BERT or DistilBERT.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.config import TextConfig, check_text_encoder
from hiero.errors import InputError
from hiero.networks.minilm import MINILM_KEY, compute_minilm, tokenize, word_pieces
from hiero.networks.text_towers import (
    TowerKind,
    build_tower,
    clip_tokenizer,
    import_transformers,
    select_text_tower,
    tower_kind,
)
from hiero.networks.vector_cache import TextCache
from hiero.storage import weights
from hiero.storage.cache import FileState, content_key, file_state
from hiero.storage.checkpoints import find_checkpoint, read_state_dict
from hiero.storage.files import load_metadata, load_tensors, read_json, save_tensors

MINILM = "minilm"  # the encoder that model folders need no copy of
LORA_TARGETS = {
    "bert": ["query", "key", "value"],
    "distilbert": ["q_lin", "k_lin", "v_lin"],
    "clip": ["q_proj", "k_proj", "v_proj"],
}
TOWER_FILE = "text_encoder.safetensors"  # in a model folder of hiero
TOKENIZER_KEY = "tokenizer"  # its entry in the metadata of TOWER_FILE
PROBE = "#C C cuts an onion"  # a text that shows whether a tower was rebuilt correctly


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
        self.size: int = config.hidden_size
        self.end_token_id: int = config.eos_token_id if kind == "clip" else -1

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """ids and mask (N, L), padded to the longest."""
        ids, mask = tokenize(self.tokenizer, texts)
        return torch.from_numpy(ids), torch.from_numpy(mask).long()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids and mask (N, L) → (N, size)."""
        tower: Any = self.tower
        if self.kind == "clip":  # attention is causal, so the end token never sees the padding
            hidden = tower(input_ids=ids).last_hidden_state
            return hidden[torch.arange(len(ids), device=ids.device), ids.eq(self.end_token_id).int().argmax(1)]
        hidden = tower(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.kind == "distilbert":
            return hidden[:, 0]
        weight = mask[..., None].to(hidden.dtype)
        return F.normalize((hidden * weight).sum(1) / weight.sum(1).clamp_min(1), dim=-1)

    @torch.no_grad()
    def encode(self, texts: Sequence[str], batch_size: int = 64) -> Tensor:
        """Vectors of the texts, without dropout. Texts of similar length share a batch."""
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
        """Freeze the tower and add trainable LoRA matrices to query, key and value."""
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise InputError("text.mode=lora needs peft; run: pip install 'hiero-video[text]'") from None
        config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=LORA_TARGETS[self.kind], lora_dropout=0.0)
        with warnings.catch_warnings():
            # peft uses deprecated names of transformers
            warnings.simplefilter("ignore", FutureWarning)
            self.tower = get_peft_model(self.tower, config)

    def plain_state(self) -> dict[str, Tensor]:
        """The tower's weights in transformers' layout, with LoRA merged in."""
        tower: Any = self.tower
        if hasattr(tower, "merge_and_unload"):
            tower = copy.deepcopy(tower).merge_and_unload()
        return {
            name.removeprefix("text_model."): value
            for name, value in tower.state_dict().items()
            if "position_ids" not in name
        }

    def save(self, folder: Path) -> dict[str, Any]:
        """Save the tower and its tokenizer in a model folder; returns the entry of config.json that describes them."""
        config: Any = self.tower.config
        save_tensors(folder / TOWER_FILE, self.plain_state(), {TOKENIZER_KEY: self.tokenizer.to_str()})
        return {"name": self.name, "kind": self.kind, "heads": config.num_attention_heads, "file": TOWER_FILE}


def load_text_encoder(config: TextConfig) -> TextEncoder:
    """The encoder of a configuration, ready to train in its mode."""
    import_transformers()  # before anything is downloaded
    encoder = _load_encoder(locate_encoder(config.encoder))
    if config.mode == "lora":
        encoder.add_lora(config.lora_rank, config.lora_alpha)
    else:
        encoder.requires_grad_(config.mode == "full")
    if isinstance(pooler := getattr(encoder.tower, "pooler", None), nn.Module):  # BERT's pooler is not used
        pooler.requires_grad_(False)
    return encoder.train(config.mode != "frozen")


def encode_texts(
    texts: Sequence[str],
    encoder: str = MINILM,
    *,
    device: str | torch.device = "cpu",
    cache: Path | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """Vectors of texts (n, size) in half precision. Only texts that are not cached need the encoder."""
    if encoder == MINILM:
        encode = functools.partial(compute_minilm, device=device)
        return torch.from_numpy(TextCache(MINILM_KEY, cache).encode(texts, encode, progress))
    files = locate_encoder(encoder)

    @functools.cache
    def load() -> TextEncoder:
        return _load_encoder(files).to(device).eval()

    vectors = TextCache(files.key, cache).encode(texts, lambda missing: load().encode(missing).numpy(), progress)
    return torch.from_numpy(vectors)


def encode_joint(checkpoint: Path, texts: Sequence[str]) -> Tensor:
    """Unit vectors (n, 256) of texts from the projected text tower of EgoVLP or LaViLa."""
    encoder, weight, bias = _joint(checkpoint, file_state(checkpoint))
    vectors = encoder.encode(texts)
    if encoder.kind == "distilbert":
        vectors = F.relu(vectors)  # the first layer of EgoVLP's txt_proj
    return F.normalize(F.linear(vectors, weight, bias), dim=-1)


@functools.lru_cache(1)
def _joint(checkpoint: Path, _: FileState) -> tuple[TextEncoder, Tensor, Tensor | None]:
    """A checkpoint's text tower with its projection (out, in) and bias, cached until the file changes."""
    state = read_state_dict(checkpoint)
    tower = select_text_tower(state, checkpoint)
    kind = tower_kind(tower)
    try:
        weight = state["text_projection"].mT if kind == "clip" else state["txt_proj.1.weight"]
    except KeyError as error:
        raise InputError(f"{checkpoint}: its text tower has no projection {error} into the image space") from error
    bias = None if kind == "clip" else state.get("txt_proj.1.bias")
    encoder = TextEncoder(kind, build_tower(kind, tower, None, checkpoint), _tokenizer(kind), checkpoint.stem).eval()
    return encoder, weight.float(), None if bias is None else bias.float()


def locate_encoder(name: str) -> EncoderFiles:
    """Find an encoder by its name, folder or file. minilm and distilbert are downloaded if they are missing."""
    if name == MINILM:
        return EncoderFiles("bert", weights.get("minilm"), MINILM_KEY, name)
    path = Path(name)
    if name == "distilbert":
        path = _download_from_hub("distilbert-base-uncased")
    if path.is_dir() and not (path / "config.json").is_file():  # a folder of `hiero models get`
        path = find_checkpoint(path)
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
            raise InputError(f"{path}: unsupported text encoder {model_type}; BERT, DistilBERT and CLIP are supported")
        return EncoderFiles(model_type, path, f"{model_type}-{content_key(path / 'model.safetensors')[:12]}", name)
    raise InputError(
        f"text.encoder {name}: not minilm or distilbert, and not a file or folder with a text tower; "
        "to get one, import a checkpoint: hiero models import FILE.pth -o OUT"
    )


def _load_encoder(source: EncoderFiles) -> TextEncoder:
    kind, folder, tower_file = source.kind, source.files, source.files / TOWER_FILE
    if folder.is_file():
        tower = build_tower(kind, select_text_tower(read_state_dict(folder), folder), None, folder)
        return TextEncoder(kind, tower, _tokenizer(kind), source.name)
    if tower_file.is_file():
        num_heads = (_read_settings(folder).get("text_encoder") or {}).get("heads")
        tower = build_tower(kind, load_tensors(tower_file), num_heads, folder)
        return TextEncoder(kind, tower, _read_tokenizer(tower_file, kind), source.name)
    return _load_transformers_folder(source)


def _read_tokenizer(tower_file: Path, kind: TowerKind) -> Any:
    """The tokenizer that was saved with a tower, by default that of its kind."""
    from tokenizers import Tokenizer

    if (description := load_metadata(tower_file).get(TOKENIZER_KEY)) is None:
        return _tokenizer(kind)
    try:
        return Tokenizer.from_str(description)
    except Exception as error:  # tokenizers raises nothing more specific
        raise InputError(f"{tower_file}: its tokenizer is damaged ({error})") from error


def _load_transformers_folder(source: EncoderFiles) -> TextEncoder:
    transformers = import_transformers()
    transformers.utils.logging.disable_progress_bar()
    tower = transformers.AutoModel.from_pretrained(source.files, local_files_only=True, use_safetensors=True)
    tokenizer_file = source.files / "tokenizer.json"
    if source.kind == "bert" and not tokenizer_file.is_file():
        raise InputError(f"{source.files}: tokenizer.json is missing; add the one that belongs to this encoder")
    tokenizer = word_pieces(tokenizer_file) if tokenizer_file.is_file() else _tokenizer(source.kind)
    encoder = TextEncoder(source.kind, tower, tokenizer, source.name).eval()
    rebuilt = build_tower(source.kind, encoder.plain_state(), tower.config.num_attention_heads, source.files)
    expected = TextEncoder(source.kind, rebuilt, tokenizer).encode([PROBE])
    if not torch.allclose(encoder.encode([PROBE]), expected, atol=1e-4):
        raise InputError(
            f"{source.files}: its config.json has unusual settings, which are lost when a model is saved; use a BERT "
            "or DistilBERT with the default activation and normalisation"
        )
    return encoder


def _tokenizer(kind: TowerKind) -> Any:
    if kind == "clip":
        return clip_tokenizer(weights.get("clip-bpe") / "bpe_simple_vocab_16e6.txt.gz")
    return word_pieces(weights.get("minilm") / "tokenizer.json")  # MiniLM has the vocabulary of DistilBERT


def _download_from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["config.json", "tokenizer.json", "model.safetensors"]))
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name}: could not be downloaded ({str(error).splitlines()[0]}); give a folder with its "
            "config.json, tokenizer.json and model.safetensors: --set text.encoder=FOLDER"
        ) from error


def _read_settings(folder: Path) -> dict[str, Any]:
    document = read_json(folder / "config.json")
    if not isinstance(document, dict):
        raise InputError(f"{folder / 'config.json'}: expected a JSON object")
    try:
        check_text_encoder(document)
    except InputError as error:
        raise InputError(f"{folder / 'config.json'}: {error}") from error
    return document
