"""Read torch's .pt and .pth files as data. Nothing in them is executed.

A pickle is a program. This restricted unpickler allows only containers and tensors: every other class is refused, except those
that the caller maps to an inert `Opaque`, which holds its state and does nothing.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import struct
import warnings
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hiero.errors import InputError

DTYPES = {  # torch's storage classes, which pickles name, and the dtypes of their elements
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool",
}  # fmt: skip
# What unpickling a damaged or hostile file may raise.
DAMAGE_ERRORS = (
    pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, IndexError, ValueError, TypeError,
    AttributeError, MemoryError, RecursionError,
)  # fmt: skip


class Opaque:
    """A placeholder for an object whose class is not loaded: holds its state, nothing else."""

    state: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Ignored(Opaque):
    """A placeholder for an object of any class at all, which also accepts items and drops them."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    extend = append


def read_torch(path: Path | str, opaque: Collection[str] = (), *, ignore_unknown: bool = False) -> Any:
    """Read the object that torch.save wrote, on the CPU.

    Args:
        path: The file.
        opaque: Full names of classes to read as `Opaque` instead of refusing the file.
        ignore_unknown: Read every other class as an inert `Ignored`, for checkpoints that pickle a configuration beside their
            weights.

    Raises:
        InputError: The file is missing, damaged, or holds anything but tensors, plain containers and the allowed classes.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):
        return _read_legacy(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_archive(archive, path, frozenset(opaque), ignore_unknown)
    except InputError:
        raise
    except (*DAMAGE_ERRORS, OSError, RuntimeError) as error:
        raise InputError(f"{path}: damaged or not a torch file ({error})") from error


def _read_archive(archive: zipfile.ZipFile, path: Path, opaque: frozenset[str], ignore_unknown: bool) -> Any:
    if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
        raise InputError(f"{path}: refused, torch does not compress its files and this one is compressed")
    members = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
    if len(members) != 1:
        raise InputError(f"{path}: not a torch file (it holds {len(members)} data.pkl, expected 1)")
    program = archive.read(members[0])
    for operation, argument, _ in pickletools.genops(program):
        # Python's unpickler allocates its memo up to the largest index that a PUT names: a few bytes could ask for gigabytes.
        if "PUT" in operation.name and isinstance(argument, int) and argument > len(program):
            raise InputError(f"{path}: refused, it asks for a table of {argument} entries")
    root = members[0].filename.removesuffix("data.pkl")
    return _resolve_tensors(_RestrictedUnpickler(io.BytesIO(program), archive, root, path, opaque, ignore_unknown).load(), {})


def _read_legacy(path: Path) -> Any:
    """Files of torch before 1.6, which are no archives, by torch's own restricted unpickler: plain tensors and containers."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on protocols, for files that are refused anyway
            return torch.load(path, map_location="cpu", weights_only=True)
    except (*DAMAGE_ERRORS, OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "it is empty or cut short"
        raise InputError(f"{path}: not a torch file that holds only data ({reason})") from error


class _Inert:
    """Base of what the pickle may use but not change."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it changes what it may only use")


class _Storage(_Inert):
    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values


class _TensorStub(_Inert):
    """A tensor's storage and layout, which become a tensor only after the pickle has ended and cannot change them any more."""

    __slots__ = ("offset", "size", "storage", "stride")

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride

    def tensor(self) -> Any:
        values = self.storage.values
        if not all(isinstance(n, int) and n >= 0 for n in (self.offset, *self.size, *self.stride)):
            raise pickle.UnpicklingError("a tensor of impossible shape")
        if math.prod(self.size) > values.numel():
            raise pickle.UnpicklingError("a tensor larger than its data")
        return values.as_strided(self.size, self.stride, self.offset).clone()


class _RebuildTensor(_Inert):
    __slots__ = ()

    def __call__(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _TensorStub:
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("a tensor without data")
        return _TensorStub(storage, offset, size, stride)


class _RebuildParameter(_Inert):
    __slots__ = ()

    def __call__(self, data: Any, *_: Any) -> Any:
        return data


class _NewDict(_Inert):
    __slots__ = ()

    def __call__(self, *_: Any) -> dict[Any, Any]:
        return {}


class _RestrictedUnpickler(pickle.Unpickler):
    """Allows the names in `find_class`, refuses all others, and reads storages out of the archive."""

    def __init__(
        self, file: Any, archive: zipfile.ZipFile, root: str, path: Path, opaque: frozenset[str], ignore_unknown: bool
    ) -> None:
        super().__init__(file)
        self.archive, self.root, self.path, self.opaque, self.ignore_unknown = archive, root, path, opaque, ignore_unknown
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[str, Any] = {
            "collections.OrderedDict": OrderedDict, "collections.defaultdict": _NewDict(),
            "builtins.dict": dict, "__builtin__.dict": dict, "builtins.set": set, "__builtin__.set": set, "torch.Size": tuple,
            "torch._utils._rebuild_tensor_v2": _RebuildTensor(), "torch._utils._rebuild_parameter": _RebuildParameter(),
        }  # fmt: skip
        full_name = f"{module}.{name}"
        if full_name in allowed:
            return allowed[full_name]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if full_name in self.opaque:
            return Opaque
        if self.ignore_unknown:
            return Ignored
        raise InputError(
            f"{self.path}: refused, it wants to load {full_name}. Only tensors and plain containers are read, nothing is executed; "
            "if you trust the file, save its tensors again with torch.save or safetensors"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        import torch

        kind, dtype, key, _, num_values = pid
        if kind != "storage" or dtype not in DTYPES.values():
            raise pickle.UnpicklingError(f"unknown kind of stored data {kind!r}")
        if key not in self.storages:
            raw = bytearray(self.archive.read(f"{self.root}data/{key}"))
            values = torch.frombuffer(raw, dtype=getattr(torch, dtype)) if raw else torch.empty(0, dtype=getattr(torch, dtype))
            if values.numel() < num_values:
                raise InputError(f"{self.path}: damaged, tensor data {key} is cut short")
            self.storages[key] = _Storage(values)
        return self.storages[key]


def _resolve_tensors(node: Any, resolved: dict[int, Any]) -> Any:
    """Replace every stub in a tree by its tensor. `resolved`, by id, since trees may share parts and have cycles."""
    if id(node) in resolved:
        return resolved[id(node)]
    if isinstance(node, _TensorStub):
        resolved[id(node)] = node.tensor()
        return resolved[id(node)]
    if isinstance(node, tuple):
        resolved[id(node)] = tuple(_resolve_tensors(value, resolved) for value in node)
        return resolved[id(node)]
    if isinstance(node, dict | list | Opaque):
        resolved[id(node)] = node  # before its parts, which may hold it
        if isinstance(node, dict):
            for key, value in node.items():
                node[key] = _resolve_tensors(value, resolved)
        elif isinstance(node, list):
            node[:] = [_resolve_tensors(value, resolved) for value in node]
        else:
            node.state = _resolve_tensors(node.state, resolved)
    return node
