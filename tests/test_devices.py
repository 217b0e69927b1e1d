"""Threads of matrix products, and cores that may be used."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch

from hiero import devices
from tests.waiting import PATIENCE_S


def test_overlapping_limits_leave_the_number_of_threads_as_it_was():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    first, second, third = (Barrier(2, timeout=PATIENCE_S) for _ in range(3))

    def outer():
        with devices.single_threaded_math():
            first.wait()
            second.wait()
        third.wait()

    def inner():
        first.wait()
        with devices.single_threaded_math():
            second.wait()
            third.wait()  # the other has left, and it is still one
            return torch.get_num_threads()

    try:
        with ThreadPoolExecutor(2) as pool:
            futures = pool.submit(outer), pool.submit(inner)
            assert [future.result() for future in futures] == [None, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_container_s_limit_counts(tmp_path, monkeypatch):
    limit = tmp_path / "cpu.max"
    monkeypatch.setattr(devices, "CPU_LIMIT", limit)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    for text, expected in (("max 100000", 64), ("150000 100000", 2), ("1000 100000", 1), ("nonsense", 64)):
        limit.write_text(text)
        assert devices.num_usable_cores() == expected
    limit.unlink()
    assert devices.num_usable_cores() == 64
