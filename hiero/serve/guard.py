"""What stands before the application: known hosts only, no other site's requests, a token for strangers, small bodies."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_BODY = 4 * 2**20
BODY_TIMEOUT_S = 30.0
SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; style-src 'self' 'unsafe-inline'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """ASGI middleware. hosts: names that this server answers to (DNS rebinding uses another); token: None on loopback."""

    def __init__(
        self, app: Any, hosts: set[str], token: str | None = None, upload_limit: int = 0, close: Callable[[], None] = lambda: None
    ) -> None:
        self.app, self.hosts, self.token, self.upload_limit, self.close = app, hosts, token, upload_limit, close

    def _answers_to(self, host: str) -> bool:
        """A name may be made to point here by another site; an address cannot, so strangers with the token may use any."""
        return host in self.hosts or (self.token is not None and _is_address(host))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks anything else
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = _hostname(headers.get("host", ""))
        if not self._answers_to(host):
            await _refuse(send, 421, "this server does not answer to that name; start it with --allow-host NAME")
            return
        foreign = headers.get("sec-fetch-site") == "cross-site" and scope["path"].startswith("/api/")
        if foreign or (scope["method"] not in SAFE and not self._own(headers)):
            await _refuse(send, 403, "this request comes from another site")
            return
        if self.token is not None and not self._knows_token(scope, headers):
            await _refuse(send, 401, "this server wants its token: open the address that it printed")
            return
        if self.token is not None and "token=" in scope["query_string"].decode("latin-1") and scope["path"] == "/":
            await self._welcome(scope, send)
            return
        uploads = scope["path"] == "/api/upload"
        limit = self.upload_limit if uploads else MAX_BODY
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > limit:
            await _refuse(send, 413, "the request is too large")
            return
        await self.app(scope, _limited(receive, limit), self._dressed(scope, send))

    def _own(self, headers: dict[str, str]) -> bool:
        """A browser says where a request comes from; other programs do not, and carry no cookie that could be abused."""
        origin = headers.get("origin")
        if origin is not None:
            return urlsplit(origin).netloc == headers.get("host")  # whose name was looked at before
        return headers.get("sec-fetch-site", "none") in ("none", "same-origin")

    def _knows_token(self, scope: Any, headers: dict[str, str]) -> bool:
        given = [headers.get("authorization", "").removeprefix("Bearer ").strip()]
        given += parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_cookie(scope))
            given += [cookie.value] if cookie is not None else []
        except CookieError:
            pass
        return any(hmac.compare_digest(one.encode(), (self.token or "").encode()) for one in given)

    async def _welcome(self, scope: Any, send: Any) -> None:
        """From the address into a cookie: the page's own requests have it then, and the address can be sent to others."""
        cookie = f"{_cookie(scope)}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        headers = [
            (b"location", b"/"),
            (b"set-cookie", cookie.encode()),
            (b"content-length", b"0"),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _dressed(self, scope: Any, send: Any) -> Any:
        async def dressed(message: Any) -> None:
            if message["type"] == "http.response.start":
                named = {name.lower() for name, _ in message["headers"]}
                extra = dict(HEADERS)
                if scope["path"].startswith("/api/"):
                    extra["cache-control"] = "no-store"
                more = [(n.encode(), v.encode()) for n, v in extra.items() if n.encode() not in named]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        return dressed


def _limited(receive: Any, limit: int) -> Any:
    """A body that must come in time and not grow beyond a limit."""
    seen = [0]

    async def limited() -> Any:
        try:
            message = await asyncio.wait_for(receive(), None if seen[0] < 0 else BODY_TIMEOUT_S)
        except TimeoutError:
            return {"type": "http.disconnect"}
        if message["type"] == "http.request":
            seen[0] += len(message.get("body", b""))
            if seen[0] > limit:
                return {"type": "http.disconnect"}
            if not message.get("more_body"):
                seen[0] = -1  # from here on only a disconnect can come, whenever it does
        return message

    return limited


async def _refuse(send: Any, status: int, why: str) -> None:
    body = f'{{"error": "{why}"}}'.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _cookie(scope: Any) -> str:
    """Cookies do not tell ports apart, so their names do."""
    return f"hiero-{(scope.get('server') or ('', 0))[1]}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _hostname(netloc: str) -> str:
    """The name without a port; brackets of IPv6 off."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").lower()
    except ValueError:
        return ""
