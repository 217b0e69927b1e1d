"""Logging and metrics of the server: request ids, log lines, the audit log and Prometheus metrics."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hiero.serve.settings import LogFormat
from hiero.serve.state import State
from hiero.serve.users import USER

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # buckets of latencies
REQUEST_ID = "hiero.request_id"  # key in the scope of a request
REQUEST_ID_PATTERN = re.compile(r"[\w.-]{1,64}")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")  # clients can invent others, which are counted together
QUESTIONS = ("/api/videos/{id}/ask", "/api/search", "/api/search/like")


class EventLog:
    """Writes events to standard error, one line of text or JSON each, and changes also to the audit log."""

    def __init__(self, log_format: LogFormat, state: State) -> None:
        self.log_format, self.state = log_format, state
        self._logger = logging.Logger("hiero.serve")
        self._logger.addHandler(logging.StreamHandler())

    def write(self, kind: str, **fields: Any) -> None:
        if self.log_format == "none":
            return
        stamp = _timestamp()
        # Values are quoted as JSON, so that input from a client cannot look like another line.
        texts = [f"{key}={json.dumps(value)}" for key, value in fields.items() if value != ""]
        is_json = self.log_format == "json"
        line = json.dumps({"time": stamp, "kind": kind, **fields}) if is_json else " ".join([stamp, kind, *texts])
        self._logger.info("%s", line)

    def record_change(self, user: str, action: str, subject: str, detail: str = "") -> None:
        self.state.add_audit(user, action, subject, detail)
        self.write("change", user=user, action=action, subject=subject, detail=detail)


class LineFormatter(logging.Formatter):
    """Writes other messages of the server, with tracebacks, as one line, too."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        fields = {"level": record.levelname, "message": record.getMessage()}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        if self._is_json:
            return json.dumps({"time": _timestamp(), "kind": "log", **fields})
        return " ".join([_timestamp(), "log", *(f"{name}={json.dumps(value)}" for name, value in fields.items())])


def log_in_lines(log_format: LogFormat) -> None:
    """Log the messages of all packages in lines, unless nothing is logged."""
    if log_format != "none":
        handler = logging.StreamHandler()
        handler.setFormatter(LineFormatter(log_format))
        logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class RequestLog:
    """ASGI middleware around the guard that counts and logs every response and gives each request an id."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry, log: EventLog) -> None:
        self.app, self.log = app, log
        labels, latency = ["method", "route", "status"], "Time from a request to the end of its response."
        self._requests = Counter("hiero_requests_total", "Answered requests.", labels, registry=registry)
        self._seconds = Histogram("hiero_request_seconds", latency, ["route"], buckets=BUCKETS_S, registry=registry)
        self._questions = Counter("hiero_questions_total", "Searches by words or by example.", registry=registry)
        self._sent_bytes = Counter("hiero_sent_bytes_total", "Bytes of responses.", registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        # The id of a proxy is kept, so that its log and ours can be compared.
        request_id = given if REQUEST_ID_PATTERN.fullmatch(given) else secrets.token_hex(8)
        scope[REQUEST_ID] = request_id
        status, num_bytes, begin_s = 499, 0, time.perf_counter()  # 499: the client left without a response

        async def send_counted(message: Message) -> None:
            nonlocal status, num_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            elif message["type"] == "http.response.body":
                num_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, send_counted)
        except BaseException:
            status = 500 if status == 499 else status
            raise
        finally:
            self._count(scope, status, num_bytes, time.perf_counter() - begin_s)

    def _count(self, scope: Scope, status: int, num_bytes: int, spent_s: float) -> None:
        method, user = scope["method"], scope.get(USER)
        route = getattr(scope.get("route"), "path", "") or ("page" if status < 400 else "none")
        self._requests.labels(method if method in METHODS else "other", route, status).inc()
        self._seconds.labels(route).observe(spent_s)
        self._questions.inc(route in QUESTIONS)
        self._sent_bytes.inc(num_bytes)
        self.log.write(
            "request",
            id=scope[REQUEST_ID],
            method=method,
            path=scope["path"],
            status=status,
            ms=round(1000 * spent_s, 1),
            bytes=num_bytes,
            user=user.name if user else "",
            client=(scope.get("client") or ("",))[0],
        )
