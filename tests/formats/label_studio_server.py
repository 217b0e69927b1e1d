"""A small server with the routes of Label Studio's API that hiero uses, and its rules: who may, what
is valid, what is paged.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

LEGACY_TOKEN = "0123456789abcdef0123456789abcdef01234567"
PERSONAL_TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJ0b2tlbl90eXBlIjoicmVmcmVzaCJ9.c2lnbmF0dXJl"


class LabelStudioServer:
    """The state of the server.

    Attributes:
        address: Of project 3, the only one.
        interface: Its labelling interface.
        tasks: As they were imported, with ids; annotations are added by tests.
        requests: Method, route and Authorization of each request.
        num_failures: How many of the next requests are answered with 503.
        redirect: Where all requests are sent; empty for nowhere.
    """

    def __init__(self) -> None:
        self.address = ""
        self.interface = "<View></View>"
        self.tasks: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, str | None]] = []
        self.num_failures = 0
        self.redirect = ""

    def answer(self, method: str, target: str, authorization: str | None, body: Any) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        self.requests.append((method, target, authorization))
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if self.num_failures:
            self.num_failures -= 1
            return 503, {"detail": "busy"}
        if (method, parts.path) == ("POST", "/api/token/refresh/"):
            return (
                (200, {"access": "short-lived"})
                if body == {"refresh": PERSONAL_TOKEN}
                else (401, {"detail": "Token is invalid"})
            )
        if authorization not in (f"Token {LEGACY_TOKEN}", "Bearer short-lived"):
            return 401, {"detail": "Invalid token."}
        match method, parts.path:
            case "GET", "/api/projects/3/":
                return 200, {"id": 3, "label_config": self.interface}
            case "PATCH", "/api/projects/3/":
                self.interface = body["label_config"]
                return 200, {"id": 3, "label_config": self.interface}
            case "POST", "/api/projects/3/import":
                return self._import_tasks(body)
            case "GET", "/api/tasks/" if query["project"] == "3":
                page, size = int(query["page"]), int(query["page_size"])
                tasks = self.tasks[(page - 1) * size : page * size]
                if page > 1 and not tasks:
                    return 404, {"detail": "Invalid page."}
                return 200, {"total": len(self.tasks), "tasks": tasks}
            case "GET", "/api/projects/3/export" if query == {"exportType": "JSON", "download_all_tasks": "true"}:
                return 200, [{**task, "predictions": [1] if task["predictions"] else []} for task in self.tasks]
        return 404, {"detail": "No Project matches the given query."}

    def _import_tasks(self, tasks: list[dict[str, Any]]) -> tuple[int, Any]:
        for task in tasks:
            names = {result["from_name"] for prediction in task["predictions"] for result in prediction["result"]}
            if missing := [name for name in names if f'name="{name}"' not in self.interface]:
                return 400, {
                    "detail": "Validation error",
                    "validation_errors": {"predictions": [f"{missing[0]} not in config"]},
                }
        for task in tasks:
            self.tasks.append({"id": len(self.tasks) + 1, "annotations": [], **task})
        return 201, {"task_count": len(tasks), "annotation_count": 0, "prediction_count": len(tasks)}


@contextmanager
def run_server() -> Iterator[LabelStudioServer]:
    """The server on a port of its own, while the block runs."""
    state = LabelStudioServer()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = state.answer(
                self.command, self.path, self.headers["Authorization"], json.loads(body) if body else None
            )
            if state.redirect:
                status = 302
            data = json.dumps(document).encode()
            self.send_response(status)
            if state.redirect:
                self.send_header("Location", state.redirect)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.address = f"http://127.0.0.1:{server.server_port}/projects/3"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
