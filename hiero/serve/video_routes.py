"""Routes of videos: their steps, answers, thumbnails, files and exports, and the search in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import Body, Query
from fastapi.responses import FileResponse, Response

import hiero
from hiero.corpus.corpus import Corpus, Hit
from hiero.decoding.recordings import probe_duration
from hiero.engine import Video
from hiero.engine.joined import place_files
from hiero.errors import InputError
from hiero.formats.hiero_json import MAX_LABEL_LENGTH
from hiero.formats.registry import exporter_names, find_exporter, pack_export
from hiero.serve.entries import Entry, NotFoundError
from hiero.serve.library import Library, SortKey
from hiero.serve.routing import (
    ERRORS,
    Context,
    LevelNumber,
    NumResults,
    RequestContext,
    Seconds,
    StepCounts,
    Text,
    cutting_pool,
    max_steps,
    parse_step_counts,
    role_router,
)
from hiero.serve.tiles import matrix_size, similarity_tile
from hiero.serve.workers import READS, check_client
from hiero.types import Hierarchy, VideoFile, check_text, file_fields

MAX_LABELS = 2000
NUM_LISTED, MAX_LISTED = 100, 1000  # videos of a page
MAX_PARTS = 10_000  # files of a video; no camera writes so many

view = role_router("view")


@view.get("/api/server")
async def server(context: Context) -> dict[str, Any]:
    """What this server is: version, models, whether there is a corpus."""
    library = context.library
    return {
        "version": hiero.__version__,
        "models": list(library.engines),
        "corpus": library.corpus is not None,
        "words": library.main_engine.has_text,
        "exports": exporter_names(),
        "uploads": context.services.settings.upload is not None,
        "history": library.edits.has_history,
    }


@view.get("/api/videos")
async def videos(
    context: Context,
    q: Annotated[str, Query(max_length=200)] = "",
    sort: SortKey = "added",
    descending: bool = False,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    n: Annotated[int, Query(ge=1, le=MAX_LISTED)] = NUM_LISTED,
) -> dict[str, Any]:
    """Videos that can be opened, a page at a time; those whose names hold a text."""
    entries = context.library.list_entries(q, sort, descending)
    rows = entries[offset : offset + n]
    # In a thread, since it looks at files, perhaps of a network.
    listed = await context.run(lambda: [_entry_to_dict(context, entry) for entry in rows])
    return {"total": len(entries), "offset": offset, "videos": listed}


@view.get("/api/videos/{id}", responses=ERRORS)
async def video(context: Context, id: str) -> dict[str, Any]:
    """One video, how long it is, and when each of its files begins."""
    entry = context.library.find(id)
    if context.library.is_read(entry) and len(entry.source.files) > 1:
        files = public_files((await context.open_video(entry)).files)
    else:
        files = await context.run(lambda: _probe_files(entry))
    duration_s = sum(file.duration_s for file in files) if entry.is_video else 0.0
    rows = [{"name": file.path, "start_s": file.start_s, "duration_s": file.duration_s} for file in files]
    return {**_entry_to_dict(context, entry), "duration_s": duration_s or None, "files": rows}


@view.get("/api/videos/{id}/steps", responses=ERRORS)
async def steps(context: Context, id: str, k: StepCounts = None, model: str | None = None) -> dict[str, Any]:
    """The steps of a video: a hierarchy, coarse to fine. A level has as many as the video has
    nodes at most, and 1000.
    """
    library = context.library
    entry, pool = library.find(id), cutting_pool(k)
    video = await context.open_video(entry, model)
    hierarchy = await context.run(lambda: _find_steps(library, video, k), pool)
    hierarchy = replace(hierarchy, files=public_files(hierarchy.files), speech=())  # which has a route of its own
    return {**hierarchy.to_dict(), "video": entry.name, "max_steps": max_steps(video)}


@view.get("/api/videos/{id}/ask", responses=ERRORS)
async def ask(context: Context, id: str, q: Text, n: NumResults = 5) -> dict[str, Any]:
    """Where a text happens in a video."""
    video = await context.open_video(context.library.find(id))
    return (await context.run(lambda: video.ask(check_text(q), num=n)[0])).to_dict()


@view.post("/api/videos/{id}/label", responses=ERRORS)
async def label(
    context: Context, id: str, labels: Annotated[list[str], Body(embed=True)], k: StepCounts = None
) -> list[dict[str, Any]]:
    """Name every part of a video from a list of labels."""
    entry, pool = context.library.find(id), cutting_pool(k)
    if not 0 < len(labels) <= MAX_LABELS:
        raise InputError(f"between 1 and {MAX_LABELS} labels")
    taxonomy = [check_text(text)[:MAX_LABEL_LENGTH] for text in labels]
    video = await context.open_video(entry)
    counts = parse_step_counts(k, max_steps(video))
    labelled = await context.run(lambda: video.label(taxonomy, num_steps=counts), pool)
    return [step.to_dict() for step in labelled]


@view.get("/api/videos/{id}/transcript", responses=ERRORS)
async def transcript(context: Context, id: str) -> list[dict[str, Any]]:
    """What is said in a video, in time order; empty where it has no transcript."""
    video = await context.open_video(context.library.find(id))
    return [utterance.to_dict() for utterance in video.transcript or ()]


@view.get("/api/videos/{id}/truth", responses=ERRORS)
async def truth(context: Context, id: str) -> list[dict[str, Any]]:
    """Annotated steps, where the server was given some."""
    library = context.library
    return library.annotations_of(library.find(id))


@view.get("/api/videos/{id}/similarity/{zoom}/{row}/{column}", responses=ERRORS, response_class=Response)
async def similarity(context: Context, id: str, zoom: int, row: int, column: int) -> Response:
    """A tile of the similarity matrix, a byte a cell; its size is in X-Rows and X-Columns, that of
    the matrix in X-Cells.
    """
    video = await context.open_video(context.library.find(id))
    tile = await context.run(lambda: similarity_tile(video, zoom, row, column))
    cells = matrix_size(video, zoom)
    headers = {"X-Rows": str(tile.shape[0]), "X-Columns": str(tile.shape[1]), "X-Cells": str(cells)}
    return Response(tile.tobytes(), media_type="application/octet-stream", headers=headers)


@view.get("/api/videos/{id}/picture", responses=ERRORS, response_class=Response)
async def picture(context: Context, id: str, t: Seconds) -> Response:
    """A small picture of a moment."""
    entry = context.library.find(id)
    thumbnail = (await context.open_video(entry)).source.thumbnail_at(t)
    if thumbnail is None:
        raise NotFoundError("this video has no pictures")
    return Response(thumbnail, media_type="image/jpeg")


@view.get("/api/videos/{id}/file", responses=ERRORS, response_class=FileResponse)
async def file(context: Context, id: str, part: Annotated[int, Query(ge=0, le=MAX_PARTS)] = 0) -> FileResponse:
    """The video itself, or one of the files that it is made of; stretches of it by range requests."""
    files = context.library.find(id).playable_files
    if not files:
        raise NotFoundError("there is no video beside these features")
    if part >= len(files):
        raise NotFoundError(f"no file {part}; this video has {len(files)}")
    # A copy of a remote file may have made room for others since it was read.
    copy = await context.run(lambda: files[part].fetch(lambda _: check_client(context.request)), READS)
    return FileResponse(copy)


@view.get("/api/videos/{id}/export/{format}", responses=ERRORS, response_class=Response)
async def export(context: Context, id: str, format: str, k: StepCounts = None) -> Response:
    """The steps as a file for other tools, as `hiero steps --export`; edited ones where there are edits."""
    library = context.library
    entry, pool = library.find(id), cutting_pool(k)
    if format not in exporter_names():
        raise NotFoundError(f"no export {format}; there are {', '.join(exporter_names())}")
    exporter = find_exporter(format)
    edits = await context.run(lambda: library.edits.read(entry))
    has_chapters, files = len(entry.source.files) > 1, tuple[VideoFile, ...]()
    if edits is not None and not has_chapters and not library.is_read(entry):
        hierarchy = edits.hierarchy  # they can be exported before the video was read
    else:
        video = await context.open_video(entry)
        files = tuple(video.files) if has_chapters else ()
        if edits is None:
            hierarchy = await context.run(lambda: _find_steps(library, video, k), pool)
        else:
            speech = video.transcript.utterances if video.transcript is not None else edits.hierarchy.speech
            hierarchy = replace(edits.hierarchy, speech=speech)
    if exporter.opens_video:
        named = replace(hierarchy, video=str(entry.path), files=files)
    else:
        named = replace(hierarchy, video=entry.path.name, files=public_files(files))
    file_name, content = await context.run(lambda: pack_export(exporter, named))
    headers = {"Content-Disposition": f'attachment; filename="{file_name}"'}
    return Response(content, media_type="application/octet-stream", headers=headers)


@view.get("/api/search", responses=ERRORS)
async def search(context: Context, q: Text, n: NumResults = 20, level: LevelNumber = None) -> list[dict[str, Any]]:
    """Steps of all videos that are nearest to a text, by what is seen and what is said."""
    library, corpus = context.library, _require_corpus(context.library)

    def find() -> list[dict[str, Any]]:
        return _hits_to_dicts(library, corpus, corpus.search_text(library.main_engine, q, n, level=level))

    return await context.run(find)


@view.get("/api/search/like", responses=ERRORS)
async def like(
    context: Context, video: Text, t: Seconds, n: NumResults = 20, level: LevelNumber = None
) -> dict[str, Any]:
    """The same step elsewhere: steps of other videos that are like a moment of this one; of a
    level, or of the finest.
    """
    corpus = _require_corpus(context.library)

    def find() -> dict[str, Any]:
        step, hits = corpus.like(video, t, n, level)
        first, *others = _hits_to_dicts(context.library, corpus, [step, *hits])
        return {"step": first, "hits": others}

    return await context.run(find)


def _require_corpus(library: Library) -> Corpus:
    if library.corpus is None:
        raise NotFoundError("this server has no corpus; start it with one: hiero serve CORPUS")
    return library.corpus


def _hits_to_dicts(library: Library, corpus: Corpus, hits: Sequence[Hit]) -> list[dict[str, Any]]:
    records = corpus.lookup({hit.video for hit in hits})
    rows = []
    for hit in hits:
        entry = library.find_by_name(hit.video)  # None where the file is gone
        files = public_files(records[hit.video].files) if hit.video in records else ()
        row = {**hit.to_dict(), **file_fields(files, hit.start_s)}
        rows.append(
            {**row, "id": None if entry is None else entry.id, "pictures": entry is not None and entry.is_video}
        )
    return rows


def _entry_to_dict(context: RequestContext, entry: Entry) -> dict[str, Any]:
    library = context.library
    return {
        "id": entry.id,
        "name": entry.name,
        "pictures": entry.is_video,
        "playable": bool(entry.playable_files),
        "num_files": len(entry.source.files),
        "duration_s": entry.duration_s,
        "num_steps": entry.num_steps,
        "read": library.is_read(entry),
        "edited": library.edits.exists(entry),
        "editing": context.services.presence.editors(entry.id),
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
