"""Routes of long work: reading a video in the background, learning from corrections, and watching both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

from hiero.serve.jobs import job_events
from hiero.serve.learning import LEARNING
from hiero.serve.library import Library
from hiero.serve.routing import ERRORS, Context, role_router
from hiero.serve.state import Job

view, edit = role_router("view"), role_router("edit")


@edit.post("/api/videos/{id}/read", status_code=202, responses=ERRORS)
async def read(context: Context, id: str) -> dict[str, Any]:
    """Read a video in the background, and put it into the corpus if there is one."""
    entry = context.library.find(id)
    job = context.services.jobs.start(entry.id, context.user.name)
    context.record("read video", entry.id, f"{entry.name}, job {job.id}")
    return _to_dict(job, context.library)


@view.get("/api/jobs")
async def listed(context: Context) -> list[dict[str, Any]]:
    """What is under way, and what ended."""
    return [_to_dict(job, context.library) for job in list(context.services.jobs.jobs.values())]


@view.get("/api/jobs/{id}", responses=ERRORS)
async def job(context: Context, id: str) -> dict[str, Any]:
    """One job."""
    return _to_dict(context.services.jobs.find(id), context.library)


@edit.delete("/api/jobs/{id}", responses=ERRORS)
async def cancel(context: Context, id: str) -> dict[str, Any]:
    """Stop a job; what it read is kept for the next time."""
    job = context.services.jobs.cancel(id)
    context.record("cancel job", job.id, job.video)
    return _to_dict(job, context.library)


@edit.post("/api/jobs/{id}/retry", status_code=202, responses=ERRORS)
async def retry(context: Context, id: str) -> dict[str, Any]:
    """A new job in place of one that failed or was cancelled."""
    job = context.services.jobs.retry(id, context.user.name)
    context.record("retry job", job.id, job.video)
    return _to_dict(job, context.library)


@view.get("/api/jobs/{id}/events", responses=ERRORS, response_class=StreamingResponse)
async def watch(context: Context, id: str) -> StreamingResponse:
    """Progress as server-sent events, until the job ends."""
    events = job_events(context.services.jobs.find(id))

    async def event_stream() -> AsyncIterator[str]:
        async for event in events:
            yield ": still here\n\n" if event is None else f"data: {json.dumps(event)}\n\n"  # a comment is no event

    return StreamingResponse(event_stream(), media_type="text/event-stream")


@edit.post("/api/learn", status_code=202, responses=ERRORS)
async def learn(context: Context) -> dict[str, Any]:
    """Learn from all corrections in the background; a job like those that read."""
    job = context.services.jobs.start(LEARNING, context.user.name)
    context.record("learn", job.id)
    return job.to_dict()


@view.get("/api/learn")
async def learned(context: Context) -> dict[str, Any]:
    """What was learned last, and which names changed; empty before the first time."""
    return context.services.learning.result or {}


def _to_dict(job: Job, library: Library) -> dict[str, Any]:
    entry = library.entries.get(job.video)
    return {**job.to_dict(), "name": job.video if entry is None else entry.name}
