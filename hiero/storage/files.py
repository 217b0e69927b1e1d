"""Files: write them atomically, read them with clear errors, and check that they fit into memory."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hiero.errors import InputError

FEATURE_SUFFIXES = (".pt", ".pth", ".npy", ".npz", ".safetensors")
ASSETS = Path(__file__).parent.parent / "assets"
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MAX_MEMORY_SHARE = 0.5  # part of the free memory that one file may take: computing on it needs memory too
GIB = 2**30
PARSED_SIZE = 8  # memory of parsed JSON or of a list of lines, compared with the bytes of the file
SHELL_PIPES = ("/dev/fd/", "/dev/stdin")  # somebody writes to these; reading from others could wait for ever
CGROUP = Path("/sys/fs/cgroup")
MAX_NAME_BYTES = 255  # of most file systems
SHORTENED_BYTES = 220  # of a name that would be longer, so that SQLite and others can add a suffix of their own


def home() -> Path:
    """The folder of everything that hiero downloads and computes: HIERO_HOME, or a folder in the user's cache."""
    if hiero_home := os.environ.get("HIERO_HOME"):
        return Path(hiero_home)
    return Path(os.environ.get("XDG_CACHE_HOME") or user_home() / ".cache") / "hiero"


def user_home() -> Path:
    """The home folder of the user. An account that the system does not know has none, for example in a container."""
    try:
        return Path.home()
    except RuntimeError:
        raise InputError("this account has no home folder; set HOME, or HIERO_HOME for the files of hiero") from None


def weights_folders() -> list[Path]:
    """The folders that hold weights: HIERO_WEIGHTS, which may be read-only, then the one in hiero's home."""
    shared = os.environ.get("HIERO_WEIGHTS")
    own = home() / "weights"
    return [Path(shared), own] if shared else [own]


def is_disk_full(error: BaseException) -> bool:
    """Whether an error means that a disk or a quota is full, or that a file has reached its maximum size."""
    # Errors of libraries such as LanceDB have no errno, but contain the system's message.
    return any(getattr(error, "errno", None) == code or os.strerror(code) in str(error) for code in DISK_FULL_ERRNOS)


def real_path(path: Path) -> Path:
    """The absolute path without links. pathlib raises a RuntimeError for links in a circle; here they stay."""
    return Path(os.path.realpath(path))


def path_beside(path: Path, suffix: str, prefix: str = "") -> Path:
    """The path of a file that belongs to another one: its name with a prefix and a suffix, shortened if necessary."""
    name = path.name
    if len(os.fsencode(f"{prefix}{name}{suffix}")) > MAX_NAME_BYTES:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        room = SHORTENED_BYTES - len(os.fsencode(f"{prefix}~{digest}{suffix}"))
        name = f"{os.fsencode(name)[:room].decode('utf-8', 'ignore')}~{digest}"
    return path.with_name(f"{prefix}{name}{suffix}")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that replaces it when the block succeeds and is removed when it fails.

    Readers, and other processes that write the same file, only ever see complete files.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):  # replacing /dev/null would break the system
        raise InputError(f"{path}: a pipe or a device cannot be overwritten; choose the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path_beside(path, f".{secrets.token_hex(4)}.part", ".")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        # The content must be on the disk before the rename, or a crash could leave an empty file.
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 atomically. Characters that UTF-8 cannot encode become "?"."""
    write_bytes(path, text.encode("utf-8", "replace"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def _read_bytes(path: Path, size: int = -1, hint: str = "") -> bytes:
    try:
        info = path.stat()
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) or str(path).startswith(SHELL_PIPES)):
            raise InputError(f"{path}: a pipe or a device, not a file; write its content to a file first")
        if size < 0:
            check_fits(PARSED_SIZE * info.st_size, f"{path}: its content")
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise _describe_error(path, error, hint) from None


def read_json(path: Path, hint: str = "") -> Any:
    """Read a JSON file."""
    data = _read_bytes(path, hint=hint)
    try:
        return parse_json(data.decode("utf-8-sig"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from error


def read_bounded(path: Path, max_bytes: int, kind: str) -> bytes:
    """The content of a file that should be small."""
    data = _read_bytes(path, max_bytes + 1)
    if len(data) > max_bytes:
        raise InputError(f"{path}: larger than {max_bytes // 2**20} MB; is it {kind}?")
    return data


def decode_text(data: bytes) -> str:
    """Decode a table or subtitles, in UTF-8 or the encodings of Windows programs. Byte order marks are removed."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def parse_json(text: str | bytes) -> Any:
    """`json.loads` for untrusted text: everything that is wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its lists or objects are nested too deep") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, without empty ones."""
    try:
        lines = _read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8 ({error})") from error
    return [line.strip() for line in lines if line.strip()]


def save_tensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically. Tensors that share memory are stored separately."""
    import torch
    from safetensors.torch import save

    # safetensors refuses tensors that share a storage, and would write a whole storage for a part of it.
    stored = {
        name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    write_bytes(path, save(stored, metadata))


def load_tensors(path: Path) -> dict[str, Any]:
    """Read a safetensors file onto the CPU."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, KeyError, OSError) as error:  # KeyError: a dtype that this torch does not know
        raise _describe_error(path, error) from error


def load_metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _describe_error(path, error) from error


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """`save_tensors` for numpy arrays, without torch."""
    from safetensors.numpy import save

    write_bytes(path, save({name: value.copy(order="C") for name, value in arrays.items()}))


def load_arrays(path: Path, prefix: str = "") -> dict[str, Any]:
    """The arrays of a safetensors file whose names begin with `prefix`.

    Dtypes that numpy does not know (bfloat16, 8-bit floats) become float32; only they need torch.
    """
    from safetensors import SafetensorError, safe_open

    def read(framework: str) -> dict[str, Any]:
        with safe_open(path, framework) as file:
            return {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118

    try:
        try:
            arrays = read("numpy")
        except (TypeError, KeyError, AttributeError):
            tensors = read("pt")
            return {name: (x.float() if x.is_floating_point() else x).numpy() for name, x in tensors.items()}
    except (SafetensorError, OSError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise _describe_error(path, error) from error
    # Packages such as onnx teach numpy bfloat16, as a void type that numpy itself cannot use.
    return {name: x.astype("float32") if x.dtype.kind == "V" else x for name, x in arrays.items()}


def _describe_error(path: Path, error: Exception, hint: str = "") -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file{hint}")
    if isinstance(error, OSError):
        return InputError(f"{path}: cannot be read ({error.strerror or error})")
    return InputError(f"{path}: damaged or cut short ({error}){fetch_hint(path)}")


def fetch_hint(path: Path) -> str:
    """What to do about a damaged file if it belongs to downloaded weights, otherwise an empty text."""
    folder = path.absolute().parent
    is_weights = folder.parent in [parent.absolute() for parent in weights_folders()]
    if is_weights and folder.name in tomllib.loads((ASSETS / "weights.toml").read_text(encoding="utf-8")):
        return f"; it may be incomplete: remove it and run: hiero models get {folder.name}"
    return ""


def available_bytes() -> int | None:
    """Memory that is available to this process, also inside a container, or None if the system does not say."""
    limits = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):  # no such group, or "max"
        limits.append(int((CGROUP / "memory.max").read_text()) - int((CGROUP / "memory.current").read_text()))
    if not limits and hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return max(0, min(limits)) if limits else None


def check_fits(num_bytes: int, description: str, max_bytes: int | None = None) -> None:
    """Refuse to load something that does not fit into memory."""
    available = available_bytes()
    needs = f"{description} would take {num_bytes / GIB:.1f} GiB of memory"
    if available is not None and num_bytes > MAX_MEMORY_SHARE * available:
        raise InputError(
            f"{needs}; {available / GIB:.1f} GiB are free, and one file may use half of that"
        ) from MemoryError()
    if max_bytes is not None and num_bytes > max_bytes:
        raise InputError(f"{needs}; the limit is {max_bytes / GIB:.1f} GiB")
