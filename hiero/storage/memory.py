"""How much memory there is, asked before something large is read into it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from hiero.errors import InputError

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
            f"{description} would take {num_bytes / GIB:.1f} GiB of memory; {available / GIB:.1f} GiB are free, "
            "and at most "
            "half of that is used for one file"
        )
    if max_bytes is not None and num_bytes > max_bytes:
        raise InputError(
            f"{description} would take {num_bytes / GIB:.1f} GiB of memory; the most that is read is "
            f"{max_bytes / GIB:.1f}"
        )
