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
MAX_PROGRAM_BYTES = 2**22  # size of a pickle without its tensors; each byte can become an object of 100 bytes
CHUNK_BYTES = 2**24
MAX_ARGUMENTS = 16  # of a call, and items of a tuple that is a key
MAX_DIMENSIONS = 64  # of a tensor, as in torch
MAX_DEPTH = 200  # of containers in containers
MAX_NODES = 2**22  # of the tree, where a container that is used twice counts twice
MAX_NAME_LENGTH = 100  # of a class in an error message


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


KEY_TYPES = (str, bytes, int, float, type(None), Opaque)


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
    return _Resolver(storages).resolve(tree)[0]


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
    return _Resolver(storages).resolve(tree)[0]


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
        # The product of a million large numbers would take hours, and that of a text and a number much memory.
        is_shape = len(self.size) <= MAX_DIMENSIONS and all(isinstance(length, int) for length in self.size)
        if not is_shape or math.prod(self.size) > values.numel():
            raise pickle.UnpicklingError("a tensor is larger than its data")
        # A view: a small file may name one storage a thousand times, and copies would take a thousand times its size.
        return values.as_strided(self.size, self.stride, self.offset)


def _make_ordered_dict(pairs: list[Any] | None = None) -> OrderedDict[Any, Any]:
    """An OrderedDict of Python 2 comes with its items. They are taken out of the list: a program cannot copy them."""
    items = OrderedDict((_check_key(key), value) for key, value in pairs or ())
    if pairs:
        pairs.clear()
    return items


def _check_key(key: Any) -> Any:
    """A key of a dictionary. The hash of tuples in tuples can take hours, in which Python does not notice Ctrl-C."""
    parts = key if type(key) is tuple and len(key) <= MAX_ARGUMENTS else (key,)
    if not all(isinstance(part, KEY_TYPES) for part in parts):
        raise pickle.UnpicklingError("a key of a dictionary is neither a name nor a number")
    return key


# What these make is no larger than the part of the program that makes it.
ALLOWED: dict[str, Any] = {
    "collections.OrderedDict": _make_ordered_dict,
    "collections.defaultdict": lambda *_: {},
    "builtins.dict": lambda *_: {},
    "__builtin__.dict": lambda *_: {},
    "builtins.set": Opaque,
    "__builtin__.set": Opaque,
    "torch.Size": lambda size: size,
    "torch._utils._rebuild_tensor_v2": lambda key, offset, size, stride, *_: _TensorStub(key, offset, size, stride),
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    **{f"torch.{storage}": dtype for storage, dtype in DTYPES.items()},
}
# Instructions that torch never writes, and that would take more time or memory than their bytes.
REFUSED = (
    *(pickle.BYTEARRAY8, pickle.LONG4, pickle.DICT, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET),
    *(pickle.INST, pickle.OBJ, pickle.NEWOBJ_EX),
)


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
            f"{self.path}: unsafe pickle: it references {full_name[:MAX_NAME_LENGTH]}. "
            "Only tensors and plain containers can be loaded. "
            "If you trust the file, save its tensors again with torch.save or safetensors"
        )

    def persistent_load(self, pid: Any) -> Any:
        kind, dtype, key, _, num_values, *view = pid
        if kind != "storage" or dtype not in DTYPES.values():
            raise pickle.UnpicklingError("unknown kind of stored data")
        if not isinstance(num_values, int) or num_values < 0 or any(part is not None for part in view):
            raise pickle.UnpicklingError("a tensor has an invalid size")
        self.declared.setdefault(_check_key(key), (dtype, num_values))
        return key

    def load_build(self) -> None:
        """Give an object its state. Only placeholders take it, so that a pickle cannot change what the reader uses."""
        state = self.stack.pop()  # type: ignore[attr-defined]
        target = self.stack[-1]  # type: ignore[attr-defined]
        if isinstance(target, Opaque):
            target.state = state
        elif not isinstance(target, OrderedDict):  # the state of an OrderedDict is torch's metadata, which is not used
            raise pickle.UnpicklingError("it changes an object other than a tensor or container")

    def load_setitem(self) -> None:
        value = self.stack.pop()  # type: ignore[attr-defined]
        key = self.stack.pop()  # type: ignore[attr-defined]
        self.stack[-1][_check_key(key)] = value  # type: ignore[attr-defined]

    def load_setitems(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][_check_key(key)] = value  # type: ignore[attr-defined]

    def load_call(self) -> None:
        """Call a class or function, or make an object of a class, which is the same for those that are allowed."""
        arguments = self.stack.pop()  # type: ignore[attr-defined]
        if len(arguments) > MAX_ARGUMENTS:
            raise pickle.UnpicklingError("a call has too many arguments")
        self.stack[-1] = self.stack[-1](*arguments)  # type: ignore[attr-defined]

    dispatch: ClassVar[dict[int, Any]] = {
        **{code: load for code, load in pickle._Unpickler.dispatch.items() if bytes([code]) not in REFUSED},
        pickle.BUILD[0]: load_build,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.REDUCE[0]: load_call,
        pickle.NEWOBJ[0]: load_call,
    }


class _Resolver:
    """Replaces every stub in a tree by its tensor, and refuses trees that nobody could walk through.

    Parts of a tree may be shared. Only placeholders may lead back to a container around them.
    """

    def __init__(self, storages: dict[Any, Any]) -> None:
        self.storages = storages
        self.resolved: dict[int, tuple[Any, tuple[Any, int, int]]] = {}  # holds the nodes, so that ids stay theirs

    def resolve(self, node: Any) -> tuple[Any, int, int]:
        """The value of a node, the number of nodes in it, and how deep they are nested."""
        if not isinstance(node, tuple | dict | list | Opaque):
            return node, 1, 0
        if id(node) not in self.resolved:
            # Until its parts are known, a container counts as too large: it would contain itself.
            self.resolved[id(node)] = node, (node, 1 if isinstance(node, Opaque) else MAX_NODES, 0)
            self.resolved[id(node)] = node, self._resolve_parts(node)
        value, num_nodes, depth = self.resolved[id(node)][1]
        if num_nodes >= MAX_NODES or depth > MAX_DEPTH:
            raise pickle.UnpicklingError("its containers hold too much, are nested too deep, or contain themselves")
        return value, num_nodes, depth

    def _resolve_parts(self, node: Any) -> tuple[Any, int, int]:
        if isinstance(node, _TensorStub):
            return node.to_tensor(self.storages), 1, 0
        if isinstance(node, Opaque):
            node.state = self.resolve(node.state)[0]
            return node, 1, 0
        parts = [self.resolve(part) for part in (node.values() if isinstance(node, dict) else node)]
        values = [value for value, _, _ in parts]
        num_nodes = 1 + sum(num_nodes for _, num_nodes, _ in parts)
        depth = 1 + max((depth for _, _, depth in parts), default=0)
        if isinstance(node, tuple):
            return tuple(values), num_nodes, depth
        if isinstance(node, dict):
            node.update(zip(list(node), values, strict=True))
        else:
            node[:] = values
        return node, num_nodes, depth
