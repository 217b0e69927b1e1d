"""Reading one video's features from whatever file the field keeps them in."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hiero.errors import InputError
from hiero.files import load_tensors
from hiero.pickles import read_torch

SUFFIXES = (".pt", ".pth", ".npy", ".npz", ".safetensors")


def read_features(path: Path | str, width: int | None = None) -> Tensor:
    """One (T, D) float32 tensor from .pt, .npy, .npz or .safetensors. Errors name the file and say what is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: unknown kind of feature file; expected one of {', '.join(SUFFIXES)}")
    tensor = _only_tensor(_READERS[path.suffix.lower()](path), path)
    if tensor.ndim == 3 and tensor.shape[1] == 1:
        tensor = tensor[:, 0]  # Ego4D stores some features as (T, 1, D)
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise InputError(f"{path}: expected features of shape (T, D), found {tuple(tensor.shape)}")
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"{path}: expected numbers, found {tensor.dtype}")
    if width is not None and tensor.shape[1] != width:
        raise InputError(f"{path}: features are {tensor.shape[1]} wide, expected {width}")
    tensor = tensor.float()
    bad = ~torch.isfinite(tensor).all(1)
    if bad.any():
        raise InputError(
            f"{path}: NaN or infinite values in {int(bad.sum())} of {len(bad)} segments, first at {int(bad.nonzero()[0])}"
        )
    return tensor


def find_features(folder: Path) -> list[Path]:
    """The feature files below a folder, in order; one a video."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such file or folder")
    files = sorted(file for file in folder.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"{folder}: no feature files in this folder (looked for {', '.join(SUFFIXES)})")
    seen: dict[Path, Path] = {}
    for file in files:
        if (other := seen.setdefault(file.with_suffix(""), file)) != file:
            raise InputError(f"{folder}: {other.name} and {file.name} are the same video; keep one file a video")
    return files


def _only_tensor(found: Any, path: Path) -> Tensor:
    """The tensor itself, or the only one in a flat container."""
    if isinstance(found, Tensor):
        return found
    if isinstance(found, dict):
        tensors = {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
        if len(tensors) == 1:
            return next(iter(tensors.values()))
        names = ", ".join(sorted(tensors)[:6]) or "none"
        raise InputError(f"{path}: expected one tensor, found {len(tensors)} ({names}); keep one video in a file")
    raise InputError(f"{path}: expected a tensor, found {type(found).__name__}")


def _read_numpy(path: Path) -> Any:
    import numpy as np

    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return torch.from_numpy(loaded)
            return {name: torch.from_numpy(loaded[name]) for name in loaded.files}
    except (ValueError, EOFError, OSError, TypeError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: damaged, cut short or not plain numbers ({error})") from error


_READERS = {".pt": read_torch, ".pth": read_torch, ".npy": _read_numpy, ".npz": _read_numpy, ".safetensors": load_tensors}
