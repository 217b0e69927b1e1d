"""Locks between processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from hiero.errors import BusyError

WAIT_S = 60.0  # enough for any change of a corpus but the merge of millions of rows
DOWNLOAD_WAIT_S = 600.0  # another process downloads the same file


@contextmanager
def hold_lock(path: Path, subject: str, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold a lock file during a block. Raises BusyError if another process keeps `subject` for longer than `wait_s`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=wait_s)
    except Timeout:
        raise BusyError(f"{subject}: busy, another process is using it; try again when it has finished") from None
    try:
        yield
    finally:
        lock.release()
