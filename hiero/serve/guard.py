"""ASGI middleware before the application: allowed hosts only, no other site's requests, people who may
come in, small bodies.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from typing import Any
from urllib.parse import urlsplit

from hiero.errors import InputError
from hiero.serve.proxies import Proxies
from hiero.serve.users import USER, Access, cookie_header, token_in_address

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
MAX_BODY_BYTES = 4 * 2**20  # of everything but uploads
BODY_TIMEOUT_S = 30.0  # for the next piece of a body
MIN_BODY_BYTES_S = 1000  # on average, beyond the first BODY_TIMEOUT_S
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")  # change nothing
# What is answered without signing in: the page itself, which holds nothing, and what tells a
# supervisor that the server lives.
OPEN_PATHS = ("/healthz", "/readyz", "/api/sign-in")
PRIVATE_PATHS = ("/api/", "/metrics", "/openapi.json")
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


class Guard:
    """Refuses requests before they reach an application, and adds security headers to its answers."""

    def __init__(
        self, app: Any, hosts: set[str], access: Access, proxies: Proxies | None = None, max_upload_bytes: int = 0
    ) -> None:
        self.app, self.hosts, self.access, self.max_upload_bytes = app, hosts, access, max_upload_bytes
        self.proxies = proxies or Proxies()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no websockets
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        from_proxy = self.proxies.resolve(scope, headers)
        if not self._is_allowed_host(_hostname(headers.get("host", ""))):
            await _refuse(send, 421, "this server does not answer to that name; start it with --allow-host NAME")
            return
        if scope["path"] == "":  # /hiero without the slash: the page's own addresses would go wrong
            await _redirect(send, f"{self.proxies.root_path}/")
            return
        is_private = scope["path"].startswith(PRIVATE_PATHS)
        is_foreign_read = headers.get("sec-fetch-site") == "cross-site" and is_private
        if is_foreign_read or (scope["method"] not in SAFE_METHODS and not _is_same_origin(headers)):
            await _refuse(send, 403, "this request comes from another site")
            return
        try:
            user = None if scope["path"] in OPEN_PATHS else self.access.authenticate(scope, headers, from_proxy)
        except InputError as error:  # its disk is gone
            await _refuse(send, 503, str(error))
            return
        if user is None and is_private and scope["path"] not in OPEN_PATHS:
            await _refuse(send, 401, "sign in first: open the page, or send your token as Authorization: Bearer TOKEN")
            return
        scope[USER] = user
        if user is not None and (token := token_in_address(scope)):
            # From /?token=… to /: the page's own requests have the cookie, and the address can be shown to others.
            cookie = cookie_header(scope, token, self.proxies.root_path) if self.access.find(token) else ""
            await _redirect(send, f"{self.proxies.root_path}/", cookie)
            return
        max_bytes = self.max_upload_bytes if scope["path"] == "/api/upload" else MAX_BODY_BYTES
        content_length = headers.get("content-length", "0")
        if not (content_length.isascii() and content_length.isdigit()) or int(content_length) > max_bytes:
            await _refuse(send, 413, "the request is too large")
            return
        await self.app(scope, _limit_body(receive, max_bytes), _add_security_headers(scope, send))

    def _is_allowed_host(self, host: str) -> bool:
        # Another site can make a name point here, but not an address: where people must sign in any address will do.
        return host in self.hosts or (_is_ip_address(host) and not self.access.is_open)


async def _redirect(send: Any, location: str, cookie: str = "") -> None:
    headers = [(b"location", location.encode()), (b"content-length", b"0"), (b"cache-control", b"no-store")]
    headers += [(b"set-cookie", cookie.encode())] if cookie else []
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
            added = [
                (name.encode(), value.encode()) for name, value in defaults.items() if name.encode() not in present
            ]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return send_with_headers


def _limit_body(receive: Any, max_bytes: int) -> Any:
    """A body that must come in time, not by single bytes, and not grow beyond a limit, whatever its
    Content-Length says.
    """
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
    body = json.dumps({"error": reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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
