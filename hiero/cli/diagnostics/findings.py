"""What checks are asked, and what they find."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["ok", "warning", "problem"]
GIB = 2**30


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        name: What was looked at, such as `weights minilm`.
        level: ok; warning: something is slower or missing that can be done without; problem: something will fail.
        message: What is there.
        advice: What to do; empty where nothing is to be done.
        elapsed_s: How long it took to find out.
    """

    name: str
    level: Level
    message: str
    advice: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True)
class Machine:
    """What is to be checked.

    Attributes:
        state_folder: Of `hiero serve --state`; None: no state is checked.
        host: Where a server would listen.
        port: Likewise.
        online: Also ask the sources of weights, over the network.
        fast: Leave out what imports torch.
    """

    state_folder: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8400
    online: bool = False
    fast: bool = False


def ok(name: str, message: str, advice: str = "") -> Finding:
    return Finding(name, "ok", message, advice)


def warning(name: str, message: str, advice: str) -> Finding:
    """Something is slower or missing that can be done without."""
    return Finding(name, "warning", message, advice)


def problem(name: str, message: str, advice: str) -> Finding:
    """Something will fail."""
    return Finding(name, "problem", message, advice)


def first_line(error: object) -> str:
    """What an error says, in a line; its kind where it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
