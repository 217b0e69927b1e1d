"""The state of a run as one file: weights, optimizer and random state as tensors, the rest as JSON
metadata. No pickle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hiero.errors import InputError
from hiero.storage.files import load_tensors, parse_json, save_tensors


def save_state(
    path: Path, objective: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, metadata: dict[str, Any]
) -> None:
    """Write the state of a run."""
    tensors = {f"objective.{name}": value for name, value in objective.state_dict().items()}
    parameter_names: dict[Tensor, str] = {p: name for name, p in objective.named_parameters()}
    for p, state in optimizer.state.items():
        tensors |= {f"adam.{parameter_names[p]}.{key}": value for key, value in state.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    # Text towers tie weights, and safetensors refuses tensors that share memory.
    tensors = {name: value.detach().clone() for name, value in tensors.items()}
    save_tensors(path, tensors, {"hiero": json.dumps(metadata)})


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a saved state. Raises InputError where the file is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            metadata: dict[str, Any] = parse_json((file.metadata() or {}).get("hiero", "{}"))
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{path}: damaged or cut short ({error})") from error
    return metadata


def load_state(path: Path, objective: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Put weights, optimizer and random state back as `save_state` wrote them."""
    tensors = load_tensors(path)
    objective.load_state_dict(
        {name.removeprefix("objective."): v for name, v in tensors.items() if name.startswith("objective.")}
    )
    for name, p in objective.named_parameters():
        prefix = f"adam.{name}."
        state = {key.removeprefix(prefix): value.to(device) for key, value in tensors.items() if key.startswith(prefix)}
        if state:  # a parameter that never had a gradient has none
            optimizer.state[p] = state
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def config_differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """Settings that are not the same, such as "model.depth was 3, now 2"."""
    out = []
    for name in sorted(before.keys() | now.keys()):
        a, b = before.get(name), now.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            out += config_differences(a, b, f"{prefix}{name}.")
        elif a != b:
            out.append(f"{prefix}{name} was {a}, now {b}")
    return out
