"""The JSON API and the page. Videos are named by ids of what was given to the server; no path ever comes from a client."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from starlette.requests import ClientDisconnect

import hiero
from hiero.errors import InputError
from hiero.serve.guard import LOOPBACK_HOSTS, Guard
from hiero.serve.job_routes import job_router
from hiero.serve.jobs import JobQueue, strip_folders
from hiero.serve.learning import LEARNING, Learning, learning_router
from hiero.serve.library import ConflictError, Library, NotFoundError, NotReadError, clear_stale_edits
from hiero.serve.search_routes import search_router
from hiero.serve.uploads import Uploads, add_uploads, upload_router
from hiero.serve.video_routes import edit_router, to_etag, video_router
from hiero.types import ProgressCallback

STATIC = Path(__file__).parent / "static"


def create_app(
    library: Library, *, hosts: set[str] | None = None, token: str | None = None, uploads: Uploads | None = None
) -> Guard:
    """The guarded application.

    Args:
        library: What it shows.
        hosts: Names that it answers to; by default those of loopback.
        token: What clients must send; None asks for nothing.
        uploads: Settings of uploads; by default they are off.
    """
    uploads = uploads or Uploads()
    add_uploads(library, uploads)
    clear_stale_edits(library)
    learning = Learning(library)

    def work(id: str, progress: ProgressCallback) -> None:
        if id == LEARNING:
            learning.run(progress)
        else:
            library.index(library.find(id), progress)

    jobs = JobQueue(work)

    app = FastAPI(title="hiero", version=hiero.__version__, docs_url=None, redoc_url=None)
    _add_error_handlers(app)
    app.include_router(video_router(library, has_uploads=uploads.folder is not None))
    app.include_router(edit_router(library))
    app.include_router(search_router(library))
    app.include_router(job_router(library, jobs))
    app.include_router(learning_router(learning, jobs))
    app.include_router(upload_router(library, uploads))
    app.mount("/", StaticFiles(directory=STATIC, html=True))  # last: it matches every path
    return Guard(app, hosts or set(LOOPBACK_HOSTS), token, uploads.max_bytes, jobs.close)


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(InputError)
    async def bad_request(_: Request, error: InputError) -> Response:
        return _json_response({"error": strip_folders(str(error))}, 400)

    @app.exception_handler(RequestValidationError)
    async def bad_parameters(_: Request, error: RequestValidationError) -> Response:
        # Without the input, which FastAPI would send back: NaN, for one, cannot be sent.
        return _json_response({"detail": [{name: row[name] for name in ("type", "loc", "msg")} for row in error.errors()]}, 422)

    @app.exception_handler(NotFoundError)
    async def not_found(_: Request, error: NotFoundError) -> Response:
        return _json_response({"error": str(error)}, 404)

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
    async def internal_error(_: Request, error: Exception) -> Response:
        traceback.print_exception(error)  # for the person at the server, not for the client
        return _json_response({"error": "an internal error; the server's log has it"}, 500)


def _json_response(body: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    """In ASCII: an error may quote what a client sent, and half a character (a lone surrogate) is no UTF-8."""
    return Response(json.dumps(body), status, headers, "application/json")
