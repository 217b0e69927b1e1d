"""Routes of videos: their steps, answers, thumbnails, files and exports, and the edits of people."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body
from fastapi.responses import FileResponse, Response

import hiero
from hiero.errors import InputError
from hiero.extraction.collection import probe_duration
from hiero.report.exports import exporter_names, find_exporter
from hiero.serve.edits import MAX_LABEL_LENGTH
from hiero.serve.library import Entry, Library, NotFoundError
from hiero.serve.routing import ERRORS, NumResults, Seconds, StepCounts, Text, parse_step_counts, run_in_thread
from hiero.serve.tiles import matrix_size, similarity_tile
from hiero.types import Hierarchy

MAX_LABELS = 2000


def video_router(library: Library, *, has_uploads: bool) -> APIRouter:
    """What a server is, its videos, and what was computed from them.

    Args:
        library: The videos.
        has_uploads: Whether clients may add videos.
    """
    router = APIRouter()

    @router.get("/api/server")
    async def server() -> dict[str, Any]:
        """What this server is: version, models, whether there is a corpus."""
        return {
            "version": hiero.__version__, "models": list(library.engines), "corpus": library.corpus is not None,
            "words": library.main_engine.has_text, "exports": exporter_names(), "uploads": has_uploads,
        }  # fmt: skip

    @router.get("/api/videos")
    async def videos() -> list[dict[str, Any]]:
        """All videos that can be opened."""
        return [_entry_to_dict(library, entry) for entry in library.entries.values()]

    @router.get("/api/videos/{id}", responses=ERRORS)
    async def video(id: str) -> dict[str, Any]:
        """One video, and how long it is."""
        entry = library.find(id)
        duration_s = await run_in_thread(lambda: probe_duration(entry.path)) if entry.is_video else None
        return {**_entry_to_dict(library, entry), "duration_s": duration_s}

    @router.get("/api/videos/{id}/steps", responses=ERRORS)
    async def steps(id: str, k: StepCounts = None, model: str | None = None) -> dict[str, Any]:
        """The steps of a video: a hierarchy, coarse to fine."""
        entry = library.find(id)
        return {**(await run_in_thread(lambda: _find_steps(library, entry, k, model))).to_dict(), "video": entry.name}

    @router.get("/api/videos/{id}/ask", responses=ERRORS)
    async def ask(id: str, q: Text, n: NumResults = 5) -> dict[str, Any]:
        """Where a text happens in a video."""
        entry = library.find(id)
        return (await run_in_thread(lambda: library.open_video(entry).ask(q, num=n)[0])).to_dict()

    @router.post("/api/videos/{id}/label", responses=ERRORS)
    async def label(id: str, labels: Annotated[list[str], Body(embed=True)], k: StepCounts = None) -> list[dict[str, Any]]:
        """Name every part of a video from a list of labels."""
        entry = library.find(id)
        if not 0 < len(labels) <= MAX_LABELS:
            raise InputError(f"between 1 and {MAX_LABELS} labels")
        taxonomy = [text[:MAX_LABEL_LENGTH] for text in labels]
        labelled = await run_in_thread(lambda: library.open_video(entry).label(taxonomy, num_steps=parse_step_counts(k)))
        return [step.to_dict() for step in labelled]

    @router.get("/api/videos/{id}/truth", responses=ERRORS)
    async def truth(id: str) -> list[dict[str, Any]]:
        """Annotated steps, where the server was given some."""
        return library.annotations_of(library.find(id))

    @router.get("/api/videos/{id}/similarity/{zoom}/{row}/{column}", responses=ERRORS, response_class=Response)
    async def similarity(id: str, zoom: int, row: int, column: int) -> Response:
        """A tile of the similarity matrix, a byte a cell; its size is in X-Rows and X-Columns, that of the matrix in X-Cells."""
        entry = library.find(id)

        def tile_and_size() -> tuple[np.ndarray, int]:
            video = library.open_video(entry)
            return similarity_tile(video, zoom, row, column), matrix_size(video, zoom)

        tile, size = await run_in_thread(tile_and_size)
        headers = {"X-Rows": str(tile.shape[0]), "X-Columns": str(tile.shape[1]), "X-Cells": str(size)}
        return Response(tile.tobytes(), media_type="application/octet-stream", headers=headers)

    @router.get("/api/videos/{id}/picture", responses=ERRORS, response_class=Response)
    async def picture(id: str, t: Seconds) -> Response:
        """A small picture of a moment."""
        entry = library.find(id)
        thumbnail = await run_in_thread(lambda: library.open_video(entry).source.thumbnail_at(t))
        if thumbnail is None:
            raise NotFoundError("this video has no pictures")
        return Response(thumbnail, media_type="image/jpeg")

    @router.get("/api/videos/{id}/file", responses=ERRORS, response_class=FileResponse)
    async def file(id: str) -> FileResponse:
        """The video itself; parts of it by range requests."""
        path = library.find(id).playable_file
        if path is None:
            raise NotFoundError("there is no video beside these features")
        return FileResponse(path)

    @router.get("/api/videos/{id}/export/{format}", responses=ERRORS, response_class=Response)
    async def export(id: str, format: str, k: StepCounts = None) -> Response:
        """The steps as a file for other tools, as `hiero steps --export`; edited ones where there are edits."""
        entry = library.find(id)
        if format not in exporter_names():
            raise NotFoundError(f"no export {format}; there are {', '.join(exporter_names())}")
        exporter = find_exporter(format)

        def convert() -> str | bytes:
            edits = library.read_edits(entry)
            hierarchy = _find_steps(library, entry, k, None) if edits is None else edits
            return exporter.convert(Hierarchy(entry.path.name, hierarchy.model, hierarchy.duration_s, hierarchy.levels))

        content = await run_in_thread(convert)
        headers = {"Content-Disposition": f'attachment; filename="{exporter.file_name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    return router


def edit_router(library: Library) -> APIRouter:
    """Steps as a person changed them."""
    router = APIRouter()

    @router.get("/api/videos/{id}/edits", responses=ERRORS)
    async def edits(id: str) -> dict[str, Any]:
        """The steps as a person changed them."""
        entry = library.find(id)
        hierarchy = await run_in_thread(lambda: library.read_edits(entry))
        if hierarchy is None:
            raise NotFoundError("nothing was edited")
        return {**hierarchy.to_dict(), "video": entry.name}

    @router.put("/api/videos/{id}/edits", responses=ERRORS)
    async def save(id: str, document: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        """Keep changed steps beside the video."""
        entry = library.find(id)
        return (await run_in_thread(lambda: library.save_edits(entry, document))).to_dict()

    @router.delete("/api/videos/{id}/edits", responses=ERRORS)
    async def forget(id: str) -> dict[str, bool]:
        """Back to the steps that were found."""
        library.delete_edits(library.find(id))
        return {"edited": False}

    return router


def _entry_to_dict(library: Library, entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id, "name": entry.name, "pictures": entry.is_video, "playable": entry.playable_file is not None,
        "read": library.is_read(entry), "edited": library.edits_file(entry).is_file(),
        "truth": bool(library.annotations_of(entry)),
    }  # fmt: skip


def _find_steps(library: Library, entry: Entry, k: str | None, model: str | None) -> Hierarchy:
    video = library.open_video(entry, model)
    return video.steps(parse_step_counts(k), labels=library.labels if video.engine.has_text else None)
