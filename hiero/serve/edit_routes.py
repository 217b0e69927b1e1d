"""Routes of steps as people changed them.

Each save has a version, the ETag. Whoever saves says which one theirs is made from, in If-Match; where
another was saved meanwhile nothing is changed, and the answer is 412 with the current steps and their ETag.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Body, Header, Path, Request, Response

from hiero.serve.edits import Edits, Versions
from hiero.serve.entries import NotFoundError
from hiero.serve.routing import ERRORS, ServicesDep, UserDep, open_video, role_router
from hiero.serve.workers import run_in_thread

SAVE_ERRORS = {**ERRORS, 412: {**ERRORS[409], "description": "saved by someone else meanwhile"}}
IfMatch = Annotated[str | None, Header()]

view, edit = role_router("view"), role_router("edit")


@view.get("/api/videos/{id}/edits", responses=ERRORS)
async def edits(request: Request, response: Response, id: str, services: ServicesDep) -> dict[str, Any]:
    """The steps as a person changed them; their version is the ETag."""
    entry = services.library.find(id)
    edits = await run_in_thread(request, lambda: services.library.edits.read(entry))
    if edits is None:
        raise NotFoundError("nothing was edited")
    response.headers["ETag"] = to_etag(edits.version)
    return {**edits.hierarchy.to_dict(), "video": entry.name}


@edit.put("/api/videos/{id}/edits", responses=SAVE_ERRORS)
async def save(
    request: Request,
    response: Response,
    id: str,
    document: Annotated[dict[str, Any], Body()],
    user: UserDep,
    services: ServicesDep,
    if_match: IfMatch = None,
) -> dict[str, Any]:
    """Save changed steps: the first ones without If-Match, later ones with the ETag of those they replace."""
    entry = services.library.find(id)
    video = await open_video(request, services.library, entry)
    expected = () if if_match is None else parse_etags(if_match)

    def save() -> Edits:
        edits = services.library.edits.save(entry, document, video.duration_s, expected, user.name)
        services.audit.record(user, "save edits", entry.id, f"{entry.name}, version {edits.version}")
        return edits

    edits = await run_in_thread(request, save)
    response.headers["ETag"] = to_etag(edits.version)
    return edits.hierarchy.to_dict()


@edit.delete("/api/videos/{id}/edits", responses=SAVE_ERRORS)
async def forget(
    request: Request, id: str, user: UserDep, services: ServicesDep, if_match: IfMatch = None
) -> dict[str, bool]:
    """Back to the steps that were found; with If-Match only if the edits are of that version."""
    entry = services.library.find(id)
    expected = None if if_match is None else parse_etags(if_match)

    def forget() -> None:
        services.library.edits.delete(entry, expected, user.name)
        services.audit.record(user, "forget edits", entry.id, entry.name)

    await run_in_thread(request, forget)
    return {"edited": False}


@view.get("/api/videos/{id}/history", responses=ERRORS)
async def history(request: Request, id: str, services: ServicesDep) -> list[dict[str, Any]]:
    """All saves of a video, newest first: who, when, how many steps."""
    entry = services.library.find(id)
    return [asdict(save) for save in await run_in_thread(request, lambda: services.library.edits.history(entry))]


@edit.post("/api/videos/{id}/history/{number}", responses=SAVE_ERRORS)
async def restore(
    request: Request,
    response: Response,
    id: str,
    number: Annotated[int, Path(ge=1, le=2**62)],
    user: UserDep,
    services: ServicesDep,
    if_match: IfMatch = None,
) -> dict[str, Any]:
    """Go back to the steps as they were after one save; If-Match as when saving."""
    entry = services.library.find(id)
    expected = () if if_match is None else parse_etags(if_match)

    def restore() -> Edits | None:
        edits = services.library.edits.restore(entry, number, expected, user.name)
        services.audit.record(user, "restore edits", entry.id, f"{entry.name}, save {number}")
        return edits

    edits = await run_in_thread(request, restore)
    if edits is not None:
        response.headers["ETag"] = to_etag(edits.version)
    return {"edited": edits is not None}


@edit.post("/api/videos/{id}/presence", responses=ERRORS)
async def present(id: str, user: UserDep, services: ServicesDep) -> dict[str, list[str]]:
    """Say that someone has the video open for editing; the answer names all who have."""
    entry = services.library.find(id)
    services.presence.touch(entry.id, user.name)
    return {"editing": services.presence.editors(entry.id)}


def to_etag(version: str) -> str:
    return f'"{version}"'


def parse_etags(header: str) -> Versions:
    """Versions of an If-Match; None for *, which is any. A proxy that compresses marks them as weak:
    the same all the same.
    """
    return None if header.strip() == "*" else {etag.strip().removeprefix("W/").strip('"') for etag in header.split(",")}
