"""Feature files, one for each video (.pt, .npy, .npz, .safetensors), and the sidecars of `hiero extract`."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hiero.errors import InputError
from hiero.storage.files import FEATURE_SUFFIXES as FEATURE_SUFFIXES
from hiero.storage.files import GIB, check_fits, load_arrays, path_beside, read_json
from hiero.storage.pickles import read_torch
from hiero.types import MAX_TIME_S, Clock

if TYPE_CHECKING:
    from torch import Tensor

EMBEDDED_LEVEL = "level0"  # tensor of `hiero embed` that has a row for each row of its input
MAX_FEATURE_BYTES = 16 * GIB  # more than two hundred hours of the widest features in float32
MAX_COMPRESSION = 50  # archives that unpack to more than this times their size are refused
ALWAYS_UNPACKED_BYTES = 2**28  # unless they are this small when unpacked
MAX_VALUE = 1e15  # the network squares and sums features, and larger values would overflow float32
MIN_RATE, MAX_RATE = 1e-6, 1e6  # plausible frames per second, and frames per row
ROWS_KEY_LENGTH = 16  # hexadecimal digits
CLOCK_FIELDS = frozenset(("backbone", "fps", "stride"))  # JSON with one of them is meant as a sidecar


@dataclass(frozen=True)
class Sidecar:
    """The file FILE.json that `hiero extract` writes beside a feature file: origin and times of the rows (T, D).

    Row i is the segment of `stride` frames that begins at frame i · stride of a video at `fps` frames per second.
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
        """The times of the rows."""
        return Clock(self.fps, self.stride)


def sidecar_path(path: Path) -> Path:
    """Path of the sidecar of a feature file."""
    return path_beside(path, ".json")


def read_sidecar(path: Path) -> Sidecar | None:
    """The sidecar of a feature file; None if it is missing or another kind of JSON. Unknown fields are ignored.

    A file that cannot be understood is an error: without it the rows would get a wrong clock.
    """
    file = sidecar_path(path)
    if not file.is_file():
        return None
    advice = "remove this file or extract the features again"
    try:
        document = read_json(file)
    except InputError as error:
        raise InputError(f"{error}; {advice}") from error
    if not isinstance(document, dict) or CLOCK_FIELDS.isdisjoint(document):
        return None
    values: dict[str, Any] = {"version": 1, **document}
    for field in fields(Sidecar):
        if field.name not in values:
            raise InputError(f"{file}: {field.name} is missing; {advice}")
        if not _is_possible(field.name, values[field.name]):
            raise InputError(f"{file}: {field.name} cannot be {str(values[field.name])[:40]}; {advice}")
    return Sidecar(**{field.name: values[field.name] for field in fields(Sidecar)})


def _is_possible(name: str, value: Any) -> bool:
    if name in ("width", "num_frames", "num_segments", "version"):
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    if name in ("fps", "stride", "window", "duration_s"):
        least, most = (0.0, MAX_TIME_S) if name == "duration_s" else (MIN_RATE, MAX_RATE)
        return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    return isinstance(value, str)


def check_sidecar(path: Path, rows: np.ndarray) -> None:
    """Raise InputError if the sidecar of a feature file does not describe these rows."""
    sidecar = read_sidecar(path)
    if sidecar is None:
        return
    expected, found = (sidecar.num_segments, sidecar.width), rows.shape
    if found == expected and rows_key(rows) == sidecar.rows:
        spacing_s = sidecar.clock.spacing_s
        rows_s, tolerance_s = len(rows) * spacing_s, 2 * spacing_s + sidecar.window / sidecar.fps
        if abs(sidecar.duration_s - rows_s) <= tolerance_s:
            return
        raise InputError(
            f"{sidecar_path(path)}: {len(rows)} rows at this fps and stride last {rows_s:g} s, but duration_s is "
            f"{sidecar.duration_s:g}; extract the features again"
        )
    reason = "the values differ" if found == expected else f"it describes rows {expected}, the file has {found}"
    raise InputError(
        f"{path}: {sidecar_path(path).name} belongs to other features ({reason}); extract the features again, or "
        "remove the .json and give --fps and --stride"
    )


def rows_key(rows: np.ndarray) -> str:
    """Hash of rows in float32, for `Sidecar.rows`."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype=np.float32).data).hexdigest()[:ROWS_KEY_LENGTH]


def read_features(path: Path | str, width: int | None = None) -> Tensor:
    """Read the features of one video, from .pt, .pth, .npy, .npz or .safetensors.

    Args:
        path: The file. It holds one tensor, alone or in a dictionary, of shape (T, D) or, as in some
            files of Ego4D, (T, 1, D). Files of `hiero embed` work too.
        width: The expected D. By default any width is accepted.

    Returns:
        (T, D) float32, a row for each segment.

    Raises:
        InputError: The file is missing, damaged or too large, does not hold finite numbers of this
            shape, or its sidecar belongs to other features. Nothing in the file is executed.
    """
    import torch

    return torch.from_numpy(read_feature_array(path, width))


def read_feature_array(path: Path | str, width: int | None = None) -> np.ndarray:
    """`read_features` as a numpy array. Only torch's own files need torch."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    suffix = path.suffix.lower()
    if suffix not in FEATURE_SUFFIXES:
        raise InputError(f"{path}: unknown kind of feature file; expected one of {', '.join(FEATURE_SUFFIXES)}")
    array = _only_array(read_torch(path) if suffix in (".pt", ".pth") else _read_arrays(path), path)
    if array.ndim == 3 and array.shape[1] == 1:
        array = array[:, 0]  # Ego4D stores some features as (T, 1, D)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{path}: expected features of shape (T, D), found {tuple(array.shape)}")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{path}: expected numbers, found {array.dtype}")
    if width is not None and array.shape[1] != width:
        raise InputError(f"{path}: features are {array.shape[1]} wide, expected {width}")
    check_fits(4 * array.size, f"{path}: its features {array.shape}", MAX_FEATURE_BYTES)
    with np.errstate(over="ignore"):  # too large float64 values become infinite, which is reported below
        array = np.ascontiguousarray(array, dtype=np.float32)
    largest = np.maximum(array.max(1), -array.min(1))  # NaN if there is one
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
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in FEATURE_SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"{folder}: no feature files in this folder (looked for {', '.join(FEATURE_SUFFIXES)})")
    seen: dict[Path, Path] = {}
    for file in files:
        if (other := seen.setdefault(file.with_suffix(""), file)) != file:
            raise InputError(f"{folder}: {other.name} and {file.name} are the same video; keep one of them")
    return files


def features_by_name(folder: Path) -> dict[str, Path]:
    """The feature files below a folder by their unique names without suffix."""
    files: dict[str, Path] = {}
    for file in find_features(folder):
        if (other := files.setdefault(file.stem, file)) != file:
            names = f"{other.relative_to(folder)} and {file.relative_to(folder)}"
            raise InputError(f"{folder}: {names} have the same name; keep one")
    return files


def _only_array(content: Any, path: Path) -> np.ndarray:
    """The array itself, or the only one in a dictionary."""
    if not isinstance(content, dict) and not _is_array(content):
        raise InputError(f"{path}: expected a tensor, found {type(content).__name__}")
    named = content if isinstance(content, dict) else {"": content}
    arrays = {str(name): value for name, value in named.items() if _is_array(value)}
    if len(arrays) != 1 and EMBEDDED_LEVEL not in arrays:
        names = ", ".join(sorted(arrays)[:6]) or "none"
        raise InputError(f"{path}: expected one tensor, found {len(arrays)} ({names}); keep one video in a file")
    value: Any = arrays.get(EMBEDDED_LEVEL, next(iter(arrays.values())))
    if hasattr(value, "detach"):
        value = (value.float() if value.is_floating_point() else value).detach().numpy()  # numpy has no bfloat16
    return np.asarray(value)


def _is_array(value: Any) -> bool:
    return hasattr(value, "detach") or isinstance(value, np.ndarray)


def _read_arrays(path: Path) -> Any:
    """The arrays in a .npy, .npz or .safetensors file. Its size is checked first: an archive can unpack to anything."""
    num_bytes = path.stat().st_size
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                unpacked_bytes = sum(info.file_size for info in archive.infolist())
            if unpacked_bytes > max(ALWAYS_UNPACKED_BYTES, MAX_COMPRESSION * num_bytes):
                size = f"{num_bytes / 2**20:.1f} MiB unpack to {unpacked_bytes / GIB:.1f} GiB"
                raise InputError(f"{path}: {size}, which features never do; is it another kind of file?")
            num_bytes = unpacked_bytes
        check_fits(num_bytes, f"{path}: its content", MAX_FEATURE_BYTES)
        if path.suffix.lower() == ".safetensors":
            return load_arrays(path)
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: damaged, cut short or not plain numbers ({reason})") from error
