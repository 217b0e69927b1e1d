"""The server process: where it listens, who may reach it, and how it ends."""

from __future__ import annotations

import asyncio
import re
import socket as socketlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import uvicorn

from hiero.corpus.indexing import ArrivalWatcher
from hiero.errors import InputError
from hiero.serve.app import Application, create_app
from hiero.serve.connections import KEEP_ALIVE_S, LimitedProtocol
from hiero.serve.library import Library
from hiero.serve.settings import ServerSettings
from hiero.serve.state import State
from hiero.serve.users import new_token
from hiero.text.vector_cache import TextCache

MAX_HEADER_BYTES = 65536
NUM_OPEN_FILES = 4096  # a connection may also have a video open
SHUTDOWN_S = 20  # for requests that are under way


def run_server(
    library: Library,
    settings: ServerSettings,
    on_ready: Callable[[str], None],
    watcher: ArrivalWatcher | None = None,
) -> None:
    """Serve until it is interrupted."""
    _make_upload_folder(settings)
    if settings.user_header and not settings.trusted_networks:
        raise InputError("--user-header is believed from trusted proxies only; name them with --trusted-proxy")
    state = State(settings.state, lock=True)
    settings = replace(settings, token=_choose_token(settings, state))
    app = create_app(library, settings, state, watcher)
    socket = _bind(settings.host, settings.port)  # here, since a free port is known only then
    query = f"?token={settings.token}" if settings.token else ""
    address = f"http://{_url_host(settings.host)}:{socket.getsockname()[1]}/{query}"
    _allow_open_files()
    try:
        with TextCache.stored_in(None if settings.state is None else settings.state / "text"):
            Server(app, settings, lambda: on_ready(address)).run(sockets=[socket])
    finally:
        state.close()


class Server(uvicorn.Server):
    """uvicorn, which says when it is ready, and stops the work in the background before it ends."""

    def __init__(self, app: Application, settings: ServerSettings, on_ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            settings.host,
            settings.port,
            log_level="warning",
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            http=partial(LimitedProtocol, trusted_proxies=app.guard.trusted_proxies),  # type: ignore[arg-type]
            ws="none",
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=SHUTDOWN_S,
            server_header=False,
            # The guard does it: uvicorn would believe X-Forwarded-For of anyone on this machine, and hide who sent it.
            proxy_headers=False,
        )
        super().__init__(config)
        self.app, self.on_ready = app, on_ready

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.on_ready()

    async def shutdown(self, sockets: Any = None) -> None:
        # Ends the streams of those who watch a job, for which a shutdown would wait; in a thread, since answers go on.
        await asyncio.get_running_loop().run_in_executor(None, self.app.close)
        await super().shutdown(sockets)


def _make_upload_folder(settings: ServerSettings) -> None:
    if settings.upload is not None:
        try:
            settings.upload.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--upload {settings.upload}: no folder can be made there ({error.strerror})") from error


def _choose_token(settings: ServerSettings, state: State) -> str | None:
    """The token for all; a new one where others than this machine reach the server and nobody has one of their own."""
    token = settings.token
    has_users = any(token.revoked_at is None for token in state.tokens()) or settings.user_header
    if token is None and not settings.is_private and not has_users:
        token = new_token()
    if token is not None and not re.fullmatch(r"[\w.~-]+", token):
        raise InputError("--token takes letters, digits and . _ ~ -")
    return token


def _allow_open_files() -> None:
    """Raise this process's own limit of open files, often 1024, as far as the system lets it."""
    try:
        import resource  # not on Windows, which has no such limit
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = NUM_OPEN_FILES if hard == resource.RLIM_INFINITY else min(NUM_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _bind(host: str, port: int) -> socketlib.socket:
    """A socket at an address, as uvicorn binds it, which itself ends the process where it cannot."""
    family = socketlib.AF_INET6 if ":" in host else socketlib.AF_INET
    # TCP by name: only then asyncio sends small answers at once, and does not wait 40 ms for more.
    socket = socketlib.socket(family, socketlib.SOCK_STREAM, socketlib.IPPROTO_TCP)
    socket.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_REUSEADDR, 1)
    try:
        socket.bind((host, port))
    except (OSError, OverflowError) as error:
        socket.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen at {host}:{port} ({reason}); choose another --port, 0 takes a free one"
        ) from error
    return socket


def _url_host(host: str) -> str:
    """A host as it stands in an address: one that can be reached, IPv6 in brackets."""
    if host in ("0.0.0.0", "::"):
        return _network_address()
    return f"[{host}]" if ":" in host else host


def _network_address() -> str:
    """This machine's address in its network, for others to use."""
    with socketlib.socket(socketlib.AF_INET, socketlib.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only the route is looked up
            return str(probe.getsockname()[0])
        except OSError:
            return "localhost"
