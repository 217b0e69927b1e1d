"""ASGI middleware that checks the host, the origin, the user and the size of each request."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Container, Iterator
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from hiero.errors import InputError
from hiero.serve.settings import ServerSettings
from hiero.serve.users import COOKIE_S, LOCAL_USER, USER, Access

MAX_BODY_BYTES = 4 * 2**20  # largest body except for uploads
BODY_TIMEOUT_S = 30.0  # longest pause between two chunks of a body
MIN_BODY_BYTES_S = 1000  # lowest average rate of a body after the first BODY_TIMEOUT_S
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Paths that need no user. The page itself, which contains no data, needs none either.
OPEN_PATHS = ("/healthz", "/readyz", "/api/sign-in", "/api/sign-out")
PRIVATE_PATHS = ("/api/", "/metrics", "/openapi.json")
OWN_SITES = ("none", "same-origin")  # Sec-Fetch-Site of what people open and of what the page requests
FORWARDED_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip")
FROM_PROXY = "hiero.from_proxy"  # key in the scope: whether a trusted proxy sent the request
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


def parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address, or None for a name. An IPv4 address on an IPv6 socket is an IPv4 address."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip


def client_key(address: str) -> str:
    """Identifies a client by its address, or by the first 64 bits of an IPv6 address: clients can choose the rest."""
    ip = parse_ip(address)
    return ip.packed[:8].hex() if ip is not None and ip.version == 6 else str(ip or address)


class Guard:
    """Refuses requests before they reach the application and adds security headers to its responses."""

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
        elif scope["type"] == "http":  # websockets are not supported
            # This comes before the proxy headers replace the address of the proxy by that of the client.
            peer, port = scope.get("client") or ("", 0)
            scope["client"] = (str(parse_ip(peer) or peer), port)
            scope[FROM_PROXY] = scope["client"][0] in self.trusted_proxies
            await self.proxy_headers(scope, receive, send)  # type: ignore[arg-type]

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, prefix = scope["path"], self.path_prefix
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            scope.update(path=path.removeprefix(prefix), raw_path=None)
        headers = dict(Headers(scope=scope).items())  # the last of repeated headers is the proxy's
        if scope[FROM_PROXY] and (host := headers.get("x-forwarded-host", "").split(",")[0].strip()):
            headers["host"] = host
        response = self._refuse_or_redirect(scope, headers)
        if response is not None:
            await response(scope, receive, send)
            return
        send = _add_security_headers(scope, send)
        body = _LimitedBody(receive, send, self._max_bytes(scope), "transfer-encoding" in headers)
        await self.app(scope, body.receive, body.send)
        if body.refusal is not None:
            await body.refusal(scope, receive, send)

    def _refuse_or_redirect(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """The response to a request that must not reach the application, or None if it may."""
        path = scope["path"]
        if not self._is_allowed_host(_hostname(headers.get("host", ""))):
            return _refuse(421, "this host name is not allowed; start the server with --allow-host NAME")
        if path == "":  # without the final slash, the page's relative addresses would be wrong
            return self._redirect_to_page()
        is_private = path.startswith(PRIVATE_PATHS)
        is_foreign_read = headers.get("sec-fetch-site") == "cross-site" and is_private
        if is_foreign_read or (scope["method"] not in SAFE_METHODS and not _is_same_origin(headers, scope["scheme"])):
            return _refuse(403, "requests from other sites are not allowed")
        try:
            tokens = _sent_tokens(scope, headers)
            user = None if path in OPEN_PATHS else self.access.authenticate(tokens, headers, scope[FROM_PROXY])
            is_forwarded = not scope[FROM_PROXY] and any(name in headers for name in FORWARDED_HEADERS)
            if user is LOCAL_USER and is_forwarded:
                # Only this machine may use the server without a token, and this client may be elsewhere.
                return _refuse(403, "requests through a proxy need --trusted-proxy ADDRESS or --token TOKEN")
        except InputError as error:  # the state cannot be read
            return _refuse(503, str(error))
        if user is None and is_private and path not in OPEN_PATHS:
            return _refuse(401, "please sign in on the page or send your token as Authorization: Bearer TOKEN")
        scope[USER] = user
        if token := token_in_address(scope):
            # The token moves from the address to a cookie, so that the address can be shown to others. Only the
            # address that the server printed signs in, and nobody who is somebody else already: with a token of
            # their own, others could make people work under a name that is not theirs.
            response, came_from = self._redirect_to_page(), headers.get("sec-fetch-site", "none")
            if user is None and came_from in OWN_SITES and self.access.is_shared_token(token):
                set_cookie(response, scope, token, self.path_prefix)
            return response
        content_length = headers.get("content-length", "0")
        is_number = content_length.isascii() and content_length.isdigit()
        if not is_number or int(content_length) > self._max_bytes(scope):
            return _refuse(413, "the request is too large")
        return None

    def _is_allowed_host(self, host: str) -> bool:
        # Other sites can let a name point to this server, but not an address.
        return host in self.hosts or (parse_ip(host) is not None and not self.access.is_open)

    def _max_bytes(self, scope: Scope) -> int:
        return self.settings.upload_limit * 2**20 if scope["path"] == "/api/upload" else MAX_BODY_BYTES

    def _redirect_to_page(self) -> Response:
        return RedirectResponse(f"{self.path_prefix}/", 303, {"cache-control": "no-store"})


def _refuse(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status, {"connection": "close"})


def _is_same_origin(headers: dict[str, str], scheme: str) -> bool:
    """Whether a request comes from the page or a program. Only browsers send an origin and have cookies to abuse."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            parts = urlsplit(origin)
        except ValueError:  # such as http://[
            return False
        # The host was checked before. A proxy may not say that it uses https, so https is accepted in any case.
        return parts.netloc == headers.get("host") and parts.scheme in ("https", scheme)
    return headers.get("sec-fetch-site", "none") in OWN_SITES


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


class _LimitedBody:
    """The messages of a request whose body may be too large or too slow, whatever its Content-Length says.

    Then the application sees a disconnect, its answer is dropped, and `refusal` closes the connection.
    """

    def __init__(self, receive: Receive, send: Send, max_bytes: int, is_chunked: bool) -> None:
        self._receive, self._send, self._max_bytes = receive, send, max_bytes
        self._num_bytes, self._begin_s = 0, time.monotonic()
        self._is_complete, self._may_be_endless, self._has_response = False, is_chunked, False
        self.refusal: Response | None = None

    async def receive(self) -> Message:
        try:
            # After the body, only a disconnect can come, at any time.
            message = await asyncio.wait_for(self._receive(), None if self._is_complete else BODY_TIMEOUT_S)
        except TimeoutError:
            return self._refuse(408, "the request arrives too slowly")
        if message["type"] == "http.request":
            self._num_bytes += len(message.get("body", b""))
            self._is_complete = not message.get("more_body")
            if self._num_bytes > self._max_bytes:
                return self._refuse(413, "the request is too large")
            allowed_s = BODY_TIMEOUT_S + self._num_bytes / MIN_BODY_BYTES_S
            if not self._is_complete and time.monotonic() - self._begin_s > allowed_s:
                return self._refuse(408, "the request arrives too slowly")
        return message

    def _refuse(self, status: int, reason: str) -> Message:
        if not self._has_response:
            self.refusal = _refuse(status, reason)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.refusal is not None:
            return
        if message["type"] == "http.response.start":
            self._has_response = True
            if self._may_be_endless and not self._is_complete:  # the server would read on to find the next request
                MutableHeaders(scope=message)["connection"] = "close"
        await self._send(message)


def _hostname(netloc: str) -> str:
    """The host without its port and without the brackets of IPv6."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").lower()
    except ValueError:
        return ""


def _sent_tokens(scope: Scope, headers: dict[str, str]) -> Iterator[str]:
    """Tokens in the Authorization header and the cookie."""
    yield headers.get("authorization", "").removeprefix("Bearer ").strip()
    yield cookie_parser(headers.get("cookie", "")).get(_cookie_name(scope), "")


def token_in_address(scope: Scope) -> str:
    """The token in /?token=…. Other addresses stay in histories and logs, so they cannot have one."""
    if scope["path"] != "/":
        return ""
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]


def _cookie_name(scope: Scope) -> str:
    """The name of the cookie. It contains the port because browsers share cookies between ports of a host."""
    return f"hiero-{(scope.get('server') or ('', 0))[1]}"


def set_cookie(response: Response, scope: Scope, token: str, path_prefix: str) -> None:
    """Sign a browser in, or out if the token is empty."""
    response.set_cookie(
        _cookie_name(scope),
        token,
        max_age=COOKIE_S if token else 0,
        path=f"{path_prefix}/",
        secure=scope.get("scheme") == "https",
        httponly=True,
        samesite="strict",
    )
