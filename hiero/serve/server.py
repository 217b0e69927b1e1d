"""The server process: where it listens, who may reach it, and how it ends."""

from __future__ import annotations

import asyncio
import re
import socket as socketlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from hiero.corpus.watching import ArrivalWatcher
from hiero.errors import InputError
from hiero.serve.app import AppOptions, create_app
from hiero.serve.connections import KEEP_ALIVE_S, LimitedProtocol
from hiero.serve.guard import LOOPBACK_HOSTS, is_loopback
from hiero.serve.library import Entry, Library
from hiero.serve.proxies import Proxies, check_root_path, parse_networks
from hiero.serve.state import State
from hiero.serve.telemetry import LogFormat
from hiero.serve.uploads import Uploads
from hiero.serve.users import Role, new_token
from hiero.types import ProgressCallback

MAX_HEADER_BYTES = 65536
NUM_OPEN_FILES = 4096  # a connection may also have a video open
SHUTDOWN_S = 20  # for requests that are under way


@dataclass(frozen=True)
class ServerOptions:
    """Settings of `hiero serve`."""

    host: str = "127.0.0.1"
    port: int = 8400
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    upload_folder: Path | None = None
    upload_limit_mb: int = 2000
    state: Path | None = None
    write_edits: bool = False
    num_jobs: int = 1
    root_path: str = ""
    trusted_proxies: tuple[str, ...] = ()
    user_header: str | None = None
    header_role: Role | None = "view"
    log_format: LogFormat = "none"
    watcher: ArrivalWatcher | None = None
    reader: Callable[[Entry, ProgressCallback], None] | None = None


def run_server(library: Library, options: ServerOptions, on_ready: Callable[[str], None]) -> None:
    """Serve until it is interrupted."""
    if options.upload_folder is not None:
        try:
            options.upload_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"--upload {options.upload_folder}: no folder can be made there ({error.strerror})"
            ) from error
    proxies = Proxies(parse_networks(options.trusted_proxies), check_root_path(options.root_path))
    if options.user_header and not proxies.networks:
        raise InputError("--user-header is believed from trusted proxies only; name them with --trusted-proxy")
    state = State(options.state, lock=True)
    has_users = any(token.revoked_at is None for token in state.tokens()) or bool(options.user_header)
    # Behind a proxy, or under another name, others than this machine reach it too.
    is_private = is_loopback(options.host) and not (
        options.trusted_proxies or options.root_path or options.allowed_hosts
    )
    token = options.token
    if not is_private and not has_users:
        token = token or new_token()
    if token is not None and not re.fullmatch(r"[\w.~-]+", token):
        raise InputError("--token takes letters, digits and . _ ~ -")
    app_options = AppOptions(
        hosts=frozenset({*LOOPBACK_HOSTS, options.host.lower(), *(name.lower() for name in options.allowed_hosts)}),
        token=token,
        user_header=options.user_header,
        header_role=options.header_role,
        proxies=proxies,
        uploads=Uploads(options.upload_folder, options.upload_limit_mb * 2**20),
        num_jobs=options.num_jobs,
        write_edits=options.write_edits,
        log_format=options.log_format,
        watcher=options.watcher,
        reader=options.reader,
    )
    app = create_app(library, app_options, state)
    config = uvicorn.Config(
        app,
        options.host,
        options.port,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        http=LimitedProtocol,
        ws="none",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=SHUTDOWN_S,
        server_header=False,
        # uvicorn would believe X-Forwarded-For of anyone on this machine, and hide from the guard who is connected.
        proxy_headers=False,
    )
    LimitedProtocol.proxies = proxies
    socket = _bind(options.host, options.port)  # here, since a free port is known only then
    address = f"http://{_url_host(options.host)}:{socket.getsockname()[1]}/" + (f"?token={token}" if token else "")

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            on_ready(address)

        async def shutdown(self, sockets: Any = None) -> None:
            # Ends the streams of those who watch a job, for which a shutdown would wait; in a
            # thread, since answers go on.
            await asyncio.get_running_loop().run_in_executor(None, app.close)
            await super().shutdown(sockets)

    _allow_open_files()
    try:
        Server(config).run(sockets=[socket])
    finally:
        state.close()


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
