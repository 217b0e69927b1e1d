"""Suites of cases, and the processes that run them with limits of time and memory.

A case behaves if it ends within its limit with a result or an `InputError`. Everything else is a
failure. Each case follows from the seed, its suite and its number alone.
"""

from __future__ import annotations

import faulthandler
import os
import random
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import hiero
from hiero.errors import InputError
from hiero.storage.files import home
from tests.processes import FORKSERVER, end_programs

LIMIT_S = 10.0
PREPARATION_S = 300.0
GRACE_S = 5.0  # until a case that ignores its limit is killed
MAX_BYTES = 16 * 2**30  # address space of the process
MAX_GROWTH_BYTES = 2**30  # memory that one case may take
PACKAGE = re.escape(f"{Path(hiero.__file__).parent}{os.sep}")
FAILURES = ("traceback", "hang", "memory bomb", "wrong result", "lost edit")
Case = Callable[[Path, random.Random], None]


class LostEditError(AssertionError):
    """An acknowledged correction is missing."""


class HangError(BaseException):
    """A case takes too long. The program catches OSError and Exception, but not this."""


KINDS = {HangError: "hang", LostEditError: "lost edit", MemoryError: "memory bomb", AssertionError: "wrong result"}


class Suite(NamedTuple):
    """Cases of one kind."""

    case: Case  # runs in an empty folder, with random numbers
    share: int  # number of cases in a run of 20,000
    limit_s: float  # time that a case may take
    prepare: Callable[[], object]  # makes what all cases use, once


SUITES: dict[str, Suite] = {}


def suite(
    name: str, share: int, limit_s: float = LIMIT_S, prepare: Callable[[], object] = lambda: None
) -> Callable[[Case], Case]:
    """Add a function to the suites."""

    def add(case: Case) -> Case:
        SUITES[name] = Suite(case, share, limit_s, prepare)
        return case

    return add


class Result(NamedTuple):
    """How a case ended: well, refused, or with one of FAILURES at a line of hiero."""

    kind: str
    place: str = ""
    message: str = ""


@dataclass
class Outcome:
    """How the cases of a suite ended. If all were refused, nothing was checked."""

    name: str
    num_cases: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)  # a message for each different failure

    def add(self, result: Result, command: str) -> None:
        self.num_cases += 1
        self.counts[result.kind] += 1
        if result.kind in FAILURES:
            text = f"{self.name}: {result.kind} {result.place}: {result.message}\n    {command}"
            self.failures.setdefault(f"{result.kind} {result.place}", text)


def run_suite(
    name: str,
    num_cases: int,
    *,
    seed: int = 0,
    first: int = 0,
    max_s: float = float("inf"),
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Run cases until all are done or the time is over, in a process that is replaced if it dies."""
    outcome = Outcome(name)
    while outcome.num_cases < num_cases and outcome.seconds < max_s:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        parent, child = FORKSERVER.Pipe()
        numbers = range(first + outcome.num_cases, first + num_cases)
        worker = FORKSERVER.Process(target=_work, args=(name, seed, numbers, child, folder))
        worker.start()
        child.close()
        try:
            prepared = _receive(parent, worker, PREPARATION_S, folder)
            assert prepared.kind == "prepared", f"{name}: {prepared}"
            started_s = time.monotonic() - outcome.seconds
            for number in numbers:
                result = _receive(parent, worker, SUITES[name].limit_s + GRACE_S, folder)
                outcome.add(result, f"python -m tests.fuzz {name} --seed {seed} --first {number} --cases 1")
                outcome.seconds = time.monotonic() - started_s
                progress(outcome)
                if worker.exitcode is not None or outcome.seconds > max_s:
                    break
        finally:
            parent.close()
            worker.join(GRACE_S)
            _kill(worker)
            shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _receive(parent: Any, worker: Any, limit_s: float, folder: Path) -> Result:
    """The next result. A worker that does not answer is killed."""
    kind, message = "traceback", "the process died"
    try:
        if parent.poll(limit_s):
            return parent.recv()
        kind, message = "hang", "the case cannot be interrupted"
    except EOFError:
        pass
    _kill(worker)
    log = folder / "stack"
    return Result(kind, _find_place(log.read_text() if log.exists() else ""), f"{message} ({worker.exitcode})")


def _kill(worker: Any) -> None:
    """End a worker and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.join()


def _work(name: str, seed: int, numbers: range, answers: Any, folder: Path) -> None:
    """Run cases in a separate process, and send their results."""
    import tests.fuzz.all_suites  # noqa: F401

    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    weights = home() / "weights"
    (folder / "home" / "weights").mkdir(parents=True)
    for installed in weights.iterdir() if weights.is_dir() else ():  # they can be used, but not added to
        (folder / "home" / "weights" / installed.name).symlink_to(installed.resolve())
    os.environ.update(HIERO_HOME=str(folder / "home"), HF_HUB_OFFLINE="1", TMPDIR=str(folder))
    tempfile.tempdir = None
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    SUITES[name].prepare()
    answers.send(Result("prepared"))
    with (folder / "stack").open("w") as stack:
        for number in numbers:
            faulthandler.dump_traceback_later(SUITES[name].limit_s + GRACE_S / 2, file=stack)
            case_folder = folder / f"case-{number}"
            case_folder.mkdir()
            result = run_case(name, number, case_folder, seed)
            faulthandler.cancel_dump_traceback_later()
            shutil.rmtree(case_folder, ignore_errors=True)
            try:
                answers.send(result)
            except OSError:  # the time is over
                break
    end_programs()


def run_case(name: str, number: int, folder: Path, seed: int = 0) -> Result:
    """Run a case in this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGALRM, _interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, SUITES[name].limit_s)
        try:
            SUITES[name].case(folder, random.Random(f"{seed} {name} {number}"))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except InputError as error:
        return Result("refused") if str(error).strip() else Result("wrong result", "", "an error without a message")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also a panic in Rust, which is no Exception
        kind = next((KINDS[each] for each in type(error).__mro__ if each in KINDS), "traceback")
        frames = traceback.extract_tb(error.__traceback__)[::-1]
        place = _find_place("".join(f'File "{frame.filename}", line {frame.lineno}' for frame in frames))
        notes = " ".join(getattr(error, "__notes__", ()))  # the smallest example of hypothesis
        return Result(kind, place, f"{type(error).__name__} {str(error)[:300]!a} {notes[:500]}")
    growth = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    return Result("memory bomb", "", f"{growth / 2**30:.1f} GiB") if growth > MAX_GROWTH_BYTES else Result("well")


def _interrupt(*_: object) -> None:
    raise HangError


def _find_place(stack: str) -> str:
    """The innermost line of hiero in a printed stack, innermost first."""
    found = re.search(rf'File "{PACKAGE}([^"]+)", line (\d+)', stack)
    return f"{found[1]}:{found[2]}" if found else ""
