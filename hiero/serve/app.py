"""The JSON API and the page. Videos are named by ids of what was given to the server; no path ever
comes from a client.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.requests import ClientDisconnect

import hiero
from hiero.corpus.watching import ArrivalWatcher
from hiero.errors import InputError
from hiero.serve.arrivals import Arrivals
from hiero.serve.audit import AuditLog, Presence
from hiero.serve.edit_stores import StateEdits
from hiero.serve.guard import LOOPBACK_HOSTS, Guard
from hiero.serve.health import Health, health_router
from hiero.serve.job_routes import job_router
from hiero.serve.jobs import JobQueue, strip_folders
from hiero.serve.learning import LEARNING, Learning, learning_router
from hiero.serve.library import ConflictError, Entry, Library, NotFoundError, NotReadError, clear_stale_edits
from hiero.serve.proxies import Proxies
from hiero.serve.search_routes import search_router
from hiero.serve.state import State
from hiero.serve.telemetry import REQUEST_ID, LogFormat, Metrics, RequestLog
from hiero.serve.uploads import Uploads, add_uploads, upload_router
from hiero.serve.user_routes import user_router
from hiero.serve.users import Access, ForbiddenError, Role
from hiero.serve.video_routes import edit_router, to_etag, video_router
from hiero.sources.source import display_addresses
from hiero.text.vector_cache import TextCache
from hiero.types import ProgressCallback

STATIC = Path(__file__).parent / "static"


@dataclass(frozen=True)
class AppOptions:
    """Settings of the application."""

    hosts: frozenset[str] = frozenset(LOOPBACK_HOSTS)
    token: str | None = None
    user_header: str | None = None
    header_role: Role | None = "view"
    proxies: Proxies = field(default_factory=Proxies)
    uploads: Uploads = field(default_factory=Uploads)
    num_jobs: int = 1
    write_edits: bool = False
    log_format: LogFormat = "none"
    watcher: ArrivalWatcher | None = None
    reader: Callable[[Entry, ProgressCallback], None] | None = None


def create_app(library: Library, options: AppOptions | None = None, state: State | None = None) -> RequestLog:
    """The guarded application."""
    options = options or AppOptions()
    state = state or State()
    if state.is_persistent:
        library.edit_store = StateEdits(state, options.write_edits)
    add_uploads(library, options.uploads)
    clear_stale_edits(library)
    learning = Learning(library)

    def work(id: str, progress: ProgressCallback) -> None:
        if id == LEARNING:
            learning.run(progress)
            return
        entry = library.find(id)
        if options.reader is not None and not library.is_read(entry):
            options.reader(entry, progress)
        library.index(entry, progress)

    jobs = JobQueue(work, state, options.num_jobs)
    audit, presence = AuditLog(state, options.log_format), Presence()
    access = Access(state, options.token, options.user_header, options.header_role)
    health = Health(state)

    def gauges() -> dict[str, float]:
        return {
            **{f'hiero_jobs{{state="{name}"}}': float(num) for name, num in jobs.count_by_state().items()},
            "hiero_videos": float(len(library.entries)),
            "hiero_open_videos_bytes": float(library.num_open_bytes),
            **{f'hiero_text_cache{{result="{name}"}}': float(TextCache.counts[name]) for name in ("hits", "misses")},
        }

    metrics = Metrics(gauges)
    app = FastAPI(title="hiero", version=hiero.__version__, docs_url=None, redoc_url=None)
    _add_error_handlers(app)
    app.include_router(video_router(library, presence, has_uploads=options.uploads.folder is not None))
    app.include_router(edit_router(library, audit, presence))
    app.include_router(search_router(library))
    app.include_router(job_router(library, jobs, audit))
    app.include_router(learning_router(learning, jobs, audit))
    app.include_router(upload_router(library, options.uploads, audit))
    app.include_router(user_router(access, state, options.proxies.root_path))
    app.include_router(health_router(health, metrics))
    app.mount("/", StaticFiles(directory=STATIC, html=True))  # last: it matches every path

    arrivals = None if options.watcher is None else Arrivals(library, jobs, options.watcher, audit)

    def close() -> None:
        health.is_stopping = True
        if arrivals is not None:
            arrivals.close()
        jobs.close()

    guard = Guard(app, set(options.hosts), access, options.proxies, options.uploads.max_bytes)
    return RequestLog(guard, metrics, options.log_format, close)


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(InputError)
    async def bad_request(_: Request, error: InputError) -> Response:
        return _json_response({"error": strip_folders(display_addresses(str(error)))}, 400)

    @app.exception_handler(RequestValidationError)
    async def bad_parameters(_: Request, error: RequestValidationError) -> Response:
        # Without the input, which FastAPI would send back: NaN, for one, cannot be sent.
        return _json_response(
            {"detail": [{name: row[name] for name in ("type", "loc", "msg")} for row in error.errors()]}, 422
        )

    @app.exception_handler(NotFoundError)
    async def not_found(_: Request, error: NotFoundError) -> Response:
        return _json_response({"error": str(error)}, 404)

    @app.exception_handler(ForbiddenError)
    async def forbidden(_: Request, error: ForbiddenError) -> Response:
        return _json_response({"error": str(error)}, 403)

    @app.exception_handler(NotReadError)
    async def not_read(_: Request, error: NotReadError) -> Response:
        return _json_response({"error": str(error)}, 409)

    @app.exception_handler(ConflictError)
    async def conflict(_: Request, error: ConflictError) -> Response:
        current = None if error.hierarchy is None else error.hierarchy.to_dict()
        etag = {} if error.version is None else {"ETag": to_etag(error.version)}
        return _json_response({"error": str(error), "current": current}, 412, etag)

    @app.exception_handler(ClientDisconnect)
    async def client_left(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody reads it

    @app.exception_handler(Exception)
    async def internal_error(request: Request, error: Exception) -> Response:
        print(f"hiero: request {request.scope.get(REQUEST_ID, '')}:", file=sys.stderr)
        traceback.print_exception(error)  # for the person at the server, not for the client
        return _json_response({"error": "an internal error; the server's log has it"}, 500)


def _json_response(body: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    """In ASCII: an error may quote what a client sent, and half a character (a lone surrogate) is no UTF-8."""
    return Response(json.dumps(body), status, headers, "application/json")
