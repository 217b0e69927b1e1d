"""Routes of people: signing in and out, who they are, and what was changed by whom."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response

from hiero.serve.routing import ERRORS
from hiero.serve.state import State
from hiero.serve.users import Access, User, cookie_header, current_user, require

MAX_TOKEN_LENGTH = 200


def user_router(access: Access, state: State, root_path: str) -> APIRouter:
    """Sign in and out, and look at tokens and changes."""
    router = APIRouter()

    @router.post("/api/sign-in", responses={401: {**ERRORS[404], "description": "no such token"}})
    async def sign_in(
        request: Request, response: Response, token: Annotated[str, Body(embed=True, max_length=MAX_TOKEN_LENGTH)]
    ) -> dict[str, Any]:
        """Sign a browser in by a token; from then on a cookie, which scripts cannot read, says who it is."""
        user = access.find(token.strip())
        if user is None:
            response.status_code = 401
            return {"error": "no such token; ask whoever runs this server for one"}
        response.headers["set-cookie"] = cookie_header(request.scope, token.strip(), root_path)
        return _user_to_dict(user)

    @router.post("/api/sign-out", dependencies=[require("view")])
    async def sign_out(request: Request, response: Response) -> dict[str, bool]:
        """Forget the cookie."""
        response.headers["set-cookie"] = cookie_header(request.scope, "", root_path)
        return {"signed_in": False}

    @router.get("/api/me", dependencies=[require("view")])
    async def me(request: Request) -> dict[str, Any]:
        """Who sends this request, and what they may do."""
        return {**_user_to_dict(current_user(request)), "sign_in": not access.is_open}

    @router.get("/api/tokens", dependencies=[require("admin")])
    async def tokens() -> list[dict[str, Any]]:
        """Whose tokens there are; not the tokens themselves, which are nowhere."""
        return [
            {"name": token.name, "role": token.role, "created_at": token.created_at, "revoked_at": token.revoked_at}
            for token in state.tokens()
        ]

    @router.get("/api/audit", dependencies=[require("admin")])
    async def audit(n: Annotated[int, Query(ge=1, le=10_000)] = 200) -> list[dict[str, Any]]:
        """The last changes, newest first."""
        return state.audit(n)

    return router


def _user_to_dict(user: User) -> dict[str, Any]:
    return {"name": user.name, "role": user.role}
