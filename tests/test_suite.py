"""Tests do not touch the files of the person who runs them, and say what would run those that are skipped."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from hiero.storage.files import home, weights_folders
from tests import optional


def test_the_home_of_a_run_is_its_own():
    assert home().parent == Path(tempfile.gettempdir())
    assert home().name.startswith("hiero-tests-")
    assert weights_folders() == [home() / "weights"]  # those of the machine, behind a link
    assert (home() / "weights").is_symlink()


def test_skipped_tests_name_the_packages_that_would_run_them(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.skip.Exception) as caddy:
        optional.program_or_skip("caddy")
    assert optional.find_program("caddy") is None
    summary = optional.summarise_skipped([caddy.value.msg, caddy.value.msg, "needs a CUDA GPU"])
    assert summary == "3 tests skipped; apt-get install caddy would run 2 of them"
    assert optional.summarise_skipped(["needs a CUDA GPU"]) == "1 tests skipped"
