"""A server of files over HTTP on this machine, which can lose connections, refuse ranges, ask for a
password and redirect.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hiero.media import addresses, remote


def isolate_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, nothing known of any address, and no waiting between attempts."""
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(remote, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(remote, "STAT_AGE_S", -1.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(remote, "COPY_NAMES", {})
    monkeypatch.setattr(addresses, "COPY_NAMES", remote.COPY_NAMES)
    monkeypatch.setattr(remote, "_stats", {})


class FileServer(ThreadingHTTPServer):
    """Files by path, and how they are served."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.versions: dict[str, str] = {}  # ETags by path
        self.redirects: dict[str, str] = {}  # addresses by path
        self.has_ranges, self.says_size = True, True  # parts can be asked for; answers have a Content-Length
        self.is_endless = False  # answers go on for ever with zeros
        self.drops: list[int] = []  # after how many bytes each of the next answers ends
        self.codes: list[int] = []  # statuses of the next answers
        self.authorization = ""  # the header that is asked for
        self.delay_s = 0.0  # after each chunk
        self.num_sent = 0  # bytes of all bodies
        self.requests: list[tuple[str, str, dict[str, str]]] = []  # path, query and headers of each request

    def put(self, path: str, content: bytes) -> str:
        """Serve a file, also in place of another; its address."""
        self.files[path] = content
        self.versions[path] = f'"{len(self.versions)}-{hash(content)}"'
        return self.address + path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """A client that went away is none."""


class _Handler(BaseHTTPRequestHandler):
    server: FileServer
    protocol_version = "HTTP/1.0"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server, parts = self.server, urlsplit(self.path)
        server.requests.append((parts.path, parts.query, dict(self.headers)))
        if server.codes:
            return self._answer(server.codes.pop(0))
        if parts.path in server.redirects:
            return self._answer(302, {"Location": server.redirects[parts.path]})
        if server.authorization and self.headers.get("Authorization") != server.authorization:
            return self._answer(401)
        if parts.path not in server.files:
            return self._answer(404)
        content, headers = server.files[parts.path], {"ETag": server.versions[parts.path]}
        if server.has_ranges:
            headers["Accept-Ranges"] = "bytes"
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if server.has_ranges and match:
            start, stop = int(match[1]), int(match[2]) + 1 if match[2] else len(content)
            if start >= len(content):
                return self._answer(416, {"Content-Range": f"bytes */{len(content)}"})
            body = content[start:stop]
            headers["Content-Range"] = f"bytes {start}-{start + len(body) - 1}/{len(content)}"
            return self._answer(206, headers, body)
        return self._answer(200, headers, content)

    def _answer(self, code: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        server = self.server
        stop = server.drops.pop(0) if server.drops and len(body) > 1 else len(body)
        if len(body) == 1:
            server.num_sent += 1  # now: who asks for one byte does not wait for it
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if server.says_size:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for start in range(0, min(stop, len(body)), 2**16):
            chunk = body[start : min(start + 2**16, stop)]
            # before the client has them, who may look at it at once
            server.num_sent += len(chunk) if len(body) > 1 else 0
            self.wfile.write(chunk)
            if server.delay_s:
                time.sleep(server.delay_s)
        while server.is_endless:
            self.wfile.write(bytes(2**20))
            server.num_sent += 2**20


@contextmanager
def file_server() -> Iterator[FileServer]:
    """A server that runs for the time of the block."""
    server = FileServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
