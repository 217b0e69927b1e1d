"""Routes of long work: reading a video in the background, learning from corrections, and watching both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

from hiero.serve.jobs import Job, job_events
from hiero.serve.learning import LEARNING
from hiero.serve.routing import ERRORS, Services, ServicesDep, UserDep, role_router

view, edit = role_router("view"), role_router("edit")


@edit.post("/api/videos/{id}/read", status_code=202, responses=ERRORS)
async def read(id: str, user: UserDep, services: ServicesDep) -> dict[str, Any]:
    """Read a video in the background, and put it into the corpus if there is one."""
    entry = services.library.find(id)
    job = services.jobs.start(entry.id, user.name)
    services.audit.record(user, "read video", entry.id, f"{entry.name}, job {job.id}")
    return _to_dict(job, services)


@view.get("/api/jobs")
async def listed(services: ServicesDep) -> list[dict[str, Any]]:
    """What is under way, and what ended."""
    return [_to_dict(job, services) for job in list(services.jobs.jobs.values())]


@view.get("/api/jobs/{id}", responses=ERRORS)
async def job(id: str, services: ServicesDep) -> dict[str, Any]:
    """One job."""
    return _to_dict(services.jobs.find(id), services)


@edit.delete("/api/jobs/{id}", responses=ERRORS)
async def cancel(id: str, user: UserDep, services: ServicesDep) -> dict[str, Any]:
    """Stop a job; what it read is kept for the next time."""
    job = services.jobs.cancel(id)
    services.audit.record(user, "cancel job", job.id, job.video)
    return _to_dict(job, services)


@edit.post("/api/jobs/{id}/retry", status_code=202, responses=ERRORS)
async def retry(id: str, user: UserDep, services: ServicesDep) -> dict[str, Any]:
    """A new job in place of one that failed or was cancelled."""
    job = services.jobs.retry(id, user.name)
    services.audit.record(user, "retry job", job.id, job.video)
    return _to_dict(job, services)


@view.get("/api/jobs/{id}/events", responses=ERRORS, response_class=StreamingResponse)
async def watch(id: str, services: ServicesDep) -> StreamingResponse:
    """Progress as server-sent events, until the job ends."""
    events = job_events(services.jobs.find(id))

    async def event_stream() -> AsyncIterator[str]:
        async for event in events:
            yield ": still here\n\n" if event is None else f"data: {json.dumps(event)}\n\n"  # a comment is no event

    return StreamingResponse(event_stream(), media_type="text/event-stream")


@edit.post("/api/learn", status_code=202, responses=ERRORS)
async def learn(user: UserDep, services: ServicesDep) -> dict[str, Any]:
    """Learn from all corrections in the background; a job like those that read."""
    job = services.jobs.start(LEARNING, user.name)
    services.audit.record(user, "learn", job.id)
    return job.to_dict()


@view.get("/api/learn")
async def learned(services: ServicesDep) -> dict[str, Any]:
    """What was learned last, and which names changed; empty before the first time."""
    return services.learning.result or {}


def _to_dict(job: Job, services: Services) -> dict[str, Any]:
    entry = services.library.entries.get(job.video)
    return {**job.to_dict(), "name": job.video if entry is None else entry.name}
