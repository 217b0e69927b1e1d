"""Cases scored by processes: the tables of threads, also where a process dies."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext

import pytest

from hiero.engine import load
from hiero.evaluation.cases import CaseProcesses, EvalOptions, map_cases, start_processes
from hiero.evaluation.own_videos import OwnSettings, evaluate_own_videos, read_own_cases, run_own_videos
from hiero.formats.annotations import read_annotations
from tests.evaluation.simulated import save_identity_model, write_own_videos
from tests.waiting import PATIENCE_S

FEW_DRAWS = EvalOptions(num_draws=5)


# Processes take seconds to start, and as long again to load a network: few do, and all tests share a model.
@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    with pytest.MonkeyPatch.context() as patch:
        yield save_identity_model(folder / "model", patch), write_own_videos(folder, 8)


@pytest.fixture(scope="module")
def cases(folders):
    model, data = folders
    annotated = read_annotations(data / "steps.json")
    return read_own_cases(load(model, device="cpu"), data / "features", annotated, None)[0]


@pytest.mark.slow
def test_an_error_does_not_wait_for_cases_that_have_begun(cases, folders):
    processes = CaseProcesses(str(folders[0]), 2)
    begun = processes.score(_sleep, cases[0])
    with pytest.raises(ValueError, match="no such case"), processes:
        map_cases(_fail, cases, processes=processes)
    assert begun.done()


@pytest.mark.slow
def test_tables_of_several_processes_are_those_of_one(cases, folders):
    model, data = folders
    done: list[str] = []
    tables = [
        run_own_videos(
            data / "features",
            data / "steps.json",
            OwnSettings(str(model), options=FEW_DRAWS, device="cpu", num_processes=num),
            bar=lambda *_: nullcontext(done.append),
        ).tables
        for num in (1, 2)
    ]
    assert tables[0] == tables[1]
    assert sorted(done) == sorted(4 * [case.video.path.stem for case in cases])  # read and scored, twice


@pytest.mark.slow
def test_a_process_that_dies_does_not_end_the_evaluation(cases, folders):
    with CaseProcesses(str(folders[0]), 1) as processes:
        processes.score(_die, cases[0]).exception()
        tables = evaluate_own_videos(cases, ["procedure"], FEW_DRAWS, processes=processes)
    assert tables == evaluate_own_videos(cases, ["procedure"], FEW_DRAWS)


def test_one_process_needs_no_others():
    assert start_processes("raw", 1) is None


def _sleep(case):
    time.sleep(2 * PATIENCE_S)


def _fail(case):
    raise ValueError("no such case")


def _die(case):
    os._exit(1)
