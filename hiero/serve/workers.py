"""Threads that work for many clients."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class WorkerPool:
    """A few threads that work for many clients.

    Clients take turns, so that many requests of one do not delay the only request of another. Work that
    is cancelled while it waits is never started; a thread stays busy until its work ends.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._num_started = 0
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()  # by client
        self._changed = threading.Condition()

    def submit(self, client: str, work: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        with self._changed:
            self._waiting.setdefault(client, deque()).append((future, work))
            if self._num_started < self.num_threads:
                self._num_started += 1
                threading.Thread(target=self._run, daemon=True).start()  # a daemon does not keep the server alive
            self._changed.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                client, queue = self._waiting.popitem(last=False)
                future, work = queue.popleft()
                if queue:
                    self._waiting[client] = queue  # moves to the end of the queue
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # raised where the result is awaited
                    future.set_exception(error)
            del future, work  # otherwise the result would stay in memory until the next work arrives
