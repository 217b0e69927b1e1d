"""What was computed from a file, kept under hiero's home by the content of that file."""

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

Cached = TypeVar("Cached")


def content_key(path: Path) -> str:
    """Names a file by what is in it. Read once; as long as its place, size and time stay the same, that is remembered."""
    stat = path.stat()
    identity = os.fsencode(path.resolve()) + f"\0{stat.st_size}\0{stat.st_mtime_ns}".encode()
    remembered = cache_folder("known") / hashlib.sha256(identity).hexdigest()[:32]
    if remembered.is_file() and len(key := remembered.read_text().strip()) == 32:
        return key
    with path.open("rb") as file:
        key = hashlib.file_digest(file, "sha256").hexdigest()[:32]
    store_cached(lambda: write_text(remembered, key))
    return key


def read_cached(path: Path, read: Callable[[Path], Cached]) -> Cached | None:
    """What an earlier run kept, or None; a damaged file is removed, so that it is made again."""
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
    return weights.home() / "cache" / kind
