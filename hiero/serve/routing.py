"""Shared parts of all routes: roles, thread pools, services and the context of a request.

Quick answers, segmentation, reading and saving have separate threads, and clients take turns.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request
from prometheus_client import CollectorRegistry
from starlette.requests import ClientDisconnect

from hiero.engine import Video
from hiero.serve.entries import Entry
from hiero.serve.guard import client_key
from hiero.serve.jobs import JobQueue
from hiero.serve.library import Library
from hiero.serve.settings import Role, ServerSettings
from hiero.serve.state import State
from hiero.serve.telemetry import EventLog
from hiero.serve.users import USER, Access, ForbiddenError, User
from hiero.serve.workers import WorkerPool

Result = TypeVar("Result")

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
    """A router whose routes require a role."""
    return APIRouter(dependencies=[Depends(RoleCheck(role))])


# Every route of the server is on one of these.
public, view, edit, admin = role_router(None), role_router("view"), role_router("edit"), role_router("admin")


# Threads


ANSWERS = WorkerPool(max(2, os.cpu_count() or 2))  # less than a second
CUTS = WorkerPool(2)  # segmentation, seconds for hours of video
LARGE_CUTS = WorkerPool(1)  # segmentation into many steps, which takes longer
READS = WorkerPool(2)  # files, which takes minutes unless they are in the cache
UPLOADS = WorkerPool(2)  # checking complete uploads
WRITES = WorkerPool(8)  # edits, which may wait for another process


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
    metrics: CollectorRegistry


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
        return self.request.scope[USER]

    async def run(self, work: Callable[[], Result], pool: WorkerPool = ANSWERS) -> Result:
        """Run work in a thread. Raises ClientDisconnect as soon as the client disconnects."""
        client = self.request.client
        answer = asyncio.wrap_future(pool.submit(client_key(client.host if client else ""), work))
        leaving = asyncio.ensure_future(_wait_for_disconnect(self.request))
        try:
            await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self.request.state.has_left = True
                raise ClientDisconnect
            return answer.result()
        finally:
            answer.cancel()
            leaving.cancel()

    def check_client(self, *_: object) -> None:
        """Raise ClientDisconnect if the client has disconnected. Work calls it, also as a progress callback."""
        if getattr(self.request.state, "has_left", False):
            raise ClientDisconnect

    async def open_video(self, entry: Entry) -> Video:
        """Open a video that was processed before, from memory or in a thread from its files."""
        if not entry.is_read:  # a command may have processed it meanwhile
            await self.run(lambda: self.library.memory.recognise([entry]))
        if (video := self.library.find_open(entry)) is not None:
            return video
        return await self.run(lambda: self.library.reopen(entry, self.check_client), READS)

    def record(self, action: str, subject: str, detail: str = "") -> None:
        """Add a change by the user to the audit log."""
        self.services.log.record_change(self.user.name, action, subject, detail)


async def _wait_for_disconnect(request: Request) -> None:
    """Wait for the client to disconnect. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _make_context(request: Request) -> RequestContext:
    return RequestContext(request, request.app.state.services)


Context = Annotated[RequestContext, Depends(_make_context)]


async def _find_entry(context: Context, id: str) -> Entry:
    return context.library.find(id)


FoundEntry = Annotated[Entry, Depends(_find_entry)]
