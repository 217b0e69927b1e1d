"""Choice of the device to compute on."""

from __future__ import annotations

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
