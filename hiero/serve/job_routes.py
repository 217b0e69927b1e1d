"""Routes of long work: reading a video in the background, and watching it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from hiero.serve.jobs import JobQueue, job_events
from hiero.serve.library import Library
from hiero.serve.routing import ERRORS


def job_router(library: Library, jobs: JobQueue) -> APIRouter:
    """Start, list, watch and cancel jobs.

    Args:
        library: The videos.
        jobs: Reads them.
    """
    router = APIRouter()

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
    async def watch(id: str) -> StreamingResponse:
        """Progress as server-sent events, until the job ends."""
        events = job_events(jobs.find(id))

        async def event_stream() -> AsyncIterator[str]:
            async for event in events:
                yield ": still here\n\n" if event is None else f"data: {json.dumps(event)}\n\n"  # a comment is no event

        return StreamingResponse(event_stream(), media_type="text/event-stream")

    return router
