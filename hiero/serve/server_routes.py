"""Routes for jobs, users, the audit log, health checks and metrics.

Routes that write the state are plain functions: FastAPI runs them in threads, because a write may wait.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Body, Query, Response
from fastapi.responses import StreamingResponse
from prometheus_client import generate_latest

from hiero.errors import InputError
from hiero.serve.guard import set_cookie
from hiero.serve.jobs import LEARNING, hide_folders, job_events
from hiero.serve.routing import ERRORS, Context, FoundEntry, RequestContext, admin, edit, public, view
from hiero.serve.state import Job, StoredToken
from hiero.serve.video_routes import Filter

MAX_TOKEN_LENGTH = 200


# Jobs


@edit.post("/api/videos/{id}/read", status_code=202, responses=ERRORS)
def read(context: Context, entry: FoundEntry) -> dict[str, Any]:
    """Process a video in the background and add it to the corpus, if there is one."""
    job = context.services.jobs.start(entry.id, context.user.name, entry.duration_s)
    context.record("read video", entry.id, f"{entry.name}, job {job.id}")
    return _describe_job(context, job)


@edit.post("/api/read", status_code=202, responses=ERRORS)
def read_all(context: Context, wanted: Filter) -> dict[str, int]:
    """Process all videos that match a filter and have not been processed."""
    context.library.memory.recognise(context.library.list_entries(wanted))
    entries = [entry for entry in context.library.list_entries(wanted) if not entry.is_read]
    for entry in entries:
        read(context, entry)
    return {"started": len(entries)}


@view.get("/api/jobs")
async def jobs(context: Context) -> list[dict[str, Any]]:
    """The last finished jobs, the running ones, and the first that wait, in their order."""
    return [_describe_job(context, job) for job in context.services.jobs.listed()]


@view.get("/api/jobs/{id}", responses=ERRORS)
async def job(context: Context, id: str) -> dict[str, Any]:
    """One job."""
    return _describe_job(context, context.services.jobs.find(id))


@edit.delete("/api/jobs/{id}", responses=ERRORS)
def cancel(context: Context, id: str) -> dict[str, Any]:
    """Cancel a job. Its results so far are kept for the next attempt."""
    job = context.services.jobs.cancel(id)
    context.record("cancel job", job.id, job.video)
    return _describe_job(context, job)


@edit.post("/api/jobs/{id}/retry", status_code=202, responses=ERRORS)
def retry(context: Context, id: str) -> dict[str, Any]:
    """Start a new job for one that failed or was cancelled."""
    job = context.services.jobs.retry(id, context.user.name)
    context.record("retry job", job.id, job.video)
    return _describe_job(context, job)


@view.get("/api/jobs/{id}/events", responses=ERRORS, response_class=StreamingResponse)
async def watch(context: Context, id: str) -> StreamingResponse:
    """Progress of a job as server-sent events until it ends."""
    events = job_events(context.services.jobs, context.services.jobs.find(id))

    async def event_stream() -> AsyncIterator[str]:
        async for event in events:
            yield ": heartbeat\n\n" if event is None else f"data: {json.dumps(event)}\n\n"

    return StreamingResponse(event_stream(), media_type="text/event-stream")


@edit.post("/api/learn", status_code=202, responses=ERRORS)
def learn(context: Context) -> dict[str, Any]:
    """Learn from all corrections in a background job."""
    job = context.services.jobs.start(LEARNING, context.user.name)
    context.record("learn", job.id)
    return _describe_job(context, job)


@view.get("/api/learn")
async def learned(context: Context) -> dict[str, Any]:
    """Summary of the last learning, empty before the first time."""
    return context.library.learned


def _describe_job(context: RequestContext, job: Job) -> dict[str, Any]:
    entry = context.library.entries.get(job.video)
    return {**context.services.jobs.describe(job), "name": job.video if entry is None else entry.name}


# Users


@public.post("/api/sign-in", responses={401: {**ERRORS[404], "description": "unknown token"}})
async def sign_in(
    context: Context, response: Response, token: Annotated[str, Body(embed=True, max_length=MAX_TOKEN_LENGTH)]
) -> dict[str, Any]:
    """Sign a browser in with a token. A cookie that scripts cannot read keeps it signed in."""
    user = context.services.access.find(token.strip())
    if user is None:
        response.status_code = 401
        return {"error": "unknown token; ask the administrator of this server for one"}
    set_cookie(response, context.request.scope, token.strip(), context.services.settings.path_prefix)
    return asdict(user)


@public.post("/api/sign-out")
async def sign_out(context: Context, response: Response) -> dict[str, bool]:
    """Delete the cookie, also one that is no longer valid."""
    set_cookie(response, context.request.scope, "", context.services.settings.path_prefix)
    return {"signed_in": False}


@view.get("/api/me")
async def me(context: Context) -> dict[str, Any]:
    """The user of this request and their role."""
    return {**asdict(context.user), "sign_in": not context.services.access.is_open}


@admin.get("/api/tokens")
async def tokens(context: Context) -> list[StoredToken]:
    """The owners of tokens. The tokens themselves are not stored."""
    return context.services.state.tokens()


@admin.get("/api/audit")
async def audit(context: Context, n: Annotated[int, Query(ge=1, le=10_000)] = 200) -> list[dict[str, Any]]:
    """The last changes, newest first."""
    return context.services.state.audit(n)


# Operation


@public.get("/healthz")
async def health() -> dict[str, str]:
    """Whether the process is alive."""
    return {"status": "ok"}


@public.get("/readyz", responses={503: {"description": "not ready"}})
def ready(context: Context, response: Response) -> dict[str, Any]:
    """Whether the server accepts requests, can save changes, and has its model and its corpus."""
    library, checks = context.library, dict[str, str]()

    def check(name: str, work: Callable[[], object]) -> None:
        try:
            work()
            checks[name] = "ok"
        except (InputError, OSError) as error:
            checks[name] = hide_folders(str(error))

    if context.services.jobs.closing.is_set():
        checks["server"] = "the server is stopping"
    check("disk", context.services.state.check_writable)
    checks["model"] = hide_folders(library.model_problem) or "ok"
    check("corpus", lambda: library.corpus and library.corpus.num_videos)
    errors = [reason for reason in checks.values() if reason != "ok"]
    response.status_code = 503 if errors else 200
    return {"status": "ready", **checks} if not errors else {"status": "not ready", "error": errors[0], **checks}


@view.get("/metrics", response_class=Response)
async def prometheus(context: Context) -> Response:
    """Counts and latencies in the text format of Prometheus."""
    return Response(generate_latest(context.services.metrics), media_type="text/plain; version=0.0.4")
