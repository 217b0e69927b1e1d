"""Routes of the search in a corpus: by words, or by a moment of a video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request

from hiero.corpus.corpus import Corpus, Hit
from hiero.serve.library import Library, NotFoundError
from hiero.serve.routing import ERRORS, LevelNumber, NumResults, Seconds, Text
from hiero.serve.users import require
from hiero.serve.video_routes import public_files
from hiero.serve.workers import run_in_thread
from hiero.types import VideoFile, file_fields


def search_router(library: Library) -> APIRouter:
    """Search in the library's corpus; without one every search is answered by 404."""
    router = APIRouter(dependencies=[require("view")])

    def require_corpus() -> Corpus:
        if library.corpus is None:
            raise NotFoundError("this server has no corpus; start it with one: hiero serve CORPUS")
        return library.corpus

    def hit_to_dict(hit: Hit, files: Mapping[str, Sequence[VideoFile]]) -> dict[str, Any]:
        entry = library.find_by_name(hit.video)  # None where the file is gone
        row = {**hit.to_dict(), **file_fields(public_files(files.get(hit.video, ())), hit.start_s)}
        return {**row, "id": None if entry is None else entry.id, "pictures": entry is not None and entry.is_video}

    def hits_to_dicts(corpus: Corpus, hits: Sequence[Hit]) -> list[dict[str, Any]]:
        files = {
            name: record.files for name, record in corpus.lookup({hit.video for hit in hits}).items() if record.files
        }
        return [hit_to_dict(hit, files) for hit in hits]

    @router.get("/api/search", responses=ERRORS)
    async def search(request: Request, q: Text, n: NumResults = 20, level: LevelNumber = None) -> list[dict[str, Any]]:
        """Steps of all videos that are nearest to a text, by what is seen and what is said."""
        corpus = require_corpus()

        def find() -> list[dict[str, Any]]:
            return hits_to_dicts(corpus, corpus.search_text(library.main_engine, q, n, level=level))

        return await run_in_thread(request, find)

    @router.get("/api/search/like", responses=ERRORS)
    async def like(
        request: Request, video: Text, t: Seconds, n: NumResults = 20, level: LevelNumber = None
    ) -> dict[str, Any]:
        """The same step elsewhere: steps of other videos that are like a moment of this one; of a
        level, or of the finest.
        """
        corpus = require_corpus()

        def find() -> dict[str, Any]:
            step, hits = corpus.like(video, t, n, level)
            first, *others = hits_to_dicts(corpus, [step, *hits])
            return {"step": first, "hits": others}

        return await run_in_thread(request, find)

    return router
