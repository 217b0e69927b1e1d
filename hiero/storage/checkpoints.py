"""Checkpoints of other projects: their state dicts out of whatever they are nested in, loaded strictly by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hiero.errors import InputError
from hiero.storage.files import load_tensors
from hiero.storage.pickles import read_torch

if TYPE_CHECKING:
    from torch import Tensor, nn

CHECKPOINT_SUFFIXES = (".pth", ".pt", ".torch", ".bin", ".safetensors")
# training scripts save the state dict under one of these, beside optimizer and epoch
WRAPPER_KEYS = ("state_dict", "model")
MAX_LISTED = 12  # names that an error lists
Network = TypeVar("Network", bound="nn.Module")


def find_checkpoint(path: Path) -> Path:
    """A checkpoint, or the only one in a folder."""
    if not path.is_dir():
        return path
    files = sorted(
        file for file in path.iterdir() if file.suffix in CHECKPOINT_SUFFIXES and not file.name.startswith(".")
    )
    if len(files) != 1:
        raise InputError(f"{path}: holds {len(files)} checkpoints ({', '.join(CHECKPOINT_SUFFIXES)}), expected 1")
    return files[0]


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name. Nothing in the file is executed; what is no tensor is passed over.

    The state dict is taken out of `state_dict` and `model`, nested dictionaries are joined by dots,
    and the prefix `module.` of DataParallel is left out.
    """
    content: Any = load_tensors(path) if path.suffix == ".safetensors" else read_torch(path, ignore_unknown=True)
    while isinstance(content, dict) and (
        key := next((key for key in WRAPPER_KEYS if isinstance(content.get(key), dict)), None)
    ):
        content = content[key]
    from torch import Tensor

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
        raise InputError(f"{path}: holds no tensors by name")
    return state


def select_prefix(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries whose names begin with a prefix, without it; all entries where none does."""
    selected = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return selected or state


def load_strict(build: Callable[[], tuple[Network, dict[str, Tensor]]], path: Path, description: str) -> Network:
    """Build a network and load its state dict in float32, for inference."""
    try:
        network, state = build()
    except (KeyError, IndexError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: not {description} ({type(error).__name__}: {error})") from error
    expected = network.state_dict()
    problems = []
    for kind, names in (("missing", expected.keys() - state.keys()), ("unexpected", state.keys() - expected.keys())):
        if names:
            more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
            problems.append(f"{kind}: {', '.join(sorted(names)[:MAX_LISTED])}{more}")
    problems += [
        f"{name} is {tuple(state[name].shape)}, expected {tuple(value.shape)}"
        for name, value in expected.items()
        if name in state and state[name].shape != value.shape
    ]
    if problems:
        raise InputError(f"{path}: not {description}; {'; '.join(problems[:MAX_LISTED])}")
    network.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
    return network.requires_grad_(False).eval()
