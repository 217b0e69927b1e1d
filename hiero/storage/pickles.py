"""Read torch's .pt/.pth files as data. Nothing in them is executed.

A pickle is a program. This reader runs it on a machine that knows only containers and tensors: every other name is refused,
except those that the caller maps to an inert `Opaque`, which keeps what it is given and does nothing.
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

DTYPES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool",
}  # fmt: skip
DAMAGE = (
    pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, IndexError, ValueError, TypeError,
    AttributeError, MemoryError, RecursionError,
)  # fmt: skip


class Opaque:
    """Stands in for an object of a class that is not loaded: its state, nothing else."""

    state: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Ignored(Opaque):
    """Stands in for an object of any class at all, and takes whatever is put into it."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    extend = append


def read_torch(path: Path | str, opaque: Collection[str] = (), *, ignore_unknown: bool = False) -> Any:
    """The object that torch.save wrote. `opaque`: full names of classes to keep as `Opaque` instead of refusing the file.

    `ignore_unknown` makes every other class an inert `Ignored`, for checkpoints that pickle a configuration beside their weights.
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
    except (*DAMAGE, OSError, RuntimeError) as error:
        raise InputError(f"{path}: damaged or not a torch file ({error})") from error


def _read_archive(archive: zipfile.ZipFile, path: Path, opaque: frozenset[str], ignore_unknown: bool) -> Any:
    if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
        raise InputError(f"{path}: refused, torch does not compress its files and this one is compressed")
    names = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
    if len(names) != 1:
        raise InputError(f"{path}: not a torch file (it holds {len(names)} data.pkl, expected 1)")
    program = archive.read(names[0])
    for operation, argument, _ in pickletools.genops(program):
        # The reader keeps a table as long as the largest place that the program names; a short program needs few.
        if "PUT" in operation.name and isinstance(argument, int) and argument > len(program):
            raise InputError(f"{path}: refused, it asks for a table of {argument} entries")
    root = names[0].filename.removesuffix("data.pkl")
    return _fill_in(_Reader(io.BytesIO(program), archive, root, path, opaque, ignore_unknown).load(), {})


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


class _Inert:
    """Anything that the program may hold in its hand but not change."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it changes what it may only use")


class _Storage(_Inert):
    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values


class _View(_Inert):
    """A tensor to be: made into one only after the program has ended."""

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

    def __call__(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _View:
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("a tensor without data")
        return _View(storage, offset, size, stride)


class _RebuildParameter(_Inert):
    __slots__ = ()

    def __call__(self, data: Any, *_: Any) -> Any:
        return data


class _NewDict(_Inert):
    __slots__ = ()

    def __call__(self, *_: Any) -> dict[Any, Any]:
        return {}


class _Reader(pickle.Unpickler):
    def __init__(
        self, file: Any, archive: zipfile.ZipFile, root: str, path: Path, opaque: frozenset[str], ignore_unknown: bool
    ) -> None:
        super().__init__(file)
        self.archive, self.root, self.path, self.opaque, self.ignore_unknown = archive, root, path, opaque, ignore_unknown
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        known: dict[str, Any] = {
            "collections.OrderedDict": OrderedDict, "collections.defaultdict": _NewDict(),
            "builtins.dict": dict, "__builtin__.dict": dict, "builtins.set": set, "__builtin__.set": set, "torch.Size": tuple,
            "torch._utils._rebuild_tensor_v2": _RebuildTensor(), "torch._utils._rebuild_parameter": _RebuildParameter(),
        }  # fmt: skip
        full = f"{module}.{name}"
        if full in known:
            return known[full]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if full in self.opaque:
            return Opaque
        if self.ignore_unknown:
            return Ignored
        raise InputError(
            f"{self.path}: refused, it wants to load {full}. Only tensors and plain containers are read, nothing is executed; "
            "if you trust the file, save its tensors again with torch.save or safetensors"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        import torch

        kind, dtype, key, _, num = pid
        if kind != "storage" or dtype not in DTYPES.values():
            raise pickle.UnpicklingError(f"unknown kind of stored data {kind!r}")
        if key not in self.storages:
            raw = bytearray(self.archive.read(f"{self.root}data/{key}"))
            values = torch.frombuffer(raw, dtype=getattr(torch, dtype)) if raw else torch.empty(0, dtype=getattr(torch, dtype))
            if values.numel() < num:
                raise InputError(f"{self.path}: damaged, tensor data {key} is cut short")
            self.storages[key] = _Storage(values)
        return self.storages[key]


def _fill_in(node: Any, done: dict[int, Any]) -> Any:
    """Replace every `_View` in the tree by its tensor. `done` holds what was visited: trees may share parts and go in circles."""
    if id(node) in done:
        return done[id(node)]
    if isinstance(node, _View):
        done[id(node)] = node.tensor()
        return done[id(node)]
    if isinstance(node, tuple):
        done[id(node)] = tuple(_fill_in(value, done) for value in node)
        return done[id(node)]
    if isinstance(node, dict | list | Opaque):
        done[id(node)] = node
        if isinstance(node, dict):
            for key, value in node.items():
                node[key] = _fill_in(value, done)
        elif isinstance(node, list):
            node[:] = [_fill_in(value, done) for value in node]
        else:
            node.state = _fill_in(node.state, done)
    return node
