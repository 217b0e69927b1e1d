"""Threads of the server: who runs, who waits, and what is never begun."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

pytest.importorskip("starlette", reason="needs FastAPI: pip install 'hiero-video[serve]'")

from starlette.requests import ClientDisconnect, Request

from hiero.serve.routing import RequestContext
from hiero.serve.workers import WorkerPool
from tests.waiting import PATIENCE_S


class Client:
    """A request whose client leaves when `leave` is called."""

    def __init__(self, host="10.0.0.1"):
        self.left = asyncio.Event()
        request = Request({"type": "http", "client": (host, 1), "headers": [], "state": {}}, self.receive)
        self.context = RequestContext(request, None)

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}


def test_all_threads_are_used_and_no_more():
    pool, barrier, running, most = WorkerPool(3), threading.Barrier(3), [], []

    def work():
        running.append(1)
        most.append(len(running))
        barrier.wait(PATIENCE_S)  # passes only where three run at a time
        running.pop()

    for future in [pool.submit("a", work) for _ in range(9)]:
        future.result(PATIENCE_S)
    assert max(most) == 3


def test_clients_take_turns():
    pool, begun, gate, order = WorkerPool(1), threading.Event(), threading.Event(), []
    pool.submit("a", lambda: (begun.set(), gate.wait(PATIENCE_S)))
    assert begun.wait(PATIENCE_S)
    futures = [pool.submit(client, lambda client=client: order.append(client)) for client in "aaaaabb"]
    gate.set()
    for future in futures:
        future.result(PATIENCE_S)
    assert order == list("ababaaa")


def test_work_that_nobody_waits_for_is_not_begun():
    pool, gate, begun = WorkerPool(1), threading.Event(), []

    async def run():
        running, waiting = Client(), Client()
        first = asyncio.ensure_future(running.context.run(lambda: gate.wait(PATIENCE_S), pool))
        second = asyncio.ensure_future(waiting.context.run(lambda: begun.append("second"), pool))
        await asyncio.sleep(0.1)
        waiting.left.set()
        with pytest.raises(ClientDisconnect):
            await second
        gate.set()
        assert await first
        assert await Client().context.run(lambda: 5, pool) == 5

    asyncio.run(run())
    assert begun == []


def test_work_that_looks_is_stopped():
    pool, begun, ended = WorkerPool(1), threading.Event(), threading.Event()

    async def run():
        client = Client()

        def work():
            begun.set()
            try:
                while True:
                    client.context.check_client()
                    time.sleep(0.01)
            finally:
                ended.set()

        task = asyncio.ensure_future(client.context.run(work, pool))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        client.left.set()
        with pytest.raises(ClientDisconnect):
            await task

    asyncio.run(run())
    assert ended.wait(PATIENCE_S)


def test_errors_come_out():
    async def run():
        with pytest.raises(ZeroDivisionError):
            await Client().context.run(lambda: 1 / 0, WorkerPool(1))

    asyncio.run(run())
