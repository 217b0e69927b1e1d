"""Routes of steps as people changed them.

Each save has a version, the ETag. Whoever saves says which one theirs is made from, in If-Match; where
another was saved meanwhile nothing is changed, and the answer is 412 with the current steps and their ETag.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Body, Header, Path, Response

from hiero.serve.edits import Edits, Versions
from hiero.serve.entries import NotFoundError
from hiero.serve.routing import ERRORS, Context, role_router

SAVE_ERRORS = {**ERRORS, 412: {**ERRORS[409], "description": "saved by someone else meanwhile"}}
IfMatch = Annotated[str | None, Header()]

view, edit = role_router("view"), role_router("edit")


@view.get("/api/videos/{id}/edits", responses=ERRORS)
async def edits(context: Context, response: Response, id: str) -> dict[str, Any]:
    """The steps as a person changed them; their version is the ETag."""
    entry = context.library.find(id)
    edits = await context.run(lambda: context.library.edits.read(entry))
    if edits is None:
        raise NotFoundError("nothing was edited")
    response.headers["ETag"] = to_etag(edits.version)
    return {**edits.hierarchy.to_dict(), "video": entry.name}


@edit.put("/api/videos/{id}/edits", responses=SAVE_ERRORS)
async def save(
    context: Context, response: Response, id: str, document: Annotated[dict[str, Any], Body()], if_match: IfMatch = None
) -> dict[str, Any]:
    """Save changed steps: the first ones without If-Match, later ones with the ETag of those they replace."""
    entry = context.library.find(id)
    video = await context.open_video(entry)
    expected = () if if_match is None else parse_etags(if_match)

    def save() -> Edits:
        edits = context.library.edits.save(entry, document, video.duration_s, expected, context.user.name)
        context.record("save edits", entry.id, f"{entry.name}, version {edits.version}")
        return edits

    edits = await context.run(save)
    response.headers["ETag"] = to_etag(edits.version)
    return edits.hierarchy.to_dict()


@edit.delete("/api/videos/{id}/edits", responses=SAVE_ERRORS)
async def forget(context: Context, id: str, if_match: IfMatch = None) -> dict[str, bool]:
    """Back to the steps that were found; with If-Match only if the edits are of that version."""
    entry = context.library.find(id)
    expected = None if if_match is None else parse_etags(if_match)

    def forget() -> None:
        context.library.edits.delete(entry, expected, context.user.name)
        context.record("forget edits", entry.id, entry.name)

    await context.run(forget)
    return {"edited": False}


@view.get("/api/videos/{id}/history", responses=ERRORS)
async def history(context: Context, id: str) -> list[dict[str, Any]]:
    """All saves of a video, newest first: who, when, how many steps."""
    entry = context.library.find(id)
    return [asdict(save) for save in await context.run(lambda: context.library.edits.history(entry))]


@edit.post("/api/videos/{id}/history/{number}", responses=SAVE_ERRORS)
async def restore(
    context: Context,
    response: Response,
    id: str,
    number: Annotated[int, Path(ge=1, le=2**62)],
    if_match: IfMatch = None,
) -> dict[str, Any]:
    """Go back to the steps as they were after one save; If-Match as when saving."""
    entry = context.library.find(id)
    expected = () if if_match is None else parse_etags(if_match)

    def restore() -> Edits | None:
        edits = context.library.edits.restore(entry, number, expected, context.user.name)
        context.record("restore edits", entry.id, f"{entry.name}, save {number}")
        return edits

    edits = await context.run(restore)
    if edits is not None:
        response.headers["ETag"] = to_etag(edits.version)
    return {"edited": edits is not None}


@edit.post("/api/videos/{id}/presence", responses=ERRORS)
async def present(context: Context, id: str) -> dict[str, list[str]]:
    """Say that someone has the video open for editing; the answer names all who have."""
    entry = context.library.find(id)
    context.services.presence.touch(entry.id, context.user.name)
    return {"editing": context.services.presence.editors(entry.id)}


def to_etag(version: str) -> str:
    return f'"{version}"'


def parse_etags(header: str) -> Versions:
    """Versions of an If-Match; None for *, which is any. A proxy that compresses marks them as weak:
    the same all the same.
    """
    return None if header.strip() == "*" else {etag.strip().removeprefix("W/").strip('"') for etag in header.split(",")}
