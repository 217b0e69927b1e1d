"""Commits to a LanceDB table: one writer at a time, tried again after a conflict, clear words where
the disk is full.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hiero.errors import InputError

LOCK_FILE = ".lock"  # in the folder of a corpus; it stays there, empty
MAX_ATTEMPTS = 20  # of a commit, while other processes write
MAX_BACKOFF_S = 0.1  # of the first attempt; it grows with each
DISK_FULL = "no space left on the disk; free some, then run the same command again: it goes on with what is not in yet"
MAX_READS = 3  # of a version that writers may prune meanwhile

Result = TypeVar("Result")


def is_local(uri: str) -> bool:
    """Whether a corpus is a folder of this machine, not an address such as s3://…."""
    return "://" not in uri


@contextmanager
def write_lock(uri: str) -> Iterator[bool]:
    """Wait until no other process writes to a corpus, and keep others waiting until the block ends.

    LanceDB notices two commits that change the same rows, but not two that insert the same new
    ones. The lock is the system's, so that of a process that was killed is gone.
    """
    if not is_local(uri):
        yield False
        return
    try:
        import fcntl
    except ImportError:  # Windows
        yield False
        return
    Path(uri).mkdir(parents=True, exist_ok=True)
    with (Path(uri) / LOCK_FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            is_locked = True
        except OSError:  # a network file system without locks
            is_locked = False
        yield is_locked


def commit(uri: str, change: Callable[[], Result]) -> Result:
    """Make a change; where another process has written in between, again."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            return change()
        except (RuntimeError, OSError) as error:
            if is_disk_full(error):
                raise OSError(errno.ENOSPC, DISK_FULL, uri) from error
            # LanceDB has no class for this error; its message is such as "Retryable commit conflict for version 7".
            if "onflict" not in str(error) and "retr" not in str(error).lower():
                if "LanceError(IO)" in str(error):  # such as a disk that fails; what follows is a place in its source
                    raise OSError(
                        errno.EIO, str(error).rpartition("LanceError(IO):")[2].split(", /")[0].strip(), uri
                    ) from error
                raise
            if attempt == MAX_ATTEMPTS - 1:
                raise InputError(f"{uri}: too many writers at a time ({error})") from error
            time.sleep(random.uniform(0, MAX_BACKOFF_S * (attempt + 1)))
    raise AssertionError("not reached")


def is_disk_full(error: Exception) -> bool:
    """Whether an error of LanceDB, which knows it only by its message, or of the system says that a
    disk or a quota is full.
    """
    words = ("No space left on device", "Disk quota exceeded", "File too large")
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or any(
        text in str(error) for text in words
    )


def read_latest(query: Callable[[], Result]) -> Result:
    """The answer of a query to the latest version; again, where a writer has pruned that version
    before all was read.
    """
    for _ in range(MAX_READS - 1):
        try:
            return query()
        except (RuntimeError, OSError) as error:
            if "not found" not in str(error).lower():
                raise
    return query()
