"""Routes of the search in a corpus: by words, or by a moment of a video."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from hiero.corpus.corpus import Corpus, Hit
from hiero.serve.library import Library, NotFoundError
from hiero.serve.routing import ERRORS, LevelNumber, NumResults, Seconds, Text
from hiero.serve.workers import run_in_thread


def search_router(library: Library) -> APIRouter:
    """Search in the library's corpus; without one every search is answered by 404."""
    router = APIRouter()

    def require_corpus() -> Corpus:
        if library.corpus is None:
            raise NotFoundError("this server has no corpus; start it with one: hiero serve CORPUS")
        return library.corpus

    def hit_to_dict(hit: Hit) -> dict[str, Any]:
        entry = library.find_by_name(hit.video)  # None where the file is gone
        return {**hit.to_dict(), "id": None if entry is None else entry.id, "pictures": entry is not None and entry.is_video}

    @router.get("/api/search", responses=ERRORS)
    async def search(request: Request, q: Text, n: NumResults = 20, level: LevelNumber = None) -> list[dict[str, Any]]:
        """Steps of all videos that are nearest to a text."""
        corpus = require_corpus()
        hits = await run_in_thread(request, lambda: corpus.search_text(library.main_engine, q, n, level=level))
        return [hit_to_dict(hit) for hit in hits]

    @router.get("/api/search/like", responses=ERRORS)
    async def like(request: Request, video: Text, t: Seconds, n: NumResults = 20, level: LevelNumber = None) -> dict[str, Any]:
        """The same step elsewhere: steps of other videos that are like a moment of this one; of a level, or of the finest."""
        corpus = require_corpus()
        step, hits = await run_in_thread(request, lambda: corpus.like(video, t, n, level))
        return {"step": hit_to_dict(step), "hits": [hit_to_dict(hit) for hit in hits]}

    return router
