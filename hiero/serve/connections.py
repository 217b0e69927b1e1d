"""Connections of the server: who sends no whole request in time is let go, and no address takes the places of all."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable
from typing import Any

from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from hiero.serve.guard import client_key, plain_address

MAX_CONNECTIONS = 512  # of all clients
MAX_CONNECTIONS_PER_CLIENT = 128  # a browser opens six
MAX_REFUSED = 64  # that are told why; more are cut off without a word
REQUEST_TIMEOUT_S = 10.0  # from the first byte of a request, or the begin of a connection, to the end of the headers
KEEP_ALIVE_S = 10  # between two requests
STALLED_S = 5.0  # a client that does not read its answer for so long gives up its place when another needs it
RETRY_S = 5


class LimitedProtocol(H11Protocol):
    """HTTP of one connection, as uvicorn speaks it, with limits.

    uvicorn ends a connection that is idle between two requests, but waits forever for the first,
    and for the rest of one that has begun; its limit_concurrency counts idle connections too, and not
    by address. Where the places are taken here, a connection that only waits for its client (for a
    request, or for the client to read) gives way, the one that waits longest first; a new one is
    refused only where requests are under way on all: by 429 where its own address has too many, else
    by 503.
    """

    def __init__(self, *args: Any, trusted_proxies: Container[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trusted_proxies = trusted_proxies  # whose connections are those of many clients
        self.client_key = ""
        self.is_refused = False
        self._idle_since_s = 0.0
        self._stalled_since_s: float | None = None
        self._deadline: asyncio.TimerHandle | None = None  # for the end of the headers

    # As asyncio and uvicorn call it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = plain_address(self.client[0] if self.client else "")
        self.client_key = client_key(address)
        self._idle_since_s = self.loop.time()
        self._set_deadline()
        others = [other for other in self._others() if not other.is_refused]
        same_client = [other for other in others if other.client_key == self.client_key]
        is_proxy = address in self.trusted_proxies
        if len(same_client) >= MAX_CONNECTIONS_PER_CLIENT and not is_proxy and not self._make_room(same_client):
            self._refuse(429, "too many connections from your address")
        elif len(others) >= MAX_CONNECTIONS and not self._make_room(others):
            self._refuse(503, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()

    def on_response_complete(self) -> None:
        self._idle_since_s = self.loop.time()
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
        """No request is under way."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waiting_since_s(self) -> float | None:
        """Since when only the client could do something; None where it is the server's turn."""
        if self.is_idle:
            return self._idle_since_s
        since_s = self._stalled_since_s
        return since_s if since_s is not None and self.loop.time() - since_s > STALLED_S else None

    def _others(self) -> list[LimitedProtocol]:
        return [other for other in self.connections if isinstance(other, LimitedProtocol) and other is not self]

    def _make_room(self, candidates: Iterable[LimitedProtocol]) -> bool:
        """Close the connection that waits longest for its client. False where none does."""
        waiting = [
            (since_s, id(other), other) for other in candidates if (since_s := other.waiting_since_s) is not None
        ]
        if not waiting:
            return False
        longest = min(waiting)[-1]
        self.connections.discard(longest)  # now, since the loop tells of a lost connection later
        longest.transport.abort()
        return True

    def _set_deadline(self) -> None:
        """Headers that are being sent must be whole in time; pieces of them do not extend it."""
        if not self.is_idle:
            self._cancel_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int, reason: str) -> None:
        """Answer the request, when it comes, without the application, and close."""
        self.is_refused = True
        if sum(other.is_refused for other in self._others()) >= MAX_REFUSED:
            self.transport.abort()
            return
        headers = {"retry-after": str(RETRY_S), "connection": "close"}
        self.app = JSONResponse({"error": f"{reason}; try again later"}, status, headers)
