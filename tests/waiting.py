"""Waiting for what another thread or process does, and ports for programs that must be told one."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress

# for what takes a second on an idle machine: tests must also pass on a busy one
PATIENCE_S = float(os.environ.get("HIERO_TEST_PATIENCE_S", "300"))


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns as soon as a condition holds; fails where it does not for minutes."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.02)


def free_port() -> int:
    """A free port below those that the system hands out, so that no connection of another test gets it in between."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
