"""The server process: socket, start and shutdown."""

from __future__ import annotations

import asyncio
import re
import signal
import socket as socketlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import uvicorn

from hiero.corpus.indexing import ArrivalWatcher
from hiero.errors import InputError
from hiero.networks.vector_cache import TextCache
from hiero.serve.app import Application, create_app
from hiero.serve.library import Library
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from hiero.serve.telemetry import log_in_lines
from hiero.serve.users import new_token

MAX_CONNECTIONS = 512
KEEP_ALIVE_S = 10  # longest pause between two requests
MAX_HEADER_BYTES = 65536
NUM_OPEN_FILES = 4096  # each connection may also have a video open
SHUTDOWN_S = 3  # time for unfinished requests


@contextmanager
def exit_at_sigterm() -> Iterator[None]:
    """End the block with an exit, so that it cleans up. uvicorn repeats the signal after its shutdown."""
    if threading.current_thread() is not threading.main_thread():  # only this one can handle signals
        yield
        return
    handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


@exit_at_sigterm()
def run_server(
    library: Library, settings: ServerSettings, on_ready: Callable[[str], None], watcher: ArrivalWatcher | None = None
) -> None:
    """Serve until the process is interrupted."""
    if (folder := settings.upload_folder) is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--upload {folder}: cannot create the folder ({error.strerror})") from error
    if settings.user_header and not settings.trusted_networks:
        raise InputError("--user-header requires --trusted-proxy: the header is only accepted from trusted proxies")
    log_in_lines(settings.log_format)
    state = State(settings.state_folder, lock=True)
    settings = replace(settings, token=_choose_token(settings, state))
    app = create_app(library, settings, state, watcher)
    socket = _bind(settings.host, settings.port)  # before the start, because the address contains the port
    query = f"?token={settings.token}" if settings.token else ""
    address = f"http://{_url_host(settings.host)}:{socket.getsockname()[1]}/{query}"
    _allow_open_files()
    try:
        with TextCache.stored_in(settings.state_folder and settings.state_folder / "text"):
            threading.Thread(target=_load_model, args=(library,), daemon=True).start()
            on_ready(address)  # the socket listens: requests wait until the server starts
            Server(app, settings).run(sockets=[socket])
    finally:
        state.close()


def _load_model(library: Library) -> None:
    """Load what questions need before the first one is asked."""
    try:
        if library.engine.has_text:
            library.model_problem = "the model is loading"
            library.engine.embed_queries(["first question"])
        library.model_problem = ""
    except (InputError, OSError) as error:
        library.model_problem = str(error)


class Server(uvicorn.Server):
    """uvicorn, with the end of the background work at shutdown."""

    def __init__(self, app: Application, settings: ServerSettings) -> None:
        config = uvicorn.Config(
            app,
            settings.host,
            settings.port,
            log_level="warning",
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            http="h11",
            limit_concurrency=MAX_CONNECTIONS,  # above it, requests are answered with 503
            ws="none",
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=SHUTDOWN_S,
            server_header=False,
            # The guard does this. uvicorn would trust X-Forwarded-For from any client on this machine.
            proxy_headers=False,
        )
        super().__init__(config)
        self.app = app

    async def shutdown(self, sockets: Any = None) -> None:
        # In a thread, so that responses continue. It ends event streams, for which the shutdown would wait.
        await asyncio.get_running_loop().run_in_executor(None, self.app.close)
        await super().shutdown(sockets)


def _choose_token(settings: ServerSettings, state: State) -> str | None:
    """The shared token. A new one is generated if other machines can reach the server and nobody has a token."""
    token = settings.token
    has_users = any(token.revoked_at is None for token in state.tokens()) or settings.user_header
    if token is None and not settings.is_private and not has_users:
        token = new_token()
    if token is not None and not re.fullmatch(r"[\w.~-]+", token):
        raise InputError("--token must consist of letters, digits and . _ ~ -")
    return token


def _allow_open_files() -> None:
    """Raise the limit of open files of this process, if the system allows it."""
    with suppress(ImportError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(NUM_OPEN_FILES, hard)), hard))


def _bind(host: str, port: int) -> socketlib.socket:
    """Bind a socket like uvicorn, which would exit on an error."""
    family = socketlib.AF_INET6 if ":" in host else socketlib.AF_INET
    # Only if TCP is given explicitly, asyncio sends small responses without a delay of 40 ms.
    socket = socketlib.socket(family, socketlib.SOCK_STREAM, socketlib.IPPROTO_TCP)
    socket.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_REUSEADDR, 1)
    try:
        socket.bind((host, port))
        socket.listen()
    except (OSError, OverflowError) as error:
        socket.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}:{port} ({reason}); try --port 0 for a free port") from error
    return socket


def _url_host(host: str) -> str:
    """A reachable host for an address, with IPv6 in brackets."""
    if host not in ("0.0.0.0", "::"):
        return f"[{host}]" if ":" in host else host
    with socketlib.socket(socketlib.AF_INET, socketlib.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; it only looks up the route
            return str(probe.getsockname()[0])
        except OSError:
            return "localhost"
