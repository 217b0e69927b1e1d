"""Connections of the server: who sends no whole request in time is let go, and no address takes the places of all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from hiero.serve.guard import client_key
from hiero.serve.proxies import Proxies

MAX_CONNECTIONS = 512  # of all clients
MAX_CONNECTIONS_PER_CLIENT = 128  # a browser opens six
REQUEST_TIMEOUT_S = 10.0  # from the first byte of a request, or the begin of a connection, to the end of the headers
KEEP_ALIVE_S = 10  # between two requests
STALLED_S = 5.0  # a client that does not read its answer for so long gives up its place when another needs it
LINGER_S = 1.0  # for a refused client to read why
MAX_LINGERING = 64  # more are cut off without a word
RETRY_S = 5


class LimitedProtocol(H11Protocol):
    """HTTP of one connection, as uvicorn speaks it, with limits.

    uvicorn ends a connection that is idle between two requests, but waits forever for the first,
    and for the rest of one that has begun. Where the places are taken, a connection that only waits
    for its client (for a request, or for the client to read) gives way, the one that waits longest
    first; a new one is refused only where requests are under way on all: by 429 where its own
    address has too many, else by 503.
    """

    lingering: ClassVar[set[LimitedProtocol]] = set()  # refused ones that may still read why
    proxies: ClassVar[Proxies] = Proxies()  # whose connections are those of many clients

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.client_key = ""
        self._idle_since_s = 0.0
        self._stalled_since_s: float | None = None
        self._deadline: asyncio.TimerHandle | None = None  # of the headers; of a refused connection, its end

    # As asyncio and uvicorn call it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client_key = client_key(self.client[0] if self.client else "")
        self._idle_since_s = self.loop.time()
        same_client = [other for other in self._others() if other.client_key == self.client_key]
        is_proxy = self.proxies.is_trusted(self.client[0] if self.client else "")
        if len(same_client) >= MAX_CONNECTIONS_PER_CLIENT and not is_proxy and not self._make_room(same_client):
            self._refuse("429 Too Many Requests", "too many connections from your address")
        elif len(self.connections) > MAX_CONNECTIONS and not self._make_room(self._others()):
            self._refuse("503 Service Unavailable", "too many connections")
        else:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lingering.discard(self)
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self in self.lingering:
            return
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

    def _refuse(self, status: str, reason: str) -> None:
        """Answer without a request, and close."""
        self.connections.discard(self)
        if len(self.lingering) >= MAX_LINGERING:
            self.transport.abort()
            return
        self.lingering.add(self)
        body = f'{{"error": "{reason}; try again later"}}'
        self.transport.write(
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nretry-after: "
            f"{RETRY_S}\r\n"
            f"connection: close\r\n\r\n{body}".encode()
        )
        # Not closed at once: a close before the request was read can make the client lose the answer.
        self._deadline = self.loop.call_later(LINGER_S, self.transport.abort)
