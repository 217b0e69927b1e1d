"""Thread pools for requests. Quick answers, segmentation and reading have separate pools, and clients take turns."""

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

    Clients take turns, so that many requests of one client do not delay the only request of another.
    Work that is cancelled while it waits is never started. A thread stays busy until its work ends,
    even if nobody waits for the result any more.
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


ANSWERS = WorkerPool(max(2, os.cpu_count() or 2))  # less than a second
CUTS = WorkerPool(2)  # segmentation, seconds for hours of video
LARGE_CUTS = WorkerPool(1)  # segmentation into many steps, which takes longer
READS = WorkerPool(2)  # files, which takes minutes unless they are in the cache


async def run_in_thread(request: Request, work: Callable[[], Result], pool: WorkerPool = ANSWERS) -> Result:
    """Run work in a thread. Raises ClientDisconnect as soon as the client disconnects."""
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
    """Raise ClientDisconnect if the client has disconnected. For use inside the work of a request."""
    if getattr(request.state, "has_left", False):
        raise ClientDisconnect


async def _wait_for_disconnect(request: Request) -> None:
    """Wait for the client to disconnect. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
