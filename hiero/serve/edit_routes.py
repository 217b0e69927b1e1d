"""Routes for edited steps.

Each save has a version, its ETag. Clients send the version that they have changed in If-Match. If
someone else has saved in the meantime, the response is 412 with the current steps and their ETag.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Header, Path, Response

from hiero.serve.edits import SavedSteps, Versions
from hiero.serve.entries import NotFoundError
from hiero.serve.routing import ERRORS, WRITES, Context, FoundEntry, edit, view
from hiero.serve.state import SavedEdit

SAVE_ERRORS = {**ERRORS, 412: {**ERRORS[409], "description": "edited by someone else in the meantime"}}
IfMatch = Annotated[str | None, Header()]


@view.get("/api/videos/{id}/edits", responses=ERRORS)
async def edits(context: Context, entry: FoundEntry, response: Response) -> dict[str, Any]:
    """The edited steps. Their version is the ETag."""
    edits = await context.run(lambda: context.library.edits.read(entry))
    if edits is None:
        raise NotFoundError("this video has no edits")
    response.headers["ETag"] = to_etag(edits.version)
    return {**edits.hierarchy.to_dict(), "video": entry.name}


@edit.put("/api/videos/{id}/edits", responses=SAVE_ERRORS)
async def save(
    context: Context,
    entry: FoundEntry,
    response: Response,
    document: Annotated[dict[str, Any], Body()],
    if_match: IfMatch = None,
) -> dict[str, Any]:
    """Save edited steps: without If-Match the first time, later with the ETag of the edits to replace."""
    video = await context.open_video(entry)
    expected = parse_etags(if_match, ())

    def save() -> SavedSteps:
        edits = context.library.save_edits(entry, document, video, expected, context.user.name)
        context.record("save edits", entry.id, f"{entry.name}, version {edits.version}")
        return edits

    edits = await context.run(save, WRITES)
    response.headers["ETag"] = to_etag(edits.version)
    return edits.hierarchy.to_dict()


@edit.delete("/api/videos/{id}/edits", responses=SAVE_ERRORS)
async def forget(context: Context, entry: FoundEntry, if_match: IfMatch = None) -> dict[str, bool]:
    """Delete the edits; with If-Match, only if they have that version."""

    def forget() -> None:
        context.library.edits.delete(entry, parse_etags(if_match, None), context.user.name)
        context.library.update_corpus(entry)
        context.record("forget edits", entry.id, entry.name)

    await context.run(forget, WRITES)
    return {"edited": False}


@view.get("/api/videos/{id}/history", responses=ERRORS)
async def history(context: Context, entry: FoundEntry) -> list[SavedEdit]:
    """All saves of a video, newest first."""
    return await context.run(lambda: context.library.edits.history(entry))


@edit.post("/api/videos/{id}/history/{number}", responses=SAVE_ERRORS)
async def restore(
    context: Context,
    entry: FoundEntry,
    response: Response,
    number: Annotated[int, Path(ge=1, le=2**62)],
    if_match: IfMatch = None,
) -> dict[str, Any]:
    """Restore the edits of an earlier save. If-Match works as for saving."""

    def restore() -> SavedSteps | None:
        edits = context.library.edits.restore(entry, number, parse_etags(if_match, ()), context.user.name)
        context.library.update_corpus(entry)
        context.record("restore edits", entry.id, f"{entry.name}, save {number}")
        return edits

    edits = await context.run(restore, WRITES)
    if edits is not None:
        response.headers["ETag"] = to_etag(edits.version)
    return {"edited": edits is not None}


def to_etag(version: str) -> str:
    return f'"{version}"'


def parse_etags(header: str | None, default: Versions) -> Versions:
    """Versions of an If-Match header, None for `*`. Proxies that compress mark them as weak, which is ignored."""
    if header is None:
        return default
    return None if header.strip() == "*" else {etag.strip().removeprefix("W/").strip('"') for etag in header.split(",")}
