"""Routes for videos: steps, answers, thumbnails, files and exports; and for searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import Body, Depends, Query
from fastapi.responses import FileResponse, Response

from hiero.corpus.corpus import Corpus, Hit
from hiero.engine import Video
from hiero.engine.joined import place_files
from hiero.errors import BusyError, InputError
from hiero.features.extractor import make_thumbnail
from hiero.formats.hiero_json import MAX_LABEL_LENGTH
from hiero.formats.registry import exporter_names, find_exporter, pack_export
from hiero.media.decode import read_frame
from hiero.media.recordings import probe_duration
from hiero.serve import routing
from hiero.serve.entries import Entry, NotFoundError, NotReadError
from hiero.serve.jobs import hide_folders
from hiero.serve.library import Library, SortKey, VideoFilter
from hiero.serve.routing import ERRORS, Context, FoundEntry, RequestContext, view
from hiero.serve.workers import WorkerPool
from hiero.types import ANSWER_THRESHOLD, Hierarchy, VideoFile, check_text, file_fields

MAX_STEPS = 1000  # largest number of steps per level; `hiero steps` allows more
LARGE_STEPS = 200  # the page never asks for more
MAX_LINES = 300  # of a recipe
NUM_LISTED, MAX_LISTED = 100, 1000  # videos per page
NUM_FIRST_STEPS = 3  # names of steps that a listed video shows

Text = Annotated[str, Query(min_length=1, max_length=500)]
NumResults = Annotated[int, Query(ge=1, le=200)]
Seconds = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)]
StepCounts = Annotated[
    str | None, Query(pattern=r"^\d{1,5}(,\d{1,5}){0,7}$", description="number of steps of each level, such as 4,8,16")
]
FileNumber = Annotated[int, Query(ge=0, le=10_000)]
LevelNumber = Annotated[int | None, Query(ge=0, le=16)]
Value = Annotated[str, Query(max_length=200)]


async def _parse_filter(
    q: Value = "", folder: Value = "", month: Value = "", person: Value = "", step: Value = ""
) -> VideoFilter:
    return VideoFilter(q, folder, month, person, step)


Filter = Annotated[VideoFilter, Depends(_parse_filter)]


@view.get("/api/server")
async def server(context: Context) -> dict[str, Any]:
    """Version, model and features of the server."""
    library = context.library
    return {
        "version": context.request.app.version,
        "model": library.engine.name,
        "corpus": library.corpus is not None,
        "words": library.engine.has_text,
        "search_threshold": ANSWER_THRESHOLD,  # less probable hits are probably wrong
        "exports": exporter_names(),
        "uploads": context.services.settings.upload_folder is not None,
        "folders": context.services.settings.choose_folders,
        "history": library.edits.has_history,
    }


@view.get("/api/videos")
async def videos(
    context: Context,
    wanted: Filter,
    sort: SortKey = "added",
    descending: bool = False,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    n: Annotated[int, Query(ge=1, le=MAX_LISTED)] = NUM_LISTED,
) -> dict[str, Any]:
    """A page of the videos that match a filter, and how many of them have each value of each facet."""

    def find() -> dict[str, Any]:  # accesses files, perhaps on a network
        entries = context.library.list_entries(wanted, sort, descending)
        listed = [_entry_to_dict(context, entry) for entry in entries[offset : offset + n]]
        facets = context.library.count_facets(entries)
        num_unread = sum(not entry.is_read for entry in entries)
        return {"total": len(entries), "unread": num_unread, "offset": offset, "videos": listed, "facets": facets}

    return await context.run(find)


@view.get("/api/report", responses=ERRORS)
async def report(context: Context, wanted: Filter) -> dict[str, Any]:
    """Compare the processed videos that match a filter, as with `hiero report`; `errors` says which are left out."""

    def compare() -> dict[str, Any]:
        entries = [entry for entry in context.library.list_entries(wanted, "name") if entry.is_read]
        report, failed = context.library.report(entries, wanted.folder)
        ids = [entry.id for entry in entries if entry.id not in failed]
        videos = [{**row, "id": id} for row, id in zip(report.document["videos"], ids, strict=True)]
        return {**report.page_data, "videos": videos, "errors": [hide_folders(error) for error in failed.values()]}

    return await context.run(compare, routing.READS)


@view.get("/api/videos/{id}", responses=ERRORS)
async def video(context: Context, entry: FoundEntry) -> dict[str, Any]:
    """One video with its duration and its files."""
    await context.run(lambda: context.library.memory.recognise([entry]))
    if entry.is_read and len(entry.source.files) > 1:
        files = public_files((await context.open_video(entry)).files)
    else:
        files = await context.run(lambda: _probe_files(entry))
    duration_s = sum(file.duration_s for file in files) if entry.is_video else 0.0
    rows = [{"name": file.path, "start_s": file.start_s, "duration_s": file.duration_s} for file in files]
    is_indexed = await context.run(lambda: context.library.find_record(entry)) is not None
    shown = {"duration_s": duration_s or None, "files": rows, "indexed": is_indexed}
    return {**_entry_to_dict(context, entry), **shown}


@view.get("/api/videos/{id}/steps", responses=ERRORS)
async def steps(context: Context, entry: FoundEntry, k: StepCounts = None) -> dict[str, Any]:
    """The hierarchy of steps of a video, coarse to fine, with at most 1000 steps per level."""
    pool = cutting_pool(k)
    video = await context.open_video(entry)
    hierarchy = await _find_steps(context, video, k, pool)
    hierarchy = replace(hierarchy, files=public_files(hierarchy.files), speech=())  # speech has its own route
    return {**hierarchy.to_dict(), "video": entry.name, "max_steps": max_steps(video)}


@view.get("/api/videos/{id}/ask", responses=ERRORS)
async def ask(context: Context, entry: FoundEntry, q: Text, n: NumResults = 5) -> dict[str, Any]:
    """Find a text in a video."""
    video = await context.open_video(entry)
    return (await context.run(lambda: context.library.ask(entry, video, check_text(q), n))).to_dict()


@view.post("/api/videos/{id}/recipe", responses=ERRORS)
async def recipe(
    context: Context,
    entry: FoundEntry,
    lines: Annotated[list[str], Body()],
    is_optional: Annotated[bool, Body()] = False,
) -> dict[str, Any]:
    """The steps of a video that a recipe lists in their order."""
    if not 0 < len(lines) <= MAX_LINES:
        raise InputError(f"there must be 1 to {MAX_LINES} lines, got {len(lines)}")
    texts = [check_text(line)[:MAX_LABEL_LENGTH] for line in lines]
    video = await context.open_video(entry)
    hierarchy = await context.run(lambda: video.follow(texts, is_optional=is_optional), cutting_pool(None))
    hierarchy = replace(hierarchy, files=public_files(hierarchy.files), speech=())
    return {**hierarchy.to_dict(), "video": entry.name, "max_steps": max_steps(video)}


@view.get("/api/videos/{id}/transcript", responses=ERRORS)
async def transcript(context: Context, entry: FoundEntry) -> list[dict[str, Any]]:
    """The transcript of a video in time order, empty if it has none."""
    video = await context.open_video(entry)
    return [utterance.to_dict() for utterance in video.transcript or ()]


@view.get("/api/videos/{id}/truth", responses=ERRORS)
async def truth(context: Context, entry: FoundEntry) -> list[dict[str, Any]]:
    """Annotated steps of a video (`--truth`)."""
    return context.library.annotations.get(entry.name, [])


@view.get("/api/videos/{id}/picture", responses=ERRORS, response_class=Response)
async def picture(context: Context, entry: FoundEntry, t: Seconds) -> Response:
    """A thumbnail of a moment. One frame of its file is read if the video is not open."""
    library = context.library
    if entry.is_video and library.videos.find(entry.id) is None:
        thumbnail: bytes | None = await context.run(lambda: _read_picture(entry, t), routing.READS)
    else:
        thumbnail = (await context.open_video(entry)).source.thumbnail_at(t)
    if thumbnail is None:
        raise NotFoundError("this video has no thumbnails")
    return Response(thumbnail, media_type="image/jpeg")


@view.get("/api/videos/{id}/file", responses=ERRORS, response_class=FileResponse)
async def file(context: Context, entry: FoundEntry, part: FileNumber = 0) -> FileResponse:
    """A file of the video. Range requests are supported."""
    files = entry.playable_files
    if not files:
        raise NotFoundError("there is no video next to this feature file")
    if part >= len(files):
        raise NotFoundError(f"there is no file {part}; this video has {len(files)}")
    # The local copy of a remote file may have been evicted.
    return FileResponse(await context.run(lambda: files[part].fetch(context.check_client), routing.READS))


@view.get("/api/videos/{id}/export/{format}", responses=ERRORS, response_class=Response)
async def export(context: Context, entry: FoundEntry, format: str, k: StepCounts = None) -> Response:
    """Export the steps, edited or found, as with `hiero steps --export`."""
    library, pool = context.library, cutting_pool(k)
    if format not in exporter_names():
        raise NotFoundError(f"there is no format {format}; choose one of {', '.join(exporter_names())}")
    exporter = find_exporter(format)
    edits = await context.run(lambda: library.edits.read(entry))
    has_chapters, files = len(entry.source.files) > 1, tuple[VideoFile, ...]()
    if edits is not None and not has_chapters and not entry.is_read:
        hierarchy = edits.hierarchy  # the video need not be processed
    else:
        video = await context.open_video(entry)
        files = tuple(video.files) if has_chapters else ()
        if edits is None:
            hierarchy = await _find_steps(context, video, k, pool)
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
    """Search the steps of all videos by a text, in pictures and in speech."""
    library, corpus = context.library, _require_corpus(context.library)

    def find() -> list[dict[str, Any]]:
        try:
            return _hits_to_dicts(library, corpus, corpus.search_text(library.engine, q, n, level=level))
        except InputError as error:
            if isinstance(error, BusyError) or corpus.num_videos:
                raise
            return []  # nothing has been processed yet

    return await context.run(find)


@view.get("/api/search/like", responses=ERRORS)
async def like(
    context: Context, video: Text, t: Seconds, n: NumResults = 20, level: LevelNumber = None
) -> dict[str, Any]:
    """Find the step at a moment of a video in other videos."""
    corpus = _require_corpus(context.library)

    def find() -> dict[str, Any]:
        step, hits = corpus.like(video, t, n, level)
        first = _hits_to_dicts(context.library, corpus, [step])
        if not first:
            raise NotReadError(f"{video} was replaced since it was indexed; process it again first")
        return {"step": first[0], "hits": _hits_to_dicts(context.library, corpus, hits)}

    return await context.run(find)


def _require_corpus(library: Library) -> Corpus:
    if library.corpus is None:
        raise NotFoundError("this server has no corpus; start it with: hiero serve CORPUS")
    return library.corpus


def _hits_to_dicts(library: Library, corpus: Corpus, hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """Hits without those in videos that were replaced since they were indexed."""
    records = corpus.lookup({hit.video for hit in hits})
    replaced = {name for name, record in records.items() if not library.is_current(record)}
    rows = []
    for hit in hits:
        if hit.video in replaced:
            continue
        entry = library.find_by_name(hit.video)  # None if the file is missing
        files = public_files(records[hit.video].files) if hit.video in records else ()
        shown = {"id": None if entry is None else entry.id, "pictures": entry is not None and entry.is_video}
        rows.append({**hit.to_dict(), **file_fields(files, hit), **shown})
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
        "read": entry.is_read,
        "folder": entry.folder,
        "date": entry.date,
        "first_steps": entry.names[:NUM_FIRST_STEPS],
        "edited": library.edits.exists(entry),
        "truth": bool(library.annotations.get(entry.name)),
    }


def public_files(files: Sequence[VideoFile]) -> tuple[VideoFile, ...]:
    """Files without their folders, which clients must not see."""
    return tuple(replace(file, path=FilePath(file.path).name) for file in files)


def _probe_files(entry: Entry) -> tuple[VideoFile, ...]:
    """The files of a video that is not processed yet, with the durations in their headers."""
    durations_s = [probe_duration(file) or 0.0 for file in entry.source.files]
    return public_files(place_files(entry.source.paths, durations_s))


def _read_picture(entry: Entry, time_s: float) -> bytes:
    files = _probe_files(entry)
    number = max(i for i, file in enumerate(files) if file.start_s <= time_s)
    source = entry.source.files[number]
    return make_thumbnail(read_frame(source.path, time_s - files[number].start_s, file=source.reader()))


async def _find_steps(context: RequestContext, video: Video, k: str | None, pool: WorkerPool) -> Hierarchy:
    """The steps of a video: at once if they are in memory, otherwise from a thread of the pool."""
    counts, library = parse_step_counts(k, max_steps(video)), context.library
    if (known := library.videos.known_steps(video).get(tuple(counts or ()))) is not None:
        return known
    return await context.run(lambda: library.steps(video, counts), pool)


def parse_step_counts(k: str | None, limit: int = MAX_STEPS) -> list[int] | None:
    """Parse a parameter such as 4,8,16."""
    if k is None:
        return None
    counts = [int(count) for count in k.split(",")]
    if max(counts) > limit:
        raise InputError(f"k={max(counts)}: this video can be split into at most {limit} steps")
    return counts


def cutting_pool(k: str | None) -> WorkerPool:
    """The pool for a segmentation. Raises InputError if there are too many steps for any video."""
    return routing.LARGE_CUTS if max(parse_step_counts(k) or [0]) > LARGE_STEPS else routing.CUTS


def max_steps(video: Video) -> int:
    """Maximum number of steps of a level."""
    return min(MAX_STEPS, len(video.nodes))
