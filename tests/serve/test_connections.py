"""Connections that send nothing, half a request, or read nothing: they are let go, and the others are
served meanwhile.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest

uvicorn = pytest.importorskip("uvicorn", reason="needs uvicorn: pip install 'hiero-video[serve]'")

from hiero.serve import connections  # noqa: E402
from hiero.serve.guard import client_key  # noqa: E402
from tests.waiting import PATIENCE_S, wait_until  # noqa: E402

HEAD = b"GET /%s HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def held():
    """The requests at /wait that the server has begun."""
    return []


@pytest.fixture
def port(held):
    """A server at 127.0.0.1 that answers at once, or at /wait after `release` is set, or at /large
    with more than buffers hold.
    """
    import asyncio

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        if scope["path"] == "/wait":
            held.append(scope)
        while scope["path"] == "/wait" and not release.is_set():
            await asyncio.sleep(0.02)
        body = b"x" * (2**26 if scope["path"] == "/large" else 2)
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    release = threading.Event()
    config = uvicorn.Config(
        app,
        "127.0.0.1",
        0,
        log_level="error",
        http=connections.LimitedProtocol,
        ws="none",
        lifespan="off",
        timeout_keep_alive=connections.KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    server, listener = uvicorn.Server(config), config.bind_socket()
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listener.getsockname()[1]
    release.set()
    server.should_exit = True
    thread.join(10)


def connect(port, data=b"", host="127.0.0.1"):
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(host, 0))
    connection.sendall(data)
    return connection


def get(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S) as answer:
        return answer.read()


def is_served(port):
    try:
        return get(port) == b"xx"
    except urllib.error.HTTPError:
        return False


def is_closed_after(connection, data):
    try:
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def seconds_until_closed(connection):
    begin = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1000):
            pass
    return time.monotonic() - begin


@pytest.mark.parametrize("data", [b"", HEAD % b"" + b"Half: a hea"])
def test_a_request_that_does_not_come_is_not_waited_for(port, monkeypatch, data):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.4)
    with connect(port, data) as connection:
        assert seconds_until_closed(connection) > 0.2


def test_headers_that_come_byte_by_byte(port, monkeypatch):
    """Each byte is in time, the whole is not; also after a request that was answered."""
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.5)
    with connect(port, HEAD % b"" + b"\r\n") as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        wait_until(lambda: is_closed_after(connection, b"G"))


def test_a_long_answer_is_no_late_request(port, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_TIMEOUT_S", 0.5)  # a busy machine may be as late with the request
    with connect(port, HEAD % b"wait" + b"\r\n") as connection:
        connection.settimeout(1.0)
        with pytest.raises(TimeoutError):
            connection.recv(1000)


def test_515_idle_connections_keep_nobody_out(port):
    with contextlib.ExitStack() as stack:
        for i in range(515):
            stack.enter_context(connect(port, HEAD % b"" if i % 2 else b""))
        assert get(port) == b"xx"


def test_one_address_takes_its_share_only(port, held, monkeypatch):
    """With a request under way on each place of an address, its next is refused; another address is served."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS_PER_CLIENT", 8)
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(connect(port, HEAD % b"wait" + b"\r\n", "127.0.0.2"))
        wait_until(lambda: len(held) == 8)
        with connect(port, HEAD % b"" + b"\r\n", "127.0.0.2") as refused:
            answer = b"".join(iter(lambda: refused.recv(1000), b""))  # to its end: the connection is closed
            assert answer.startswith(b"HTTP/1.1 429")
            assert b"too many connections from your address" in answer
            assert b"retry-after" in answer
        assert get(port) == b"xx"


def test_all_places_are_taken(port, held, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 6)
    with contextlib.ExitStack() as stack:
        for i in range(6):
            stack.enter_context(connect(port, HEAD % b"wait" + b"\r\n", f"127.0.0.{i + 2}"))
        wait_until(lambda: len(held) == 6)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(port)


def test_who_does_not_read_gives_way(port, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS_PER_CLIENT", 4)
    monkeypatch.setattr(connections, "STALLED_S", 0.2)
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connect(port, HEAD % b"large" + b"\r\n"))
        wait_until(lambda: is_served(port))


def test_what_counts_as_one_client():
    assert client_key("10.0.0.1") != client_key("10.0.0.2")
    assert client_key("2001:db8::1") == client_key("2001:db8::ffff:1")
    assert client_key("2001:db8::1") != client_key("2001:db8:0:1::1")
    assert client_key("::ffff:10.0.0.1") == client_key("10.0.0.1")
    assert client_key("testclient") == "testclient"
