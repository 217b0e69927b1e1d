"""Folders that are made once for all workers of a run."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def shared_folder(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder of this run, made by the first worker that needs it. Nobody may change it; copy what changes.

    Args:
        factory: Of temporary folders.
        name: Of the folder.
        make: Fills the folder, which is there and empty.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # that of a worker lies in that of the run
    folder = base / name
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            part = base / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)  # of a worker that failed
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder
