"""Read torch's .pt/.pth files as data. Nothing in them is executed.

A pickle is a program. This reader runs it on a machine that knows only containers and tensors: every other name is refused,
except those that the caller maps to an inert `Opaque`, which keeps what it is given and does nothing.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hiero.errors import InputError

DTYPES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool",
}  # fmt: skip
MAX_PICKLE_BYTES = 64 * 2**20
DAMAGE = (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, KeyError, IndexError, ValueError, TypeError, AttributeError)


class Opaque:
    """Stands in for an object of a class that is not loaded: its state, nothing else."""

    state: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_torch(path: Path | str, opaque: Collection[str] = ()) -> Any:
    """The object that torch.save wrote. `opaque`: full names of classes to keep as `Opaque` instead of refusing the file."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):
        return _read_legacy(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
            if len(names) != 1:
                raise InputError(f"{path}: not a torch file (it holds {len(names)} data.pkl, expected 1)")
            if names[0].file_size > MAX_PICKLE_BYTES:
                raise InputError(f"{path}: its structure takes {names[0].file_size} bytes, more than any checkpoint needs")
            root = names[0].filename.removesuffix("data.pkl")
            with archive.open(names[0]) as file:
                return _Reader(file, archive, root, path, frozenset(opaque)).load()
    except InputError:
        raise
    except (*DAMAGE, OSError, RuntimeError) as error:
        raise InputError(f"{path}: damaged or not a torch file ({error})") from error


def _read_legacy(path: Path) -> Any:
    """Files older than torch 1.6 are not archives; torch's own restricted reader takes plain tensors and containers."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on protocols, for files that are refused anyway
            return torch.load(path, map_location="cpu", weights_only=True)
    except (*DAMAGE, OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "it is empty or cut short"
        raise InputError(f"{path}: not a torch file that holds only data ({reason})") from error


class _Reader(pickle.Unpickler):
    def __init__(self, file: Any, archive: zipfile.ZipFile, root: str, path: Path, opaque: frozenset[str]) -> None:
        super().__init__(file)
        self.archive, self.root, self.path, self.opaque = archive, root, path, opaque
        self.storages: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        known: dict[str, Any] = {
            "collections.OrderedDict": OrderedDict,
            "collections.defaultdict": _plain_dict,
            "builtins.dict": dict, "__builtin__.dict": dict,
            "builtins.set": set, "__builtin__.set": set,
            "torch.Size": tuple,
            "torch._utils._rebuild_tensor_v2": _rebuild,
            "torch._utils._rebuild_parameter": _rebuild_parameter,
        }  # fmt: skip
        full = f"{module}.{name}"
        if full in known:
            return known[full]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if full in self.opaque:
            return Opaque
        raise InputError(
            f"{self.path}: refused, it wants to load {full}. Only tensors and plain containers are read, nothing is executed; "
            "if you trust the file, save its tensors again with torch.save or safetensors"
        )

    def persistent_load(self, pid: Any) -> Any:
        import torch

        kind, dtype, key, _, num = pid
        if kind != "storage" or not isinstance(dtype, str):
            raise InputError(f"{self.path}: unknown kind of stored data {kind!r}")
        if key not in self.storages:
            raw = bytearray(self.archive.read(f"{self.root}data/{key}"))
            values = torch.frombuffer(raw, dtype=getattr(torch, dtype)) if raw else torch.empty(0, dtype=getattr(torch, dtype))
            if values.numel() < num:
                raise InputError(f"{self.path}: damaged, tensor data {key} is cut short")
            self.storages[key] = values
        return self.storages[key]


def _plain_dict(*_: Any) -> dict[Any, Any]:
    return {}


def _rebuild(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Any:
    return storage.as_strided(size, stride, offset).clone()


def _rebuild_parameter(data: Any, *_: Any) -> Any:
    return data
