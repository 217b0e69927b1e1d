"""A project on a Label Studio server: import tasks and export annotations through its HTTP API."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from typing import Any
from xml.sax.saxutils import quoteattr

from hiero.errors import InputError
from hiero.formats.rows import FRAME_RATE, level_rank, read_xml
from hiero.storage.files import parse_json

TOKEN_VARIABLE = "LABEL_STUDIO_API_KEY"  # as in Label Studio's own library
ADDRESS = re.compile(r"(https?://[^/?#\s]+(?:/[^?#\s]*?)?)/projects/(\d{1,12})(?:[/?#].*)?")
TIMEOUT_S = 60.0
MAX_ANSWER_BYTES = 2**28
MAX_ERROR_BYTES = 2**16
PAGE_SIZE = 100  # tasks per request
NUM_RETRIES = 2  # for reading; requests that write are sent once
WAIT_S = 0.5
INTERFACE_TAGS = {"View", "Video", "TimelineLabels", "Label"}  # tags of hiero's labelling interface


def is_project_address(text: str) -> bool:
    """Whether a text is an address rather than a file."""
    return text.startswith(("http://", "https://"))


class LabelStudioProject:
    """A project on a server."""

    def __init__(self, address: str, token: str) -> None:
        match = ADDRESS.fullmatch(address.strip())
        if match is None:
            raise InputError(f"{_public(address)}: not the address of a project (http://localhost:8080/projects/3)")
        self.server, self.number = match[1], int(match[2])
        if "@" in urllib.parse.urlsplit(self.server).netloc:
            raise InputError(f"{_public(address)}: omit user and password from the address; set {TOKEN_VARIABLE}")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise InputError(f"set {TOKEN_VARIABLE} to an access token of Label Studio (Account & Settings)")
        self._token = token
        self._opener = urllib.request.build_opener(_NoRedirect)

    @property
    def address(self) -> str:
        """The address in messages."""
        return f"{self.server}/projects/{self.number}"

    def read_interface(self) -> str:
        """The XML of the labelling interface."""
        return str(self._send("GET", f"/api/projects/{self.number}/").get("label_config") or "")

    def write_interface(self, interface: str) -> None:
        """Replace the labelling interface."""
        self._send("PATCH", f"/api/projects/{self.number}/", {"label_config": interface})

    def tasks(self) -> Iterator[dict[str, Any]]:
        """All tasks, page by page."""
        num_tasks = 0
        for page in count(1):
            answer = self._send("GET", f"/api/tasks/?project={self.number}&page={page}&page_size={PAGE_SIZE}")
            tasks = answer.get("tasks") or []
            yield from tasks
            num_tasks += len(tasks)
            if not tasks or num_tasks >= int(answer.get("total") or 0):
                return

    def import_tasks(self, tasks: Sequence[dict[str, Any]]) -> int:
        """Add tasks with their predictions, and return the number of added tasks."""
        return int(self._send("POST", f"/api/projects/{self.number}/import", list(tasks)).get("task_count") or 0)

    def export(self) -> list[dict[str, Any]]:
        """All tasks with their annotations, as in Label Studio's JSON export."""
        answer = self._send("GET", f"/api/projects/{self.number}/export?exportType=JSON&download_all_tasks=true")
        if not isinstance(answer, list):
            raise InputError(f"{self.address}: not an export of Label Studio")
        return answer

    @cached_property
    def _authorization(self) -> str:
        if self._token.count(".") != 2:
            return f"Token {self._token}"
        # Personal access tokens are JSON web tokens, which are exchanged for short-lived ones.
        answer = self._send("POST", "/api/token/refresh/", {"refresh": self._token}, authorize=False)
        return f"Bearer {answer['access']}"

    def _send(self, method: str, route: str, body: object = None, *, authorize: bool = True) -> Any:
        """Send a request. Reading is retried if the server fails or cannot be reached."""
        headers = {"Content-Type": "application/json"}
        if authorize:
            headers["Authorization"] = self._authorization
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + route, data, headers, method=method)
        waits_s = [WAIT_S * 2**attempt for attempt in range(NUM_RETRIES)] if method == "GET" else []
        while True:
            try:
                return self._open(request)
            except urllib.error.HTTPError as error:
                with error:
                    message = self._describe(error)
                if error.code < http.client.INTERNAL_SERVER_ERROR:
                    waits_s = []
            except (OSError, http.client.HTTPException) as error:
                reason = self._redact(str(getattr(error, "reason", error)))
                message = f"{self.server}: cannot be reached ({reason})"
            if not waits_s:
                raise InputError(message)
            time.sleep(waits_s.pop(0))

    def _open(self, request: urllib.request.Request) -> Any:
        with self._opener.open(request, timeout=TIMEOUT_S) as response:
            answer = response.read(MAX_ANSWER_BYTES + 1)
        if len(answer) > MAX_ANSWER_BYTES:
            limit = f"{MAX_ANSWER_BYTES // 2**20} MB"
            raise InputError(f"{self.address}: the answer is larger than {limit}; export a part by hand")
        try:
            return parse_json(answer)
        except ValueError as error:
            raise InputError(f"{self.server}: not an answer of Label Studio ({error})") from None

    def _describe(self, error: urllib.error.HTTPError) -> str:
        if error.code in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            return f"{self.server}: the token in {TOKEN_VARIABLE} is not accepted, or lacks the permission"
        if error.code == http.client.NOT_FOUND:
            return f"{self.server}: there is no project {self.number} that this token may see"
        if 300 <= error.code < 400:
            return f"{self.server}: redirects to another address; give that one (the token is not sent elsewhere)"
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
    """Redirects are errors, because they would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _public(address: str) -> str:
    """An address without user, password and query, for messages."""
    return re.sub(r"//[^/@\s]*@", "//", address).split("?")[0][:200]


def labels_of_tasks(tasks: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The labels of each control tag in the predictions of tasks."""
    labels: dict[str, list[str]] = {}
    for task in tasks:
        for prediction in task.get("predictions") or []:
            for result in prediction["result"]:
                labels.setdefault(result["from_name"], []).extend(result["value"].get("timelinelabels", ()))
    return labels


def extend_interface(interface: str, labels: dict[str, list[str]]) -> str | None:
    """Add labels to a labelling interface. Returns None if it is not hiero's and lacks a control tag."""
    present: dict[str, list[str]] = {}
    tags = {"unknown"}
    with suppress(ValueError):
        root = read_xml(interface.encode())
        tags = {element.tag for element in root.iter()}
        for control in root.iter("TimelineLabels"):
            present[control.get("name", "")] = [label.get("value", "") for label in control.iter("Label")]
    if not (tags <= INTERFACE_TAGS and None not in map(level_rank, present)):
        return interface if set(labels) <= set(present) else None
    # New labels are appended, so that existing ones keep their colours.
    names = sorted({*present, *labels}, key=lambda name: (level_rank(name) or 0, name))
    return label_studio_interface({name: [*present.get(name, ()), *labels.get(name, ())] for name in names})


def label_studio_interface(labels: dict[str, list[str]]) -> str:
    """The labelling interface for hiero's tasks: a video, and a row of labels for each level."""
    lines = ["<View>", f'  <Video name="video" value="$video" frameRate="{FRAME_RATE:g}"/>']
    for name, values in labels.items():
        lines.append(f'  <TimelineLabels name={quoteattr(name)} toName="video">')
        lines += [f"    <Label value={quoteattr(value)}/>" for value in dict.fromkeys(values)]
        lines.append("  </TimelineLabels>")
    return "\n".join([*lines, "</View>"]) + "\n"
