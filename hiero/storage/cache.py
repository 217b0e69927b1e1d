"""Results computed from a file, cached under hiero's home by the content of that file.

The cache holds at most HIERO_CACHE_MAX: the least recently used files make room for new ones. The time of
a file is that of its last use.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from hiero.errors import InputError
from hiero.storage.files import home, write_text
from hiero.types import ProgressCallback, ProgressEvent, no_progress

KEY_LENGTH = 32  # hexadecimal digits
MIN_CACHED_BYTES = 2**22  # smallest file whose key is cached; hashing a smaller one is faster
MIN_AGE_S = 0.05  # since the last change of a file whose key is cached: twice the resolution of file times

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
CHECK_EVERY_S = 300.0  # between two looks at the size of the cache, by all processes together
IN_USE_S = 3600.0  # after its last use, for which a file stays; a running job saves unfinished results more often
TOUCH_EVERY_S = 60.0  # between two notes that a file was used
REMOTE = "remote"  # copies of remote videos, which have a limit of their own

Cached = TypeVar("Cached")


class FileState(NamedTuple):
    """Values of a file that change when it is written or replaced, also by programs that keep its times."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int  # of content, name or rights; no program can set it


def file_state(path: Path) -> FileState:
    """What identifies the content of a file without reading it, to compare before and after."""
    stat = path.stat()
    return FileState(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def content_key(path: Path) -> str:
    """The beginning of the SHA-256 of a file's content: 32 hexadecimal digits.

    The key of a large file is cached as long as its name and its `file_state` stay the same.
    """
    state = file_state(path)
    if (key := quick_content_key(path)) is not None:
        return key
    key = _hash_file(path)
    # A file that was written just now can be written again without a new size or time.
    is_old = time.time() - max(state.modified_ns, state.changed_ns) / 1e9 > MIN_AGE_S
    if is_old and file_state(path) == state:
        store_cached(lambda: write_text(_key_file(path, state), key))
    return key


def quick_content_key(path: Path) -> str | None:
    """`content_key` if it is known without reading a large file, else None."""
    state = file_state(path)
    return _hash_file(path) if state.size < MIN_CACHED_BYTES else read_cached(_key_file(path, state), _read_key)


def _key_file(path: Path, state: FileState) -> Path:
    """Where the key of a large file is cached. A folder can be moved with its files: only their names count."""
    identity = os.fsencode(path.name) + f"\0{tuple(state)}".encode()
    return cache_folder("known") / hashlib.sha256(identity).hexdigest()[:KEY_LENGTH]


def _hash_file(path: Path) -> str:
    if path.exists() and not path.is_file():  # a pipe or a device may have no end
        raise InputError(f"{path}: is not a regular file; copy its content to a file first")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:KEY_LENGTH]


def _read_key(path: Path) -> str:
    key = path.read_text(encoding="ascii").strip()
    if len(key) != KEY_LENGTH or set(key) - set("0123456789abcdef"):
        raise InputError(f"{path}: not a cache key")
    return key


def read_cached(path: Path, read: Callable[[Path], Cached]) -> Cached | None:
    """Read a cached file. Returns None if it is missing or cannot be read. A malformed file is removed."""
    try:
        if not path.is_file():
            return None
        content = read(path)
        with suppress(OSError):  # for example another user's file
            if time.time() - path.stat().st_mtime > TOUCH_EVERY_S:
                os.utime(path)
        return content
    except Exception as error:  # the content may be anything
        if not _is_temporary(error):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        return None


def _is_temporary(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, concerns the machine: too many open files, or too little memory."""
    while error is not None:
        if isinstance(error, OSError | MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def store_cached(save: Callable[[], None], progress: ProgressCallback = no_progress) -> bool:
    """Save into the cache. A full disk or a read-only home is reported, but is not an error."""
    try:
        save()
    except OSError as error:
        progress(ProgressEvent("message", message=f"not cached ({error.strerror or error}): {home()}"))
        return False
    with suppress(OSError):
        _shrink_sometimes()
    return True


def cache_folder(kind: str) -> Path:
    """The folder of one kind of cached files, such as `nodes`."""
    return home() / "cache" / kind


def cache_limit() -> int:
    """Maximum size of the cache in bytes."""
    return size_limit("HIERO_CACHE_MAX", "20GB")


def size_limit(variable: str, default: str, unit: str = "") -> int:
    """The bytes that a variable of the environment allows: 5GB, 500MB, or a number without a unit, which is `unit`."""
    text = os.environ.get(variable) or default
    size = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]*)?|\.[0-9]+) ?([KMGT]?)B?", text.strip().upper())
    if size is None:
        raise InputError(f"{variable} must be a size such as 20GB or 500MB, got {text!r}")
    return int(float(size[1]) * UNITS[size[2] or unit])


@dataclass(frozen=True)
class CachedFile:
    """A file of the cache, as it was when it was listed."""

    path: Path
    kind: str
    num_bytes: int
    used_at: float  # seconds since 1970

    def remove(self) -> bool:
        """Remove the file, unless it was used since it was listed. Returns whether it is gone."""
        with suppress(FileNotFoundError):  # another process has removed it
            if _used_at(self.path, self.kind) != self.used_at:
                return False
            self.path.unlink()
        return True


def cached_files() -> list[CachedFile]:
    """All files of the cache that can be removed, least recently used first."""
    files, now, root = [], time.time(), cache_folder("")
    for path in root.glob("*/**/*"):
        kind = path.relative_to(root).parts[0]
        with suppress(FileNotFoundError):  # another process has removed it
            info = path.lstat()
            # Locks, notes on copies, and files that are being written are hidden.
            is_needed = path.name.startswith(".") and (path.suffix != ".part" or now - info.st_mtime < IN_USE_S)
            if stat.S_ISREG(info.st_mode) and not is_needed:
                files.append(CachedFile(path, kind, info.st_size, _used_at(path, kind)))
    return sorted(files, key=lambda file: (file.used_at, file.path))


def _used_at(path: Path, kind: str) -> float:
    """When a file was last used. The use of a remote file's copy is noted beside it."""
    note = path.with_name(f".{path.name}.json")
    return (note if kind == REMOTE and note.is_file() else path).lstat().st_mtime


def _shrink_sometimes() -> None:
    """Remove the least recently used files above the limit, unless a process has looked at all files lately.

    Several processes may do this at a time: they choose the same files. Whoever looks for a removed
    file computes its content again.
    """
    limit, note, now = cache_limit(), cache_folder(".checked"), time.time()
    if note.exists() and abs(now - note.stat().st_mtime) < CHECK_EVERY_S:
        return
    note.touch()
    files = [file for file in cached_files() if file.kind != REMOTE]
    surplus = sum(file.num_bytes for file in files) - limit
    for file in files:
        if surplus <= 0 or now - file.used_at < IN_USE_S:
            return
        with suppress(OSError):  # for example another user's file
            surplus -= file.num_bytes if file.remove() else 0
