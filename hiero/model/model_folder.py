"""A model folder: config.json, model.safetensors and, unless the text encoder is installed under a name,
text_encoder.safetensors.

The folder of an ensemble lists the settings of its networks in config.json; the names of their
weights start with `networks.0.`, `networks.1.` … Weights may be stored in 8 bits
(hiero/storage/checkpoints.py). This module reads settings and the text head without torch;
`hiero.load_model` reads everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hiero.config import ModelConfig, check_text_encoder
from hiero.errors import InputError
from hiero.storage.checkpoints import dequantise
from hiero.storage.files import ASSETS, home, load_arrays, parse_json
from hiero.storage.weights import RELEASED, recorded_hashes
from hiero.vectors import unit_vectors

SHIPPED = {  # model names, and what each is for
    "hiero-k400": "the default: steps, names and questions for any first-person video",
    "hiero-k400-permissive": "the same, with words and pictures compared by weights that learned from COCO alone",
    "hiero-omnivore-b": "finds more by text in cooking recordings; Omnivore may not be used commercially",
}
PERMISSIVE = "hiero-k400-permissive"  # the files of hiero-k400, but another head
HEAD_KEY = "image_text_head"  # entry of config.json
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TEXT_ENCODER_FILE = "text_encoder.safetensors"
DIGEST_LENGTH = 12  # of a checkpoint's hash in the name of the folder that it is converted to
PROJECTION = "projection"  # name among the weights of an ensemble
PROTOTYPE_FILES = ("prototypes.safetensors", "prototypes.json")  # files of an adapted model, see hiero.steps.prototypes


@dataclass(frozen=True)
class ModelFolder:
    """A model on disk."""

    path: Path
    config: ModelConfig
    extra: dict[str, Any]
    networks: tuple[ModelConfig, ...] = ()

    @property
    def text_encoder(self) -> Path | None:
        """The file of the model's own text encoder, if any."""
        return self.path / TEXT_ENCODER_FILE if (self.path / TEXT_ENCODER_FILE).is_file() else None

    @property
    def image_text_head(self) -> str:
        """Name of the head in assets/dinov2-text that compares pictures with texts."""
        return str(self.extra.get(HEAD_KEY, "research"))

    @cached_property
    def _text_heads(self) -> list[dict[str, np.ndarray]]:
        """The weights of each network's text head."""
        prefixes = [f"networks.{i}.text_head." for i in range(len(self.networks))] or ["text_head."]
        return [self._weights(prefix) for prefix in prefixes]

    @cached_property
    def _projection(self) -> np.ndarray | None:
        return self._weights(PROJECTION)[""] if self.networks else None

    def _weights(self, prefix: str) -> dict[str, np.ndarray]:
        """The weights whose names start with a prefix, by the rest of the name, in single precision."""
        weights = dequantise(load_arrays(self.path / WEIGHTS_FILE, prefix))
        return {name.removeprefix(prefix): value.astype(np.float32) for name, value in weights.items()}

    def embed_text(self, vectors: np.ndarray) -> np.ndarray:
        """Text encoder outputs (n, text_size) → unit vectors in the shared space (n, E), as `HiERO.embed_text`."""
        try:
            parts = []
            for head in self._text_heads:
                hidden = np.maximum(vectors @ head["0.weight"].T + head["0.bias"], 0)
                parts.append(unit_vectors(hidden @ head["2.weight"].T + head["2.bias"]))
            if self._projection is None:
                return parts[0]
            return unit_vectors(np.concatenate(parts, axis=1) @ self._projection)
        except (KeyError, ValueError) as error:
            raise InputError(f"{self.path / WEIGHTS_FILE}: does not fit its config.json ({error})") from error


def open_model_folder(name: str | Path, **hub_options: Any) -> ModelFolder:
    """Read the settings of a model."""
    folder = find_model_folder(name, **hub_options)
    for file in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / file).is_file():
            raise InputError(
                f"{folder}: not a model folder, {file} is missing; convert a .pth file: hiero models import FILE -o OUT"
            )
    extra: Any = None
    try:
        extra = parse_json((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        config = ModelConfig.from_dict(extra.pop("model"))
        check_text_encoder(extra)
        networks = tuple(map(ModelConfig.from_dict, extra.pop("networks", ())))
        if str(name) == PERMISSIVE:
            extra[HEAD_KEY] = "permissive"
    except InputError as error:
        raise InputError(f"{folder / CONFIG_FILE}: {error}") from error
    except OSError as error:
        raise InputError(f"{folder / CONFIG_FILE}: cannot be read ({error.strerror or error})") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # a JSON error is a ValueError
        if isinstance(extra, dict) and "head" in extra:
            raise InputError(f"{folder}: a head, not a model; use it with hiero head eval") from error
        raise InputError(f"{folder / CONFIG_FILE}: not a hiero configuration ({error})") from error
    return ModelFolder(folder, config, extra, networks)


def released_folder(name: str) -> Path:
    """Where one of the authors' models is, once it is converted. Another checkpoint gets another folder."""
    digest = "".join(recorded_hashes(name).values())
    return home() / "models" / f"{name}-{digest[:DIGEST_LENGTH]}"


def is_installed(name: str) -> bool:
    """Whether one of the authors' models is downloaded and converted."""
    return (released_folder(name) / CONFIG_FILE).is_file()


def find_model_folder(name: str | Path, **hub_options: Any) -> Path:
    """The folder of a shipped or installed model, a path, or a hub id, which is downloaded."""
    if str(name) in SHIPPED:
        return ASSETS / ("hiero-k400" if name == PERMISSIVE else str(name))
    if str(name) in RELEASED:
        if not is_installed(str(name)):
            raise InputError(f"{name}: not installed; run: hiero models get {name}")
        return released_folder(str(name))
    if Path(name).is_dir():
        return Path(name)
    # A mistyped path can look like a hub id. If its parent folder exists, it is a path.
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(name)) or Path(name).parent.is_dir():
        raise InputError(f"{name}: no such model or folder; run: hiero models")
    from huggingface_hub import snapshot_download  # takes half a second to import

    try:
        files = [CONFIG_FILE, WEIGHTS_FILE, TEXT_ENCODER_FILE, *PROTOTYPE_FILES]
        return Path(snapshot_download(str(name), allow_patterns=files, **hub_options))
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{name}: no such model, and the download from the hub failed ({error})") from error
