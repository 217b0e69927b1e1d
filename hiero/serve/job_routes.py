"""Routes of long work: reading a video in the background, and watching it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from hiero.serve.audit import AuditLog
from hiero.serve.jobs import Job, JobQueue, job_events
from hiero.serve.library import Library
from hiero.serve.routing import ERRORS
from hiero.serve.users import Editor, require


def job_router(library: Library, jobs: JobQueue, audit: AuditLog) -> APIRouter:
    """Start, list, watch, cancel and repeat jobs."""
    router = APIRouter(dependencies=[require("view")])

    def to_dict(job: Job) -> dict[str, Any]:
        entry = library.entries.get(job.video)
        return {**job.to_dict(), "name": job.video if entry is None else entry.name}

    @router.post("/api/videos/{id}/read", status_code=202, responses=ERRORS)
    async def read(id: str, user: Editor) -> dict[str, Any]:
        """Read a video in the background, and put it into the corpus if there is one."""
        entry = library.find(id)
        job = jobs.start(entry.id, user.name)
        audit.record(user, "read video", entry.id, f"{entry.name}, job {job.id}")
        return to_dict(job)

    @router.get("/api/jobs")
    async def listed() -> list[dict[str, Any]]:
        """What is under way, and what ended."""
        return [to_dict(job) for job in list(jobs.jobs.values())]

    @router.get("/api/jobs/{id}", responses=ERRORS)
    async def job(id: str) -> dict[str, Any]:
        """One job."""
        return to_dict(jobs.find(id))

    @router.delete("/api/jobs/{id}", responses=ERRORS)
    async def cancel(id: str, user: Editor) -> dict[str, Any]:
        """Stop a job; what it read is kept for the next time."""
        job = jobs.cancel(id)
        audit.record(user, "cancel job", job.id, job.video)
        return to_dict(job)

    @router.post("/api/jobs/{id}/retry", status_code=202, responses=ERRORS)
    async def retry(id: str, user: Editor) -> dict[str, Any]:
        """A new job in place of one that failed or was cancelled."""
        job = jobs.retry(id, user.name)
        audit.record(user, "retry job", job.id, job.video)
        return to_dict(job)

    @router.get("/api/jobs/{id}/events", responses=ERRORS, response_class=StreamingResponse)
    async def watch(id: str) -> StreamingResponse:
        """Progress as server-sent events, until the job ends."""
        events = job_events(jobs.find(id))

        async def event_stream() -> AsyncIterator[str]:
            async for event in events:
                yield ": still here\n\n" if event is None else f"data: {json.dumps(event)}\n\n"  # a comment is no event

        return StreamingResponse(event_stream(), media_type="text/event-stream")

    return router
