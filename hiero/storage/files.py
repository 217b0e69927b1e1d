"""Writing files so that a reader never sees half of one, reading them back, and asking whether they fit into memory."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hiero.errors import InputError

FEATURE_SUFFIXES = (".pt", ".pth", ".npy", ".npz", ".safetensors")  # of files with features of videos
ASSETS = Path(__file__).parent.parent / "assets"
"""What ships with hiero: models, vocabularies, where weights come from."""
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


UMASK = _read_umask()  # once, on import: it can only be read by setting it, which other threads would see


def home() -> Path:
    """The folder of all that hiero fetches and computes: HIERO_HOME, or a folder in the user's cache."""
    hiero_home = os.environ.get("HIERO_HOME")
    user_cache = os.environ.get("XDG_CACHE_HOME")
    return Path(hiero_home) if hiero_home else (Path(user_cache) if user_cache else Path.home() / ".cache") / "hiero"


def weights_folders() -> list[Path]:
    """The folders that hold weights: HIERO_WEIGHTS, which may be read-only, then the one in hiero's home."""
    shared = os.environ.get("HIERO_WEIGHTS")
    return [*([Path(shared)] if shared else []), home() / "weights"]


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says that a disk or a quota is full, or that a file may not grow any further.

    Libraries such as LanceDB raise errors without an errno; theirs are recognised by the system's words.
    """
    if getattr(error, "errno", None) in DISK_FULL_ERRNOS:
        return True
    return any(os.strerror(code) in str(error) for code in DISK_FULL_ERRNOS)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`: renamed to it when the block ends well, removed when it does not.

    Readers, and other processes that write the same file, only ever see whole files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~UMASK)  # mkstemp makes private files
        # The content must be on the disk before the name is, or a crash could leave an empty file under it.
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = str(path) if error.filename in (None, name) else error.filename  # the name that the user knows
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all. Names of files need not be text: what UTF-8
    cannot write becomes "?".
    """
    write_bytes(path, text.encode("utf-8", "replace"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def read_json(path: Path, hint: str = "") -> Any:
    """Read a JSON file."""
    try:
        return parse_json(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{hint}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from error


def read_bounded(path: Path, max_bytes: int, kind: str) -> bytes:
    """The content of a file that should be small."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(data) > max_bytes:
        raise InputError(f"{path}: larger than {max_bytes // 2**20} MB; is it {kind}?")
    return data


def decode_text(data: bytes) -> str:
    """Text of a table or of subtitles, without byte order mark: UTF-8, or what Windows programs write."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def parse_json(text: str | bytes) -> Any:
    """`json.loads`, for text that anybody may have written: whatever is wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its lists or objects are nested too deep") from None


def read_lines(path: Path) -> list[str]:
    """Lines of a text file, each once; empty ones are left out."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8 ({error})") from error
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def save_tensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file whole or not at all; a full disk is an OSError like anywhere else.

    Tensors that share memory, such as views of one, become tensors of their own.
    """
    from safetensors.torch import save

    stored: dict[str, Any] = {}
    addresses: set[int] = set()
    for name, value in tensors.items():
        tensor = value.detach().contiguous().cpu()
        storage = tensor.untyped_storage()
        # safetensors refuses a tensor that shares its storage with another one, and would write all
        # of a storage for a part of it.
        if storage.data_ptr() in addresses or storage.nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        addresses.add(tensor.untyped_storage().data_ptr())
        stored[name] = tensor
    write_bytes(path, save(stored, metadata))


def load_tensors(path: Path) -> dict[str, Any]:
    """Read a safetensors file onto the CPU. Raises InputError where it is damaged or cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, KeyError, OSError) as error:  # KeyError: numbers of a kind that is newer than this torch
        raise _damaged(path, error) from error


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """`save_tensors` for numpy arrays, without torch."""
    from safetensors.numpy import save

    write_bytes(path, save({name: value.copy(order="C") for name, value in arrays.items()}))


def load_arrays(path: Path, prefix: str = "") -> dict[str, Any]:
    """The arrays of a safetensors file whose names begin with `prefix`. Raises InputError where it is damaged.

    torch is imported only for the kinds of numbers that numpy does not know (bfloat16, 8-bit
    floats); they become float32.
    """
    from safetensors import SafetensorError, safe_open

    def read(framework: str) -> dict[str, Any]:
        with safe_open(path, framework) as file:
            return {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118

    try:
        try:
            # Where another package has taught numpy bfloat16 (onnx does), its arrays are of a kind
            # that numpy itself cannot use.
            return {
                name: value.astype("float32") if value.dtype.kind == "V" else value
                for name, value in read("numpy").items()
            }
        except (TypeError, KeyError, AttributeError):
            return {
                name: (value.float() if value.is_floating_point() else value).numpy()
                for name, value in read("pt").items()
            }
    except (SafetensorError, OSError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InputError:
    """What to say of a safetensors file that cannot be read, with its size: most often it was cut short."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file")
    if isinstance(error, OSError):
        return InputError(f"{path}: cannot be read ({error.strerror or error})")
    return InputError(f"{path}: damaged or cut short ({error}){fetch_hint(path)}")


def fetch_hint(path: Path) -> str:
    """What to do about a damaged file, to be added to its error, if it belongs to downloaded weights; otherwise ""."""
    folder = path.absolute().parent
    if folder.parent not in [parent.absolute() for parent in weights_folders()]:
        return ""
    if folder.name not in tomllib.loads((ASSETS / "weights.toml").read_text(encoding="utf-8")):
        return ""
    return f"; it may be incomplete: remove it and run: hiero weights get {folder.name}"


SHARE = 0.5  # of the free memory that one file may take: what is computed from it needs room too
GIB = 2**30
CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Memory that this process can still get, also inside a container; None where the system does not say."""
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
    """Refuse what would not fit in memory, before it is read."""
    available = available_bytes()
    if available is not None and num_bytes > SHARE * available:
        raise InputError(
            f"{description} would take {num_bytes / GIB:.1f} GiB of memory; {available / GIB:.1f} GiB are free, and "
            "at most half of that is used for one file"
        )
    if max_bytes is not None and num_bytes > max_bytes:
        raise InputError(
            f"{description} would take {num_bytes / GIB:.1f} GiB of memory; the most that is read is "
            f"{max_bytes / GIB:.1f}"
        )
