"""Checkpoints of other projects, loaded strictly by name, and weights in 8 bits.

In 8 bits a matrix is whole numbers and one scale for each of its rows, a quarter of the size of
single precision:

    W#int8 (n, m) int8,   W#scale (n, 1) float32,   W = W#int8 · W#scale
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hiero.errors import InputError
from hiero.storage.files import load_tensors
from hiero.storage.pickles import read_torch

if TYPE_CHECKING:
    from torch import Tensor, nn

CHECKPOINT_SUFFIXES = (".pth", ".pt", ".torch", ".bin", ".safetensors")
WRAPPER_KEYS = ("state_dict", "model")  # where training scripts put the state dict, beside optimizer and epoch
MAX_LISTED = 3  # names of each kind in an error message
INT8_MAX = 127
MIN_INT8_SIZE = 4096  # smaller arrays are not quantised
VALUES, SCALE = "#int8", "#scale"
Network = TypeVar("Network", bound="nn.Module")


def find_checkpoint(path: Path) -> Path:
    """A checkpoint, or the only one in a folder."""
    if not path.is_dir():
        return path
    files = [file for file in path.iterdir() if file.suffix in CHECKPOINT_SUFFIXES and not file.name.startswith(".")]
    if len(files) != 1:
        raise InputError(f"{path}: holds {len(files)} checkpoints ({', '.join(CHECKPOINT_SUFFIXES)}), expected 1")
    return files[0]


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name. Nothing in the file is executed; everything else is ignored.

    The state dict may be nested in `state_dict` and `model`. Names of nested dictionaries are joined
    by dots, and the prefix `module.` of DataParallel is removed.
    """
    from torch import Tensor

    content: Any = load_tensors(path) if path.suffix == ".safetensors" else read_torch(path, ignore_unknown=True)
    while isinstance(content, dict) and (
        key := next((key for key in WRAPPER_KEYS if isinstance(content.get(key), dict)), None)
    ):
        content = content[key]
    state: dict[str, Tensor] = {}

    def collect(node: Any, prefix: str) -> None:
        for name, value in node.items() if isinstance(node, dict) else ():
            full_name = f"{prefix}{str(name).removeprefix('module.')}"
            if isinstance(value, Tensor):
                state[full_name] = value
            else:
                collect(value, f"{full_name}.")

    collect(content, "")
    if not state:
        raise InputError(f"{path}: holds no named tensors")
    return state


def select_prefix(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries whose names begin with a prefix, without it. If none does, all entries."""
    selected = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return selected or state


def load_strict(build: Callable[[], tuple[Network, dict[str, Tensor]]], path: Path, description: str) -> Network:
    """Build a network and load its state dict in float32, for inference."""
    try:
        network, state = build()
    except (KeyError, IndexError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: not {description} ({type(error).__name__}: {error})") from error
    if problems := describe_mismatch(network.state_dict(), state):
        raise InputError(f"{path}: not {description}; {problems}")
    network.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
    return network.requires_grad_(False).eval()


def describe_mismatch(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor]) -> str:
    """How a state dict differs from the expected one, in one line; empty if it fits."""
    differences = {
        "missing": sorted(expected.keys() - actual.keys()),
        "unexpected": sorted(actual.keys() - expected.keys()),
        "wrong shape": [
            f"{name} {tuple(actual[name].shape)} instead of {tuple(value.shape)}"
            for name, value in expected.items()
            if name in actual and actual[name].shape != value.shape
        ],
    }
    parts = []
    for kind, names in differences.items():
        if names:
            more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
            parts.append(f"{kind}: {', '.join(names[:MAX_LISTED])}{more}")
    return "; ".join(parts)


def quantise(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Large matrices in 8 bits, other floating-point tensors in half precision."""
    out = {}
    for name, value in weights.items():
        if value.ndim != 2 or value.numel() < MIN_INT8_SIZE:
            out[name] = value.half() if value.is_floating_point() else value
            continue
        scale = value.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / INT8_MAX
        out[name + VALUES] = (value.float() / scale).round().char()
        out[name + SCALE] = scale
    return out


def dequantise(weights: dict[str, Any]) -> dict[str, Any]:
    """The reverse of `quantise` in single precision, for tensors and numpy arrays. Other weights stay unchanged."""
    out = {}
    for name, value in weights.items():
        stem = name.removesuffix(VALUES)
        scale = weights.get(stem + SCALE)
        if name.endswith(VALUES) and value.ndim == 2 and scale is not None and tuple(scale.shape) == (len(value), 1):
            out[stem] = value * scale
        elif not (name.endswith(SCALE) and name.removesuffix(SCALE) + VALUES in weights):
            out[name] = value
    return out
