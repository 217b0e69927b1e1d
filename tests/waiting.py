"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0  # for what takes a second on an idle machine: tests must also pass on a busy one


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns as soon as a condition holds; fails where it does not for minutes."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.02)
