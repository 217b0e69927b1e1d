"""The state of a run as one file: weights, optimizer and random state as tensors, the rest as JSON beside them. No pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hiero.errors import InputError
from hiero.storage.files import load_tensors, save_tensors


def save_state(
    path: Path, objective: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, about: dict[str, Any]
) -> None:
    tensors = {f"objective.{name}": value for name, value in objective.state_dict().items()}
    named: dict[Tensor, str] = {p: name for name, p in objective.named_parameters()}
    for p, state in optimizer.state.items():
        tensors |= {f"adam.{named[p]}.{key}": value for key, value in state.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    tensors = {name: value.detach().clone() for name, value in tensors.items()}  # towers tie weights; files hold each
    save_tensors(path, tensors, {"hiero": json.dumps(about)})


def read_about(path: Path) -> dict[str, Any]:
    """What a saved state says of its run, or that it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            found: dict[str, Any] = json.loads((file.metadata() or {}).get("hiero", "{}"))
    except SafetensorError as error:
        raise InputError(f"{path}: damaged or cut short ({error})") from error
    return found


def load_state(path: Path, objective: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Put everything back as it was saved."""
    tensors = load_tensors(path)
    objective.load_state_dict({name.removeprefix("objective."): v for name, v in tensors.items() if name.startswith("objective.")})
    for name, p in objective.named_parameters():
        prefix = f"adam.{name}."
        own = {key.removeprefix(prefix): value.to(device) for key, value in tensors.items() if key.startswith(prefix)}
        if own:
            optimizer.state[p] = own
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """Settings that are not the same, in words."""
    out = []
    for name in sorted(before.keys() | now.keys()):
        a, b = before.get(name), now.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            out += differences(a, b, f"{prefix}{name}.")
        elif a != b:
            out.append(f"{prefix}{name} was {a}, now {b}")
    return out
