"""Results computed from a file, cached under hiero's home by the content of that file."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from hiero.errors import InputError
from hiero.storage.files import home, write_text
from hiero.types import ProgressCallback, ProgressEvent, no_progress

KEY_LENGTH = 32  # hexadecimal digits
MIN_CACHED_BYTES = 2**22  # smallest file whose key is cached; hashing a smaller one is faster
MIN_AGE_S = 0.05  # since the last change of a file whose key is cached: twice the resolution of file times

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

    The key of a large file is cached as long as its path and its `file_state` stay the same.
    """
    state = file_state(path)
    if state.size < MIN_CACHED_BYTES:
        return _hash_file(path)
    identity = os.fsencode(path.resolve()) + f"\0{tuple(state)}".encode()
    key_file = cache_folder("known") / hashlib.sha256(identity).hexdigest()[:KEY_LENGTH]
    if (key := read_cached(key_file, _read_key)) is not None:
        return key
    key = _hash_file(path)
    # A file that was written just now can be written again without a new size or time.
    is_old = time.time() - max(state.modified_ns, state.changed_ns) / 1e9 > MIN_AGE_S
    if is_old and file_state(path) == state:
        store_cached(lambda: write_text(key_file, key))
    return key


def _hash_file(path: Path) -> str:
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
        return read(path) if path.is_file() else None
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
        error = error.__context__ or error.__cause__
    return False


def store_cached(save: Callable[[], None], progress: ProgressCallback = no_progress) -> bool:
    """Save into the cache. A full disk or a read-only home is reported, but is not an error."""
    try:
        save()
    except OSError as error:
        progress(ProgressEvent("message", message=f"not cached ({error.strerror or error}): {home()}"))
        return False
    return True


def cache_folder(kind: str) -> Path:
    """The folder of one kind of cached files, such as `nodes`."""
    return home() / "cache" / kind
