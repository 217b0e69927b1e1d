"""CLIP and SigLIP, image and text towers in one space, from a folder in the layout of transformers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.networks.registry import centre_crop
from hiero.storage.cache import FileState, file_state
from hiero.storage.files import parse_json

# CLIP's statistics, for folders without their own
MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SIZE = 224  # pixels
TEXT_BATCH = 64


def prepare(frames: Tensor) -> Tensor:
    """Frames (N, H, W, 3) uint8 → (N, 3, 224, 224) in [0, 1]. The tower normalises them."""
    return centre_crop(frames, SIZE) / 255


class ImageTower(nn.Module):
    """Pictures (N, 3, H, W) in [0, 1] → unit vectors (N, E)."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.tensor(mean)[:, None, None])
        self.register_buffer("deviation", torch.tensor(deviation)[:, None, None])

    def forward(self, pictures: Tensor) -> Tensor:
        model: Any = self.model
        size = model.config.vision_config.image_size
        if pictures.shape[-1] != size:
            pictures = F.interpolate(pictures, size=(size, size), mode="bilinear", antialias=True, align_corners=False)
        features = model.get_image_features(pixel_values=(pictures - self.mean) / self.deviation)
        return F.normalize(_pooled(features), dim=-1)


def load(folder: Path) -> ImageTower:
    """Load the image tower from a folder."""
    preprocessor_file = folder / "preprocessor_config.json"
    settings = parse_json(preprocessor_file.read_text()) if preprocessor_file.is_file() else {}
    return ImageTower(_load_model(folder), settings.get("image_mean", MEAN), settings.get("image_std", DEVIATION))


@torch.inference_mode()
def encode_clip_texts(folder: Path, texts: Sequence[str]) -> Tensor:
    """Unit vectors (n, E) of texts in the space of `load`."""
    from tokenizers import Tokenizer

    model: Any = _load_model(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = model.config.text_config
    tokenizer.enable_truncation(config.max_position_embeddings)
    rows = [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
    pad_id = config.eos_token_id or 0
    out: list[Tensor] = []
    for start in range(0, len(rows), TEXT_BATCH):
        batch = rows[start : start + TEXT_BATCH]
        # SigLIP was trained on texts padded to full length.
        length = max(map(len, batch)) if model.config.model_type == "clip" else config.max_position_embeddings
        ids = torch.tensor([row + [pad_id] * (length - len(row)) for row in batch])
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in batch])
        out.append(F.normalize(_pooled(model.get_text_features(input_ids=ids, attention_mask=mask)), dim=-1))
    return torch.cat(out)


def _pooled(output: Any) -> Tensor:
    """The tensor, which transformers 5 wraps in an object."""
    return output if isinstance(output, Tensor) else output.pooler_output


def _load_model(folder: Path) -> Any:
    """The model in a folder, read again only if its weights change."""
    file = folder / "model.safetensors"
    return _load_cached(folder, file_state(file) if file.is_file() else None)


@functools.lru_cache(1)
def _load_cached(folder: Path, _: FileState | None) -> Any:
    try:
        import transformers
        from transformers import AutoModel
    except ImportError:
        raise InputError("CLIP needs transformers; run: pip install 'hiero-video[text]'") from None
    transformers.utils.logging.disable_progress_bar()
    try:
        model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{folder}: not a CLIP or SigLIP model ({error})") from error
    if not hasattr(model, "get_image_features") or not hasattr(model, "get_text_features"):
        raise InputError(f"{folder}: {type(model).__name__} does not encode both images and text")
    return model.eval()
