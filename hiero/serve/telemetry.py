"""A server seen from outside: an id for each request, a line in the log, and metrics in Prometheus' text format."""

from __future__ import annotations

import json
import re
import secrets
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from hiero.serve.users import USER

LogFormat = Literal["none", "text", "json"]
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # of latencies
REQUEST_ID = "hiero.request_id"  # in the scope of a request
REQUEST_ID_PATTERN = re.compile(r"[\w.-]{1,64}")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")  # others, which a client can make up, are one
QUESTIONS = ("/api/videos/{id}/ask", "/api/search", "/api/search/like")  # what people ask in words or by example
Gauges = Callable[[], dict[str, float]]


class Metrics:
    """Counts requests and how long they took."""

    def __init__(self, gauges: Gauges = dict) -> None:
        self.gauges = gauges
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._sums_s: Counter[str] = Counter()
        self._num_questions = self._num_sent_bytes = 0
        self._lock = threading.Lock()
        self._begin_s = time.time()

    def add(self, method: str, route: str, status: int, spent_s: float, num_bytes: int) -> None:
        """Count one answer."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._buckets.setdefault(route, [0] * (len(BUCKETS_S) + 1))[bisect_left(BUCKETS_S, spent_s)] += 1
            self._sums_s[route] += spent_s  # type: ignore[assignment]
            self._num_questions += route in QUESTIONS
            self._num_sent_bytes += num_bytes

    def render(self) -> str:
        """All of it, as Prometheus reads it."""
        lines: list[str] = []

        def family(name: str, kind: str, help: str, samples: dict[str, float]) -> None:
            lines.extend([f"# HELP {name} {help}", f"# TYPE {name} {kind}"])
            lines.extend(
                f"{sample} {value:g}" if value % 1 else f"{sample} {int(value)}" for sample, value in samples.items()
            )

        with self._lock:
            requests, buckets, sums_s = (
                dict(self._requests),
                {k: list(v) for k, v in self._buckets.items()},
                dict(self._sums_s),
            )
            questions, sent = self._num_questions, self._num_sent_bytes
        family(
            "hiero_requests_total",
            "counter",
            "Answered requests.",
            {
                f'hiero_requests_total{{method="{m}",route="{r}",status="{s}"}}': n
                for (m, r, s), n in sorted(requests.items())
            },
        )
        samples: dict[str, float] = {}
        for route, counts in sorted(buckets.items()):
            total = 0
            for limit_s, count in zip([*map(str, BUCKETS_S), "+Inf"], counts, strict=True):
                total += count
                samples[f'hiero_request_seconds_bucket{{route="{route}",le="{limit_s}"}}'] = total
            samples[f'hiero_request_seconds_sum{{route="{route}"}}'] = sums_s[route]
            samples[f'hiero_request_seconds_count{{route="{route}"}}'] = total
        family("hiero_request_seconds", "histogram", "From a request to the end of its answer.", samples)
        family(
            "hiero_questions_total",
            "counter",
            "Questions in words or by example.",
            {"hiero_questions_total": questions},
        )
        family("hiero_sent_bytes_total", "counter", "Bytes of answers.", {"hiero_sent_bytes_total": sent})
        family(
            "hiero_start_time_seconds", "gauge", "When the server began.", {"hiero_start_time_seconds": self._begin_s}
        )
        by_family: dict[str, dict[str, float]] = {}
        for sample, value in self.gauges().items():
            by_family.setdefault(sample.partition("{")[0], {})[sample] = value
        for name, values in by_family.items():
            family(name, "gauge", name.removeprefix("hiero_").replace("_", " ").capitalize() + ".", values)
        return "\n".join(lines) + "\n"


def write_log(kind: str, log_format: LogFormat, **fields: Any) -> None:
    """A line of the log, to standard error."""
    if log_format == "none":
        return
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
    if log_format == "json":
        line = json.dumps({"time": stamp, "kind": kind, **fields})
    else:
        # Quoted as JSON does, so that what a client sends cannot look like another line.
        line = " ".join(
            [stamp, kind, *(f"{name}={json.dumps(value)}" for name, value in fields.items() if value != "")]
        )
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class RequestLog:
    """ASGI middleware around the guard: counts and logs every answer, and gives each request an id."""

    def __init__(
        self, app: Any, metrics: Metrics, log_format: LogFormat = "none", close: Callable[[], None] = lambda: None
    ) -> None:
        self.app, self.metrics, self.log_format, self.close = app, metrics, log_format, close

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = next(
            (value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"x-request-id"), ""
        )
        # A proxy's own id makes its log and ours tell of the same request.
        request_id = given if REQUEST_ID_PATTERN.fullmatch(given) else secrets.token_hex(8)
        scope[REQUEST_ID] = request_id
        status, num_bytes, begin_s = 499, 0, time.perf_counter()  # without an answer the client has left

        async def send_counted(message: Any) -> None:
            nonlocal status, num_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", request_id.encode())]}
            elif message["type"] == "http.response.body":
                num_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, send_counted)
        except BaseException:
            status = 500 if status == 499 else status
            raise
        finally:
            spent_s = time.perf_counter() - begin_s
            route = getattr(scope.get("route"), "path", "") or ("page" if status < 400 else "none")
            self.metrics.add(
                scope["method"] if scope["method"] in METHODS else "other", route, status, spent_s, num_bytes
            )
            if self.log_format != "none":
                user = scope.get(USER)
                write_log(
                    "request",
                    self.log_format,
                    id=request_id,
                    method=scope["method"],
                    path=scope["path"],
                    status=status,
                    ms=round(1000 * spent_s, 1),
                    bytes=num_bytes,
                    user=user.name if user else "",
                    client=(scope.get("client") or ("",))[0],
                )
