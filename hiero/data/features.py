"""Reading one video's features from whatever file the field keeps them in."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hiero.errors import InputError
from hiero.storage.files import load_arrays, read_json
from hiero.storage.pickles import read_torch
from hiero.types import Clock

if TYPE_CHECKING:
    from torch import Tensor

ENRICHED = "level0"  # of all that `hiero embed` writes, what takes the place of the features that it was made from
FEATURE_SUFFIXES = (".pt", ".pth", ".npy", ".npz", ".safetensors")


@dataclass(frozen=True)
class Sidecar:
    """What `hiero extract` says beside a feature file, in FILE.json: where the rows come from, and when each of them is."""

    backbone: str
    weights: str
    """Names the weights by their content."""
    settings: str
    """Names all that the rows depend on, but for the video."""
    width: int
    fps: float
    stride: float
    window: float
    """Frames at `fps` that a row has seen; `num_frames` of them were looked at."""
    num_frames: int
    dtype: str
    num_segments: int
    duration_s: float
    source: str
    sha256: str
    """Of the video, its first 32 digits."""
    rows: str
    """Names the rows by their content: a sidecar is of this file, or of none."""
    version: int = 1

    @property
    def clock(self) -> Clock:
        return Clock(self.fps, self.stride)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sidecar_path(path: Path) -> Path:
    """Where the sidecar of a feature file is."""
    return path.with_name(path.name + ".json")


def read_sidecar(path: Path) -> Sidecar | None:
    """What stands beside a feature file, if it is ours."""
    file = sidecar_path(path)
    if not file.is_file():
        return None
    try:
        found = Sidecar(**read_json(file))
        found.clock  # noqa: B018  (fps and stride must be numbers above 0)
    except (TypeError, InputError):
        return None
    return found


def read_features(path: Path | str, width: int | None = None) -> Tensor:
    """One (T, D) float32 tensor from .pt, .npy, .npz or .safetensors. Errors name the file and say what is wrong with it."""
    import torch

    return torch.from_numpy(read_feature_array(path, width))


def read_feature_array(path: Path | str, width: int | None = None) -> np.ndarray:
    """`read_features` as an array; torch is imported only for torch's own files."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.suffix.lower() not in FEATURE_SUFFIXES:
        raise InputError(f"{path}: unknown kind of feature file; expected one of {', '.join(FEATURE_SUFFIXES)}")
    array = _only_array(_READERS[path.suffix.lower()](path), path)
    if array.ndim == 3 and array.shape[1] == 1:
        array = array[:, 0]  # Ego4D stores some features as (T, 1, D)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{path}: expected features of shape (T, D), found {tuple(array.shape)}")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{path}: expected numbers, found {array.dtype}")
    if width is not None and array.shape[1] != width:
        raise InputError(f"{path}: features are {array.shape[1]} wide, expected {width}")
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    bad = ~np.isfinite(array).all(1)
    if bad.any():
        raise InputError(f"{path}: NaN or infinite values in {int(bad.sum())} of {len(bad)} segments, first at {int(bad.argmax())}")
    return array


def find_features(folder: Path) -> list[Path]:
    """The feature files below a folder, in order; one a video."""
    if folder.is_file():
        raise InputError(f"{folder}: is a file; give the folder that holds the feature files")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such file or folder")
    files = sorted(file for file in folder.rglob("*") if file.suffix in FEATURE_SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"{folder}: no feature files in this folder (looked for {', '.join(FEATURE_SUFFIXES)})")
    seen: dict[Path, Path] = {}
    for file in files:
        if (other := seen.setdefault(file.with_suffix(""), file)) != file:
            raise InputError(f"{folder}: {other.name} and {file.name} are the same video; keep one file a video")
    return files


def features_by_name(folder: Path) -> dict[str, Path]:
    """The feature files below a folder by the name of their video; two files of one name are an error."""
    found: dict[str, Path] = {}
    for file in find_features(folder):
        if (other := found.setdefault(file.stem, file)) != file:
            raise InputError(f"{folder}: {other.relative_to(folder)} and {file.relative_to(folder)} have the same name; keep one")
    return found


def _only_array(found: Any, path: Path) -> np.ndarray:
    """The array itself, or the only one in a flat container."""
    if (array := _as_array(found)) is not None:
        return array
    if isinstance(found, dict):
        arrays = {str(name): array for name, value in found.items() if (array := _as_array(value)) is not None}
        if len(arrays) == 1 or ENRICHED in arrays:
            return arrays.get(ENRICHED, next(iter(arrays.values())))
        names = ", ".join(sorted(arrays)[:6]) or "none"
        raise InputError(f"{path}: expected one tensor, found {len(arrays)} ({names}); keep one video in a file")
    raise InputError(f"{path}: expected a tensor, found {type(found).__name__}")


def _as_array(value: Any) -> np.ndarray | None:
    if hasattr(value, "detach"):
        value = value.detach()
        return (value.float() if value.is_floating_point() else value).numpy()  # numpy has no bfloat16
    return value if isinstance(value, np.ndarray) else None


def _read_numpy(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, OSError, TypeError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: damaged, cut short or not plain numbers ({error})") from error


_READERS = {".pt": read_torch, ".pth": read_torch, ".npy": _read_numpy, ".npz": _read_numpy, ".safetensors": load_arrays}
