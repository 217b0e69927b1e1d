"""Cases scored by several processes. Much of scoring is small operations, and threads of one Python
wait for each other in them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import current_process, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np

from hiero.devices import one_thread_each
from hiero.engine import Engine, load
from hiero.evaluation.cases import Case
from hiero.types import AnnotatedStep, Clock

MIN_CASES = 4  # of a process; for fewer its start does not pay

Result = TypeVar("Result")


@dataclass(frozen=True)
class CaseContent:
    """A case as it is sent to a process, which reads the video again: its nodes come from the cache."""

    path: Path
    clock: Clock
    features: np.ndarray
    truth: list[AnnotatedStep]
    task: str
    shift_s: float
    outputs: dict[str, np.ndarray]


class CaseProcesses:
    """Processes that start when this is made, and score cases then and later."""

    def __init__(self, model: str, num: int) -> None:
        # Not forked: a copy of a process with threads may wait for ever for what one of them held.
        self._executor = ProcessPoolExecutor(num, get_context("spawn"), _begin, (model,))
        for _ in range(num):  # each starts a process
            self._executor.submit(int)

    def __enter__(self) -> CaseProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:  # an error, or Ctrl-C: nobody waits for what is begun
            for process in list((self._executor._processes or {}).values()):
                process.terminate()
        self._executor.shutdown(cancel_futures=True)

    def submit(self, function: Callable[[Case], Result], case: Case) -> Future[Result]:
        """Begin to compute a function of a case."""
        video = case.video
        content = CaseContent(video.path, video.clock, case.features, case.truth, case.task, case.shift_s, case.outputs)
        return self._executor.submit(_compute, function, content)


def start_processes(model: str, num: int) -> CaseProcesses | None:
    """Processes that score cases; None for fewer than two, and where none can be started: threads do it then."""
    if num < 2 or current_process().daemon:  # which may have no children
        return None
    try:
        return CaseProcesses(model, num)
    except (OSError, ImportError, BrokenExecutor):  # a limit of processes, no shared memory
        return None


# Of a process:
_engine: Engine
_limits = ExitStack()


def _begin(model: str) -> None:
    """Import torch and open the model. Its network is loaded by the first case that comes without
    outputs: most have them.
    """
    global _engine
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; who started this process ends it
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()
    _limits.enter_context(one_thread_each())
    _engine = load(model, backbone="default", device="cpu")


def _end_with(parent: BaseProcess | None) -> None:
    """A parent that is killed ends nothing by itself."""
    if parent is not None:
        parent.join()
        os._exit(1)


def _compute(function: Callable[[Case], Result], content: CaseContent) -> Result:
    video = _engine.read(content.path, clock=content.clock)
    case = Case(video, content.features, content.truth, content.task, content.shift_s, outputs=content.outputs)
    return function(case)
