"""Videos elsewhere: a remote file is read through a copy of it under hiero's home, which is brought
when it is needed.

    cache/remote/KEY/.address           the folder that the files come from, without passwords
    cache/remote/KEY/kitchen.mp4        the copy, whole
    cache/remote/KEY/.kitchen.mp4.*     blocks of one that is not whole yet, what its server said, a lock

The path of the copy stands for the file everywhere, also while nothing of it is here: `copy_path`
makes it from an address, `fetch_copy` brings the bytes, `open_copy` reads a few of them,
`shown_path` is what people see. Files of one remote folder have copies in one folder, so that
chapters and transcripts are found beside each other.

Copies take no more than HIERO_REMOTE_CACHE_GB; those that were used longest ago make room.
Passwords and signatures of addresses stay in memory.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import shutil
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hiero.errors import InputError
from hiero.sources.remote_blocks import BLOCK_BYTES, PartialFile, part_path, remove_partial
from hiero.sources.remote_origins import (
    HTTP_SCHEMES,
    DeniedError,
    FsspecOrigin,
    LostConnectionError,
    Origin,
    RemoteChangedError,
    RemoteEntry,
    RemoteStat,
    has_magic,
    identity,
    is_address,
    open_origin,
    public_address,
    scheme_of,
)
from hiero.storage.cache import KEY_LENGTH, cache_folder, content_key
from hiero.storage.files import parse_json, write_text
from hiero.types import ProgressCallback, ProgressEvent, no_progress

KIND = "remote"  # of the cache
FOLDER_FILE = ".address"
DEFAULT_LIMIT_GB = 50.0
GB = 1e9
MAX_ATTEMPTS = 6  # without a single byte in between
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 15.0  # between attempts
MAX_CHANGES = 3  # of a file while it is read, before that is an error
STAT_AGE_S = 30.0  # for which what a server said is believed
MAX_NAME_BYTES = 200
COMPANION_SUFFIXES = (".srt", ".vtt", ".json")  # transcripts, and the sidecars of feature files
ARRAY_SUFFIXES = (".safetensors", ".pt", ".pth", ".npy", ".npz")
MAX_COMPANION_BYTES = 2**26
MIN_FREE_BYTES = 2**28  # of the disk, which copies leave alone

Result = TypeVar("Result")

_addresses: dict[tuple[str, str], str] = {}  # whole ones, by folder and name of the copy
_stats: dict[Path, tuple[float, RemoteStat]] = {}  # what servers said, and when
_lock = threading.Lock()


def as_path(source: Path | str) -> Path:
    """The file that a name or an address stands for: itself, or the copy of a remote one (which need
    not be there yet).
    """
    return copy_path(source) if isinstance(source, str) and is_address(source) else Path(source)


def copy_path(address: str) -> Path:
    """Where the copy of a remote file is, or will be. Nothing is read."""
    if scheme_of(address) == "file":
        return Path(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
    is_http = scheme_of(address) in HTTP_SCHEMES
    public, chain, rest = public_address(address).partition("::")
    folder_address, _, name = public.rpartition("/")
    if not name or (folder_address.endswith("/") and not chain):
        kind = "a folder, which cannot be listed over http; give its files one by one" if is_http else "no file"
        raise InputError(f"{public_address(address)}: is {kind}")
    query = identity(address)[len(public_address(address)) :]
    folder = (
        cache_folder(KIND) / hashlib.sha256(f"{folder_address}{query}{chain}{rest}".encode()).hexdigest()[:KEY_LENGTH]
    )
    local_name = _local_name(urllib.parse.unquote(name) if is_http else name)
    with _lock:
        # Two addresses of one file differ in what signs them: the last one is the one that still holds.
        if (folder.name, local_name) not in _addresses and not (folder / FOLDER_FILE).is_file():
            write_text(folder / FOLDER_FILE, f"{folder_address}\n{chain}{rest}\n")
        _addresses[folder.name, local_name] = address
    return folder / local_name


def _local_name(name: str) -> str:
    """A name that a file may have, and that is not hidden."""
    if len(name.encode()) > MAX_NAME_BYTES:
        suffix = Path(name).suffix if len(Path(name).suffix) < 12 else ""
        return hashlib.sha256(name.encode()).hexdigest()[:KEY_LENGTH] + suffix
    safe = "".join(c if c.isprintable() and c not in '/\\:*?"<>|' else urllib.parse.quote(c, safe="") for c in name)
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe


def find_remote(path: Path | str) -> RemoteFile | None:
    """The remote file that a path is the copy of; None for any other path."""
    path = Path(path)
    folder = path.parent
    if folder.parent.name != KIND or len(folder.name) != KEY_LENGTH:
        return None
    with _lock:
        address = _addresses.get((folder.name, path.name))
    if address is None:  # of another process, which alone knew passwords
        try:
            folder_address, chain = (folder / FOLDER_FILE).read_text(encoding="utf-8").split("\n")[:2]
        except (OSError, ValueError):
            return None
        name = urllib.parse.quote(path.name) if scheme_of(folder_address) in HTTP_SCHEMES else path.name
        address = f"{folder_address}/{name}{chain}"
    return RemoteFile(path, address)


def shown_path(path: Path | str) -> str:
    """A file as people know it, and as a corpus stores it: the address of a remote one, without
    passwords; else the path.
    """
    if isinstance(path, str) and is_address(path):
        return public_address(path)
    remote = find_remote(path)
    return str(path) if remote is None else remote.name


def show_addresses(text: str) -> str:
    """A message with addresses in place of the paths of copies."""
    if f"{os.sep}{KIND}{os.sep}" not in text:
        return text
    with _lock:
        known = sorted(_addresses.items(), key=lambda item: -len(item[0][1]))  # a name may be the beginning of another
    roots = {str(cache_folder(KIND)), str(cache_folder(KIND).resolve())}
    for (folder, name), address in known:
        if folder in text:
            for root in roots:
                text = text.replace(f"{root}{os.sep}{folder}{os.sep}{name}", public_address(address))
    return text


@contextmanager
def shown_addresses() -> Iterator[None]:
    """Errors of the block name addresses in place of the paths of copies."""
    try:
        yield
    except InputError as error:
        text = str(error)
        if (shown := show_addresses(text)) == text:
            raise
        raise InputError(shown) from error


def fetch_copy(path: Path, progress: ProgressCallback = no_progress) -> Path:
    """Bring a remote file here, unless its copy is whole and current; a path of any other file is
    given back as it is.
    """
    remote = find_remote(path)
    return path if remote is None else remote.fetch(progress)


def known_key(path: Path) -> str | None:
    """`content_key` of a file without bringing it: also of a copy that made room, if its server says
    that nothing has changed.
    """
    remote = find_remote(path)
    return content_key(path) if remote is None else remote.known_key()


def file_key(path: Path) -> str:
    """`content_key` of a file, which is brought where that is needed."""
    return known_key(path) or content_key(fetch_copy(path))


def open_copy(path: Path) -> str | RemoteReader:
    """What a decoder opens: the name of a file that is here, or a reader of a remote one that brings
    only what is looked at.
    """
    remote = None if path.is_file() else find_remote(path)
    if remote is None:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        return str(path)
    return remote.open()


def list_remote(address: str, suffixes: tuple[str, ...]) -> list[RemoteEntry]:
    """The files that an address stands for: itself, those below a folder (s3://bucket/videos/), or of
    a pattern (s3://bucket/*.mp4).
    """
    path = public_address(address).partition("::")[0]
    is_pattern = has_magic(path)
    if scheme_of(address) in HTTP_SCHEMES:
        if is_pattern or path.endswith("/"):
            raise InputError(
                f"{path}: folders and patterns cannot be listed over http; give the files one by one, or the bucket (s3://…)"
            )
        return [RemoteEntry(address, _file_name(path), RemoteStat(None, ""))]
    is_named = not is_pattern and not path.endswith("/")
    if is_named and (path.lower().endswith(suffixes) or not _attempt(FsspecOrigin(address).is_folder, path)):
        return [RemoteEntry(address, _file_name(path), RemoteStat(None, ""))]
    entries = _attempt(FsspecOrigin(address).find, path)
    visible = [entry for entry in entries if not any(part.startswith(".") for part in entry.name.split("/"))]
    selected = [entry for entry in visible if entry.name.lower().endswith(suffixes)]
    now = time.monotonic()
    for entry in selected:
        _stats[copy_path(entry.address)] = now, entry.stat
    return selected


def _file_name(path: str) -> str:
    name = path.rpartition("/")[2]
    return urllib.parse.unquote(name) if scheme_of(path) in HTTP_SCHEMES else name


def remote_exists(address: str) -> bool:
    """Whether there is a file or folder at an address that can be listed; False also where it cannot be asked."""
    try:
        return FsspecOrigin(address).is_folder() or FsspecOrigin(address).stat().size is not None
    except (InputError, OSError):
        return False


@dataclass(frozen=True)
class RemoteFile:
    """A remote file, and where its copy is."""

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
        """Its address as it may be shown and stored."""
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
        return self.copy_key is not None

    def exists(self) -> bool:
        """Whether to try to read it: the server is not asked."""
        return True

    def key(self) -> str:
        """Hash of the content; downloads it where that is not known."""
        return self.known_key() or content_key(self.fetch())

    def state(self) -> object:
        """Changes when another version is downloaded; a copy that is evicted changes nothing."""
        return self.copy_key

    def growth(self, max_age_s: float) -> tuple[object, ...]:
        """Size and version that the server reports."""
        stat = self.stat(max_age_s)
        return stat.size, stat.version

    def reader(self) -> Any:
        """What a decoder opens to probe the file without downloading all of it."""
        return str(self.path) if self.path.is_file() else self.open()

    @property
    def copy_key(self) -> str | None:
        """`content_key` of the copy that was whole last, also where it made room since; None where there was none."""
        record = self._read_record()
        return str(record["key"]) if record else None

    def stat(self, max_age_s: float | None = None) -> RemoteStat:
        """What its server says about it."""
        known = _stats.get(self.path)
        if known is not None and time.monotonic() - known[0] <= (STAT_AGE_S if max_age_s is None else max_age_s):
            return known[1]
        stat = _attempt(open_origin(self.address).stat, self.name)
        _stats[self.path] = time.monotonic(), stat
        return stat

    def known_key(self) -> str | None:
        """See the function of this name."""
        record = self._read_record()
        if not record:
            return None
        stat = self._current_stat(no_progress)
        return str(record["key"]) if stat is None or _is_of(record, stat) else None

    def fetch(self, progress: ProgressCallback = no_progress) -> Path:
        """Bring it here, unless the copy is whole and current; with it what lies beside it:
        transcripts, the sidecar of features.
        """
        self._fetch_bytes(progress)
        self.fetch_companions()
        return self.path

    def _fetch_bytes(self, progress: ProgressCallback) -> None:
        with _exclusive(self.path):
            for _ in range(MAX_CHANGES):
                stat = self._current_stat(progress)
                if stat is None or (self.path.is_file() and _is_of(self._read_record(), stat)):
                    return
                self.path.unlink(missing_ok=True)  # of another version
                self._check_room(stat)
                try:
                    self._transfer(stat, progress)
                except RemoteChangedError:
                    _stats.pop(self.path, None)
                    continue
                record = {"size": self.path.stat().st_size, "version": stat.version, "key": content_key(self.path)}
                write_text(_record_path(self.path), json.dumps(record))
                return
        raise InputError(f"{self.name}: changed again and again while it was read; read it when it is whole")

    def _current_stat(self, progress: ProgressCallback) -> RemoteStat | None:
        """What its server says; None where that cannot be told now and the copy, which is whole, has to do."""
        try:
            return self.stat()
        except (DeniedError, _UnreachableError) as error:
            if not self.path.is_file() or not self._read_record():
                raise
            progress(ProgressEvent("message", message=f"{error}; the copy that is here is read"))
            return None

    def _transfer(self, stat: RemoteStat, progress: ProgressCallback) -> None:
        """Bring what is missing, and give the copy its name."""
        origin, label = open_origin(self.address), self.path.name
        if stat.size is None or not stat.has_ranges:
            self._transfer_whole(origin, stat, progress)
            return
        partial = PartialFile.open(self.path, stat)
        progress(ProgressEvent("download", label, partial.num_present, stat.size))
        while (missing := partial.next_missing()) is not None:
            self._bring(origin, partial, missing, progress)
        if _attempt(origin.stat, self.name) != stat:  # somebody wrote to it while its last bytes were on the way
            raise RemoteChangedError
        partial.finish()

    def _bring(
        self, origin: Origin, partial: PartialFile, missing: tuple[int, int], progress: ProgressCallback
    ) -> None:
        """Bring a range of blocks; after a lost connection from the very byte on."""
        start, stop = missing
        position, before = start, partial.num_present

        def advance(written: int) -> None:
            nonlocal position
            position = written
            progress(ProgressEvent("download", self.path.name, before + written - start, partial.size))

        def attempt() -> None:
            first, chunks = origin.read(position, stop, partial.stat)
            if first != position:  # ranges were there a moment ago
                chunks = _skip(chunks, position - first)
            partial.write(start, position, chunks, advance)
            if position < stop:
                raise LostConnectionError("the connection ended early")

        _attempt(attempt, self.name, lambda: position)

    def _transfer_whole(self, origin: Origin, stat: RemoteStat, progress: ProgressCallback) -> None:
        """Bring a file that cannot be read in parts: after a lost connection from its beginning."""
        furthest = 0

        def attempt() -> None:
            nonlocal furthest
            written = 0
            _, chunks = origin.read(0, None, stat)
            with part_path(self.path).open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                    written += len(chunk)
                    furthest = max(furthest, written)
                    progress(ProgressEvent("download", self.path.name, written, stat.size))
                file.flush()
                os.fsync(file.fileno())

        remove_partial(self.path)
        _attempt(attempt, self.name, lambda: furthest)
        part_path(self.path).replace(self.path)

    def open(self) -> str | RemoteReader:
        """What a decoder opens: a reader that brings only what is looked at, or the copy where it has to be whole."""
        stat = self.stat()
        if stat.size is None or not stat.has_ranges:
            return str(self.fetch())
        return RemoteReader(self, stat)

    def read_range(self, start: int, stop: int, stat: RemoteStat) -> bytes:
        """Some bytes; the blocks that they are in stay for the copy."""
        with _exclusive(self.path):
            if self.path.is_file():
                file = self.path
            else:
                partial = PartialFile.open(self.path, stat)
                try:
                    while (missing := partial.next_missing(start, stop)) is not None:
                        self._bring(open_origin(self.address), partial, missing, no_progress)
                except RemoteChangedError:
                    _stats.pop(self.path, None)
                    raise InputError(f"{self.name}: changed while it was read; read it when it is whole") from None
                file = part_path(self.path)
            with file.open("rb") as opened:
                opened.seek(start)
                return opened.read(stop - start)

    def fetch_companions(self) -> None:
        """Bring transcripts that lie beside it, or the sidecar of features; one that is gone there goes here too.

        What cannot be had must not cost the video.
        """
        with suppress(InputError, OSError):
            for path, address in self._companions().items():
                if address is None:
                    path.unlink(missing_ok=True)
                else:
                    RemoteFile(copy_path(address), address)._fetch_bytes(no_progress)

    def _companions(self) -> dict[Path, str | None]:
        """Copies of what lies beside it, and their addresses; None where it is there no more."""
        if scheme_of(self.address) in HTTP_SCHEMES:
            if self.path.suffix.lower() not in ARRAY_SUFFIXES:
                return {}
            first, mark, query = self.address.partition("?")
            return {self.path.with_name(f"{self.path.name}.json"): f"{first}.json{mark}{query}"}
        first, chain, rest = self.address.partition("::")
        folder, _, name = first.rpartition("/")
        stem = name.rpartition(".")[0] or name
        entries = FsspecOrigin(f"{folder}/{stem}.*{chain}{rest}").find() if not has_magic(stem) else []
        companions: dict[Path, str | None] = {
            copy_path(entry.address): entry.address
            for entry in entries
            if entry.name.lower().endswith(COMPANION_SUFFIXES)
            and (entry.stat.size or 0) <= MAX_COMPANION_BYTES
            and entry.stat.size
        }
        for local in self.path.parent.glob(f"{glob.escape(Path(self.path.name).stem)}.*"):
            if local.suffix.lower() in COMPANION_SUFFIXES and _record_path(local).is_file():
                companions.setdefault(local, None)
        return companions

    def _check_room(self, stat: RemoteStat) -> None:
        """Let copies that were used longest ago make room. Raises InputError where it cannot be enough."""
        size, limit = stat.size or 0, limit_bytes()
        if size > limit:
            raise InputError(
                f"{self.name}: {size / GB:.1f} GB do not fit into the {limit / GB:g} GB that copies of remote "
                "videos may take; "
                f"set HIERO_REMOTE_CACHE_GB to {size / GB + 1:.0f} or more"
            )
        make_room(limit - size, keep=self.path)
        here = _disk_bytes(part_path(self.path))
        free = shutil.disk_usage(self.path.parent).free
        if size - here > free - MIN_FREE_BYTES:
            make_room(0, keep=self.path)
            free = shutil.disk_usage(self.path.parent).free
        if size - here > free - MIN_FREE_BYTES:
            raise InputError(
                f"{self.name}: {size / GB:.1f} GB do not fit on the disk, {free / GB:.1f} GB are free; make room, "
                "or set "
                "HIERO_HOME to a folder on another one"
            )

    def _read_record(self) -> dict[str, Any]:
        """What is known of the copy that was whole last; empty where there was none."""
        with suppress(OSError, ValueError):
            record = parse_json(_record_path(self.path).read_bytes())
            if isinstance(record, dict) and {"size", "version", "key"} <= record.keys():
                return record
        return {}


class RemoteReader(io.RawIOBase):
    """A remote file as a decoder opens it: only the blocks that are read are brought."""

    def __init__(self, remote: RemoteFile, stat: RemoteStat) -> None:
        self._remote, self._stat, self._size = remote, stat, PartialFile.size_of(stat)
        self._position = 0
        self._block: tuple[int, bytes] = (-1, b"")

    @property
    def name(self) -> str:
        """As a decoder guesses the format by it."""
        return self._remote.path.name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.RawIOBase.seek`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase.readinto`. Fewer bytes than asked for are read where a block ends."""
        number = self._position // BLOCK_BYTES
        begin, end = number * BLOCK_BYTES, min(self._size, (number + 1) * BLOCK_BYTES)
        if self._position >= self._size:
            return 0
        if self._block[0] != number:
            self._block = number, self._remote.read_range(begin, end, self._stat)
        data = self._block[1][self._position - begin :][: len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def limit_bytes() -> int:
    """What copies of remote files may take together. Raises InputError where HIERO_REMOTE_CACHE_GB
    is not a number.
    """
    text = os.environ.get("HIERO_REMOTE_CACHE_GB", "")
    try:
        limit = float(text or DEFAULT_LIMIT_GB)
        if not 0 < limit < float("inf"):
            raise ValueError
    except ValueError:
        raise InputError(f"HIERO_REMOTE_CACHE_GB is a number of gigabytes, got {text!r}") from None
    return int(limit * GB)


def make_room(limit: int, keep: Path | None = None) -> None:
    """Remove the copies that were used longest ago until the others take no more than so many bytes."""
    sizes: dict[Path, int] = {}
    used_s: dict[Path, float] = {}
    for lock in cache_folder(KIND).glob("*/.*.lock"):
        path = lock.with_name(lock.name[1 : -len(".lock")])
        with suppress(OSError):
            sizes[path] = _disk_bytes(path) + _disk_bytes(part_path(path))
            used_s[path] = lock.stat().st_mtime
    total = sum(size for path, size in sizes.items() if path != keep)
    for path in sorted(used_s, key=lambda path: used_s[path]):
        if total <= limit:
            return
        if path == keep or not sizes[path]:
            continue
        with _exclusive(path, wait=False) as is_free:
            if is_free:  # nobody is bringing it just now
                path.unlink(missing_ok=True)
                remove_partial(path)
                total -= sizes[path]


def _disk_bytes(path: Path) -> int:
    """What a file takes on the disk, where holes take nothing; 0 where it is not there."""
    return path.stat().st_blocks * 512 if path.is_file() else 0


class _UnreachableError(InputError):
    """Nobody answered, however often it was tried."""


def _attempt(work: Callable[[], Result], name: str, position: Callable[[], int] = lambda: 0) -> Result:
    """Try again after a lost connection, each time a little later; as long as bytes arrive it goes on."""
    num_failed, furthest = 0, position()
    while True:
        try:
            return work()
        except LostConnectionError as error:
            num_failed = num_failed + 1 if position() <= furthest else 1
            furthest = max(furthest, position())
            if num_failed >= MAX_ATTEMPTS:
                where = f" after {furthest / 1e6:.1f} MB; run it again to go on there" if furthest else ""
                raise _UnreachableError(f"{name}: the connection was lost{where} ({error})") from None
            time.sleep(min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (num_failed - 1)))


def _skip(chunks: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    """Chunks without their first bytes."""
    for chunk in chunks:
        if num_bytes < len(chunk):
            yield chunk[num_bytes:]
        num_bytes = max(0, num_bytes - len(chunk))


def _is_of(record: dict[str, Any], stat: RemoteStat) -> bool:
    """Whether a copy is of the version that its server has now."""
    return bool(record) and record["version"] == stat.version and stat.size in (None, record["size"])


def _record_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.json")


@contextmanager
def _exclusive(path: Path, wait: bool = True) -> Iterator[bool]:
    """One thread of one process at a time brings a file; the time of its lock is when it was used last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock_path = path.with_name(f".{path.name}.lock")
    with lock_path.open("a") as lock:
        is_free = True
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on this system; copies still appear whole
            pass
        except BlockingIOError:
            is_free = False
        if wait:
            os.utime(lock_path)
        yield is_free
