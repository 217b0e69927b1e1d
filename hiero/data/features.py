"""Feature files, one a video: .pt, .npy, .npz and .safetensors, and the sidecars that `hiero extract` writes beside them."""

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

EMBEDDED_LEVEL = "level0"  # of the tensors that `hiero embed` writes, the one that has a row for each row of the input features
FEATURE_SUFFIXES = (".pt", ".pth", ".npy", ".npz", ".safetensors")


@dataclass(frozen=True)
class Sidecar:
    """What `hiero extract` writes beside a feature file, in FILE.json: where the rows (T, D) come from and when each of them is.

    Row i is the segment of `stride` frames that begins at frame i · stride of a video at `fps` frames a second.

    Attributes:
        backbone: Name of the backbone.
        weights: Hash of the backbone's weights.
        settings: Hash of all that the rows depend on, but for the video.
        width: D.
        fps: Frames a second that `stride` and `window` count in.
        stride: Frames from row to row.
        window: Frames that a row covers.
        num_frames: Frames of each segment that the backbone was shown; 0 where it has no number of its own.
        dtype: Of the rows on disk.
        num_segments: T.
        duration_s: Length of the video.
        source: File name of the video.
        sha256: Of the video, its first 32 digits.
        rows: Hash of the rows: a sidecar belongs to this file, or to none.
        version: Of this format.
    """

    backbone: str
    weights: str
    settings: str
    width: int
    fps: float
    stride: float
    window: float
    num_frames: int
    dtype: str
    num_segments: int
    duration_s: float
    source: str
    sha256: str
    rows: str
    version: int = 1

    @property
    def clock(self) -> Clock:
        """When each row is."""
        return Clock(self.fps, self.stride)

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON file."""
        return asdict(self)


def sidecar_path(path: Path) -> Path:
    """Path of the sidecar of a feature file."""
    return path.with_name(path.name + ".json")


def read_sidecar(path: Path) -> Sidecar | None:
    """The sidecar of a feature file; None where there is none, or the JSON beside the file is something else."""
    file = sidecar_path(path)
    if not file.is_file():
        return None
    try:
        sidecar = Sidecar(**read_json(file))
        sidecar.clock  # noqa: B018  (fps and stride must be numbers above 0)
    except (TypeError, InputError):
        return None
    return sidecar


def read_features(path: Path | str, width: int | None = None) -> Tensor:
    """Read the features of one video, from .pt, .pth, .npy, .npz or .safetensors.

    Args:
        path: The file. It holds one tensor, alone or in a dictionary, of shape (T, D) or, as some of Ego4D's, (T, 1, D); or it
            was written by `hiero embed`.
        width: The D that is expected; by default any.

    Returns:
        (T, D) float32, a row for each segment.

    Raises:
        InputError: The file is missing, damaged, or does not hold finite numbers of this shape. Nothing in it is executed.
    """
    import torch

    return torch.from_numpy(read_feature_array(path, width))


def read_feature_array(path: Path | str, width: int | None = None) -> np.ndarray:
    """`read_features` as an array (T, D) float32; torch is imported only for torch's own files."""
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
    with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite, which is reported below
        array = np.ascontiguousarray(array, dtype=np.float32)
    bad = ~np.isfinite(array).all(1)
    if bad.any():
        raise InputError(f"{path}: NaN or infinite values in {int(bad.sum())} of {len(bad)} segments, first at {int(bad.argmax())}")
    return array


def find_features(folder: Path) -> list[Path]:
    """The feature files below a folder, sorted.

    Raises:
        InputError: There is no such folder, no feature file in it, or two files of one video that differ in their suffix.
    """
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
    """The feature files below a folder by file name without suffix; two files of one name are an error."""
    files: dict[str, Path] = {}
    for file in find_features(folder):
        if (other := files.setdefault(file.stem, file)) != file:
            raise InputError(f"{folder}: {other.relative_to(folder)} and {file.relative_to(folder)} have the same name; keep one")
    return files


def _only_array(content: Any, path: Path) -> np.ndarray:
    """The array itself, or the only one in a dictionary."""
    if (array := _as_array(content)) is not None:
        return array
    if isinstance(content, dict):
        arrays = {str(name): array for name, value in content.items() if (array := _as_array(value)) is not None}
        if len(arrays) == 1 or EMBEDDED_LEVEL in arrays:
            return arrays.get(EMBEDDED_LEVEL, next(iter(arrays.values())))
        names = ", ".join(sorted(arrays)[:6]) or "none"
        raise InputError(f"{path}: expected one tensor, found {len(arrays)} ({names}); keep one video in a file")
    raise InputError(f"{path}: expected a tensor, found {type(content).__name__}")


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
