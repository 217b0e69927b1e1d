"""Threads for the work of requests: quick answers, cuts and readings each have their own; clients take turns."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from hiero.serve.guard import client_key

Result = TypeVar("Result")


class WorkerPool:
    """A few threads that work for many clients.

    What waits is done in turns: one piece of work of each client, then the next of each, so that
    many questions of one do not stand before the only one of another. Work that is cancelled while
    it waits is never begun. A thread is busy until its work ends, also where nobody waits for the
    result any more: so many run at a time and never more.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._num_started = self._num_free = 0
        # by client, next first
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._changed = threading.Condition()  # guards all of the above

    def submit(self, client: str, work: Callable[[], Result]) -> Future[Result]:
        """Do some work in a thread, after what waits already."""
        future: Future[Result] = Future()
        with self._changed:
            self._waiting.setdefault(client, deque()).append((future, work))
            if sum(map(len, self._waiting.values())) > self._num_free and self._num_started < self.num_threads:
                self._num_started += 1
                # A daemon, so that the server can end while there is work.
                threading.Thread(target=self._run, daemon=True).start()
            self._changed.notify()
        return future

    def _run(self) -> None:
        while True:
            future, work = self._next()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # whoever waits for it gets it
                    future.set_exception(error)
            del future, work  # or the result would be kept until the next work comes

    def _next(self) -> tuple[Future[Any], Callable[[], Any]]:
        with self._changed:
            self._num_free += 1
            self._changed.wait_for(lambda: self._waiting)
            self._num_free -= 1
            client, queue = self._waiting.popitem(last=False)
            item = queue.popleft()
            if queue:
                self._waiting[client] = queue  # at the end of the line
            return item


ANSWERS = WorkerPool(max(2, os.cpu_count() or 2))  # below a second
CUTS = WorkerPool(2)  # of steps: seconds, where a video has hours
LARGE_CUTS = WorkerPool(1)  # into so many steps that it takes longer
READS = WorkerPool(2)  # of files: from the cache, or, for a second model, minutes


async def run_in_thread(request: Request, work: Callable[[], Result], pool: WorkerPool = ANSWERS) -> Result:
    """Run in a thread, so that the event loop stays free; given up where the client leaves."""
    answer = asyncio.wrap_future(pool.submit(client_key(request.client.host if request.client else ""), work))
    leaving = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            request.state.has_left = True
            raise ClientDisconnect
        return answer.result()
    finally:
        answer.cancel()
        leaving.cancel()


def check_client(request: Request) -> None:
    """Raises ClientDisconnect where nobody waits for the answer to a request any more; called from
    inside its work.
    """
    if getattr(request.state, "has_left", False):
        raise ClientDisconnect


async def _wait_for_disconnect(request: Request) -> None:
    """The body was read before: nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
