"""Remote files through fsspec: a file is read from a local copy, which is downloaded when it is needed.

    cache/remote/KEY/kitchen.mp4                    the complete copy
    cache/remote/KEY/.kitchen.mp4.json              size, version and content key; its time says when it was used last
    cache/remote/KEY/.kitchen.mp4.VERSION.part      the beginning of a copy whose download was interrupted

Files of one remote folder have copies in one folder, so that chapters and transcripts lie beside each
other. Copies take at most HIERO_REMOTE_CACHE_GB together: the least recently used ones are evicted.
Passwords and signatures of addresses stay in memory.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import time
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from hiero.errors import InputError
from hiero.sources.addresses import (
    COPY_NAMES,
    describe_error,
    has_magic,
    is_http,
    public_address,
    query_identity,
    scheme_of,
)
from hiero.storage.cache import KEY_LENGTH, cache_folder, content_key
from hiero.storage.files import parse_json, write_text
from hiero.types import ProgressCallback, ProgressEvent, no_progress

KIND = "remote"  # folder of the cache
DEFAULT_LIMIT_GB = 50.0
GB = 1e9
MAX_ATTEMPTS = 6  # without a single byte in between
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 15.0  # between attempts
MAX_CHANGES = 3  # of a file while it is downloaded
STAT_AGE_S = 30.0  # for which an answer of a server is believed
TIMEOUT_S = 30.0  # for each wait on a server
CHUNK_BYTES = 2**22  # of a request
BLOCK_BYTES = 2**20  # of a request while a file is probed
MAX_NAME_BYTES = 200
COMPANION_SUFFIXES = (".srt", ".vtt", ".json")  # transcripts, and the sidecars of feature files
ARRAY_SUFFIXES = (".safetensors", ".pt", ".pth", ".npy", ".npz")
MAX_COMPANION_BYTES = 2**26
MIN_FREE_BYTES = 2**28  # of the disk, which copies never take
RETRIED_CODES = (408, 425, 429, 500, 502, 503, 504)
DENIED_CODES = (401, 403, 407)
MISSING_CODES = (404, 410)
RANGE_ERROR = 416
VERSION_FIELDS = ("ETag", "etag", "content_md5", "md5Hash", "md5", "generation", "LastModified")
TIME_FIELDS = ("last_modified", "mtime", "updated", "modify")
LIVE_SCHEMES = ("rtsp", "rtmp", "udp", "rtp", "srt")

Result = TypeVar("Result")

_stats: dict[Path, tuple[float, RemoteStat]] = {}  # what servers said, and when


class LostConnectionError(OSError):
    """A server could not be reached, or stopped in the middle; a retry may help."""


class DeniedError(InputError):
    """A server does not give a file to whoever asks."""


class UnreachableError(InputError):
    """All retries have failed."""


class RemoteChangedError(Exception):
    """A file is another one than when its first bytes were read."""


@dataclass(frozen=True)
class RemoteStat:
    """What a server says about a file."""

    size: int | None
    version: str
    has_ranges: bool = True


@dataclass(frozen=True)
class RemoteEntry:
    """A file of a listing."""

    address: str
    name: str
    stat: RemoteStat


def list_remote(address: str, suffixes: tuple[str, ...]) -> list[RemoteEntry]:
    """The files that an address stands for: itself, those below a folder (s3://bucket/videos/), or those of
    a pattern (s3://bucket/*.mp4).
    """
    path = public_address(address).partition("::")[0]
    is_pattern = has_magic(path)
    name = path.rpartition("/")[2]
    if is_http(address):
        if is_pattern or path.endswith("/"):
            raise InputError(
                f"{path}: folders and patterns cannot be listed over http; give the files one by one, "
                "or the bucket (s3://…)"
            )
        return [RemoteEntry(address, urllib.parse.unquote(name), RemoteStat(None, ""))]
    origin = Origin(address)
    is_named = not is_pattern and not path.endswith("/")
    if is_named and (path.lower().endswith(suffixes) or not _retry(origin.is_folder, path)):
        return [RemoteEntry(address, name, RemoteStat(None, ""))]
    visible = [e for e in _retry(origin.find, path) if not any(part.startswith(".") for part in e.name.split("/"))]
    selected = [entry for entry in visible if entry.name.lower().endswith(suffixes)]
    for entry in selected:
        _stats[copy_path(entry.address)] = time.monotonic(), entry.stat
    return selected


def remote_exists(address: str) -> bool:
    """Whether there is a file or folder at an address that can be listed; False also where it cannot be asked."""
    try:
        return Origin(address).is_folder() or Origin(address).stat().size is not None
    except (InputError, OSError):
        return False


def copy_path(address: str) -> Path:
    """Where the copy of a remote file is, or will be. Nothing is read."""
    shown = public_address(address)
    public, chain, rest = shown.partition("::")
    folder_address, _, name = public.rpartition("/")
    if not name or (folder_address.endswith("/") and not chain):
        http_folder = "a folder, which cannot be listed over http; give its files one by one"
        raise InputError(f"{shown}: is {http_folder if is_http(address) else 'no file'}")
    identity = f"{folder_address}{query_identity(address)}{chain}{rest}"
    folder = cache_folder(KIND) / hashlib.sha256(identity.encode()).hexdigest()[:KEY_LENGTH]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _local_name(urllib.parse.unquote(name) if is_http(address) else name)
    COPY_NAMES[path] = shown
    return path


def _local_name(name: str) -> str:
    """A name that a file may have, and that is not hidden."""
    if len(name.encode()) > MAX_NAME_BYTES:
        suffix = Path(name).suffix if len(Path(name).suffix) < 12 else ""
        return hashlib.sha256(name.encode()).hexdigest()[:KEY_LENGTH] + suffix
    safe = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else urllib.parse.quote(c, safe="") for c in name)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe


class Origin:
    """A remote file or folder, as fsspec opens it. Credentials come from where its file system looks for them."""

    def __init__(self, address: str) -> None:
        self.address, self.public, self.is_http = address, public_address(address), is_http(address)

    @cached_property
    def opened(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        try:
            from fsspec.core import url_to_fs

            return url_to_fs(self._quoted(), **self._options())
        except ImportError as error:
            name = getattr(error, "name", None) or describe_error(error)
            raise InputError(
                f"{self.public}: a package is missing to read it ({name}); run: pip install 'hiero-video[remote]', "
                "or install the package"
            ) from None
        except ValueError as error:
            live = "; live streams are for hiero watch" if scheme_of(self.address) in LIVE_SCHEMES else ""
            text = describe_error(error, self.address)
            raise InputError(f"{self.public}: not a kind of address that fsspec knows ({text}){live}") from None
        except Exception as error:  # of any library
            raise self._translate(error) from None

    def _quoted(self) -> str:
        """The address; over http with spaces and other characters that somebody typed quoted."""
        if not self.is_http:
            return self.address
        parts = urllib.parse.urlsplit(self.address)
        path, query = (urllib.parse.quote(part, safe="/%:=&?~#+!$,;'@()*[]-._") for part in (parts.path, parts.query))
        return urllib.parse.urlunsplit((parts.scheme.lower(), parts.netloc, path, query, ""))

    def _options(self) -> dict[str, Any]:
        if self.is_http:
            from aiohttp import ClientTimeout

            timeout = ClientTimeout(total=None, sock_connect=TIMEOUT_S, sock_read=TIMEOUT_S)
            client = {"timeout": timeout, "trust_env": True, "headers": {"Accept-Encoding": "identity"}}
            return {"encoded": True, "client_kwargs": client}
        scheme = scheme_of(self.address.rpartition("::")[2])
        if scheme not in ("s3", "s3a"):
            return {}
        options: dict[str, Any] = {"config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": TIMEOUT_S}}
        endpoint = os.environ.get("AWS_ENDPOINT")  # as LanceDB has it: one setting for the corpus and the videos
        if endpoint and "AWS_ENDPOINT_URL" not in os.environ:
            options["endpoint_url"] = endpoint
        return {scheme: options} if "::" in self.address else options

    def stat(self) -> RemoteStat:
        """What is there now. Raises InputError without such a file, LostConnectionError where nobody answers."""
        fs, path = self.opened
        try:
            if self.is_http:
                return self._http_stat()
            fs.invalidate_cache(path.rpartition("/")[0])
            info = fs.info(path)
        except Exception as error:
            raise self._translate(error) from None
        if info.get("type") == "directory":
            raise InputError(f"{self.public}: is a folder; to read what is in it, write {self.public.rstrip('/')}/")
        if info.get("size") == 0:
            raise InputError(f"{self.public}: is empty")
        return _stat_of(info)

    def _http_stat(self) -> RemoteStat:
        """Ask for the first byte: signatures are often for GET alone, and the answer tells whether there are ranges."""
        from fsspec.asyn import sync

        fs, url = self.opened

        async def ask() -> tuple[int, Any]:
            session = await fs.set_session()
            async with session.get(fs.encode_url(url), headers={"Range": "bytes=0-0"}) as response:
                response.raise_for_status()
                return response.status, response.headers

        status, headers = sync(fs.loop, ask)
        has_ranges = status == 206
        size = headers.get("Content-Range", "").rpartition("/")[2] if has_ranges else headers.get("Content-Length", "")
        version = headers.get("ETag") or headers.get("Last-Modified") or ""
        return RemoteStat(int(size) if size.isdecimal() else None, version, has_ranges)

    def read(self, start: int, stop: int) -> bytes:
        """The bytes of a range."""
        fs, path = self.opened
        try:
            data: bytes = fs.cat_file(path, start=start, end=stop)
        except Exception as error:
            if getattr(error, "status", None) == RANGE_ERROR:  # it is shorter now
                raise RemoteChangedError from None
            raise self._translate(error) from None
        if len(data) != stop - start:
            raise LostConnectionError("the connection ended early")
        return data

    def download(self, target: Path, advance: Callable[[int], None]) -> None:
        """Write the whole file, in one request."""
        fs, path = self.opened
        whole = {"block_size": 0, "size": 1} if self.is_http else {}  # a stream, without another question
        try:
            with fs.open(path, "rb", **whole) as source, target.open("wb") as file:
                while data := source.read(BLOCK_BYTES):
                    file.write(data)
                    advance(file.tell())
        except Exception as error:
            raise self._translate(error) from None

    def is_folder(self) -> bool:
        """Whether files lie below it."""
        fs, path = self.opened
        try:
            fs.invalidate_cache(path)
            return bool(fs.isdir(path))
        except Exception as error:
            raise self._translate(error) from None

    def find(self) -> list[RemoteEntry]:
        """All files below a folder, or that match a pattern (* within a folder, ** over several)."""
        fs, path = self.opened
        first, chain, rest = self.address.partition("::")
        parts = first.split("/")
        num_plain = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts))
        root_address = "/".join(parts[:num_plain]).rstrip("/")
        try:
            fs.invalidate_cache()
            root = str(fs._strip_protocol(root_address)).rstrip("/")
            entries = fs.find(path, detail=True) if num_plain == len(parts) else fs.glob(path, detail=True)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._translate(error) from None
        return [
            RemoteEntry(f"{root_address}/{file[len(root) + 1 :]}{chain}{rest}", file[len(root) + 1 :], _stat_of(info))
            for file, info in sorted(entries.items())
            if info.get("type") != "directory" and file.startswith(f"{root}/") and not file.endswith("/")
        ]

    def _translate(self, error: Exception) -> Exception:
        """What an error of fsspec or the libraries below it means."""
        if isinstance(error, InputError | LostConnectionError):
            return error
        code, text = getattr(error, "status", None), describe_error(error, self.address)
        if code == RANGE_ERROR:
            return InputError(f"{self.public}: is empty")
        if code in MISSING_CODES or isinstance(error, FileNotFoundError):
            return InputError(f"{self.public}: no such file" + (" on the server" if self.is_http else ""))
        if code in DENIED_CODES or isinstance(error, PermissionError) or "credentials" in type(error).__name__.lower():
            return DeniedError(f"{self.public}: access is refused ({code or text}); {self._advice()}")
        if isinstance(code, int) and code not in RETRIED_CODES:
            return InputError(f"{self.public}: the server answers {code}")
        if isinstance(error, ValueError | TypeError | NotImplementedError | ImportError):
            return InputError(f"{self.public}: cannot be read ({text})")
        return LostConnectionError(f"the server answers {code}" if code else text)

    def _advice(self) -> str:
        if self.is_http:
            return "is the address signed, and still valid? Users and passwords belong into ~/.netrc"
        if scheme_of(self.address) in ("s3", "s3a"):
            return "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (public bucket: FSSPEC_S3_ANON=true)"
        return "see where its file system takes credentials from"


def _stat_of(info: dict[str, Any]) -> RemoteStat:
    size = info.get("size")
    version = next((str(info[name]) for name in (*VERSION_FIELDS, *TIME_FIELDS) if info.get(name) is not None), "")
    return RemoteStat(None if size is None else int(size), version)


@dataclass(frozen=True)
class RemoteFile:
    """A remote file, and where its copy is. `LocalFile` has the same methods."""

    path: Path
    address: str = field(compare=False)
    is_remote = True

    def __repr__(self) -> str:
        return f"<RemoteFile {self.name}>"

    @classmethod
    def from_address(cls, address: str) -> RemoteFile:
        """The file at an address. Nothing is read."""
        return cls(copy_path(address), address)

    @property
    def name(self) -> str:
        """Its address as it may be shown."""
        return public_address(self.address)

    @property
    def location(self) -> str:
        """What another machine resolves to the same file: the whole address, which may hold a password."""
        return self.address

    @property
    def stored_name(self) -> str:
        """The file as a corpus stores it."""
        return self.name

    @property
    def was_downloaded(self) -> bool:
        """Whether there was a complete copy once, also where it was evicted since."""
        return bool(self._record())

    def exists(self) -> bool:
        """Whether to try to read it: the server is not asked."""
        return True

    def known_key(self) -> str | None:
        """Hash of the content where the server says that it is still that of the last copy; else None."""
        record = self._record()
        if not record:
            return None
        stat = self._current_stat(no_progress)
        return str(record["key"]) if stat is None or _matches(record, stat) else None

    def key(self) -> str:
        """Hash of the content; downloads it where that is not known."""
        return self.known_key() or content_key(self.fetch())

    def state(self) -> object:
        """Changes when another version is downloaded, not when the copy is evicted."""
        return self._record().get("key")

    def growth(self, max_age_s: float) -> tuple[object, ...]:
        """Size and version that the server reports."""
        stat = self.stat(max_age_s)
        return stat.size, stat.version

    def reader(self) -> Any:
        """What a decoder opens to probe the file: reads only the blocks that it looks at."""
        if self.path.is_file():
            return str(self.path)
        stat = self.stat()
        if stat.size is None or not stat.has_ranges:
            return str(self.fetch())
        return _open_blocks(self, Origin(self.address), stat.size)

    def stat(self, max_age_s: float | None = None) -> RemoteStat:
        """What its server says about it."""
        known = _stats.get(self.path)
        if known is not None and time.monotonic() - known[0] <= (STAT_AGE_S if max_age_s is None else max_age_s):
            return known[1]
        stat = _retry(Origin(self.address).stat, self.name)
        _stats[self.path] = time.monotonic(), stat
        return stat

    def fetch(self, progress: ProgressCallback = no_progress) -> Path:
        """Download it and what lies beside it (transcripts, the sidecar of features), unless the copy is up to date."""
        self._fetch_bytes(progress)
        self.fetch_companions()
        return self.path

    def _fetch_bytes(self, progress: ProgressCallback) -> None:
        with _lock(self.path):
            for _ in range(MAX_CHANGES):
                stat = self._current_stat(progress)
                if stat is None or (self.path.is_file() and _matches(self._record(), stat)):
                    os.utime(_record_path(self.path))
                    return
                self.path.unlink(missing_ok=True)  # of another version
                _check_room(self, stat)
                try:
                    self._download(stat, progress)
                except RemoteChangedError:
                    _stats.pop(self.path, None)
                    continue
                record = {"size": self.path.stat().st_size, "version": stat.version, "key": content_key(self.path)}
                write_text(_record_path(self.path), json.dumps(record))
                return
        raise InputError(f"{self.name}: changed again and again while it was read; read it when it is whole")

    def _current_stat(self, progress: ProgressCallback) -> RemoteStat | None:
        """What its server says; None where that cannot be told now and the complete copy is used."""
        try:
            return self.stat()
        except (DeniedError, UnreachableError) as error:
            if not self.path.is_file() or not self._record():
                raise
            progress(ProgressEvent("message", message=f"{error}; the complete copy on this machine is used"))
            return None

    def _download(self, stat: RemoteStat, progress: ProgressCallback) -> None:
        """Download what is missing, and give the copy its name."""
        origin, num_written = Origin(self.address), 0
        version = hashlib.sha256(f"{stat.size} {stat.version}".encode()).hexdigest()[:16]
        part = self.path.with_name(f".{self.path.name}.{version}.part")
        for other in _parts(self.path):
            if other != part:
                other.unlink(missing_ok=True)

        def advance(written: int) -> None:
            nonlocal num_written
            num_written = max(num_written, written)
            progress(ProgressEvent("download", self.path.name, written, stat.size))

        def resume() -> None:
            assert stat.size is not None
            with part.open("ab") as file:
                advance(file.tell())
                while file.tell() < stat.size:
                    file.write(origin.read(file.tell(), min(stat.size, file.tell() + CHUNK_BYTES)))
                    file.flush()
                    os.fsync(file.fileno())
                    advance(file.tell())

        is_whole = stat.size is None or not stat.has_ranges
        work = (lambda: origin.download(part, advance)) if is_whole else resume
        _retry(work, self.name, lambda: num_written)
        if _retry(origin.stat, self.name) != stat:  # somebody wrote to it meanwhile
            part.unlink()
            raise RemoteChangedError
        part.replace(self.path)

    def fetch_companions(self) -> None:
        """Download transcripts beside it, or the sidecar of features; one that was removed there is removed here.

        A companion that cannot be read must not cost the video.
        """
        with suppress(InputError, OSError):
            for path, address in self._companions().items():
                if address is None:
                    path.unlink(missing_ok=True)
                else:
                    RemoteFile(path, address)._fetch_bytes(no_progress)

    def _companions(self) -> dict[Path, str | None]:
        """Copies of what lies beside it, and their addresses; None for those that were removed there."""
        if is_http(self.address):
            if self.path.suffix.lower() not in ARRAY_SUFFIXES:
                return {}
            first, mark, query = self.address.partition("?")
            return {self.path.with_name(f"{self.path.name}.json"): f"{first}.json{mark}{query}"}
        first, chain, rest = self.address.partition("::")
        folder, _, name = first.rpartition("/")
        stem = name.rpartition(".")[0] or name
        entries = Origin(f"{folder}/{stem}.*{chain}{rest}").find() if not has_magic(stem) else []
        companions: dict[Path, str | None] = {
            copy_path(entry.address): entry.address
            for entry in entries
            if entry.name.lower().endswith(COMPANION_SUFFIXES) and 0 < (entry.stat.size or 0) <= MAX_COMPANION_BYTES
        }
        for local in self.path.parent.glob(f"{glob.escape(self.path.stem)}.*"):
            if local.suffix.lower() in COMPANION_SUFFIXES and _record_path(local).is_file():
                companions.setdefault(local, None)
        return companions

    def _record(self) -> dict[str, Any]:
        """What is known of the last complete copy; empty where there was none."""
        with suppress(OSError, ValueError):
            record = parse_json(_record_path(self.path).read_bytes())
            if isinstance(record, dict) and {"size", "version", "key"} <= record.keys():
                return record
        return {}


def _check_room(remote: RemoteFile, stat: RemoteStat) -> None:
    """Evict the least recently used copies. Raises InputError where that cannot be enough."""
    size, limit = stat.size or 0, limit_bytes()
    if size > limit:
        raise InputError(
            f"{remote.name}: {size / GB:.1f} GB do not fit into the {limit / GB:g} GB that copies of remote "
            f"videos may take; set HIERO_REMOTE_CACHE_GB to {size / GB + 1:.0f} or more"
        )
    evict_copies(limit - size, keep=remote.path)
    missing = size - sum(map(_disk_bytes, _parts(remote.path)))
    if missing > shutil.disk_usage(remote.path.parent).free - MIN_FREE_BYTES:
        evict_copies(0, keep=remote.path)
    free = shutil.disk_usage(remote.path.parent).free
    if missing > free - MIN_FREE_BYTES:
        raise InputError(
            f"{remote.name}: {size / GB:.1f} GB do not fit on the disk, {free / GB:.1f} GB are free; make room, "
            "or set HIERO_HOME to a folder on another one"
        )


def _open_blocks(remote: RemoteFile, origin: Origin, size: int) -> Any:
    """A file object that reads a remote file through fsspec's cache of blocks."""
    from fsspec.spec import AbstractBufferedFile

    class BlockReader(AbstractBufferedFile):
        name = remote.path.name  # a decoder guesses the format by it

        def _fetch_range(self, start: int, end: int) -> bytes:
            try:
                return _retry(lambda: origin.read(start, min(end, size)), remote.name)
            except RemoteChangedError:
                raise InputError(f"{remote.name}: changed while it was read; read it when it is whole") from None

    fs, path = origin.opened
    return BlockReader(fs, path, block_size=BLOCK_BYTES, cache_type="blockcache", size=size)


def limit_bytes() -> int:
    """What copies of remote files may take together."""
    text = os.environ.get("HIERO_REMOTE_CACHE_GB", "")
    try:
        limit = float(text or DEFAULT_LIMIT_GB)
        if not 0 < limit < float("inf"):
            raise ValueError
    except ValueError:
        raise InputError(f"HIERO_REMOTE_CACHE_GB must be a number of gigabytes, got {text!r}") from None
    return int(limit * GB)


def evict_copies(limit: int, keep: Path) -> None:
    """Remove the least recently used copies until the others take at most so many bytes."""
    used_at: dict[Path, float] = {}
    sizes: dict[Path, int] = {}
    for record in cache_folder(KIND).glob("*/.*.json"):
        path = record.with_name(record.name[1 : -len(".json")])
        if path != keep and (num_bytes := _disk_bytes(path)):
            used_at[path], sizes[path] = record.stat().st_mtime, num_bytes
    for part in cache_folder(KIND).glob("*/.*.part"):
        if part not in _parts(keep):
            used_at[part], sizes[part] = part.stat().st_mtime, _disk_bytes(part)
    total = sum(sizes.values())
    for path in sorted(used_at, key=lambda path: used_at[path]):
        if total <= limit:
            return
        name = path.name[1:].rpartition(".")[0].rpartition(".")[0] if path.suffix == ".part" else path.name
        with suppress(Timeout), _lock(path.with_name(name), timeout_s=0):  # a copy that is being downloaded stays
            path.unlink(missing_ok=True)
            total -= sizes[path]


def _disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512 if path.is_file() else 0


def _parts(path: Path) -> list[Path]:
    """What interrupted downloads of a file left."""
    return list(path.parent.glob(f".{glob.escape(path.name)}*.part"))


def _retry(work: Callable[[], Result], name: str, position: Callable[[], int] = lambda: 0) -> Result:
    """Retry lost connections with exponential back-off; as long as bytes arrive it goes on."""
    num_failed, furthest = 0, position()
    while True:
        try:
            return work()
        except LostConnectionError as error:
            num_failed = num_failed + 1 if position() <= furthest else 1
            furthest = max(furthest, position())
            if num_failed >= MAX_ATTEMPTS:
                where = f" after {furthest / 1e6:.1f} MB; run it again to go on there" if furthest else ""
                raise UnreachableError(f"{name}: the connection was lost{where} ({error})") from None
            time.sleep(min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (num_failed - 1)))


def _matches(record: dict[str, Any], stat: RemoteStat) -> bool:
    """Whether a copy is of the version that its server has now."""
    return bool(record) and record["version"] == stat.version and stat.size in (None, record["size"])


def _record_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.json")


def _lock(path: Path, timeout_s: float = -1) -> FileLock:
    """One thread of one process at a time downloads or evicts a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=timeout_s)
