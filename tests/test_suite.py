"""The tests themselves: where they lie, what they share with the machine, what they say when some are skipped."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from hiero.storage.files import home, weights_folders
from tests import optional

TESTS = Path(__file__).parent
# folders that test no package of hiero
OTHERS = {"bench", "browser", "deploy", "examples", "fixtures", "fuzz", "oracle", "parity"}


def test_each_package_has_its_folder_of_tests():
    def packages(folder: Path) -> set[str]:
        return {file.parent.name for file in folder.glob("*/*.py")}

    assert packages(TESTS) | {"fixtures"} == packages(TESTS.parent / "hiero") | OTHERS


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
