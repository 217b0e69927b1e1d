"""A few cases of every suite; all of them: python -m tests.fuzz."""

from __future__ import annotations

import pytest

from tests.fuzz.all_suites import SUITES
from tests.fuzz.suite import run_case, run_suite

QUICK = ("features", "pickles", "steps", "imports", "edits", "transcripts", "annotations", "stores", "caches")


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_is_read_or_refused(name, tmp_path):
    for number in range(5):
        (folder := tmp_path / str(number)).mkdir()
        assert run_case(name, number, folder).kind in ("well", "refused")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SUITES))
def test_cases_of_all_suites_behave(name):
    outcome = run_suite(name, max(2, SUITES[name].share // 100), seed=1)
    assert list(outcome.failures.values()) == []
