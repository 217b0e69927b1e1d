"""What all routes share: the role that they need, what they work with, the types of their parameters, and
how they open a video.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from hiero.engine import Video
from hiero.errors import InputError
from hiero.serve.edits import Presence
from hiero.serve.entries import Entry
from hiero.serve.jobs import JobQueue
from hiero.serve.learning import Learning
from hiero.serve.library import Library
from hiero.serve.settings import Role, ServerSettings
from hiero.serve.state import State
from hiero.serve.telemetry import AuditLog, Metrics
from hiero.serve.users import USER, Access, ForbiddenError, User
from hiero.serve.workers import ANSWERS, CUTS, LARGE_CUTS, READS, Result, WorkerPool, check_client, run_in_thread

# of a level: a few seconds of work on hours of video, and more than a page can show; `hiero steps`
# makes more
MAX_STEPS = 1000
LARGE_STEPS = 200  # the page asks for no more

Text = Annotated[str, Query(min_length=1, max_length=500)]
NumResults = Annotated[int, Query(ge=1, le=200)]
Seconds = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)]
StepCounts = Annotated[
    str | None, Query(pattern=r"^\d{1,5}(,\d{1,5}){0,7}$", description="steps of each level, such as 4,8,16")
]
LevelNumber = Annotated[int | None, Query(ge=0, le=16)]

ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": description, "content": {"application/json": {"schema": {"type": "object"}}}}
    for code, description in ((400, "not possible"), (404, "not there"), (409, "not read yet"))
}


# Roles


@dataclass(frozen=True)
class RoleCheck:
    """A dependency of every route of a router: who sends the request must have a role; None lets everyone in."""

    role: Role | None

    async def __call__(self, request: Request) -> None:
        if self.role is None:
            return
        user: User = request.scope[USER]
        if not user.may(self.role):
            raise ForbiddenError(f"this needs the role {self.role}; {user.name} has the role {user.role}")


def role_router(role: Role | None) -> APIRouter:
    """A router whose routes need a role. Every route of the server is on one, so that none can forget to ask."""
    return APIRouter(dependencies=[Depends(RoleCheck(role))])


# What routes work with


@dataclass(frozen=True)
class Services:
    """The parts of a running server."""

    settings: ServerSettings
    library: Library
    state: State
    access: Access
    jobs: JobQueue
    learning: Learning
    audit: AuditLog
    metrics: Metrics
    presence: Presence


@dataclass(frozen=True)
class RequestContext:
    """A request, and what its route works with."""

    request: Request
    services: Services

    @property
    def library(self) -> Library:
        return self.services.library

    @property
    def user(self) -> User:
        """Who sends the request, as the guard found out."""
        user: User = self.request.scope[USER]
        return user

    async def run(self, work: Callable[[], Result], pool: WorkerPool = ANSWERS) -> Result:
        """Run in a thread, so that the event loop stays free; given up where the client leaves."""
        return await run_in_thread(self.request, work, pool)

    async def open_video(self, entry: Entry, model: str | None = None) -> Video:
        """A video that was read before: at once where it is in memory, else from its files, which no quick
        answer waits for.
        """
        video = self.library.find_open(entry, model)
        if video is not None:
            return video
        return await self.run(
            lambda: self.library.open_video(entry, model, lambda _: check_client(self.request)), READS
        )

    def record(self, action: str, subject: str, detail: str = "") -> None:
        """Write down what the user changed."""
        self.services.audit.record(self.user, action, subject, detail)


async def make_context(request: Request) -> RequestContext:
    return RequestContext(request, request.app.state.services)


Context = Annotated[RequestContext, Depends(make_context)]


def parse_step_counts(k: str | None, limit: int = MAX_STEPS) -> list[int] | None:
    """4,8,16 as `Video.steps` takes it."""
    if k is None:
        return None
    counts = [int(count) for count in k.split(",")]
    if max(counts) > limit:
        raise InputError(f"k={max(counts)}: this video can be cut into at most {limit} steps here")
    return counts


def cutting_pool(k: str | None) -> WorkerPool:
    """Whose threads cut: few steps do not wait for many. Raises InputError where they are too many for any video."""
    return LARGE_CUTS if max(parse_step_counts(k) or [0]) > LARGE_STEPS else CUTS


def max_steps(video: Video) -> int:
    """Steps of a level at most."""
    return min(MAX_STEPS, len(video.nodes))
