"""Results computed from a file, cached under hiero's home by the content of that file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hiero.errors import InputError
from hiero.storage import weights
from hiero.storage.files import write_text
from hiero.types import ProgressCallback, ProgressEvent, no_progress

KEY_LENGTH = 32  # hexadecimal digits of a SHA-256 that name a file

Cached = TypeVar("Cached")


def content_key(path: Path) -> str:
    """The beginning of the SHA-256 of a file's content: 32 hexadecimal digits.

    A video takes long to hash, so its key is cached for as long as its path, size and modification time stay the same.
    """
    stat = path.stat()
    identity = os.fsencode(path.resolve()) + f"\0{stat.st_size}\0{stat.st_mtime_ns}".encode()
    key_file = cache_folder("known") / hashlib.sha256(identity).hexdigest()[:KEY_LENGTH]
    if key_file.is_file() and len(key := key_file.read_text().strip()) == KEY_LENGTH:
        return key
    with path.open("rb") as file:
        key = hashlib.file_digest(file, "sha256").hexdigest()[:KEY_LENGTH]
    store_cached(lambda: write_text(key_file, key))
    return key


def read_cached(path: Path, read: Callable[[Path], Cached]) -> Cached | None:
    """Read a file of the cache, or None where there is none.

    Args:
        path: The file.
        read: Reads it; an InputError or KeyError means that it is damaged, and it is removed so that it is made again.
    """
    if not path.is_file():
        return None
    try:
        return read(path)
    except (InputError, KeyError):
        path.unlink(missing_ok=True)
        return None


def store_cached(save: Callable[[], None], progress: ProgressCallback = no_progress) -> bool:
    """Save into the cache if it can be: a full disk or a read-only home must not cost the answer.

    Args:
        save: Writes the file.
        progress: Gets a message where it could not be written.

    Returns:
        Whether it was written.
    """
    try:
        save()
    except OSError as error:
        progress(ProgressEvent("message", message=f"not kept for the next time ({error.strerror or error}): {weights.home()}"))
        return False
    return True


def cache_folder(kind: str) -> Path:
    """The folder of one kind of cached files, such as `nodes`."""
    return weights.home() / "cache" / kind
