"""The JSON API and the page. Videos are named by ids of what was given to the server; no path ever comes from a client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
from fastapi import Body, FastAPI, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles

import hiero
from hiero.corpus.corpus import Hit
from hiero.engine import Video
from hiero.errors import InputError
from hiero.extraction.collection import VIDEO_SUFFIXES, length_of
from hiero.report.exports import exporter_names, find_exporter
from hiero.serve.guard import Guard
from hiero.serve.jobs import Jobs, events, without_paths
from hiero.serve.library import Entry, Library, NotFoundError, NotReadError, num_cells, similarity_tile
from hiero.types import Hierarchy

STATIC = Path(__file__).parent / "static"
MAX_LABELS = 2000
MAX_WATCHERS = 32
ENDED = object()
Result = TypeVar("Result")
Text = Annotated[str, Query(min_length=1, max_length=500)]
Num = Annotated[int, Query(ge=1, le=200)]
Seconds = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)]
Numbers = Annotated[str | None, Query(pattern=r"^\d{1,5}(,\d{1,5}){0,7}$", description="steps of each level, such as 4,8,16")]


@dataclass(frozen=True)
class Uploads:
    """Where uploads go, and how large they may be; no folder: they are off."""

    folder: Path | None = None
    limit: int = 0


def create_app(
    library: Library, *, hosts: set[str] | None = None, token: str | None = None, uploads: Uploads | None = None
) -> Guard:
    """The guarded application."""
    uploads = uploads or Uploads()
    jobs = Jobs(lambda id, progress: library.index(library.find(id), progress))

    app = FastAPI(title="hiero", version=hiero.__version__, docs_url=None, redoc_url=None)
    _add_errors(app)
    _add_videos(app, library, uploads)
    _add_edits(app, library)
    _add_search(app, library)
    _add_jobs(app, library, jobs, uploads)
    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return Guard(app, hosts or {"localhost", "127.0.0.1", "::1"}, token, uploads.limit, jobs.close)


def _numbers(k: str | None) -> list[int] | None:
    return None if k is None else [int(part) for part in k.split(",")]


async def _run_in_thread(work: Callable[[], Result]) -> Result:
    """Run in a thread, so that the event loop stays free; a few at a time: many clients wait instead of thrashing."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=_limiter())


def _limiter() -> Any:
    loop: Any = asyncio.get_running_loop()
    if not hasattr(loop, "hiero_limiter"):
        loop.hiero_limiter = anyio.CapacityLimiter(max(2, os.cpu_count() or 2))
    return loop.hiero_limiter


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(InputError)
    async def bad(_: Request, error: InputError) -> JSONResponse:
        return JSONResponse({"error": without_paths(str(error))}, 400)

    @app.exception_handler(NotFoundError)
    async def missing(_: Request, error: NotFoundError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 404)

    @app.exception_handler(NotReadError)
    async def unread(_: Request, error: NotReadError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 409)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        traceback.print_exception(error)  # for the person at the server, not for the client
        return JSONResponse({"error": "an internal error; the server's log has it"}, 500)


ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": what, "content": {"application/json": {"schema": {"type": "object"}}}}
    for code, what in ((400, "not possible"), (404, "not there"), (409, "not read yet"))
}


def _add_videos(app: FastAPI, library: Library, uploads: Uploads) -> None:
    def about(entry: Entry) -> dict[str, Any]:
        return {
            "id": entry.id, "name": entry.name, "pictures": entry.is_video, "playable": entry.film is not None,
            "read": library.is_read(entry), "edited": library.edits_file(entry).is_file(),
            "truth": bool(library.truth_of(entry)),
        }  # fmt: skip

    def steps_of(entry: Entry, k: str | None, model: str | None) -> Hierarchy:
        video = library.opened(entry, model)
        return video.steps(_numbers(k), labels=library.labels if video.engine.has_text else None)

    @app.get("/api/server")
    async def server() -> dict[str, Any]:
        """What this server is: version, models, whether there is a corpus."""
        return {
            "version": hiero.__version__, "models": list(library.engines), "corpus": library.corpus is not None,
            "words": library.engines[library.main].has_text, "exports": exporter_names(), "uploads": uploads.folder is not None,
        }  # fmt: skip

    @app.get("/api/videos")
    async def videos() -> list[dict[str, Any]]:
        """All videos that can be opened."""
        return [about(entry) for entry in library.entries.values()]

    @app.get("/api/videos/{id}", responses=ERRORS)
    async def video(id: str) -> dict[str, Any]:
        """One video, and how long it is."""
        entry = library.find(id)
        duration_s = await _run_in_thread(lambda: length_of(entry.path)) if entry.is_video else None
        return {**about(entry), "duration_s": duration_s}

    @app.get("/api/videos/{id}/steps", responses=ERRORS)
    async def steps(id: str, k: Numbers = None, model: str | None = None) -> dict[str, Any]:
        """The steps of a video: a hierarchy, coarse to fine."""
        entry = library.find(id)
        return {**(await _run_in_thread(lambda: steps_of(entry, k, model))).to_dict(), "video": entry.name}

    @app.get("/api/videos/{id}/ask", responses=ERRORS)
    async def ask(id: str, q: Text, n: Num = 5) -> dict[str, Any]:
        """Where a text happens in a video."""
        entry = library.find(id)
        return (await _run_in_thread(lambda: library.opened(entry).ask(q, num=n)[0])).to_dict()

    @app.post("/api/videos/{id}/label", responses=ERRORS)
    async def label(id: str, labels: Annotated[list[str], Body(embed=True)], k: Numbers = None) -> list[dict[str, Any]]:
        """Name every part of a video from a list of labels."""
        entry = library.find(id)
        if not 0 < len(labels) <= MAX_LABELS:
            raise InputError(f"between 1 and {MAX_LABELS} labels")
        found = await _run_in_thread(lambda: library.opened(entry).label([text[:500] for text in labels], num_steps=_numbers(k)))
        return [step.to_dict() for step in found]

    @app.get("/api/videos/{id}/truth", responses=ERRORS)
    async def truth(id: str) -> list[dict[str, Any]]:
        """Annotated steps, where the server was given some."""
        return library.truth_of(library.find(id))

    @app.get("/api/videos/{id}/similarity/{zoom}/{row}/{column}", responses=ERRORS, response_class=Response)
    async def similarity(id: str, zoom: int, row: int, column: int) -> Response:
        """A tile of the similarity matrix, a byte a cell; its size is in X-Rows and X-Columns, that of the matrix in X-Cells."""
        entry = library.find(id)

        def make() -> tuple[Any, Video]:
            video = library.opened(entry)
            return similarity_tile(video, zoom, row, column), video

        tile, video = await _run_in_thread(make)
        headers = {"X-Rows": str(tile.shape[0]), "X-Columns": str(tile.shape[1]), "X-Cells": str(num_cells(video, zoom))}
        return Response(tile.tobytes(), media_type="application/octet-stream", headers=headers)

    @app.get("/api/videos/{id}/picture", responses=ERRORS, response_class=Response)
    async def picture(id: str, t: Seconds) -> Response:
        """A small picture of a moment."""
        entry = library.find(id)
        found = await _run_in_thread(lambda: library.opened(entry).source.thumbnail_at(t))
        if found is None:
            raise NotFoundError("this video has no pictures")
        return Response(found, media_type="image/jpeg")

    @app.get("/api/videos/{id}/file", responses=ERRORS, response_class=FileResponse)
    async def file(id: str) -> FileResponse:
        """The video itself; parts of it by range requests."""
        film = library.find(id).film
        if film is None:
            raise NotFoundError("there is no video beside these features")
        return FileResponse(film)

    @app.get("/api/videos/{id}/export/{format}", responses=ERRORS, response_class=Response)
    async def export(id: str, format: str, k: Numbers = None) -> Response:
        """The steps as a file for other tools, as `hiero steps --export`; edited ones where there are edits."""
        entry = library.find(id)
        if format not in exporter_names():
            raise NotFoundError(f"no export {format}; there are {', '.join(exporter_names())}")
        exporter = find_exporter(format)

        def content() -> str | bytes:
            edited = library.edited(entry)
            found = steps_of(entry, k, None) if edited is None else edited
            return exporter.convert(Hierarchy(entry.path.name, found.model, found.duration_s, found.levels))

        body = await _run_in_thread(content)
        headers = {"Content-Disposition": f'attachment; filename="{exporter.file_name}"'}
        return Response(body, media_type="application/octet-stream", headers=headers)


def _add_edits(app: FastAPI, library: Library) -> None:
    @app.get("/api/videos/{id}/edits", responses=ERRORS)
    async def edits(id: str) -> dict[str, Any]:
        """The steps as a person changed them."""
        entry = library.find(id)
        found = await _run_in_thread(lambda: library.edited(entry))
        if found is None:
            raise NotFoundError("nothing was edited")
        return {**found.to_dict(), "video": entry.name}

    @app.put("/api/videos/{id}/edits", responses=ERRORS)
    async def save(id: str, document: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        """Keep changed steps beside the video."""
        entry = library.find(id)
        return (await _run_in_thread(lambda: library.save_edits(entry, document))).to_dict()

    @app.delete("/api/videos/{id}/edits", responses=ERRORS)
    async def forget(id: str) -> dict[str, bool]:
        """Back to the steps that were found."""
        library.forget_edits(library.find(id))
        return {"edited": False}


def _add_search(app: FastAPI, library: Library) -> None:
    def corpus() -> Any:
        if library.corpus is None:
            raise NotFoundError("this server has no corpus; start it with one: hiero serve CORPUS")
        return library.corpus

    def shown(hit: Hit) -> dict[str, Any]:
        entry = library.by_name(hit.video)
        return {**hit.to_dict(), "id": None if entry is None else entry.id, "pictures": entry is not None and entry.is_video}

    @app.get("/api/search", responses=ERRORS)
    async def search(q: Text, n: Num = 20, level: Annotated[int | None, Query(ge=0, le=16)] = None) -> list[dict[str, Any]]:
        """Steps of all videos that are nearest to a text."""
        held = corpus()

        def find() -> list[Hit]:
            found: list[Hit] = held.search(library.engines[library.main].embed_queries([q])[0], n, level=level)
            return found

        return [shown(hit) for hit in await _run_in_thread(find)]

    @app.get("/api/search/like", responses=ERRORS)
    async def like(video: Text, t: Seconds, n: Num = 20, level: Annotated[int | None, Query(ge=0, le=16)] = None) -> dict[str, Any]:
        """The same step elsewhere: steps of other videos that are like a moment of this one; of a level, or of the finest."""
        held = corpus()
        step, hits = await _run_in_thread(lambda: held.like(video, t, n, level))
        return {"step": shown(step), "hits": [shown(hit) for hit in hits]}


def _add_jobs(app: FastAPI, library: Library, jobs: Jobs, uploads: Uploads) -> None:
    watching = anyio.CapacityLimiter(MAX_WATCHERS)  # threads of their own: those of files and questions stay free

    @app.post("/api/videos/{id}/read", status_code=202, responses=ERRORS)
    async def read(id: str) -> dict[str, Any]:
        """Read a video in the background, and put it into the corpus if there is one."""
        return jobs.start(library.find(id).id).to_dict()

    @app.get("/api/jobs")
    async def listed() -> list[dict[str, Any]]:
        """What is under way, and what ended."""
        return [job.to_dict() for job in jobs.jobs.values()]

    @app.get("/api/jobs/{id}", responses=ERRORS)
    async def job(id: str) -> dict[str, Any]:
        """One job."""
        return jobs.find(id).to_dict()

    @app.delete("/api/jobs/{id}", responses=ERRORS)
    async def cancel(id: str) -> dict[str, Any]:
        """Stop a job; what it read is kept for the next time."""
        return jobs.cancel(id).to_dict()

    @app.get("/api/jobs/{id}/events", responses=ERRORS, response_class=StreamingResponse)
    async def watch(id: str) -> Response:
        """Progress as server-sent events, until the job ends."""
        source = events(jobs.find(id))
        if watching.available_tokens < 1:
            return JSONResponse({"error": "too many are watching; ask /api/jobs instead"}, 503)

        def more() -> Any:
            return next(source, ENDED)

        async def lines() -> AsyncIterator[str]:
            while (item := await anyio.to_thread.run_sync(more, abandon_on_cancel=True, limiter=watching)) is not ENDED:
                yield ": still here\n\n" if item is None else f"data: {json.dumps(item)}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    @app.post("/api/upload", status_code=201, responses=ERRORS)
    async def upload(request: Request, name: Annotated[str, Query(min_length=1, max_length=200)]) -> dict[str, Any]:
        """A new video, as the body of the request. Off unless the server was started with --upload."""
        if uploads.folder is None:
            raise NotFoundError("uploads are off; start the server with --upload FOLDER")
        clean = re.sub(r"[^\w.() -]", "_", Path(name).name).strip(". ")
        if Path(clean).suffix.lower() not in VIDEO_SUFFIXES:
            raise InputError(f"{clean or name}: not a kind of video ({', '.join(VIDEO_SUFFIXES)})")
        target = uploads.folder / clean
        if target.exists():
            raise InputError(f"{clean}: there is a video of that name already")
        part = uploads.folder / f".{os.urandom(8).hex()}.part"
        try:
            with part.open("xb") as out:
                async for chunk in request.stream():
                    await anyio.to_thread.run_sync(out.write, chunk)
            if await _run_in_thread(lambda: _is_video(part)) is False:
                raise InputError(f"{clean}: not a video that can be read")
            os.link(part, target)  # fails where another upload was first, where a rename would replace it
        except FileExistsError:
            raise InputError(f"{clean}: there is a video of that name already") from None
        finally:
            part.unlink(missing_ok=True)
        entry = library.add(target)
        return {"id": entry.id, "name": entry.name}


def _is_video(path: Path) -> bool:
    from hiero.video.decode import probe

    try:
        probe(path)
    except InputError:
        return False
    return True
