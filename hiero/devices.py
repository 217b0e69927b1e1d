"""Choice of the device to compute on, and of the threads that matrix products take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hiero.errors import InputError


def choose_device(name: str) -> str:
    """The device by its name; `auto` is a GPU where there is one, else the CPU.

    Raises:
        InputError: torch cannot use this device.
    """
    if name == "cpu":
        return name
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name} cannot be used here ({str(error).splitlines()[0]}); try --device cpu") from error
    return name


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Matrix products of one thread while this lasts: several threads of Python share the cores instead."""
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        try:
            from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
        except ImportError:  # it comes with scikit-learn; without it this is only slower
            yield
        else:
            with threadpool_limits(1):
                yield
    finally:
        torch.set_num_threads(num_threads)
