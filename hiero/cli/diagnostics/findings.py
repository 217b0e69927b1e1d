"""What checks are asked, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

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


class Check(NamedTuple):
    """A check by its name.

    Attributes:
        name: What is looked at.
        run: Yields findings.
    """

    name: str
    run: Callable[[Machine], Iterator[Finding]]


def first_line(error: object) -> str:
    """What an error says, in a line; its kind where it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
