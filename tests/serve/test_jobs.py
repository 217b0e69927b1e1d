"""Jobs: several at a time, after a restart, after a kill, tried again."""

from __future__ import annotations

import threading

import pytest

from hiero.errors import BusyError, InputError
from hiero.serve.jobs import MAX_ATTEMPTS, JobQueue
from hiero.serve.state import State
from hiero.types import ProgressEvent
from tests.waiting import PATIENCE_S, wait_until


def block(release):
    """Work that goes on until it is released, and reports progress all the time."""

    def work(video, progress):
        while not release.wait(0.01):
            progress(ProgressEvent("read", video, 1.0, 10.0))

    return work


def test_several_at_a_time_and_no_more():
    release, running, most = threading.Event(), set(), []
    lock = threading.Lock()

    def work(video, progress):
        with lock:
            running.add(video)
            most.append(len(running))
        release.wait(PATIENCE_S)
        with lock:
            running.discard(video)

    jobs = JobQueue(work, num_workers=3)
    started = [jobs.start(str(i)) for i in range(7)]
    wait_until(lambda: len(running) == 3)
    assert jobs.count("running") == 3
    release.set()
    wait_until(lambda: all(job.state == "done" for job in started))
    assert max(most) == 3
    jobs.close()


def test_a_stop_puts_jobs_back_and_the_next_server_does_them(tmp_path):
    release = threading.Event()
    state = State(tmp_path, lock=True)
    jobs = JobQueue(block(release), state)
    first, second = jobs.start("a", "anna"), jobs.start("b", "ben")
    wait_until(lambda: first.state == "running")
    jobs.close()
    assert [first.state, second.state] == ["waiting", "waiting"]
    state.close()

    done = []
    second_state = State(tmp_path, lock=True)
    again = JobQueue(lambda video, _: done.append(video), second_state)
    wait_until(lambda: done == ["a", "b"])
    wait_until(lambda: all(job.ended for job in again.jobs.values()))
    assert [(job.id, job.user, job.state, job.num_attempts) for job in again.jobs.values()] == [
        (first.id, "anna", "done", 1),
        (second.id, "ben", "done", 1),
    ]
    again.close()
    second_state.close()


def test_a_job_that_the_server_does_not_survive_is_given_up(tmp_path):
    state = State(tmp_path)
    job = state.add_job("poison", "")
    begun = []
    for attempt in range(1, MAX_ATTEMPTS + 1):
        job.update(state="running", num_attempts=attempt)
        state.save_job(job)  # as a kill leaves it
        release = threading.Event()
        jobs = JobQueue(lambda video, _: (begun.append(video), release.wait(PATIENCE_S)), State(tmp_path))  # noqa: B023
        if attempt < MAX_ATTEMPTS:
            wait_until(lambda: len(begun) == attempt)  # noqa: B023
        release.set()
        wait_until(lambda: jobs.jobs[job.id].ended)  # noqa: B023
        jobs.close()
    assert jobs.jobs[job.id].state == "failed"
    assert "3 times" in jobs.jobs[job.id].message
    assert len(begun) == MAX_ATTEMPTS - 1


def test_trying_again():
    fails = [True]

    def work(video, progress):
        if fails[0]:
            raise InputError(f"/somewhere/{video}.mp4: it is bad")

    jobs = JobQueue(work)
    first = jobs.start("a", "anna")
    wait_until(lambda: first.ended)
    assert (first.state, first.message) == ("failed", "a.mp4: it is bad")
    fails[0] = False
    second = jobs.retry(first.id, "ben")
    assert second.id != first.id
    wait_until(lambda: second.state == "done")
    with pytest.raises(InputError, match="is done"):
        jobs.retry(second.id)
    jobs.close()


def test_a_job_that_finds_something_busy_is_done_later(tmp_path):
    busy = iter([True, True, False])

    def work(video, progress):
        if next(busy):
            raise BusyError("/somewhere/corpus: busy")

    jobs = JobQueue(work, State(tmp_path))
    job = jobs.start("a")
    wait_until(lambda: job.ended)
    assert (job.state, job.num_attempts) == ("done", 1)
    jobs.close()


def test_without_a_state_jobs_end_with_the_server():
    release = threading.Event()
    jobs = JobQueue(block(release))
    job = jobs.start("a")
    wait_until(lambda: job.state == "running")
    jobs.close()
    assert (job.state, job.message) == ("cancelled", "the server stopped")


def test_users_take_turns(tmp_path):
    gate, done = threading.Event(), []

    def work(video, progress):
        gate.wait(PATIENCE_S)
        done.append(video)

    jobs = JobQueue(work, State(tmp_path))
    first = jobs.start("a0", "anna")
    wait_until(lambda: first.state == "running")
    waiting = [jobs.start(f"a{i}", "anna") for i in range(1, 4)] + [jobs.start(f"b{i}", "ben") for i in range(2)]
    assert [(job.video, jobs.describe(job)["position"]) for job in jobs.listed()[1:]] == [
        ("b0", 1),
        ("a1", 2),
        ("b1", 3),
        ("a2", 4),
        ("a3", 5),
    ]
    gate.set()
    wait_until(lambda: all(job.ended for job in waiting))
    assert done == ["a0", "b0", "a1", "b1", "a2", "a3"]
    jobs.close()


def test_the_time_until_a_job_is_done_is_estimated_from_those_before():
    release = threading.Event()
    jobs = JobQueue(lambda video, _: video == "first" or release.wait(PATIENCE_S))
    first = jobs.start("first", "anna", 100.0)
    wait_until(lambda: first.ended)
    first.spent_s = 10.0  # a tenth of its length
    running = jobs.start("running", "anna", 50.0)
    wait_until(lambda: running.state == "running")
    running.left_s = 5.0
    waiting = [jobs.start(name, "anna", 200.0) for name in ("second", "third")]
    assert [jobs.describe(job)["left_s"] for job in waiting] == [pytest.approx(25), pytest.approx(45)]
    release.set()
    jobs.close()
