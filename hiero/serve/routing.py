"""Shared parts of all routes: roles, services and the context of a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from hiero.engine import Video
from hiero.serve.edits import Presence
from hiero.serve.entries import Entry
from hiero.serve.jobs import JobQueue
from hiero.serve.library import Library
from hiero.serve.settings import Role, ServerSettings
from hiero.serve.state import State
from hiero.serve.telemetry import EventLog, Metrics
from hiero.serve.users import USER, Access, ForbiddenError, User
from hiero.serve.workers import ANSWERS, READS, Result, WorkerPool, check_client, run_in_thread

ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": description, "content": {"application/json": {"schema": {"type": "object"}}}}
    for code, description in ((400, "invalid request"), (404, "not found"), (409, "not processed yet"))
}


# Roles


@dataclass(frozen=True)
class RoleCheck:
    """A dependency that requires a role. None allows everyone."""

    role: Role | None

    async def __call__(self, request: Request) -> None:
        if self.role is None:
            return
        user: User = request.scope[USER]
        if not user.may(self.role):
            raise ForbiddenError(f"this requires the role {self.role}, but {user.name} has the role {user.role}")


def role_router(role: Role | None) -> APIRouter:
    """A router whose routes require a role. Every route of the server is on such a router."""
    return APIRouter(dependencies=[Depends(RoleCheck(role))])


# Services


@dataclass(frozen=True)
class Services:
    """The parts of a running server."""

    settings: ServerSettings
    library: Library
    state: State
    access: Access
    jobs: JobQueue
    log: EventLog
    metrics: Metrics
    presence: Presence


@dataclass(frozen=True)
class RequestContext:
    """A request and the services for its route."""

    request: Request
    services: Services

    @property
    def library(self) -> Library:
        return self.services.library

    @property
    def user(self) -> User:
        """The user whom the guard has authenticated."""
        user: User = self.request.scope[USER]
        return user

    async def run(self, work: Callable[[], Result], pool: WorkerPool = ANSWERS) -> Result:
        """Run work in a thread until it is done or the client disconnects."""
        return await run_in_thread(self.request, work, pool)

    async def open_video(self, entry: Entry, model: str | None = None) -> Video:
        """Open a video that was processed before, from memory or in a thread from its files."""
        if (video := self.library.find_open(entry, model)) is not None:
            return video
        return await self.run(lambda: self.library.open_video(entry, model, self.check_client), READS)

    def check_client(self, *_: object) -> None:
        """Raise ClientDisconnect if the client has disconnected. Also serves as a progress callback."""
        check_client(self.request)

    def record(self, action: str, subject: str, detail: str = "") -> None:
        """Add a change by the user to the audit log."""
        self.services.log.record_change(self.user, action, subject, detail)


async def make_context(request: Request) -> RequestContext:
    return RequestContext(request, request.app.state.services)


Context = Annotated[RequestContext, Depends(make_context)]
