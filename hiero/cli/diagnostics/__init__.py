"""The checks of `hiero doctor`. They change nothing, and only `server.check_network` uses the network.

Slow modules are imported by the check that needs them, so that a broken one fails only its own check.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from hiero.cli.options import Flag

Level = Literal["ok", "warning", "problem"]  # a warning is about something optional, a problem makes hiero fail
GIB = 2**30


@dataclass(frozen=True)
class Finding:
    """The result of a check: what was checked, its state, and what to do about it."""

    name: str
    level: Level
    message: str
    advice: str = ""
    elapsed_s: float = 0.0


@Parameter(name="*")
@dataclass(frozen=True)
class Machine:
    """The options of `hiero doctor`.

    Parameters
    ----------
    state_folder
        State folder of `hiero serve`, to verify its database.
    host
        Address on which the server would listen.
    port
        Port of the server, which should be free.
    online
        Also check the connection to the sources of weights.
    fast
        Skip checks that import torch: built-in models and GPU computation.
    """

    state_folder: Annotated[Path | None, Parameter(name="--state")] = None
    host: str = "127.0.0.1"
    port: int = 8400
    online: Flag = False
    fast: Flag = False


def ok(name: str, message: str) -> Finding:
    return Finding(name, "ok", message)


def warning(name: str, message: str, advice: str) -> Finding:
    return Finding(name, "warning", message, advice)


def problem(name: str, message: str, advice: str) -> Finding:
    return Finding(name, "problem", message, advice)


def first_line(error: object) -> str:
    """The first line of an error message, or the type of an error without a message."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
