"""The web application: the JSON API and the page behind the guard."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from hiero.corpus.indexing import ArrivalWatcher
from hiero.errors import BusyError, InputError
from hiero.networks.vector_cache import TextCache
from hiero.serve import adding, edit_routes, routing, server_routes, video_routes  # noqa: F401
from hiero.serve.edit_routes import to_etag
from hiero.serve.edits import ConflictError, FileEdits, StateEdits, clear_stale
from hiero.serve.entries import NotFoundError, NotReadError
from hiero.serve.guard import Guard
from hiero.serve.jobs import INTERNAL_ERROR, JobQueue, hide_folders, run_job, watch_folders
from hiero.serve.library import Library, complete_corpus
from hiero.serve.routing import Services
from hiero.serve.settings import ServerSettings
from hiero.serve.state import ENDED, STATES, State
from hiero.serve.telemetry import REQUEST_ID, EventLog, RequestLog
from hiero.serve.users import Access, ForbiddenError
from hiero.storage.cache import cached_files

STATIC = Path(__file__).parent / "static"
ROUTERS = (routing.public, routing.view, routing.edit, routing.admin)  # the imported modules add their routes
START_S = 2.0  # time after which the page is shown although some videos were not looked at yet
COUNT_CACHE_EVERY_S = 60.0  # time between two looks at the files of the cache
RETRY_S = 5  # after which a client may repeat a request for something that was busy
UNREADABLE_BODY = "the body must be JSON in UTF-8 with fewer than 1000 nested levels"
ERROR_STATUS: dict[type[Exception], int] = {  # the first that fits
    BusyError: 503,
    InputError: 400,
    ForbiddenError: 403,
    NotFoundError: 404,
    NotReadError: 409,
    ConflictError: 412,
}


def create_app(
    library: Library,
    settings: ServerSettings | None = None,
    state: State | None = None,
    watcher: ArrivalWatcher | None = None,
) -> Application:
    """Create the application of a server."""
    settings, state = settings or ServerSettings(), state or State()
    library.edits = StateEdits(state) if state.is_persistent else FileEdits(state)
    if library.cache:
        library.memory.open(library.engine, state)
    adding.add_uploads(library, settings.upload_folder)
    clear_stale({entry.path.parent for entry in library.entries.values()})
    jobs = JobQueue(partial(run_job, library), state, settings.jobs)
    start = threading.Thread(target=_start, args=(library, jobs, settings), daemon=True)
    start.start()
    start.join(START_S)
    log, metrics = EventLog(settings.log_format, state), _create_metrics(library, jobs)
    services = Services(settings, library, state, Access(state, settings), jobs, log, metrics)
    if watcher is not None:
        threading.Thread(target=watch_folders, args=(library, jobs, watcher, log), daemon=True).start()
    return Application(services)


def _start(library: Library, jobs: JobQueue, settings: ServerSettings) -> None:
    """Find out which videos were processed before, and process uploads that never were."""
    entries = list(library.entries.values())
    library.memory.recognise(entries)
    if isinstance(library.edits, StateEdits):
        library.edits.upgrade(entries)
        complete_corpus(library, entries)
    library.memory.recognise(entries, may_read=True)
    if settings.auto and settings.upload_folder is not None:
        had_jobs = library.edits.state.videos_with_jobs()
        for entry in entries:
            if entry.is_upload and not entry.is_read and entry.id not in had_jobs:
                jobs.start(entry.id, entry.folder)


class Application(RequestLog):
    """The API, the page and the background work of a server."""

    def __init__(self, services: Services) -> None:
        self.guard = Guard(_create_api(services), services.settings, services.access)
        super().__init__(self.guard, services.metrics, services.log)
        self.close = services.jobs.close  # stops the background work


def _create_api(services: Services) -> FastAPI:
    app = FastAPI(title="hiero", version=version("hiero-video"), docs_url=None, redoc_url=None)
    app.state.services = services
    for kind in (*ERROR_STATUS, RequestValidationError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _answer_error)
    for router in ROUTERS:
        app.include_router(router)
    app.mount("/", StaticFiles(directory=STATIC, html=True))  # comes last because it matches every path
    return app


def _create_metrics(library: Library, jobs: JobQueue) -> CollectorRegistry:
    disable_created_metrics()  # otherwise each counter has a second series with its start time
    registry = CollectorRegistry()
    gauge = partial(Gauge, registry=registry)
    gauge("hiero_start_time_seconds", "Start time of the server.").set_to_current_time()
    by_state = gauge("hiero_jobs", "Number of jobs.", ["state"])
    for state in STATES:
        by_state.labels(state).set_function(partial(jobs.count, state))
    gauge("hiero_queue_oldest_seconds", "Age of the oldest unfinished job.").set_function(lambda: jobs.oldest_s)
    registry.register(_Counts(library, jobs))
    gauge("hiero_videos", "Number of videos.").set_function(lambda: len(library.entries))
    gauge("hiero_open_videos_bytes", "Memory used by open videos.").set_function(lambda: library.videos.num_bytes)
    by_result = gauge("hiero_text_cache", "Lookups in the text cache.", ["result"])
    for result in ("hits", "misses"):
        by_result.labels(result).set_function(partial(TextCache.counts.__getitem__, result))
    return registry


class _Counts(Collector):
    """Counts that others keep: ended jobs, saved edits, and the space that the cache takes."""

    def __init__(self, library: Library, jobs: JobQueue) -> None:
        self.library, self.jobs = library, jobs
        self._cache_bytes, self._counted_s = 0, -math.inf

    def collect(self) -> Iterator[Metric]:
        ended = CounterMetricFamily("hiero_ended_jobs", "Jobs that have ended since the start.", labels=["state"])
        for state in ENDED:
            ended.add_metric([state], self.jobs.num_ended[state])
        yield ended
        yield CounterMetricFamily("hiero_edits", "Saved edits.", self.library.edits.state.count("edits"))
        if time.monotonic() - self._counted_s > COUNT_CACHE_EVERY_S:
            self._cache_bytes, self._counted_s = sum(file.num_bytes for file in cached_files()), time.monotonic()
        yield GaugeMetricFamily("hiero_cache_bytes", "Space that the cache takes.", self._cache_bytes)


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    if isinstance(error, RequestValidationError):
        # Without the input that FastAPI would return: NaN, for example, cannot be sent.
        rows = [{name: row[name] for name in ("type", "loc", "msg")} for row in error.errors()]
        reason = f"{'.'.join(map(str, rows[0]['loc']))}: {rows[0]['msg']}"
        return _json_response({"error": reason, "detail": rows}, 422)
    if isinstance(error, HTTPException):  # an unknown path, another method, or a body that FastAPI cannot parse
        reason = UNREADABLE_BODY if error.status_code == 400 else error.detail
        return _json_response({"error": reason, "detail": reason}, error.status_code, error.headers)
    status = next((status for kind, status in ERROR_STATUS.items() if isinstance(error, kind)), 500)
    if status == 500:
        logging.getLogger(__name__).error("hiero: request %s:", request.scope.get(REQUEST_ID, ""), exc_info=error)
        return _json_response({"error": INTERNAL_ERROR}, 500)
    body: dict[str, Any] = {"error": hide_folders(str(error)) if isinstance(error, InputError) else str(error)}
    headers = {"Retry-After": str(RETRY_S)} if isinstance(error, BusyError) else {}
    if isinstance(error, ConflictError):
        body["current"] = None if error.hierarchy is None else error.hierarchy.to_dict()
        headers = {} if error.version is None else {"ETag": to_etag(error.version)}
    return _json_response(body, status, headers)


def _json_response(body: Any, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """In ASCII, because an error may quote input that is not valid UTF-8 (a lone surrogate)."""
    return Response(json.dumps(body), status, headers, "application/json")
