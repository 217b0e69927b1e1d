"""Read torch's .pt and .pth files as data, without executing anything in them.

A pickle is a program. This restricted unpickler only builds containers and tensors. Every other
class is refused, except those that the caller maps to an inert `Opaque`, which only holds its state.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

from hiero.errors import InputError
from hiero.storage.files import check_fits, fetch_hint

# torch's storage classes, which pickles name, and the dtypes of their elements
DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # first number in the files of torch before 1.6
ZIP_MAGIC = b"PK\x03\x04"
MAX_PROGRAM_BYTES = 2**24  # size of a pickle without its tensors; each byte can become an object of 100 bytes
CHUNK_BYTES = 2**24


class Opaque:
    """A placeholder for an object whose class is not loaded. It holds the object's state and drops its items."""

    state: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    extend = append


def read_torch(path: Path | str, opaque: Collection[str] = (), *, ignore_unknown: bool = False) -> Any:
    """Read the object that torch.save wrote, on the CPU."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    check_fits(path.stat().st_size, f"{path}: its tensors")
    open_pickle = partial(_RestrictedUnpickler, path=path, opaque=opaque, ignore_unknown=ignore_unknown)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return _read_archive(archive, path, open_pickle)
        with path.open("rb") as file:
            return _read_legacy(file, path, open_pickle)
    except InputError:
        raise
    except Exception as error:  # a damaged or hostile pickle can raise anything
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"{path}: damaged or not a torch file ({reason}){fetch_hint(path)}") from error


def _read_archive(archive: zipfile.ZipFile, path: Path, open_pickle: Callable[..., _RestrictedUnpickler]) -> Any:
    members = archive.infolist()
    if any(info.compress_type != zipfile.ZIP_STORED for info in members):
        raise InputError(f"{path}: refused because it is compressed, which torch files never are")
    if sum(info.file_size for info in members) > path.stat().st_size:
        raise InputError(f"{path}: refused because its parts overlap (together they are larger than the file)")
    programs = [info for info in members if info.filename.endswith("/data.pkl")]
    if len(programs) != 1:
        raise InputError(f"{path}: not a torch file (it holds {len(programs)} data.pkl, expected 1)")
    if programs[0].file_size > MAX_PROGRAM_BYTES:
        raise InputError(f"{path}: refused because {programs[0].file_size / 2**20:.0f} MB of it are not tensors")
    unpickler = open_pickle(io.BytesIO(archive.read(programs[0])))
    tree = unpickler.load()
    root = programs[0].filename.removesuffix("data.pkl")
    storages = {}
    for key, (dtype, num_values) in unpickler.declared.items():
        info = archive.getinfo(f"{root}data/{key}")
        with archive.open(info) as file:
            storages[key] = _read_storage(file, info.file_size, dtype, num_values)
    return _resolve_tensors(tree, storages, {})


def _read_legacy(file: IO[bytes], path: Path, open_pickle: Callable[..., _RestrictedUnpickler]) -> Any:
    """Read a file of torch before 1.6: five pickles, then the data of the tensors."""
    head = io.BytesIO(file.read(MAX_PROGRAM_BYTES))
    if head.getvalue().startswith(ZIP_MAGIC):
        raise InputError(f"{path}: incomplete, its end is missing{fetch_hint(path) or '; copy or download it again'}")
    unpickler = open_pickle(head)
    try:
        is_torch = unpickler.load() == LEGACY_MAGIC
    except Exception:  # not a pickle, or a pickle that is refused
        is_torch = False
    if not is_torch:
        reason = "it is something else" if head.getvalue() else "it is empty"
        raise InputError(f"{path}: not a torch file that holds only data ({reason}){fetch_hint(path)}")
    _version, _machine, tree, keys = (unpickler.load() for _ in range(4))
    file.seek(head.tell())
    storages = {}
    for key in keys:
        dtype, num_values = unpickler.declared[key]
        (num_stored,) = struct.unpack("<q", file.read(8))
        num_left = path.stat().st_size - file.tell() if num_stored == num_values else 0
        storages[key] = _read_storage(file, num_left, dtype, num_values)
    return _resolve_tensors(tree, storages, {})


def _read_storage(file: IO[bytes], num_available: int, dtype: str, num_values: int) -> Any:
    """Read the next values of a file as a tensor, without holding all of them twice."""
    import torch

    num_bytes = num_values * getattr(torch, dtype).itemsize
    if num_bytes > num_available:
        raise ValueError(f"tensor data cut short: {num_available} of {num_bytes} bytes")
    values = torch.empty(num_values, dtype=getattr(torch, dtype))
    rest = values.view(torch.uint8).numpy().data
    while rest:
        chunk = file.read(min(CHUNK_BYTES, len(rest)))
        if not chunk:
            raise ValueError("tensor data cut short")
        rest[: len(chunk)] = chunk
        rest = rest[len(chunk) :]
    return values


class _TensorStub(NamedTuple):
    """A tensor's storage and layout. It becomes a tensor when the pickle has ended and cannot use it any more."""

    key: Any
    offset: Any
    size: Any
    stride: Any

    def to_tensor(self, storages: dict[Any, Any]) -> Any:
        values = storages[self.key]
        if math.prod(self.size) > values.numel():
            raise pickle.UnpicklingError("a tensor is larger than its data")
        # A view: a small file may name one storage a thousand times, and copies would take a thousand times its size.
        return values.as_strided(self.size, self.stride, self.offset)


ALLOWED: dict[str, Any] = {
    "collections.OrderedDict": OrderedDict,
    "collections.defaultdict": lambda *_: {},
    "builtins.dict": dict,
    "__builtin__.dict": dict,
    "builtins.set": set,
    "__builtin__.set": set,
    "torch.Size": tuple,
    "torch._utils._rebuild_tensor_v2": lambda key, offset, size, stride, *_: _TensorStub(key, offset, size, stride),
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    **{f"torch.{storage}": dtype for storage, dtype in DTYPES.items()},
}


class _RestrictedUnpickler(pickle._Unpickler):
    """Builds the classes in ALLOWED and refuses all others.

    It extends the unpickler of the standard library that is written in Python. The one written in C
    reserves as much memory as a pickle asks for, which a hostile file could abuse.
    """

    def __init__(self, program: IO[bytes], path: Path, opaque: Collection[str], ignore_unknown: bool) -> None:
        super().__init__(program, encoding="utf-8")
        self.path, self.opaque, self.ignore_unknown = path, opaque, ignore_unknown
        self.declared: dict[Any, tuple[str, int]] = {}  # dtype and number of values of each storage

    def find_class(self, module: str, name: str) -> Any:
        full_name = f"{module}.{name}"
        if full_name in ALLOWED:
            return ALLOWED[full_name]
        if self.ignore_unknown or full_name in self.opaque:
            return Opaque
        raise InputError(
            f"{self.path}: unsafe pickle: it references {full_name}. Only tensors and plain containers can be loaded. "
            "If you trust the file, save its tensors again with torch.save or safetensors"
        )

    def persistent_load(self, pid: Any) -> Any:
        kind, dtype, key, _, num_values, *view = pid
        if kind != "storage" or dtype not in DTYPES.values():
            raise pickle.UnpicklingError(f"unknown kind of stored data {kind!r}")
        if not isinstance(num_values, int) or num_values < 0 or any(part is not None for part in view):
            raise pickle.UnpicklingError("a tensor has an invalid size")
        self.declared.setdefault(key, (dtype, num_values))
        return key

    def load_build(self) -> None:
        """Give an object its state. Only placeholders take it, so that a pickle cannot change what the reader uses."""
        state = self.stack.pop()  # type: ignore[attr-defined]
        target = self.stack[-1]  # type: ignore[attr-defined]
        if isinstance(target, Opaque):
            target.state = state
        elif not isinstance(target, OrderedDict):  # the state of an OrderedDict is torch's metadata, which is not used
            raise pickle.UnpicklingError("it changes an object other than a tensor or container")

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}
    del dispatch[pickle.BYTEARRAY8[0]]  # allocates as many bytes as the pickle asks for; torch never writes it


def _resolve_tensors(node: Any, storages: dict[Any, Any], resolved: dict[int, Any]) -> Any:
    """Replace every stub in a tree by its tensor. `resolved` holds results by id: trees can share parts and circle."""
    if id(node) in resolved:
        return resolved[id(node)]
    resolved[id(node)] = node  # before its parts, which may hold it
    if isinstance(node, _TensorStub):
        resolved[id(node)] = node.to_tensor(storages)
    elif isinstance(node, tuple):
        resolved[id(node)] = tuple(_resolve_tensors(value, storages, resolved) for value in node)
    elif isinstance(node, dict):
        for key, value in node.items():
            node[key] = _resolve_tensors(value, storages, resolved)
    elif isinstance(node, list):
        node[:] = [_resolve_tensors(value, storages, resolved) for value in node]
    elif isinstance(node, Opaque):
        node.state = _resolve_tensors(node.state, storages, resolved)
    return resolved[id(node)]
