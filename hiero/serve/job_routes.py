"""Routes of long work: reading a video in the background, and watching it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response, StreamingResponse

from hiero.serve.jobs import JobQueue, job_events
from hiero.serve.library import Library
from hiero.serve.routing import ERRORS

MAX_WATCHERS = 32
END = object()  # of an iterator of events


def job_router(library: Library, jobs: JobQueue) -> APIRouter:
    """Start, list, watch and cancel jobs.

    Args:
        library: The videos.
        jobs: Reads them.
    """
    router = APIRouter()
    # A watcher blocks a thread until the job ends: these have their own, so that those of all other requests stay free.
    watcher_limiter = anyio.CapacityLimiter(MAX_WATCHERS)

    @router.post("/api/videos/{id}/read", status_code=202, responses=ERRORS)
    async def read(id: str) -> dict[str, Any]:
        """Read a video in the background, and put it into the corpus if there is one."""
        return jobs.start(library.find(id).id).to_dict()

    @router.get("/api/jobs")
    async def listed() -> list[dict[str, Any]]:
        """What is under way, and what ended."""
        return [job.to_dict() for job in jobs.jobs.values()]

    @router.get("/api/jobs/{id}", responses=ERRORS)
    async def job(id: str) -> dict[str, Any]:
        """One job."""
        return jobs.find(id).to_dict()

    @router.delete("/api/jobs/{id}", responses=ERRORS)
    async def cancel(id: str) -> dict[str, Any]:
        """Stop a job; what it read is kept for the next time."""
        return jobs.cancel(id).to_dict()

    @router.get("/api/jobs/{id}/events", responses=ERRORS, response_class=StreamingResponse)
    async def watch(id: str) -> Response:
        """Progress as server-sent events, until the job ends."""
        events = job_events(jobs.find(id))
        if watcher_limiter.available_tokens < 1:
            return JSONResponse({"error": "too many are watching; ask /api/jobs instead"}, 503)

        def next_event() -> Any:
            return next(events, END)

        async def event_stream() -> AsyncIterator[str]:
            while True:
                event = await anyio.to_thread.run_sync(next_event, abandon_on_cancel=True, limiter=watcher_limiter)
                if event is END:
                    return
                yield ": still here\n\n" if event is None else f"data: {json.dumps(event)}\n\n"  # a comment is no event

        return StreamingResponse(event_stream(), media_type="text/event-stream")

    return router
