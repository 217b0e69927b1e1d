"""Read torch's .pt and .pth files as data. Nothing in them is executed.

A pickle is a program. This restricted unpickler allows only containers and tensors: every other
class is refused, except those that the caller maps to an inert `Opaque`, which holds its state and
does nothing.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection
from itertools import islice
from pathlib import Path
from typing import IO, Any

from hiero.errors import InputError
from hiero.storage.files import check_fits, fetch_hint

DTYPES = {  # torch's storage classes, which pickles name, and the dtypes of their elements
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
# What unpickling a damaged or hostile file may raise.
DAMAGE_ERRORS = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    IndexError,
    ValueError,
    TypeError,
    AttributeError,
    MemoryError,
    RecursionError,
    OverflowError,
)
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # that files of torch before 1.6 begin with
ZIP_MAGIC = b"PK\x03\x04"
MAX_PROGRAM_BYTES = 2**24  # of a pickle without its tensors; a byte of it can become an object of 64
CHUNK_BYTES = 2**24


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
    """Read the object that torch.save wrote, on the CPU."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    check_fits(path.stat().st_size, f"{path}: its tensors")
    allowed = frozenset(opaque)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return _read_archive(archive, path, allowed, ignore_unknown)
        with path.open("rb") as file:
            return _read_legacy(file, path, allowed, ignore_unknown)
    except InputError:
        raise
    except (*DAMAGE_ERRORS, OSError, RuntimeError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else error
        raise InputError(f"{path}: damaged or not a torch file ({reason}){fetch_hint(path)}") from error


def _read_archive(archive: zipfile.ZipFile, path: Path, opaque: frozenset[str], ignore_unknown: bool) -> Any:
    if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
        raise InputError(f"{path}: refused, torch does not compress its files and this one is compressed")
    if sum(info.file_size for info in archive.infolist()) > path.stat().st_size:
        raise InputError(f"{path}: refused, its parts overlap: together they are larger than the file")
    members = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
    if len(members) != 1:
        raise InputError(f"{path}: not a torch file (it holds {len(members)} data.pkl, expected 1)")
    if members[0].file_size > MAX_PROGRAM_BYTES:
        raise InputError(f"{path}: refused, {members[0].file_size / 2**20:.0f} MB of it are no tensors")
    with archive.open(members[0]) as file:
        program = _next_program(io.BytesIO(file.read()), path)
    root = members[0].filename.removesuffix("data.pkl")

    def read_storage(key: str, dtype: Any, num_values: int) -> _Storage:
        info = archive.getinfo(f"{root}data/{key}")
        if info.file_size < num_values * dtype.itemsize:
            raise _cut_short(path, key)
        with archive.open(info) as file:
            return _Storage(_read_values(file, info.file_size, dtype))

    unpickler = _RestrictedUnpickler(program, path, opaque, ignore_unknown, read_storage)
    return _resolve_tensors(unpickler.load(), {})


def _read_legacy(file: IO[bytes], path: Path, opaque: frozenset[str], ignore_unknown: bool) -> Any:
    """Files of torch before 1.6, which are no archives: five pickles, of which the fourth is the
    object, then the stored data.
    """
    start = file.read(len(ZIP_MAGIC))
    if start == ZIP_MAGIC:
        raise InputError(f"{path}: incomplete, its end is missing{fetch_hint(path) or '; copy or download it again'}")
    file.seek(0)
    if not start or not _begins_with_magic(file):
        reason = "it is something else" if start else "it is empty"
        raise InputError(f"{path}: not a torch file that holds only data ({reason}){fetch_hint(path)}")
    file.seek(0)
    for _ in range(3):  # the magic number, the version of the format, and the machine it was written on
        _next_program(file, path)
    declared: dict[str, tuple[Any, int]] = {}  # dtype and number of values, by key; the values follow the pickles

    def declare_storage(key: str, dtype: Any, num_values: int) -> _Storage:
        declared[key] = dtype, num_values
        return _Storage(None)

    unpickler = _RestrictedUnpickler(_next_program(file, path), path, opaque, ignore_unknown, declare_storage)
    tree = unpickler.load()
    for key in _RestrictedUnpickler(_next_program(file, path), path, frozenset(), False).load():
        dtype, num_values = declared[key]
        (num_stored,) = struct.unpack("<q", file.read(8))
        num_bytes = num_values * dtype.itemsize
        if num_stored != num_values or num_bytes > path.stat().st_size - file.tell():
            raise _cut_short(path, key)
        unpickler.storages[key].values = _read_values(file, num_bytes, dtype)
    return _resolve_tensors(tree, {})


def _begins_with_magic(file: IO[bytes]) -> bool:
    """Whether the first number of the first pickle is torch's. Nothing is run, and only a few
    instructions are read.
    """
    try:
        for operation, argument, _ in islice(pickletools.genops(file), 4):
            if isinstance(argument, int) and "LONG" in operation.name:
                return argument == LEGACY_MAGIC
    except (ValueError, EOFError):
        pass
    return False


def _next_program(file: IO[bytes], path: Path) -> bytes:
    """The pickle that begins here, checked for what unpickling would allocate at its word."""
    begin = file.tell()
    for operation, argument, position in pickletools.genops(file):
        # Python's unpickler allocates its memo up to the largest index that a PUT names: a few
        # bytes could ask for gigabytes.
        if "PUT" in operation.name and isinstance(argument, int) and argument > (position or 0) + 1 - begin:
            raise InputError(f"{path}: refused, it asks for a table of {argument} entries")
        if (position or 0) - begin > MAX_PROGRAM_BYTES:
            raise InputError(f"{path}: refused, more than {MAX_PROGRAM_BYTES / 2**20:.0f} MB of it are no tensors")
    end = file.tell()
    file.seek(begin)
    return file.read(end - begin)


def _cut_short(path: Path, key: str) -> InputError:
    return InputError(f"{path}: damaged, tensor data {key} is cut short{fetch_hint(path)}")


def _read_values(file: IO[bytes], num_bytes: int, dtype: Any) -> Any:
    """The next bytes of a file as a tensor, without a second copy of all of them."""
    import torch

    raw = bytearray(num_bytes)
    done = 0
    while chunk := file.read(min(CHUNK_BYTES, num_bytes - done)):
        raw[done : done + len(chunk)] = chunk
        done += len(chunk)
    return (
        torch.frombuffer(raw[:done] if done < num_bytes else raw, dtype=dtype) if done else torch.empty(0, dtype=dtype)
    )


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
    """A tensor's storage and layout, which become a tensor only after the pickle has ended and cannot
    change them any more.
    """

    __slots__ = ("offset", "size", "storage", "stride")

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride

    def tensor(self) -> Any:
        values = self.storage.values
        if not all(isinstance(n, int) and n >= 0 for n in (self.offset, *self.size, *self.stride)):
            raise pickle.UnpicklingError("a tensor of impossible shape")
        if math.prod(self.size) > values.numel():
            raise pickle.UnpicklingError("a tensor larger than its data")
        # A view: a small file may name one storage a thousand times, and copies would take a thousand times its size.
        return values.as_strided(self.size, self.stride, self.offset)


class _Function(_Inert):
    """A function that the pickle may call."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _TensorStub:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without data")
    return _TensorStub(storage, offset, size, stride)


def _refuse_storage(key: str, dtype: Any, num_values: int) -> _Storage:
    raise pickle.UnpicklingError("stored data where there is none")


class _RestrictedUnpickler(pickle.Unpickler):
    """Allows the names in `find_class` and refuses all others; `find_storage` gives stored data by its key."""

    def __init__(
        self,
        program: bytes,
        path: Path,
        opaque: frozenset[str],
        ignore_unknown: bool,
        find_storage: Callable[[str, Any, int], _Storage] = _refuse_storage,
    ) -> None:
        super().__init__(io.BytesIO(program), encoding="utf-8")
        self.path, self.opaque, self.ignore_unknown, self.find_storage = path, opaque, ignore_unknown, find_storage
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[str, Any] = {
            "collections.OrderedDict": OrderedDict,
            "collections.defaultdict": _Function(lambda *_: {}),
            "builtins.dict": dict,
            "__builtin__.dict": dict,
            "builtins.set": set,
            "__builtin__.set": set,
            "torch.Size": tuple,
            "torch._utils._rebuild_tensor_v2": _Function(_rebuild_tensor),
            "torch._utils._rebuild_parameter": _Function(lambda data, *_: data),
        }
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
            f"{self.path}: refused, it wants to load {full_name}. Only tensors and plain containers are read, "
            "nothing is executed; if you trust the file, save its tensors again with torch.save or safetensors"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, num_values, *view = pid
        if kind != "storage" or dtype not in DTYPES.values():
            raise pickle.UnpicklingError(f"unknown kind of stored data {kind!r}")
        if not isinstance(num_values, int) or num_values < 0 or any(part is not None for part in view):
            raise pickle.UnpicklingError("stored data of impossible size")
        if key not in self.storages:
            import torch

            self.storages[key] = self.find_storage(key, getattr(torch, dtype), num_values)
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
