"""A project of a Label Studio server through its HTTP API: tasks in, annotations out.

Routes: GET and PATCH /api/projects/{id}/, GET /api/tasks/, POST /api/projects/{id}/import, GET
/api/projects/{id}/export, POST /api/token/refresh/.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from hiero.errors import InputError
from hiero.formats.rows import FRAME_RATE, LEVEL_NAME, read_xml
from hiero.storage.files import parse_json

TOKEN_VARIABLE = "LABEL_STUDIO_API_KEY"  # the name that Label Studio's own library reads
ADDRESS = re.compile(r"(https?://[^/?#\s]+(?:/[^?#\s]*?)?)/projects/(\d{1,12})(?:[/?#].*)?")
TIMEOUT_S = 60.0
MAX_ANSWER_BYTES = 2**28
MAX_ERROR_BYTES = 2**16
PAGE_SIZE = 100  # tasks an answer
NUM_ATTEMPTS = 3  # to read; what writes is tried once
WAIT_S = 0.5
INTERFACE_TAGS = {"View", "Video", "TimelineLabels", "Label"}  # of our labelling interface


def is_project_address(text: str) -> bool:
    """Whether a text is an address and not a file."""
    return text.startswith(("http://", "https://"))


class LabelStudioProject:
    """A project on a server."""

    def __init__(self, address: str, token: str, timeout_s: float = TIMEOUT_S) -> None:
        match = ADDRESS.fullmatch(address.strip())
        if match is None:
            raise InputError(
                f"{_public(address)}: not the address of a project; it looks like http://localhost:8080/projects/3"
            )
        self.server, self.number = match[1], int(match[2])
        if "@" in urllib.parse.urlsplit(self.server).netloc:
            raise InputError(f"{_public(address)}: leave user and password out of the address; set {TOKEN_VARIABLE}")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise InputError(f"set {TOKEN_VARIABLE} to an access token of Label Studio (Account & Settings)")
        self._token = token
        self._timeout_s = timeout_s
        # personal access tokens are JSON web tokens
        self._authorization = "" if token.count(".") == 2 else f"Token {token}"
        self._opener = urllib.request.build_opener(_NoRedirect)

    @property
    def address(self) -> str:
        """For messages."""
        return f"{self.server}/projects/{self.number}"

    def read_interface(self) -> str:
        """The XML of its labelling interface."""
        return str(self._send("GET", f"/api/projects/{self.number}/").get("label_config") or "")

    def write_interface(self, interface: str) -> None:
        """Replace the labelling interface."""
        self._send("PATCH", f"/api/projects/{self.number}/", {"label_config": interface})

    def tasks(self) -> Iterator[dict[str, Any]]:
        """All tasks, page by page."""
        num_tasks, page = 0, 1
        while True:
            answer = self._send("GET", f"/api/tasks/?project={self.number}&page={page}&page_size={PAGE_SIZE}")
            tasks = answer.get("tasks") or []
            yield from tasks
            num_tasks, page = num_tasks + len(tasks), page + 1
            if not tasks or num_tasks >= int(answer.get("total") or 0):
                return

    def import_tasks(self, tasks: Sequence[dict[str, Any]]) -> int:
        """Add tasks, with their predictions; returns how many there are more."""
        return int(self._send("POST", f"/api/projects/{self.number}/import", list(tasks)).get("task_count") or 0)

    def export(self) -> list[dict[str, Any]]:
        """All tasks with their annotations, as its JSON export has them."""
        answer = self._send("GET", f"/api/projects/{self.number}/export?exportType=JSON&download_all_tasks=true")
        if not isinstance(answer, list):
            raise InputError(f"{self.address}: not an export of Label Studio")
        return answer

    def _send(self, method: str, route: str, body: object = None) -> Any:
        """The JSON of an answer. Raises InputError."""
        if not self._authorization:
            # Personal access tokens are exchanged for the short-lived one that requests carry.
            answer = self._attempt("POST", "/api/token/refresh/", {"refresh": self._token})
            self._authorization = f"Bearer {answer['access']}"
        return self._attempt(method, route, body)

    def _attempt(self, method: str, route: str, body: object) -> Any:
        """Send a request; reading is retried where the server is at fault or cannot be reached."""
        num_attempts = NUM_ATTEMPTS if method == "GET" else 1
        for attempt in range(num_attempts):
            is_last = attempt + 1 == num_attempts
            try:
                return self._open(method, route, body)
            except urllib.error.HTTPError as error:
                with error:
                    message = self._describe(error)
                if error.code < http.client.INTERNAL_SERVER_ERROR or is_last:
                    raise InputError(message) from None
            except (OSError, http.client.HTTPException) as error:
                if is_last:
                    reason = self._redact(str(getattr(error, "reason", error)))
                    raise InputError(f"{self.server}: cannot be reached ({reason})") from None
            time.sleep(WAIT_S * 2**attempt)
        raise AssertionError("every attempt returns or raises")

    def _open(self, method: str, route: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        request = urllib.request.Request(self.server + route, data, headers, method=method)
        with self._opener.open(request, timeout=self._timeout_s) as response:
            answer = response.read(MAX_ANSWER_BYTES + 1)
        if len(answer) > MAX_ANSWER_BYTES:
            raise InputError(
                f"{self.address}: its answer is larger than {MAX_ANSWER_BYTES // 2**20} MB; export a part by hand"
            )
        try:
            return parse_json(answer)
        except ValueError as error:
            raise InputError(f"{self.server}: does not answer as Label Studio does ({error})") from None

    def _describe(self, error: urllib.error.HTTPError) -> str:
        """What to say of an answer that is an error."""
        if error.code in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            return f"{self.server}: the token in {TOKEN_VARIABLE} is not accepted, or may not do this"
        if error.code == http.client.NOT_FOUND:
            return f"{self.server}: there is no project {self.number} that this token may see"
        if 300 <= error.code < 400:
            return f"{self.server}: sends to another address; give that one (the token goes to no other server)"
        try:
            answer = parse_json(error.read(MAX_ERROR_BYTES))
            validation = json.dumps(answer.get("validation_errors") or "", ensure_ascii=False)
            detail = f"{answer.get('detail', '')} {validation}"
        except (ValueError, OSError, AttributeError):
            detail = str(error.reason)
        return f"{self.address}: answers {error.code} ({self._redact(' '.join(detail.split()))[:300]})"

    def _redact(self, text: str) -> str:
        return text.replace(self._token, "…")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the header with the token would go along to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _public(address: str) -> str:
    """An address without user, password and what follows a question mark, for messages."""
    return re.sub(r"//[^/@\s]*@", "//", address).split("?")[0][:200]


def labels_of_tasks(tasks: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Labels of each control tag that the predictions of tasks use."""
    labels: dict[str, list[str]] = {}
    for task in tasks:
        for prediction in task.get("predictions") or []:
            for result in prediction["result"]:
                labels.setdefault(result["from_name"], []).extend(result["value"].get("timelinelabels", ()))
    return labels


def extend_interface(interface: str, labels: dict[str, list[str]]) -> str | None:
    """A labelling interface that has these labels: a video, and a row of labels for each level."""
    present: dict[str, list[str]] = {}
    tags: set[str] = set()

    def start(tag: str, attributes: dict[str, str]) -> None:
        tags.add(tag)
        if tag == "TimelineLabels":
            present[attributes.get("name", "")] = []
        elif tag == "Label" and present:
            present[next(reversed(present))].append(attributes.get("value", ""))

    try:
        read_xml(interface.encode(), start, lambda *_: None)
    except ValueError:
        tags.add("unknown")
    if not (tags <= INTERFACE_TAGS and all(LEVEL_NAME.fullmatch(name) for name in present)):
        return interface if set(labels) <= set(present) else None
    # The order of steps in time says nothing in a list of names; that of first use keeps colours as they were.
    names = sorted({*present, *labels}, key=lambda name: (len(name), name))
    return label_studio_interface({name: [*present.get(name, ()), *labels.get(name, ())] for name in names})


def label_studio_interface(labels: dict[str, list[str]]) -> str:
    """The labelling interface of a project for our tasks: a video, and a row of labels for each level."""
    lines = ["<View>", f'  <Video name="video" value="$video" frameRate="{FRAME_RATE:g}"/>']
    for name, values in labels.items():
        lines.append(f'  <TimelineLabels name={quoteattr(name)} toName="video">')
        lines += [f"    <Label value={quoteattr(value)}/>" for value in dict.fromkeys(values)]
        lines.append("  </TimelineLabels>")
    return "\n".join([*lines, "</View>"]) + "\n"
