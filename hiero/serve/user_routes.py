"""Routes of people and of whoever runs the server: signing in, tokens and changes, health and metrics."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query, Response

from hiero.errors import InputError
from hiero.serve.routing import ERRORS, Context, RequestContext, Services, role_router
from hiero.serve.users import User, cookie_header

MAX_TOKEN_LENGTH = 200

public, view, admin = role_router(None), role_router("view"), role_router("admin")


@public.post("/api/sign-in", responses={401: {**ERRORS[404], "description": "no such token"}})
async def sign_in(
    context: Context, response: Response, token: Annotated[str, Body(embed=True, max_length=MAX_TOKEN_LENGTH)]
) -> dict[str, Any]:
    """Sign a browser in by a token; from then on a cookie, which scripts cannot read, says who it is."""
    user = context.services.access.find(token.strip())
    if user is None:
        response.status_code = 401
        return {"error": "no such token; ask whoever runs this server for one"}
    response.headers["set-cookie"] = _cookie(context, token.strip())
    return _user_to_dict(user)


@view.post("/api/sign-out")
async def sign_out(context: Context, response: Response) -> dict[str, bool]:
    """Forget the cookie."""
    response.headers["set-cookie"] = _cookie(context, "")
    return {"signed_in": False}


@view.get("/api/me")
async def me(context: Context) -> dict[str, Any]:
    """Who sends this request, and what they may do."""
    return {**_user_to_dict(context.user), "sign_in": not context.services.access.is_open}


@admin.get("/api/tokens")
async def tokens(context: Context) -> list[dict[str, Any]]:
    """Whose tokens there are; not the tokens themselves, which are nowhere."""
    return [
        {"name": token.name, "role": token.role, "created_at": token.created_at, "revoked_at": token.revoked_at}
        for token in context.services.state.tokens()
    ]


@admin.get("/api/audit")
async def audit(context: Context, n: Annotated[int, Query(ge=1, le=10_000)] = 200) -> list[dict[str, Any]]:
    """The last changes, newest first."""
    return context.services.state.audit(n)


@public.get("/healthz")
async def lives() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@public.get("/readyz", responses={503: {"description": "not ready"}})
async def ready(context: Context, response: Response) -> dict[str, Any]:
    """It can take requests, and save what they change."""
    problem = _find_problem(context.services)
    if problem:
        response.status_code = 503
        return {"status": "not ready", "error": problem}
    return {"status": "ready"}


@view.get("/metrics", response_class=Response)
async def prometheus(context: Context) -> Response:
    """Counts and latencies in Prometheus' text format."""
    return Response(context.services.metrics.render(), media_type="text/plain; version=0.0.4")


def _find_problem(services: Services) -> str:
    """Why the server cannot work; empty where it can."""
    if services.jobs.is_closing:
        return "the server stops"
    try:
        services.state.check_writable()
    except InputError as error:
        return str(error)
    return ""


def _cookie(context: RequestContext, token: str) -> str:
    return cookie_header(context.request.scope, token, context.services.settings.path_prefix)


def _user_to_dict(user: User) -> dict[str, Any]:
    return {"name": user.name, "role": user.role}
