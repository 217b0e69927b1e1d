"""Routes of videos: their steps, answers, thumbnails, files and exports, and the edits of people."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Path, Query, Request
from fastapi.responses import FileResponse, Response

import hiero
from hiero.engine import Video
from hiero.engine.joined import place_files
from hiero.errors import InputError
from hiero.extraction.collection import probe_duration
from hiero.formats.edits import MAX_LABEL_LENGTH, check_text
from hiero.formats.exports import exporter_names, find_exporter, pack_export
from hiero.serve.audit import AuditLog, Presence
from hiero.serve.library import Edits, Entry, Library, NotFoundError, SortKey
from hiero.serve.routing import (
    ERRORS,
    NumResults,
    Seconds,
    StepCounts,
    Text,
    cutting_pool,
    max_steps,
    open_video,
    parse_step_counts,
)
from hiero.serve.tiles import matrix_size, similarity_tile
from hiero.serve.users import Editor, require
from hiero.serve.workers import READS, check_client, run_in_thread
from hiero.types import Hierarchy, VideoFile

MAX_LABELS = 2000
NUM_LISTED, MAX_LISTED = 100, 1000  # videos of a page
MAX_PARTS = 10_000  # files of a video; no camera writes so many


def video_router(library: Library, presence: Presence, *, has_uploads: bool) -> APIRouter:
    """What a server is, its videos, and what was computed from them."""
    router = APIRouter(dependencies=[require("view")])

    @router.get("/api/server")
    async def server() -> dict[str, Any]:
        """What this server is: version, models, whether there is a corpus."""
        return {
            "version": hiero.__version__,
            "models": list(library.engines),
            "corpus": library.corpus is not None,
            "words": library.main_engine.has_text,
            "exports": exporter_names(),
            "uploads": has_uploads,
            "history": library.edit_store.has_history,
        }

    @router.get("/api/videos")
    async def videos(
        request: Request,
        q: Annotated[str, Query(max_length=200)] = "",
        sort: SortKey = "added",
        descending: bool = False,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
        n: Annotated[int, Query(ge=1, le=MAX_LISTED)] = NUM_LISTED,
    ) -> dict[str, Any]:
        """Videos that can be opened, a page at a time; those whose names hold a text."""
        entries = library.list_entries(q, sort, descending)
        rows = entries[offset : offset + n]
        # In a thread, since it looks at files, perhaps of a network.
        listed = await run_in_thread(request, lambda: [_entry_to_dict(library, presence, entry) for entry in rows])
        return {"total": len(entries), "offset": offset, "videos": listed}

    @router.get("/api/videos/{id}", responses=ERRORS)
    async def video(request: Request, id: str) -> dict[str, Any]:
        """One video, how long it is, and when each of its files begins."""
        entry = library.find(id)
        if library.is_read(entry) and len(entry.source.files) > 1:
            files = public_files((await open_video(request, library, entry)).files)
        else:
            files = await run_in_thread(request, lambda: _probe_files(entry))
        duration_s = sum(file.duration_s for file in files) if entry.is_video else 0.0
        rows = [{"name": file.path, "start_s": file.start_s, "duration_s": file.duration_s} for file in files]
        return {**_entry_to_dict(library, presence, entry), "duration_s": duration_s or None, "files": rows}

    @router.get("/api/videos/{id}/steps", responses=ERRORS)
    async def steps(request: Request, id: str, k: StepCounts = None, model: str | None = None) -> dict[str, Any]:
        """The steps of a video: a hierarchy, coarse to fine. A level has as many as the video has
        nodes at most, and 1000.
        """
        entry, pool = library.find(id), cutting_pool(k)
        video = await open_video(request, library, entry, model)
        hierarchy = await run_in_thread(request, lambda: _find_steps(library, video, k), pool)
        hierarchy = replace(hierarchy, files=public_files(hierarchy.files), speech=())  # which has a route of its own
        return {**hierarchy.to_dict(), "video": entry.name, "max_steps": max_steps(video)}

    @router.get("/api/videos/{id}/ask", responses=ERRORS)
    async def ask(request: Request, id: str, q: Text, n: NumResults = 5) -> dict[str, Any]:
        """Where a text happens in a video."""
        video = await open_video(request, library, library.find(id))
        return (await run_in_thread(request, lambda: video.ask(check_text(q), num=n)[0])).to_dict()

    @router.post("/api/videos/{id}/label", responses=ERRORS)
    async def label(
        request: Request, id: str, labels: Annotated[list[str], Body(embed=True)], k: StepCounts = None
    ) -> list[dict[str, Any]]:
        """Name every part of a video from a list of labels."""
        entry, pool = library.find(id), cutting_pool(k)
        if not 0 < len(labels) <= MAX_LABELS:
            raise InputError(f"between 1 and {MAX_LABELS} labels")
        taxonomy = [check_text(text)[:MAX_LABEL_LENGTH] for text in labels]
        video = await open_video(request, library, entry)
        counts = parse_step_counts(k, max_steps(video))
        labelled = await run_in_thread(request, lambda: video.label(taxonomy, num_steps=counts), pool)
        return [step.to_dict() for step in labelled]

    @router.get("/api/videos/{id}/transcript", responses=ERRORS)
    async def transcript(request: Request, id: str) -> list[dict[str, Any]]:
        """What is said in a video, in time order; empty where it has no transcript."""
        video = await open_video(request, library, library.find(id))
        return [utterance.to_dict() for utterance in video.transcript or ()]

    @router.get("/api/videos/{id}/truth", responses=ERRORS)
    async def truth(id: str) -> list[dict[str, Any]]:
        """Annotated steps, where the server was given some."""
        return library.annotations_of(library.find(id))

    @router.get("/api/videos/{id}/similarity/{zoom}/{row}/{column}", responses=ERRORS, response_class=Response)
    async def similarity(request: Request, id: str, zoom: int, row: int, column: int) -> Response:
        """A tile of the similarity matrix, a byte a cell; its size is in X-Rows and X-Columns, that of
        the matrix in X-Cells.
        """
        video = await open_video(request, library, library.find(id))
        tile = await run_in_thread(request, lambda: similarity_tile(video, zoom, row, column))
        cells = matrix_size(video, zoom)
        headers = {"X-Rows": str(tile.shape[0]), "X-Columns": str(tile.shape[1]), "X-Cells": str(cells)}
        return Response(tile.tobytes(), media_type="application/octet-stream", headers=headers)

    @router.get("/api/videos/{id}/picture", responses=ERRORS, response_class=Response)
    async def picture(request: Request, id: str, t: Seconds) -> Response:
        """A small picture of a moment."""
        thumbnail = (await open_video(request, library, library.find(id))).source.thumbnail_at(t)
        if thumbnail is None:
            raise NotFoundError("this video has no pictures")
        return Response(thumbnail, media_type="image/jpeg")

    @router.get("/api/videos/{id}/file", responses=ERRORS, response_class=FileResponse)
    async def file(request: Request, id: str, part: Annotated[int, Query(ge=0, le=MAX_PARTS)] = 0) -> FileResponse:
        """The video itself, or one of the files that it is made of; stretches of it by range requests."""
        files = library.find(id).playable_files
        if not files:
            raise NotFoundError("there is no video beside these features")
        if part >= len(files):
            raise NotFoundError(f"no file {part}; this video has {len(files)}")
        # A copy of a remote file may have made room for others since it was read.
        return FileResponse(
            await run_in_thread(request, lambda: files[part].fetch(lambda _: check_client(request)), READS)
        )

    @router.get("/api/videos/{id}/export/{format}", responses=ERRORS, response_class=Response)
    async def export(request: Request, id: str, format: str, k: StepCounts = None) -> Response:
        """The steps as a file for other tools, as `hiero steps --export`; edited ones where there are edits."""
        entry, pool = library.find(id), cutting_pool(k)
        if format not in exporter_names():
            raise NotFoundError(f"no export {format}; there are {', '.join(exporter_names())}")
        exporter = find_exporter(format)

        edits = await run_in_thread(request, lambda: library.read_edits(entry))
        if edits is None:
            video = await open_video(request, library, entry)
            hierarchy = await run_in_thread(request, lambda: _find_steps(library, video, k), pool)
        else:
            transcript = (await open_video(request, library, entry)).transcript if library.is_read(entry) else None
            hierarchy = (
                edits.hierarchy if transcript is None else replace(edits.hierarchy, speech=transcript.utterances)
            )
        files = (await open_video(request, library, entry)).files if len(entry.source.files) > 1 else ()
        video_path = str(entry.path) if exporter.opens_video else entry.path.name
        named = replace(
            hierarchy, video=video_path, files=tuple(files) if exporter.opens_video else public_files(files)
        )
        file_name, content = await run_in_thread(request, lambda: pack_export(exporter, named))
        headers = {"Content-Disposition": f'attachment; filename="{file_name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    return router


def edit_router(library: Library, audit: AuditLog, presence: Presence) -> APIRouter:
    """Steps as a person changed them.

    Each save has a version, the ETag. Whoever saves says which one theirs is made from, in
    If-Match; where another was saved meanwhile nothing is changed, and the answer is 412 with the
    current steps and their ETag.
    """
    router = APIRouter()
    errors = {**ERRORS, 412: {**ERRORS[409], "description": "saved by someone else meanwhile"}}

    @router.get("/api/videos/{id}/edits", responses=ERRORS, dependencies=[require("view")])
    async def edits(request: Request, response: Response, id: str) -> dict[str, Any]:
        """The steps as a person changed them; their version is the ETag."""
        entry = library.find(id)
        edits = await run_in_thread(request, lambda: library.read_edits(entry))
        if edits is None:
            raise NotFoundError("nothing was edited")
        response.headers["ETag"] = to_etag(edits.version)
        return {**edits.hierarchy.to_dict(), "video": entry.name}

    @router.put("/api/videos/{id}/edits", responses=errors)
    async def save(
        request: Request,
        response: Response,
        id: str,
        document: Annotated[dict[str, Any], Body()],
        user: Editor,
        if_match: Annotated[str | None, Header()] = None,
    ) -> dict[str, Any]:
        """Save changed steps: the first ones without If-Match, later ones with the ETag of those they replace."""
        entry = library.find(id)
        await open_video(request, library, entry)
        expected = () if if_match is None else parse_etags(if_match)

        def save() -> Edits:
            edits = library.save_edits(entry, document, expected, user.name)
            audit.record(user, "save edits", entry.id, f"{entry.name}, version {edits.version}")
            return edits

        edits = await run_in_thread(request, save)
        response.headers["ETag"] = to_etag(edits.version)
        return edits.hierarchy.to_dict()

    @router.delete("/api/videos/{id}/edits", responses=errors)
    async def forget(
        request: Request, id: str, user: Editor, if_match: Annotated[str | None, Header()] = None
    ) -> dict[str, bool]:
        """Back to the steps that were found; with If-Match only if the edits are of that version."""
        entry = library.find(id)
        expected = None if if_match is None else parse_etags(if_match)

        def forget() -> None:
            library.delete_edits(entry, expected, user.name)
            audit.record(user, "forget edits", entry.id, entry.name)

        await run_in_thread(request, forget)
        return {"edited": False}

    @router.get("/api/videos/{id}/history", responses=ERRORS, dependencies=[require("view")])
    async def history(request: Request, id: str) -> list[dict[str, Any]]:
        """All saves of a video, newest first: who, when, how many steps."""
        entry = library.find(id)
        return [asdict(save) for save in await run_in_thread(request, lambda: library.edit_history(entry))]

    @router.post("/api/videos/{id}/history/{number}", responses=errors)
    async def restore(
        request: Request,
        response: Response,
        id: str,
        number: Annotated[int, Path(ge=1, le=2**62)],
        user: Editor,
        if_match: Annotated[str | None, Header()] = None,
    ) -> dict[str, Any]:
        """Go back to the steps as they were after one save; If-Match as when saving."""
        entry = library.find(id)
        expected = () if if_match is None else parse_etags(if_match)

        def restore() -> Edits | None:
            edits = library.restore_edits(entry, number, expected, user.name)
            audit.record(user, "restore edits", entry.id, f"{entry.name}, save {number}")
            return edits

        edits = await run_in_thread(request, restore)
        if edits is not None:
            response.headers["ETag"] = to_etag(edits.version)
        return {"edited": edits is not None}

    @router.post("/api/videos/{id}/presence", responses=ERRORS)
    async def present(id: str, user: Editor) -> dict[str, list[str]]:
        """Say that someone has the video open for editing; the answer names all who have."""
        entry = library.find(id)
        presence.touch(entry.id, user.name)
        return {"editing": presence.editors(entry.id)}

    return router


def to_etag(version: str) -> str:
    return f'"{version}"'


def parse_etags(header: str) -> Collection[str] | None:
    """Versions of an If-Match; None for *, which is any. A proxy that compresses marks them as weak:
    the same all the same.
    """
    return None if header.strip() == "*" else {etag.strip().removeprefix("W/").strip('"') for etag in header.split(",")}


def _entry_to_dict(library: Library, presence: Presence, entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "name": entry.name,
        "pictures": entry.is_video,
        "playable": bool(entry.playable_files),
        "num_files": len(entry.source.files),
        "duration_s": entry.duration_s,
        "num_steps": entry.num_steps,
        "read": library.is_read(entry),
        "edited": library.is_edited(entry),
        "editing": presence.editors(entry.id),
        "truth": bool(library.annotations_of(entry)),
    }


def public_files(files: Sequence[VideoFile]) -> tuple[VideoFile, ...]:
    """Files by their names alone: their folders are not the client's business."""
    return tuple(replace(file, path=FilePath(file.path).name) for file in files)


def _probe_files(entry: Entry) -> tuple[VideoFile, ...]:
    """The files of a video that was not read yet, with the lengths that they say they have."""
    files = entry.source.files
    durations_s = [probe_duration(file) or 0.0 if entry.is_video else 0.0 for file in files]
    return public_files(place_files(entry.source.paths, durations_s))


def _find_steps(library: Library, video: Video, k: str | None) -> Hierarchy:
    return library.steps(video, parse_step_counts(k, max_steps(video)))
