"""Devices and processes of training through Lightning Fabric, and the precision of the forward pass."""

from __future__ import annotations

import os
from typing import Any

import torch

from hiero.config import RunConfig
from hiero.errors import InputError


def make_fabric(device: str) -> Any:
    """Fabric for this process, or for all processes of torchrun."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise InputError("training needs lightning-fabric; run: pip install 'hiero-video[train]'") from None
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    # torchrun sets the number of processes, in total and on this machine.
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    try:
        target = torch.device(device)
        is_one_gpu = world_size == 1 and target.type == "cuda" and target.index is not None
        devices: Any = [target.index] if is_one_gpu else local_world_size
        fabric = Fabric(
            accelerator=target.type,
            devices=devices,
            num_nodes=world_size // local_world_size,
            strategy="ddp" if world_size > 1 else "auto",
            precision="32-true",  # the objective itself casts (`autocast_precision`)
        )
        fabric.launch()
    except Exception as error:  # Fabric's exceptions have no common class
        raise InputError(f"--device {device} cannot be used ({str(error).splitlines()[0]})") from error
    return fabric


def autocast_precision(config: RunConfig, device: torch.device) -> torch.dtype | None:
    """The dtype of autocast, or None for float32."""
    if config.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None
    return torch.bfloat16 if config.precision == "bfloat16" else None
