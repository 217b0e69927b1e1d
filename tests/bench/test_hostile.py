"""The hostile test in short: a few cases of every kind. All of it: python -m benchmarks.hostile."""

from __future__ import annotations

import pytest

from benchmarks import hostile_commands
from benchmarks.hostile import KINDS, SLOW, own_home, run_kind
from tests.processes import start_hiero


def start(arguments, limit_bytes=None):
    return start_hiero(*arguments, limit_bytes=limit_bytes)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_hostile_cases_behave(kind, monkeypatch):
    monkeypatch.setattr(hostile_commands, "_start", start)
    monkeypatch.setattr(hostile_commands, "KILL_AFTER_S", (0.0, 0.5))  # such processes start at once
    for module in {"videos": ("av",), "requests": ("fastapi", "httpx")}.get(kind, ()):
        pytest.importorskip(module)
    if kind in ("kills", "writers"):
        pytest.importorskip("lancedb")
    with own_home():
        outcome = run_kind(kind, first=1000, num_cases=1 if kind in SLOW else 25, log=lambda _: None)
    assert outcome.failures == []
