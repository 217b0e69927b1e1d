"""The device to compute on, and the number of CPU threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from hiero.errors import InputError

CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # CPU time per period, and the period, in microseconds


def choose_device(name: str) -> str:
    """Check the name of a device; `auto` is a GPU if there is one, otherwise the CPU."""
    if name == "cpu":
        return name
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name} cannot be used ({str(error).splitlines()[0]}); try --device cpu") from error
    return name


_limits = ExitStack()  # limits that apply while any thread is inside `single_threaded_math`
_num_inside = 0
_limits_lock = threading.Lock()


@contextmanager
def single_threaded_math() -> Iterator[None]:
    """Run matrix products on one thread each, because several Python threads share the cores.

    The setting applies to the whole process: the first of several overlapping blocks sets it, and the
    last one resets it.
    """
    global _num_inside
    with _limits_lock:
        if not _num_inside:
            _limit_threads()
        _num_inside += 1
    try:
        yield
    finally:
        with _limits_lock:
            _num_inside -= 1
            if not _num_inside:
                _limits.close()


def _limit_threads() -> None:
    """Use one thread until `_limits` is closed."""
    import torch

    _limits.callback(torch.set_num_threads, torch.get_num_threads())
    torch.set_num_threads(1)
    with suppress(ImportError):  # part of scikit-learn; without it this is only slower
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        _limits.enter_context(threadpool_limits(1))


def num_usable_cores() -> int:
    """CPU cores that this process may use, by its affinity and the limit of its container."""
    num = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CPU_LIMIT.read_text(encoding="utf-8").split()
        return max(1, min(num, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no limit, written as `max`
        return num
