"""Processes that run a module of ours beside this one."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = (
    "import importlib, sys; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2]).main(sys.argv[3:])"
)


def python_command(module: str, *arguments: str) -> list[str]:
    """Command of a process that calls `main` of a module: of the same hiero as here, wherever it is imported from."""
    root = Path(__file__).resolve().parents[1]
    # -P: nothing comes from the current folder
    return [sys.executable, "-P", "-c", PROGRAM, str(root), module, *arguments]
