"""Downloads over HTTP that resume where they stopped, and links on package indexes."""

from __future__ import annotations

import base64
import http.client
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.types import ProgressCallback, ProgressEvent

PYPI = "https://pypi.org/simple"
TIMEOUT_S = 30.0
PIP_TIMEOUT_S = 60.0
CHUNK_BYTES = 2**18
MAX_PAGE_BYTES = 2**24  # of an index's page that are read
DOWNLOAD_ERRORS = (OSError, http.client.HTTPException, ValueError)


def download(url: str, part: Path, progress: ProgressCallback, label: str, timeout_s: float = TIMEOUT_S) -> None:
    """Download into a file, resuming where an earlier attempt stopped if the server can."""
    done = part.stat().st_size if part.is_file() else 0
    try:
        response = open_url(url, {"Range": f"bytes={done}-"} if done else {}, timeout_s)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        # Either the whole file was here already, or the server has another one now: begin again.
        done, response = 0, open_url(url, {}, timeout_s)
    with response, part.open("ab") as out:
        if getattr(response, "status", None) != http.client.PARTIAL_CONTENT:  # the server sends all of it
            out.truncate(0)
            done = 0
        length = int(response.headers.get("Content-Length") or 0)
        total = done + length if length else None
        progress(ProgressEvent("download", label, done, total))
        received = 0
        while data := response.read(CHUNK_BYTES):
            out.write(data)
            received += len(data)
            progress(ProgressEvent("download", label, done + received, total))
        if length and received < length:
            raise OSError(
                f"the connection ended after {done + received} of {done + length} bytes; run it again to go on"
            )


def open_url(url: str, headers: dict[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> Any:
    """Open an address. A user and password in it go into a header, so that they never get into an error message."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("https", "http", "file"):
        raise InputError(f"{parts.scheme}: not a way to fetch from")
    headers = dict(headers or {})
    if "@" in parts.netloc:
        user, _, host = parts.netloc.rpartition("@")
        headers["Authorization"] = "Basic " + base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        url = urllib.parse.urlunsplit(parts._replace(netloc=host))
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout_s)


def package_indexes() -> Iterator[str]:
    """Addresses of package indexes as pip is set up on this machine; the public one without pip."""
    settings: dict[str, str] = {}
    try:
        command = [sys.executable, "-m", "pip", "config", "list"]
        listing = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S)
        for line in listing.stdout.splitlines():
            name, _, value = line.partition("=")
            settings[name.split(".")[-1]] = value.strip("'\"")
    except (OSError, subprocess.SubprocessError):
        pass
    for name in ("index-url", "extra-index-url"):
        settings[name] = os.environ.get(f"PIP_{name.upper().replace('-', '_')}", settings.get(name, ""))
    yield from (settings["index-url"] or PYPI).split()
    yield from settings["extra-index-url"].split()


def find_package_link(index: str, package: str, archive: str) -> str | None:
    """The address of a package's file on an index, or None where the index does not have it."""
    page = f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', package).lower()}/"
    if page.startswith("file:"):
        folder = Path(urllib.request.url2pathname(urllib.parse.urlsplit(page).path))
        return (folder / archive).as_uri() if (folder / archive).is_file() else None
    with open_url(page, headers={"Accept": "text/html"}) as response:
        links = _LinkParser()
        links.feed(response.read(MAX_PAGE_BYTES).decode("utf-8", "replace"))
    for link in links.hrefs:
        url = urllib.parse.urljoin(page, link)
        if urllib.parse.unquote(urllib.parse.urlsplit(url).path).endswith("/" + archive):
            return url
    return None


class _LinkParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs += [value for name, value in attrs if tag == "a" and name == "href" and value]
