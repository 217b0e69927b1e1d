"""Limits on connections: requests must arrive in time, and no client may use all connections."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable
from typing import Any

from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from hiero.serve.guard import client_key, parse_ip

MAX_CONNECTIONS = 512
MAX_CONNECTIONS_PER_CLIENT = 128  # a browser opens six
MAX_REFUSED = 64  # refused connections that get an error message
REQUEST_TIMEOUT_S = 10.0  # longest time until the headers of a request are complete
KEEP_ALIVE_S = 10  # longest pause between two requests
STALLED_S = 5.0  # time after which a client that does not read its response may be disconnected
RETRY_S = 5


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with limits on connections and on the time of a request.

    uvicorn waits forever for the first request and for the rest of its headers, and its
    limit_concurrency counts idle connections and ignores addresses. Here, a new connection at the
    limit replaces the one that has waited longest for its client. It is refused only if all are busy:
    with 429 if its own address has too many, otherwise with 503.
    """

    def __init__(self, *args: Any, trusted_proxies: Container[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trusted_proxies = trusted_proxies  # may have any number of connections
        self.client_key = ""
        self.is_refused = False
        self._idle_since_s = 0.0
        self._stalled_since_s: float | None = None
        self._deadline: asyncio.TimerHandle | None = None  # for complete headers

    # Called by asyncio and uvicorn

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        self.client_key = client_key(address)
        self._wait_for_request()
        others = [other for other in self._others() if not other.is_refused]
        same_client = [other for other in others if other.client_key == self.client_key]
        is_proxy = str(parse_ip(address)) in self.trusted_proxies
        if len(same_client) >= MAX_CONNECTIONS_PER_CLIENT and not is_proxy and not self._make_room(same_client):
            self._refuse(429, "too many connections from your address; please try again later")
        elif len(others) >= MAX_CONNECTIONS and not self._make_room(others):
            self._refuse(503, "too many connections; please try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._wait_for_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._stalled_since_s = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_since_s = None
        super().resume_writing()

    # Limits

    @property
    def is_idle(self) -> bool:
        """Whether no request is being processed."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waiting_since_s(self) -> float | None:
        """When the connection began to wait for its client, or None if the server is at work."""
        if self.is_idle:
            return self._idle_since_s
        since_s = self._stalled_since_s
        return since_s if since_s is not None and self.loop.time() - since_s > STALLED_S else None

    def _others(self) -> list[LimitedProtocol]:
        return [other for other in self.connections if isinstance(other, LimitedProtocol) and other is not self]

    def _make_room(self, candidates: Iterable[LimitedProtocol]) -> bool:
        """Close the connection that has waited longest for its client. Returns False if none is waiting."""
        waiting = {other: since_s for other in candidates if (since_s := other.waiting_since_s) is not None}
        if not waiting:
            return False
        longest = min(waiting, key=lambda other: waiting[other])
        self.connections.discard(longest)  # the event loop would do so later
        longest.transport.abort()
        return True

    def _wait_for_request(self) -> None:
        """Close the connection if the headers of the next request are not complete in time."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._idle_since_s = self.loop.time()
        self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.is_idle:
            self.transport.close()

    def _refuse(self, status: int, reason: str) -> None:
        """Answer the next request with an error and close the connection."""
        self.is_refused = True
        if sum(other.is_refused for other in self._others()) >= MAX_REFUSED:
            self.transport.abort()
            return
        headers = {"retry-after": str(RETRY_S), "connection": "close"}
        self.app = JSONResponse({"error": reason}, status, headers)
