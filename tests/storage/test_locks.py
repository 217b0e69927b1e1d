"""Locks between processes."""

from __future__ import annotations

from functools import partial

import pytest
from filelock import FileLock

from hiero.errors import BusyError
from hiero.storage.locks import hold_lock


def test_what_another_process_holds_is_busy_until_it_lets_go(tmp_path):
    lock = partial(hold_lock, tmp_path / ".lock", "the album", wait_s=0)
    with FileLock(tmp_path / ".lock"), pytest.raises(BusyError, match="the album"), lock():
        pass
    for _ in range(2):
        with lock():
            pass
