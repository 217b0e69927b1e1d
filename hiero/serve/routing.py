"""What all routes share: types of their parameters, the errors that they document, and threads for slow work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import anyio
from fastapi import Query

Result = TypeVar("Result")

Text = Annotated[str, Query(min_length=1, max_length=500)]
NumResults = Annotated[int, Query(ge=1, le=200)]
Seconds = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)]
StepCounts = Annotated[str | None, Query(pattern=r"^\d{1,5}(,\d{1,5}){0,7}$", description="steps of each level, such as 4,8,16")]
LevelNumber = Annotated[int | None, Query(ge=0, le=16)]

ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": description, "content": {"application/json": {"schema": {"type": "object"}}}}
    for code, description in ((400, "not possible"), (404, "not there"), (409, "not read yet"))
}


def parse_step_counts(k: str | None) -> list[int] | None:
    """4,8,16 as `Video.steps` takes it."""
    return None if k is None else [int(count) for count in k.split(",")]


async def run_in_thread(work: Callable[[], Result]) -> Result:
    """Run in a thread, so that the event loop stays free; a few at a time: many clients wait instead of thrashing."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=_thread_limiter())


def _thread_limiter() -> Any:
    """One for each event loop, since a limiter cannot be shared between them."""
    loop: Any = asyncio.get_running_loop()
    if not hasattr(loop, "hiero_limiter"):
        loop.hiero_limiter = anyio.CapacityLimiter(max(2, os.cpu_count() or 2))
    return loop.hiero_limiter
