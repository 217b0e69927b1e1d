"""ASGI middleware before the application: allowed hosts only, no other site's requests, people who may
come in, small bodies.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Container
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from hiero.errors import InputError
from hiero.serve.settings import ServerSettings
from hiero.serve.users import USER, Access, cookie_header, token_in_address

MAX_BODY_BYTES = 4 * 2**20  # of everything but uploads
BODY_TIMEOUT_S = 30.0  # for the next piece of a body
MIN_BODY_BYTES_S = 1000  # on average, beyond the first BODY_TIMEOUT_S
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")  # change nothing
# What is answered without signing in: the page itself, which holds nothing, and what tells a
# supervisor that the server lives.
OPEN_PATHS = ("/healthz", "/readyz", "/api/sign-in")
PRIVATE_PATHS = ("/api/", "/metrics", "/openapi.json")
FROM_PROXY = "hiero.from_proxy"  # in the scope of a request: a trusted proxy sent it
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


def plain_address(address: str) -> str:
    """An address as it is written in settings: an IPv4 address that came through an IPv6 socket is one of IPv4."""
    return address.removeprefix("::ffff:") if "." in address else address


def client_key(address: str) -> str:
    """What counts as one client: an address; of IPv6 the first 64 bits, since the rest is the client's to choose."""
    try:
        ip = ipaddress.ip_address(plain_address(address))
    except ValueError:
        return address
    return str(ip) if ip.version == 4 else ip.packed[:8].hex()


class Guard:
    """Refuses requests before they reach an application, and adds security headers to its answers."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, access: Access) -> None:
        self.app, self.access, self.settings = app, access, settings
        self.hosts, self.path_prefix = settings.hosts, settings.path_prefix
        self.proxy_headers = ProxyHeadersMiddleware(self._answer, settings.trusted_networks)  # type: ignore[arg-type]

    @property
    def trusted_proxies(self) -> Container[str]:
        return self.proxy_headers.trusted_hosts  # type: ignore[return-value]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":  # there are no websockets
            # Before the proxy's headers put the client's address in place of the proxy's.
            peer, port = scope.get("client") or ("", 0)
            scope["client"] = (plain_address(peer), port)
            scope[FROM_PROXY] = scope["client"][0] in self.trusted_proxies
            await self.proxy_headers(scope, receive, send)  # type: ignore[arg-type]

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, prefix = scope["path"], self.path_prefix
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            scope.update(path=path.removeprefix(prefix), raw_path=None)
        headers = dict(Headers(scope=scope).items())  # of a repeated one the last, which the proxy added
        if scope[FROM_PROXY] and (host := headers.get("x-forwarded-host", "").split(",")[0].strip()):
            headers["host"] = host
        response = self._refuse_or_redirect(scope, headers)
        if response is not None:
            await response(scope, receive, send)
            return
        await self.app(scope, _limit_body(receive, self._max_bytes(scope)), _add_security_headers(scope, send))

    def _refuse_or_redirect(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """The answer to a request that the application does not see; None where it does."""
        path = scope["path"]
        if not self._is_allowed_host(_hostname(headers.get("host", ""))):
            return _refuse(421, "this server does not answer to that name; start it with --allow-host NAME")
        if path == "":  # /hiero without the slash: the page's own addresses would go wrong
            return self._redirect_to_page()
        is_private = path.startswith(PRIVATE_PATHS)
        is_foreign_read = headers.get("sec-fetch-site") == "cross-site" and is_private
        if is_foreign_read or (scope["method"] not in SAFE_METHODS and not _is_same_origin(headers)):
            return _refuse(403, "this request comes from another site")
        try:
            user = None if path in OPEN_PATHS else self.access.authenticate(scope, headers, scope[FROM_PROXY])
        except InputError as error:  # its disk is gone
            return _refuse(503, str(error))
        if user is None and is_private and path not in OPEN_PATHS:
            return _refuse(401, "sign in first: open the page, or send your token as Authorization: Bearer TOKEN")
        scope[USER] = user
        if user is not None and (token := token_in_address(scope)):
            # From /?token=… to /: the page's own requests have the cookie, and the address can be shown to others.
            return self._redirect_to_page(
                cookie_header(scope, token, self.path_prefix) if self.access.find(token) else ""
            )
        content_length = headers.get("content-length", "0")
        is_number = content_length.isascii() and content_length.isdigit()
        if not is_number or int(content_length) > self._max_bytes(scope):
            return _refuse(413, "the request is too large")
        return None

    def _is_allowed_host(self, host: str) -> bool:
        # Another site can make a name point here, but not an address: where people must sign in any address will do.
        return host in self.hosts or (_is_ip_address(host) and not self.access.is_open)

    def _max_bytes(self, scope: Scope) -> int:
        return self.settings.max_upload_bytes if scope["path"] == "/api/upload" else MAX_BODY_BYTES

    def _redirect_to_page(self, cookie: str = "") -> Response:
        response = RedirectResponse(f"{self.path_prefix}/", 303, {"cache-control": "no-store"})
        if cookie:
            response.headers["set-cookie"] = cookie
        return response


def _refuse(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status, {"connection": "close"})


def _is_same_origin(headers: dict[str, str]) -> bool:
    """A browser says where a request comes from; other programs do not, and carry no cookie that could be abused."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin).netloc == headers.get("host")  # which is one of the allowed ones
        except ValueError:  # such as http://[
            return False
    return headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _add_security_headers(scope: Scope, send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            if scope["path"].startswith("/api/"):
                headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers


def _limit_body(receive: Receive, max_bytes: int) -> Receive:
    """A body that must come in time, not by single bytes, and not grow beyond a limit, whatever its
    Content-Length says.
    """
    num_bytes, is_complete, begin_s = 0, False, time.monotonic()

    async def receive_limited() -> Message:
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
