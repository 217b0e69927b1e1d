"""Whether the server lives and can work, for supervisors and proxies, and its metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from hiero.errors import InputError
from hiero.serve.state import State
from hiero.serve.telemetry import Metrics
from hiero.serve.users import require


class Health:
    """What may keep a server from working."""

    def __init__(self, state: State) -> None:
        self.state, self.is_stopping = state, False

    def problem(self) -> str:
        """Why it is not ready; empty where it is."""
        if self.is_stopping:
            return "the server stops"
        try:
            self.state.check_writable()
        except InputError as error:
            return str(error)
        return ""


def health_router(health: Health, metrics: Metrics) -> APIRouter:
    """Routes for supervisors."""
    router = APIRouter()

    @router.get("/healthz")
    async def lives() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/readyz", responses={503: {"description": "not ready"}})
    async def ready(response: Response) -> dict[str, Any]:
        """It can take requests, and save what they change."""
        problem = health.problem()
        if problem:
            response.status_code = 503
        return {"status": "not ready" if problem else "ready", **({"error": problem} if problem else {})}

    @router.get("/metrics", dependencies=[require("view")], response_class=Response)
    async def prometheus() -> Response:
        """Counts and latencies in Prometheus' text format."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4")

    return router
