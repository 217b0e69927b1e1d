"""States of networks in other people's checkpoints: found in whatever they are nested in, and loaded to the last name."""

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
NESTS = ("state_dict", "model")
NAMED = 12  # names that an error lists
Network = TypeVar("Network", bound="nn.Module")


def find_checkpoint(path: Path) -> Path:
    """A checkpoint, or the only one in a folder."""
    if not path.is_dir():
        return path
    files = sorted(file for file in path.iterdir() if file.suffix in CHECKPOINT_SUFFIXES and not file.name.startswith("."))
    if len(files) != 1:
        raise InputError(f"{path}: holds {len(files)} checkpoints ({', '.join(CHECKPOINT_SUFFIXES)}), expected 1")
    return files[0]


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name: out of `state_dict` and `model`, dictionaries inside joined by dots, `module.` left out.

    Nothing in the file is executed; what is no tensor is passed over.
    """
    content: Any = load_tensors(path) if path.suffix == ".safetensors" else read_torch(path, ignore_unknown=True)
    while isinstance(content, dict) and (nest := next((n for n in NESTS if isinstance(content.get(n), dict)), None)):
        content = content[nest]
    from torch import Tensor

    state: dict[str, Tensor] = {}

    def collect(node: Any, prefix: str) -> None:
        for name, value in node.items() if isinstance(node, dict) else ():
            full = f"{prefix}{str(name).removeprefix('module.')}"
            if isinstance(value, Tensor):
                state[full] = value
            else:
                collect(value, f"{full}.")

    collect(content, "")
    if not state:
        raise InputError(f"{path}: holds no tensors by name")
    return state


def select_prefix(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """What stands under a prefix, without it; all of it where nothing does."""
    inside = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return inside or state


def load_strict(make: Callable[[], tuple[Network, dict[str, Tensor]]], path: Path, what: str) -> Network:
    """A network that `make` builds for a state, with that state in it. Missing and unexpected names are an error."""
    try:
        network, state = make()
    except (KeyError, IndexError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: not {what} ({type(error).__name__}: {error})") from error
    wanted = network.state_dict()
    problems = []
    for kind, names in (("missing", wanted.keys() - state.keys()), ("unexpected", state.keys() - wanted.keys())):
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            problems.append(f"{kind}: {', '.join(sorted(names)[:NAMED])}{more}")
    problems += [
        f"{name} is {tuple(state[name].shape)}, expected {tuple(value.shape)}"
        for name, value in wanted.items()
        if name in state and state[name].shape != value.shape
    ]
    if problems:
        raise InputError(f"{path}: not {what}; {'; '.join(problems[:NAMED])}")
    network.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
    return network.requires_grad_(False).eval()
