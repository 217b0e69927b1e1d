"""Remote files through fsspec: a file is read from a local copy, which is downloaded when it is needed.

    cache/remote/KEY/kitchen.mp4                    the complete copy
    cache/remote/KEY/.kitchen.mp4.json              size, version and content key; modified when the copy is used
    cache/remote/KEY/.kitchen.mp4.VERSION.part      the beginning of a copy whose download was interrupted

Files of one remote folder share a local folder, so that chapters and transcripts stay side by side.
The cache holds at most HIERO_REMOTE_CACHE_GB: the least recently used copies are evicted. Passwords
and signatures of addresses are never written to the disk.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from hiero.errors import BusyError, InputError
from hiero.media.addresses import (
    COPY_NAMES,
    check_credentials,
    describe_error,
    has_magic,
    is_http,
    public_address,
    query_identity,
)
from hiero.storage.cache import KEY_LENGTH, REMOTE, cache_folder, content_key, size_limit
from hiero.storage.files import FEATURE_SUFFIXES, parse_json, write_text
from hiero.storage.locks import DOWNLOAD_WAIT_S, hold_lock
from hiero.types import ProgressCallback, ProgressEvent, no_progress

GB = 1e9
MAX_ATTEMPTS = 6  # in a row without progress
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 15.0  # between attempts
MAX_CHANGES = 3  # of a file during its download
STAT_AGE_S = 30.0  # how long a server's answer about a file is trusted
TIMEOUT_S = 30.0
CHUNK_BYTES = 2**22  # per request of a download
BLOCK_BYTES = 2**20  # per request while a file is probed
MAX_NAME_BYTES = 200
COMPANION_SUFFIXES = (".srt", ".vtt", ".json")  # transcripts, and sidecars of feature files
MAX_COMPANION_BYTES = 2**26
MIN_FREE_BYTES = 2**28  # of disk space that copies never use
RETRIED_CODES = (408, 425, 429, 500, 502, 503, 504)
DENIED_CODES = (401, 403, 407)
MISSING_CODES = (404, 410)
RANGE_ERROR = 416
VERSION_FIELDS = (
    *("ETag", "etag", "content_md5", "md5Hash", "md5", "generation", "LastModified"),
    *("last_modified", "mtime", "updated", "modify"),
)
S3_SCHEMES = ("s3", "s3a")
HTTP_FOLDER = "folders and patterns cannot be listed over http."
URL_CHARACTERS = "/%:=&?~+!$,;'@()*[]-._"  # in the path of an http address, beside letters and digits

Result = TypeVar("Result")

_stats: dict[Path, tuple[float, RemoteStat]] = {}  # time and content of the servers' answers


class LostConnectionError(OSError):
    """A server could not be reached, or stopped in the middle; a retry may help."""


class MissingError(InputError):
    """The server has no such file."""


class UnavailableError(InputError):
    """The server denies access, or all retries have failed. A complete copy can still be used."""


class RemoteChangedError(Exception):
    """A file was replaced while it was read."""


@dataclass(frozen=True)
class RemoteStat:
    """What a server says about a file."""

    size: int | None
    version: str
    has_ranges: bool = True

    @classmethod
    def from_info(cls, info: dict[str, Any]) -> RemoteStat:
        """Convert what fsspec says about a file."""
        version = next((str(info[name]) for name in VERSION_FIELDS if info.get(name) is not None), "")
        return cls(None if info.get("size") is None else int(info["size"]), version)


@dataclass(frozen=True)
class RemoteEntry:
    """A file in a listing."""

    address: str
    name: str
    stat: RemoteStat = RemoteStat(None, "")


def list_remote(address: str, suffixes: tuple[str, ...]) -> list[RemoteEntry]:
    """List a file, the files below a folder (s3://bucket/videos/), or those that match a pattern (s3://bucket/*.mp4)."""
    path = public_address(address)
    is_named = not has_magic(path) and not path.endswith("/")
    name = path.rpartition("/")[2]
    if is_http(address):
        if not is_named:
            raise InputError(f"{path}: {HTTP_FOLDER} Give its files one by one, or the bucket (s3://…).")
        return [RemoteEntry(address, urllib.parse.unquote(name))]
    origin = Origin(address)
    if is_named and (path.lower().endswith(suffixes) or not _retry(origin.is_folder, path)):
        return [RemoteEntry(address, name)]
    found = [entry for entry in _retry(origin.find, path) if entry.name.lower().endswith(suffixes)]
    entries = [entry for entry in found if "/." not in f"/{entry.name}"]  # hidden ones are left out
    _stats.update({copy_path(entry.address): (time.monotonic(), entry.stat) for entry in entries})
    return entries


def remote_exists(address: str) -> bool:
    """Whether an address is an existing file or folder; False if the server cannot be asked."""
    try:
        return Origin(address).is_folder() or Origin(address).stat().size is not None
    except (InputError, OSError):
        return False


def copy_path(address: str) -> Path:
    """The path of the local copy of a remote file, whether or not it exists."""
    shown = public_address(address)
    folder_address, _, name = shown.rpartition("/")
    if not name or folder_address.endswith("/"):
        raise InputError(f"{shown}: {HTTP_FOLDER if is_http(address) else 'not a file'}")
    identity = f"{folder_address}{query_identity(address)}"
    folder = cache_folder(REMOTE) / hashlib.sha256(identity.encode()).hexdigest()[:KEY_LENGTH]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _local_name(urllib.parse.unquote(name) if is_http(address) else name)
    COPY_NAMES[path] = shown
    return path


def _local_name(name: str) -> str:
    """A valid file name that is not hidden."""
    if len(name.encode()) > MAX_NAME_BYTES:
        suffix = Path(name).suffix if len(Path(name).suffix) < 12 else ""
        return hashlib.sha256(name.encode()).hexdigest()[:KEY_LENGTH] + suffix
    safe = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else urllib.parse.quote(c, safe="") for c in name)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe


class Origin:
    """A remote file or folder on its server. Credentials come from the environment, as usual for its file system."""

    def __init__(self, address: str) -> None:
        check_credentials(address)
        self.address = address
        self.public = public_address(address)
        self.scheme = self.public.partition("://")[0]
        self.is_http = is_http(address)
        if "::" in address and not self.is_http:
            raise InputError(f"{self.public}: files in archives cannot be read. Unpack the archive first.")

    @cached_property
    def opened(self) -> tuple[Any, str]:
        """The fsspec file system, and the path in it."""
        with self._translated():
            from fsspec.core import url_to_fs

            return url_to_fs(_quote(self.address) if self.is_http else self.address, **self._options())

    def _options(self) -> dict[str, Any]:
        if self.is_http:
            from aiohttp import ClientTimeout

            timeout = ClientTimeout(total=None, sock_connect=TIMEOUT_S, sock_read=TIMEOUT_S)
            client = {"timeout": timeout, "trust_env": True, "headers": {"Accept-Encoding": "identity"}}
            return {"encoded": True, "client_kwargs": client}
        if self.scheme not in S3_SCHEMES:
            return {}
        options: dict[str, Any] = {"config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": TIMEOUT_S}}
        endpoint = os.environ.get("AWS_ENDPOINT")  # LanceDB's variable: one setting for the corpus and the videos
        if endpoint and "AWS_ENDPOINT_URL" not in os.environ:
            options["endpoint_url"] = endpoint
        return options

    def stat(self) -> RemoteStat:
        """Ask for the current state. Raises InputError for a missing file, LostConnectionError without an answer."""
        fs, path = self.opened
        with self._translated():
            if self.is_http:
                return self._http_stat()
            fs.invalidate_cache(path.rpartition("/")[0])
            info = fs.info(path)
        if info.get("type") == "directory":
            raise InputError(f"{self.public}: is a folder. To read the files in it, write {self.public.rstrip('/')}/")
        if info.get("size") == 0:
            raise InputError(f"{self.public}: is empty")
        return RemoteStat.from_info(info)

    def _http_stat(self) -> RemoteStat:
        """Ask for the first byte: signatures are often only for GET, and the answer shows whether ranges work."""
        status, headers, _ = self._http_get(0, 1, is_read=False)
        has_ranges = status == 206
        size = headers.get("Content-Range", "").rpartition("/")[2] if has_ranges else headers.get("Content-Length", "")
        version = headers.get("ETag") or headers.get("Last-Modified") or ""
        return RemoteStat(int(size) if size.isdecimal() else None, version, has_ranges)

    def read(self, start: int, stop: int) -> bytes:
        """Read a range of bytes."""
        fs, path = self.opened
        with self._translated():
            try:
                if self.is_http:
                    *_, data = self._http_get(start, stop)
                else:
                    data = fs.cat_file(path, start=start, end=stop)
            except Exception as error:
                if getattr(error, "status", None) == RANGE_ERROR:  # the file is shorter now
                    raise RemoteChangedError from None
                raise
        if len(data) != stop - start:
            raise LostConnectionError("the connection ended early")
        return data

    def _http_get(self, start: int, stop: int, is_read: bool = True) -> tuple[int, Any, bytes]:
        """Status, headers and bytes of a range and no more: fsspec would hold all that a server sends in memory."""
        from fsspec.asyn import sync

        fs, url = self.opened

        async def get() -> tuple[int, Any, bytes]:
            session = await fs.set_session()
            async with session.get(fs.encode_url(url), headers={"Range": f"bytes={start}-{stop - 1}"}) as response:
                response.raise_for_status()
                if response.status != 206 and start:
                    raise LostConnectionError("the server sent the beginning of the file, not the requested part")
                data = await response.content.readexactly(stop - start) if is_read else b""
                return response.status, response.headers, data

        answer: tuple[int, Any, bytes] = sync(fs.loop, get)
        return answer

    def chunks(self, start: int, size: int | None) -> Iterator[bytes]:
        """Read a file of a known size from a position on in ranges, else the whole file in one request."""
        fs, path = self.opened
        if size is not None:
            for begin in range(start, size, CHUNK_BYTES):
                yield self.read(begin, min(size, begin + CHUNK_BYTES))
            return
        options = {"block_size": 0, "size": 1} if self.is_http else {}  # without another question about the size
        with self._translated(), fs.open(path, "rb", **options) as source:
            while data := source.read(CHUNK_BYTES):
                yield data

    def is_folder(self) -> bool:
        """Whether it contains files."""
        fs, path = self.opened
        with self._translated():
            fs.invalidate_cache(path)
            return bool(fs.isdir(path))

    def find(self) -> list[RemoteEntry]:
        """All files below a folder, or that match a pattern (* within a folder, ** across folders)."""
        fs, path = self.opened
        parts = self.address.split("/")
        num_plain = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts))
        root_address = "/".join(parts[:num_plain]).rstrip("/")
        with suppress(MissingError), self._translated():
            fs.invalidate_cache()
            root = str(fs._strip_protocol(root_address)).rstrip("/") + "/"
            entries = fs.find(path, detail=True) if num_plain == len(parts) else fs.glob(path, detail=True)
            return [
                RemoteEntry(f"{root_address}/{file[len(root) :]}", file[len(root) :], RemoteStat.from_info(info))
                for file, info in sorted(entries.items())
                if info.get("type") != "directory" and file.startswith(root) and not file.endswith("/")
            ]
        return []

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn errors of fsspec and the libraries below it into our own, without secrets."""
        try:
            yield
        except (InputError, LostConnectionError, RemoteChangedError):
            raise
        except Exception as error:
            raise self._translate(error) from None

    def _translate(self, error: Exception) -> Exception:
        code, text = getattr(error, "status", None), describe_error(error, self.address)
        if code == RANGE_ERROR:
            return InputError(f"{self.public}: is empty")
        if code in MISSING_CODES or isinstance(error, FileNotFoundError):
            return MissingError(f"{self.public}: no such file{' on the server' if self.is_http else ''}")
        if code in DENIED_CODES or isinstance(error, PermissionError) or "credentials" in type(error).__name__.lower():
            return UnavailableError(f"{self.public}: access denied ({code or text}). {self._credentials_hint()}")
        if isinstance(code, int) and code not in RETRIED_CODES:
            return InputError(f"{self.public}: the server answered {code}")
        if isinstance(error, ImportError):
            return InputError(f"{self.public}: a package is missing ({text}). Run: pip install 'hiero-video[remote]'")
        if isinstance(error, ValueError | TypeError | NotImplementedError):
            return InputError(f"{self.public}: cannot be read ({text})")
        return LostConnectionError(f"the server answered {code}" if code else text)

    def _credentials_hint(self) -> str:
        if self.is_http:
            return "Is the address signed, and still valid? Users and passwords belong in ~/.netrc."
        if self.scheme in S3_SCHEMES:
            return "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (public bucket: FSSPEC_S3_ANON=true)."
        return "Set the credentials of its file system; see the documentation of fsspec."


def _quote(address: str) -> str:
    """An http address with spaces and other special characters quoted."""
    scheme, _, rest = address.partition("#")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host}{slash}{urllib.parse.quote(path, safe=URL_CHARACTERS)}"


@dataclass(frozen=True)
class RemoteFile:
    """A remote file and the path of its copy. `LocalFile` has the same methods."""

    path: Path
    address: str = field(compare=False, repr=False)  # it may contain a password
    is_remote = True

    @classmethod
    def from_address(cls, address: str) -> RemoteFile:
        """The file at an address, without asking the server."""
        return cls(copy_path(address), address)

    @property
    def name(self) -> str:
        """The address without secrets."""
        return public_address(self.address)

    stored_name = name

    @property
    def location(self) -> str:
        """The complete address, which may contain a password: other machines resolve it to the same file."""
        return self.address

    @property
    def was_downloaded(self) -> bool:
        """Whether there ever was a complete copy, even if it was evicted since."""
        return bool(self._record())

    def exists(self) -> bool:
        """Always True: the server is only asked when the file is read."""
        return True

    def known_key(self) -> str | None:
        """Hash of the content if the server still has the version of the last copy, else None."""
        record = self._record()
        if not record:
            return None
        stat = self._current_stat(no_progress)
        return str(record["key"]) if stat is None or _matches(record, stat) else None

    quick_key = known_key

    def key(self) -> str:
        """Hash of the content; downloads the file if that is not known."""
        return self.known_key() or content_key(self.fetch())

    def state(self) -> object:
        """Changes when another version is downloaded, not when the copy is evicted."""
        return self._record().get("key")

    def growth(self, max_age_s: float) -> object:
        """Size and version that the server reported at most `max_age_s` ago."""
        stat = self.stat(max_age_s)
        return stat.size, stat.version

    def reader(self) -> Any:
        """What a decoder opens to probe the file; it only reads the blocks that are needed."""
        if self.path.is_file():
            return str(self.path)
        stat = self.stat()
        if stat.size is None or not stat.has_ranges:
            return str(self.fetch())
        return _open_blocks(self, Origin(self.address), stat.size)

    def stat(self, max_age_s: float | None = None) -> RemoteStat:
        """What the server says about the file, from memory if that is recent."""
        known = _stats.get(self.path)
        if known is not None and time.monotonic() - known[0] <= (STAT_AGE_S if max_age_s is None else max_age_s):
            return known[1]
        stat = _retry(Origin(self.address).stat, self.name)
        _stats[self.path] = time.monotonic(), stat
        return stat

    def fetch(self, progress: ProgressCallback = no_progress) -> Path:
        """Download the file, its transcripts and its sidecar, unless the copies are up to date."""
        self._fetch_content(progress)
        self.fetch_companions()
        return self.path

    def _fetch_content(self, progress: ProgressCallback) -> None:
        with _lock(self.path):
            for _ in range(MAX_CHANGES):
                stat = self._current_stat(progress)
                if stat is None or (self.path.is_file() and _matches(self._record(), stat)):
                    os.utime(_record_path(self.path))
                    return
                self.path.unlink(missing_ok=True)  # another version
                _make_room(self, stat.size or 0)
                try:
                    self._download(stat, progress)
                except RemoteChangedError:
                    _stats.pop(self.path, None)
                    continue
                record = {"size": self.path.stat().st_size, "version": stat.version, "key": content_key(self.path)}
                write_text(_record_path(self.path), json.dumps(record))
                return
        raise InputError(f"{self.name}: changed again and again during the download. Read it when it is complete.")

    def _current_stat(self, progress: ProgressCallback) -> RemoteStat | None:
        """What the server says; None if it is unavailable and there is a complete copy."""
        try:
            return self.stat()
        except UnavailableError as error:
            if not self.path.is_file() or not self._record():
                raise
            progress(ProgressEvent("message", message=f"{error}; the complete copy on this machine is used"))
            return None

    def _download(self, stat: RemoteStat, progress: ProgressCallback) -> None:
        """Download the missing bytes, then give the copy its name."""
        origin = Origin(self.address)
        version = hashlib.sha256(f"{stat.size} {stat.version}".encode()).hexdigest()[:16]
        part = self.path.with_name(f".{self.path.name}.{version}.part")
        for other in _parts(self.path):
            if other != part:
                other.unlink(missing_ok=True)
        part.touch()
        size = stat.size if stat.has_ranges else None  # without it, a download cannot be resumed

        def resume() -> None:
            with part.open("wb" if size is None else "ab") as file:
                progress(ProgressEvent("download", self.path.name, file.tell(), stat.size))
                for chunk in origin.chunks(file.tell(), size):
                    if size is None:  # it may have no end
                        _make_room(self, file.tell() + len(chunk))
                    file.write(chunk)
                    file.flush()
                    os.fsync(file.fileno())
                    progress(ProgressEvent("download", self.path.name, file.tell(), stat.size))

        try:
            _retry(resume, self.name, lambda: part.stat().st_size)
            if _retry(origin.stat, self.name) != stat:
                raise RemoteChangedError
            part.replace(self.path)
        except BaseException as error:
            if size is None or isinstance(error, RemoteChangedError | MissingError | OSError):
                part.unlink(missing_ok=True)
            raise

    def fetch_companions(self) -> None:
        """Download transcripts and sidecars beside the file, and remove copies of those that no longer exist.

        If that fails, the video itself can still be read.
        """
        with suppress(InputError, OSError):
            for path, address in self._companions().items():
                if address is None:
                    path.unlink(missing_ok=True)
                else:
                    RemoteFile(path, address)._fetch_content(no_progress)

    def _companions(self) -> dict[Path, str | None]:
        """Copies of the files beside it and their addresses; None for those that no longer exist."""
        if is_http(self.address):
            first, mark, query = self.address.partition("?")
            sidecar = self.path.with_name(f"{self.path.name}.json")
            return {sidecar: f"{first}.json{mark}{query}"} if self.path.suffix.lower() in FEATURE_SUFFIXES else {}
        folder, _, name = self.address.rpartition("/")
        stem = name.rpartition(".")[0] or name
        copies = self.path.parent.glob(f"{glob.escape(self.path.stem)}.*")
        companions: dict[Path, str | None] = dict.fromkeys(
            copy for copy in copies if copy.suffix.lower() in COMPANION_SUFFIXES and _record_path(copy).is_file()
        )
        for entry in [] if has_magic(stem) else Origin(f"{folder}/{stem}.*").find():
            is_small = 0 < (entry.stat.size or 0) <= MAX_COMPANION_BYTES
            if entry.name.lower().endswith(COMPANION_SUFFIXES) and is_small:
                companions[copy_path(entry.address)] = entry.address
        return companions

    def _record(self) -> dict[str, Any]:
        """What is known about the last complete copy; empty if there was none."""
        with suppress(OSError, ValueError):
            record = parse_json(_record_path(self.path).read_bytes())
            if isinstance(record, dict) and {"size", "version", "key"} <= record.keys():
                return record
        return {}


def _open_blocks(remote: RemoteFile, origin: Origin, size: int) -> Any:
    """A file object that reads a remote file through fsspec's block cache."""
    from fsspec.spec import AbstractBufferedFile

    class BlockReader(AbstractBufferedFile):
        name = remote.path.name  # FFmpeg guesses the format from it

        def _fetch_range(self, start: int, end: int) -> bytes:
            try:
                return _retry(lambda: origin.read(start, min(end, size)), remote.name)
            except RemoteChangedError:
                raise InputError(f"{remote.name}: changed while it was read. Read it when it is complete.") from None

    fs, path = origin.opened
    return BlockReader(fs, path, block_size=BLOCK_BYTES, cache_type="blockcache", size=size)


def _make_room(remote: RemoteFile, size: int) -> None:
    """Evict the least recently used copies so that a file fits. Raises InputError if that is not enough."""
    others = []
    for file in cache_folder(REMOTE).glob("*/*"):
        copy, used_file = file, _record_path(file)
        if file.name.startswith(".") and file.name.endswith(".part"):
            copy, used_file = file.with_name(file.name[1:].rsplit(".", 2)[0]), file
        if copy != remote.path and used_file.is_file():
            others.append((used_file.stat().st_mtime, _disk_bytes(file), file, copy))
    total = sum(num_bytes for _, num_bytes, *_ in others)
    free = shutil.disk_usage(remote.path.parent).free + sum(map(_disk_bytes, _parts(remote.path))) - MIN_FREE_BYTES
    limit = min(size_limit("HIERO_REMOTE_CACHE_GB", default="50", unit="G"), total + free)
    if size > limit:
        raise InputError(
            f"{remote.name}: {size / GB:.1f} GB do not fit into the {limit / GB:g} GB for copies of remote videos. "
            f"Set HIERO_REMOTE_CACHE_GB to {size / GB + 1:.0f} or more, and make room on the disk."
        )
    for _, num_bytes, file, copy in sorted(others):
        if total <= limit - size:
            return
        with suppress(BusyError), _lock(copy, wait_s=0):  # a copy that is being downloaded stays
            file.unlink(missing_ok=True)
            total -= num_bytes


def _disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512 if path.is_file() else 0


def _parts(path: Path) -> list[Path]:
    """Files that interrupted downloads left behind."""
    return list(path.parent.glob(f".{glob.escape(path.name)}*.part"))


def _retry(work: Callable[[], Result], name: str, position: Callable[[], int] = lambda: 0) -> Result:
    """Retry lost connections with exponential back-off; each byte of progress resets the count."""
    num_failed, furthest = 0, position()
    while True:
        try:
            return work()
        except LostConnectionError as error:
            num_failed = num_failed + 1 if position() <= furthest else 1
            furthest = max(furthest, position())
            if num_failed >= MAX_ATTEMPTS:
                where = f" after {furthest / 1e6:.1f} MB; run the command again to resume" if furthest else ""
                raise UnavailableError(f"{name}: the connection was lost{where} ({error})") from None
            time.sleep(min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (num_failed - 1)))


def _matches(record: dict[str, Any], stat: RemoteStat) -> bool:
    """Whether a copy has the version that the server has now."""
    return bool(record) and record["version"] == stat.version and stat.size in (None, record["size"])


def _record_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.json")


def _lock(path: Path, wait_s: float = DOWNLOAD_WAIT_S) -> AbstractContextManager[None]:
    """Only one thread of one process downloads or evicts a file at a time."""
    return hold_lock(path.with_name(f".{path.name}.lock"), path.name, wait_s)
