"""Packages that need not be installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def skip_without(module: str, reason: str) -> None:
    """Skip the module that calls it where a package is missing. It is not imported: every worker
    collects every test.
    """
    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that would hold it
        is_there = False
    if not is_there:
        pytest.skip(reason, allow_module_level=True)
