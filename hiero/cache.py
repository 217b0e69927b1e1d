"""What was computed from a file, kept under hiero's home by the content of that file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hiero import weights
from hiero.errors import InputError
from hiero.files import write_text

Kept = TypeVar("Kept")


def content_key(path: Path) -> str:
    """Names a file by what is in it. Read once; as long as its place, size and time stay the same, that is remembered."""
    stat = path.stat()
    about = os.fsencode(path.resolve()) + f"\0{stat.st_size}\0{stat.st_mtime_ns}".encode()
    known = cache_folder("known") / hashlib.sha256(about).hexdigest()[:32]
    if known.is_file() and len(key := known.read_text().strip()) == 32:
        return key
    with path.open("rb") as file:
        key = hashlib.file_digest(file, "sha256").hexdigest()[:32]
    keep(lambda: write_text(known, key))
    return key


def kept_before(path: Path, read: Callable[[Path], Kept]) -> Kept | None:
    """What an earlier run kept, or None; a damaged file is removed, so that it is made again."""
    if not path.is_file():
        return None
    try:
        return read(path)
    except (InputError, KeyError):
        path.unlink(missing_ok=True)
        return None


def keep(save: Callable[[], None], say: Callable[[str], None] = lambda _: None) -> bool:
    """Save into the cache if it can be: a full disk or a read-only home must not cost the answer."""
    try:
        save()
    except OSError as error:
        say(f"not kept for the next time ({error.strerror or error}): {weights.home()}")
        return False
    return True


def cache_folder(kind: str) -> Path:
    return weights.home() / "cache" / kind
