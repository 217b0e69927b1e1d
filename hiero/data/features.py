"""Feature files, one a video: .pt, .npy, .npz and .safetensors, and the sidecars that `hiero extract`
writes beside them.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hiero.errors import InputError
from hiero.storage.files import FEATURE_SUFFIXES as FEATURE_SUFFIXES
from hiero.storage.files import GIB, check_fits, load_arrays, read_json
from hiero.storage.pickles import read_torch
from hiero.types import Clock

if TYPE_CHECKING:
    from torch import Tensor

# of the tensors that `hiero embed` writes, the one that has a row for each row of the input
# features
EMBEDDED_LEVEL = "level0"
MAX_FEATURE_BYTES = 16 * GIB  # of one video in float32: more than two hundred hours of the widest features
# of a feature: squares and sums of larger ones leave float32, and would be infinite inside the
# network
MAX_VALUE = 1e15
MAX_RATE = 1e6  # frames a second, and frames from row to row, that can be meant
MIN_RATE = 1e-6
ROWS_KEY_LENGTH = 16  # hexadecimal digits of a SHA-256 that name rows in a sidecar


@dataclass(frozen=True)
class Sidecar:
    """What `hiero extract` writes beside a feature file, in FILE.json: where the rows (T, D) come from
    and when each of them is.

    Row i is the segment of `stride` frames that begins at frame i · stride of a video at `fps` frames a second.
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
        values = read_json(file)
        sidecar = Sidecar(**values)
    except (TypeError, InputError):
        return None
    for field in fields(Sidecar):
        if not _is_possible(field.name, getattr(sidecar, field.name)):
            value = str(values.get(field.name))[:40]
            raise InputError(f"{file}: {field.name} cannot be {value}; remove this file, or extract the features again")
    return sidecar


def _is_possible(name: str, value: Any) -> bool:
    """Whether a field of a sidecar can have this value."""
    if name in ("width", "num_frames", "num_segments", "version"):
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    if name in ("fps", "stride", "window", "duration_s"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return is_number and (value >= 0 if name == "duration_s" else MIN_RATE <= value <= MAX_RATE)
    return isinstance(value, str)


def check_sidecar(path: Path, rows: np.ndarray) -> None:
    """Compare what the sidecar of a feature file says about the rows, if there is one, with the rows themselves."""
    sidecar = read_sidecar(path)
    if sidecar is None:
        return
    if rows.shape != (sidecar.num_segments, sidecar.width):
        differs = (
            f"it says {sidecar.num_segments} rows of {sidecar.width}, the file has {rows.shape[0]} of {rows.shape[1]}"
        )
    elif rows_key(rows) != sidecar.rows:
        differs = "the rows are others"
    else:
        return
    raise InputError(
        f"{path}: {sidecar_path(path).name} belongs to other features ({differs}); extract them again, or remove "
        "the .json and say when the rows are"
    )


def rows_key(rows: np.ndarray) -> str:
    """Hash of rows in float32, as which they are read back, for `Sidecar.rows`."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype=np.float32).data).hexdigest()[:ROWS_KEY_LENGTH]


def read_features(path: Path | str, width: int | None = None) -> Tensor:
    """Read the features of one video, from .pt, .pth, .npy, .npz or .safetensors.

    Args:
        path: The file. It holds one tensor, alone or in a dictionary, of shape (T, D) or, as some
            of Ego4D's, (T, 1, D); or it was written by `hiero embed`.
        width: The D that is expected; by default any.

    Returns:
        (T, D) float32, a row for each segment.

    Raises:
        InputError: The file is missing, damaged, too large, does not hold finite numbers of this
            shape, or its sidecar is that of other features. Nothing in it is executed.
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
    check_fits(4 * array.size, f"{path}: its features {array.shape}", MAX_FEATURE_BYTES)
    with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite, which is reported below
        array = np.ascontiguousarray(array, dtype=np.float32)
    largest = np.maximum(array.max(1), -array.min(1))  # NaN where there is one
    for bad, kind in (
        (~np.isfinite(largest), "NaN or infinite values"),
        (largest > MAX_VALUE, f"values above {MAX_VALUE:.0e}"),
    ):
        if bad.any():
            raise InputError(f"{path}: {kind} in {int(bad.sum())} of {len(bad)} segments, first at {int(bad.argmax())}")
    check_sidecar(path, array)
    return array


def find_features(folder: Path) -> list[Path]:
    """The feature files below a folder, sorted."""
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
            raise InputError(
                f"{folder}: {other.relative_to(folder)} and {file.relative_to(folder)} have the same name; keep one"
            )
    return files


def _only_array(content: Any, path: Path) -> np.ndarray:
    """The array itself, or the only one in a dictionary."""
    if _is_array(content):
        return _as_array(content)
    if isinstance(content, dict):
        arrays = {str(name): value for name, value in content.items() if _is_array(value)}
        if len(arrays) == 1 or EMBEDDED_LEVEL in arrays:
            return _as_array(arrays.get(EMBEDDED_LEVEL, next(iter(arrays.values()))))
        names = ", ".join(sorted(arrays)[:6]) or "none"
        raise InputError(f"{path}: expected one tensor, found {len(arrays)} ({names}); keep one video in a file")
    raise InputError(f"{path}: expected a tensor, found {type(content).__name__}")


def _is_array(value: Any) -> bool:
    return hasattr(value, "detach") or isinstance(value, np.ndarray)


def _as_array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach()
        value = (value.float() if value.is_floating_point() else value).numpy()  # numpy has no bfloat16
    array: np.ndarray = value
    return array


def _read_numpy(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            check_fits(_numpy_bytes(file, path), f"{path}: what it holds", MAX_FEATURE_BYTES)
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: damaged, cut short or not plain numbers ({reason})") from error


def _numpy_bytes(file: IO[bytes], path: Path) -> int:
    """What the arrays of an open .npy or .npz take in memory, without reading them: a small archive
    may unpack to anything.
    """
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            num_bytes = sum(info.file_size for info in archive.infolist())
    else:
        num_bytes = path.stat().st_size  # an array whose header says more is cut short
    file.seek(0)
    return num_bytes


def _read_safetensors(path: Path) -> Any:
    check_fits(path.stat().st_size, f"{path}: what it holds", MAX_FEATURE_BYTES)
    return load_arrays(path)


_READERS = {
    ".pt": read_torch,
    ".pth": read_torch,
    ".npy": _read_numpy,
    ".npz": _read_numpy,
    ".safetensors": _read_safetensors,
}
