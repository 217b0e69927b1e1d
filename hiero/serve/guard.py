"""ASGI middleware before the application: allowed hosts only, no other site's requests, a token on a network, small bodies."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
MAX_BODY_BYTES = 4 * 2**20  # of everything but uploads
BODY_TIMEOUT_S = 30.0  # for the next piece of a body
MIN_BODY_BYTES_S = 1000  # on average, beyond the first BODY_TIMEOUT_S
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")  # change nothing
SECURITY_HEADERS = {
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
    """Whether only this machine can reach a host."""
    return host in LOOPBACK_HOSTS or host.startswith("127.")


def client_key(address: str) -> str:
    """What counts as one client: an address; of IPv6 the first 64 bits, since the rest is the client's to choose."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return address
    return str(ip.ipv4_mapped) if ip.ipv4_mapped else ip.packed[:8].hex()


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """Refuses requests before they reach an application, and adds security headers to its answers.

    Args:
        app: The ASGI application.
        hosts: Names that this server answers to. DNS rebinding uses another: a name of a foreign site that points to this machine.
        token: What a client must send; None asks for nothing, which is for loopback.
        max_upload_bytes: Of the body of an upload.
        close: Called by the server before it shuts down.
    """

    def __init__(
        self,
        app: Any,
        hosts: set[str],
        token: str | None = None,
        max_upload_bytes: int = 0,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.app, self.hosts, self.token, self.max_upload_bytes, self.close = app, hosts, token, max_upload_bytes, close

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no websockets
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._is_allowed_host(_hostname(headers.get("host", ""))):
            await _refuse(send, 421, "this server does not answer to that name; start it with --allow-host NAME")
            return
        is_foreign_read = headers.get("sec-fetch-site") == "cross-site" and scope["path"].startswith("/api/")
        if is_foreign_read or (scope["method"] not in SAFE_METHODS and not _is_same_origin(headers)):
            await _refuse(send, 403, "this request comes from another site")
            return
        if self.token is not None and not self._has_token(scope, headers):
            await _refuse(send, 401, "this server wants its token: open the address that it printed")
            return
        if self.token is not None and "token=" in scope["query_string"].decode("latin-1") and scope["path"] == "/":
            await self._move_token_to_cookie(scope, send)
            return
        max_bytes = self.max_upload_bytes if scope["path"] == "/api/upload" else MAX_BODY_BYTES
        content_length = headers.get("content-length", "0")
        if not (content_length.isascii() and content_length.isdigit()) or int(content_length) > max_bytes:
            await _refuse(send, 413, "the request is too large")
            return
        await self.app(scope, _limit_body(receive, max_bytes), _add_security_headers(scope, send))

    def _is_allowed_host(self, host: str) -> bool:
        # Another site can make a name point here, but not an address: with the token any address will do.
        return host in self.hosts or (self.token is not None and _is_ip_address(host))

    def _has_token(self, scope: Any, headers: dict[str, str]) -> bool:
        """In the header, the address or the cookie."""
        candidates = [headers.get("authorization", "").removeprefix("Bearer ").strip()]
        candidates += parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_cookie_name(scope))
            candidates += [cookie.value] if cookie is not None else []
        except CookieError:
            pass
        # In constant time, so that the time of an answer does not tell how much of a guess is right.
        return any(hmac.compare_digest(candidate.encode(), (self.token or "").encode()) for candidate in candidates)

    async def _move_token_to_cookie(self, scope: Any, send: Any) -> None:
        """Redirect from /?token=… to /: the page's own requests have the cookie, and the address can be shown to others."""
        cookie = f"{_cookie_name(scope)}={self.token}; HttpOnly; SameSite=Strict; Path=/"
        headers = [
            (b"location", b"/"),
            (b"set-cookie", cookie.encode()),
            (b"content-length", b"0"),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _is_same_origin(headers: dict[str, str]) -> bool:
    """A browser says where a request comes from; other programs do not, and carry no cookie that could be abused."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin).netloc == headers.get("host")  # which is one of the allowed ones
        except ValueError:  # such as http://[
            return False
    return headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _add_security_headers(scope: Any, send: Any) -> Any:
    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            defaults = dict(SECURITY_HEADERS)
            if scope["path"].startswith("/api/"):
                defaults["cache-control"] = "no-store"
            added = [(name.encode(), value.encode()) for name, value in defaults.items() if name.encode() not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return send_with_headers


def _limit_body(receive: Any, max_bytes: int) -> Any:
    """A body that must come in time, not by single bytes, and not grow beyond a limit, whatever its Content-Length says."""
    num_bytes, is_complete, begin_s = 0, False, time.monotonic()

    async def receive_limited() -> Any:
        nonlocal num_bytes, is_complete
        try:
            # After the body only a disconnect can come, whenever it does.
            message = await asyncio.wait_for(receive(), None if is_complete else BODY_TIMEOUT_S)
        except TimeoutError:
            return {"type": "http.disconnect"}
        if message["type"] == "http.request":
            num_bytes += len(message.get("body", b""))
            is_complete = not message.get("more_body")
            allowed_s = BODY_TIMEOUT_S + num_bytes / MIN_BODY_BYTES_S
            if num_bytes > max_bytes or (not is_complete and time.monotonic() - begin_s > allowed_s):
                return {"type": "http.disconnect"}
        return message

    return receive_limited


async def _refuse(send: Any, status: int, reason: str) -> None:
    body = f'{{"error": "{reason}"}}'.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _cookie_name(scope: Any) -> str:
    """Browsers share cookies between the ports of a host, so the port is part of the name."""
    return f"hiero-{(scope.get('server') or ('', 0))[1]}"


def _is_ip_address(host: str) -> bool:
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
