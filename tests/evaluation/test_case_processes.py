"""Cases scored by processes: the tables of threads, also where a process dies."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest

from hiero.engine import load
from hiero.evaluation.cases import CaseProcesses, EvalOptions, map_cases, start_processes
from hiero.evaluation.own_videos import OwnSettings, evaluate_own_videos, read_own_cases, run_own_videos
from hiero.formats.annotations import read_annotations
from tests.evaluation.simulated import save_identity_model, write_own_videos
from tests.waiting import PATIENCE_S

FEW_DRAWS = EvalOptions(num_draws=5)


# Processes take seconds to start, and as long again to load a network: as few as possible do, and
# all tests share a model and its home.


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield save_identity_model(tmp_path_factory.mktemp("processes") / "model", patch)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_own_videos(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def cases(model, data):
    cases, _, _ = read_own_cases(
        load(model, device="cpu"), data / "features", read_annotations(data / "steps.json"), None
    )
    return cases


@pytest.mark.slow
def test_an_error_does_not_wait_for_cases_that_have_begun(cases, model):
    processes = CaseProcesses(str(model), 2)
    begun = processes.score(_sleep, cases[0])
    with pytest.raises(ValueError, match="no such case"), processes:
        map_cases(_fail, cases, processes=processes)
    assert begun.done()


@pytest.mark.slow
def test_a_process_that_dies_does_not_end_the_evaluation(cases, model, monkeypatch):
    expected = evaluate_own_videos(cases, ["procedure"], FEW_DRAWS)
    monkeypatch.setattr("hiero.evaluation.own_videos._score_tasks", partial(_score_or_die, pid=os.getpid()))
    with CaseProcesses(str(model), 1) as processes:
        assert evaluate_own_videos(cases, ["procedure"], FEW_DRAWS, processes=processes) == expected


@pytest.mark.slow
def test_tables_of_several_processes_are_those_of_threads(model, data, cases, monkeypatch):
    monkeypatch.setattr("hiero.evaluation.own_videos.MIN_CASES", 1)
    done: dict[str, list[str]] = {"reading": [], "scoring": []}
    settings = OwnSettings(model=str(model), num_clusters=3, options=FEW_DRAWS, device="cpu")
    tables = []
    for num in (1, 2):
        several = replace(settings, num_processes=num)
        bar = partial(_record, done)
        tables.append(run_own_videos(data / "features", data / "steps.json", several, bar=bar).tables)
    assert tables[0] == tables[1]
    assert sorted(done["scoring"]) == sorted(2 * [case.video.path.stem for case in cases])


def test_who_cannot_start_processes_does_without(monkeypatch):
    def refuse(*_):
        raise BlockingIOError("no more processes")

    assert start_processes("raw", 1) is None
    monkeypatch.setattr("hiero.evaluation.cases.CaseProcesses", refuse)
    assert start_processes("raw", 2) is None


def _record(done, name, num):
    return nullcontext(done[name].append)


def _sleep(case):
    time.sleep(2 * PATIENCE_S)


def _fail(case):
    raise ValueError("no such case")


def _score_or_die(case, scores, pid):
    if os.getpid() != pid:
        os._exit(1)
    return [score(case) for score in scores]
