"""The JSON API and the page. Videos are named by ids of what was given to the server; no path ever comes from a client."""

from __future__ import annotations

import traceback
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

import hiero
from hiero.errors import InputError
from hiero.serve.guard import LOOPBACK_HOSTS, Guard
from hiero.serve.job_routes import job_router
from hiero.serve.jobs import JobQueue, strip_folders
from hiero.serve.library import Library, NotFoundError, NotReadError
from hiero.serve.search_routes import search_router
from hiero.serve.uploads import Uploads, upload_router
from hiero.serve.video_routes import edit_router, video_router

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
    jobs = JobQueue(lambda id, progress: library.index(library.find(id), progress))

    app = FastAPI(title="hiero", version=hiero.__version__, docs_url=None, redoc_url=None)
    _add_error_handlers(app)
    app.include_router(video_router(library, has_uploads=uploads.folder is not None))
    app.include_router(edit_router(library))
    app.include_router(search_router(library))
    app.include_router(job_router(library, jobs))
    app.include_router(upload_router(library, uploads))
    app.mount("/", StaticFiles(directory=STATIC, html=True))  # last: it matches every path
    return Guard(app, hosts or set(LOOPBACK_HOSTS), token, uploads.max_bytes, jobs.close)


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(InputError)
    async def bad_request(_: Request, error: InputError) -> JSONResponse:
        return JSONResponse({"error": strip_folders(str(error))}, 400)

    @app.exception_handler(NotFoundError)
    async def not_found(_: Request, error: NotFoundError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 404)

    @app.exception_handler(NotReadError)
    async def not_read(_: Request, error: NotReadError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 409)

    @app.exception_handler(Exception)
    async def internal_error(_: Request, error: Exception) -> JSONResponse:
        traceback.print_exception(error)  # for the person at the server, not for the client
        return JSONResponse({"error": "an internal error; the server's log has it"}, 500)
