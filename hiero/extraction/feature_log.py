"""FeatureLog: features of a video that is still being recorded, in an SQLite file with a row for each window.

Each window is a transaction: a process that is killed at any time loses at most the window that it was
writing. Windows that were skipped have no row. Files of the earlier format, which was a header line
and binary records, can still be read.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from hiero.backbones.registry import Backbone, find_backbone
from hiero.errors import InputError
from hiero.extraction.extractor import Thumbnail, Thumbnails, join_windows
from hiero.extraction.video_features import VideoFeatures
from hiero.storage.files import check_fits, parse_json

FORMATS = ("hiero recording 1", "hiero recording 2")
SQLITE_MAGIC = b"SQLite format 3\0"
SCHEMA = """
CREATE TABLE header (document TEXT NOT NULL);
CREATE TABLE windows (
    number INTEGER PRIMARY KEY, end_s REAL NOT NULL, features BLOB NOT NULL, thumbnails BLOB NOT NULL
);
"""
SYNC_EVERY = 16  # windows: about what may be lost when the power fails
MAX_HEADER_BYTES = 2**16
MAX_WINDOWS = 2**31
MAX_THUMBNAILS_BYTES = 2**22  # of a window
OLD_RECORD = struct.Struct("<4sQdII")  # mark, number, end, bytes of thumbnails, checksum
THUMBNAIL = struct.Struct("<QdI")  # segment, time, bytes of the picture


@dataclass(frozen=True)
class LogHeader:
    """What the rows of a log are."""

    backbones: tuple[str, ...]
    widths: tuple[int, ...]
    num_segments: int
    spacing_s: float
    source: str
    key: str = ""

    @classmethod
    def of(
        cls, backbones: Sequence[Backbone], num_segments: int, spacing_s: float, source: str, key: str = ""
    ) -> LogHeader:
        """The header for backbones that read together."""
        names, widths = tuple(b.name for b in backbones), tuple(b.width for b in backbones)
        return cls(names, widths, num_segments, spacing_s, source, key)

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and width of what each backbone gives for a window."""
        networks = [find_backbone(name) for name in self.backbones]
        return {network.name: (self.num_segments if network.per_frame else 1, network.width) for network in networks}

    @property
    def num_row_bytes(self) -> int:
        """Bytes of the features of a window."""
        return 4 * sum(rows * width for rows, width in self.shapes.values())

    @classmethod
    def from_json(cls, text: str | bytes, path: Path) -> LogHeader:
        """The reverse of `to_json`. Raises InputError where it is not the header of a recording."""
        try:
            document = parse_json(text)
            if document.pop("format") not in FORMATS:
                raise ValueError("unknown format")
            names = tuple(str(name) for name in document.pop("backbones"))
            widths = tuple(int(width) for width in document.pop("widths"))
            header = cls(names, widths, **document)
            if not names or header.num_segments not in (1, 2) or not 1e-3 < header.spacing_s < 1e3:
                raise ValueError("its numbers make no sense")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: not a recording of hiero watch ({error})") from error
        if tuple(width for _, width in header.shapes.values()) != widths:
            raise InputError(
                f"{path}: No installed backbones named {', '.join(names)} produce features of these widths."
            )
        return header

    def to_json(self) -> str:
        return json.dumps({"format": FORMATS[-1], **asdict(self)})


@dataclass(frozen=True)
class LogRecord:
    """One window."""

    index: int
    end_s: float
    rows: dict[str, Tensor]
    thumbnails: list[Thumbnail]


class LogInUseError(InputError):
    """Another process is writing the log."""


class FeatureLog:
    """A log that is being written. Two processes never write the same file."""

    def __init__(self, path: Path, header: LogHeader, is_same: Callable[[LogHeader], bool] = lambda _: False) -> None:
        self.path, self.header = path, header
        self.end_s, self.num_windows, self.num_done = 0.0, 0, 0
        self._done: set[int] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _writer_lock(path)
        try:
            self._lock.acquire()
        except Timeout:
            raise LogInUseError(f"{path}: another hiero watch is writing it; choose another folder with -o") from None
        try:
            self._resume(is_same)
            self._connection = _connect(path)
            self._connection.execute("PRAGMA journal_mode = PERSIST")
            self._connection.execute("PRAGMA synchronous = OFF")  # a camera does not wait; see SYNC_EVERY
            if not self.num_done:
                self._write_header()
        except BaseException:
            self._lock.release()
            raise

    def _resume(self, is_same: Callable[[LogHeader], bool]) -> None:
        """Take over the windows of an earlier run of the same recording; remove any other file."""
        try:
            header = read_header(self.path)
            if _is_intact(self.path) and replace(header, key=self.header.key) == self.header and is_same(header):
                self.header = header
                for record in read_records(self.path):
                    self._mark(record.index, record.end_s)
        except (InputError, sqlite3.Error):  # missing or damaged
            self._done.clear()
            self.end_s, self.num_windows, self.num_done = 0.0, 0, 0
        if not self.num_done:
            for suffix in ("", "-journal"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _write_header(self) -> None:
        self._connection.executescript(SCHEMA)
        self._connection.execute("INSERT INTO header VALUES (?)", [self.header.to_json()])

    def has(self, index: int) -> bool:
        """Whether a window has a record."""
        return index in self._done

    def append(
        self, index: int, end_s: float, rows: Mapping[str, Tensor], thumbnails: Sequence[Thumbnail] = ()
    ) -> None:
        """Add a window. Raises OSError where it cannot be written, for example on a full disk."""
        pictures = b"".join(THUMBNAIL.pack(t.segment, t.time_s, len(t.picture)) + t.picture for t in thumbnails)
        values = [rows[name].to(torch.float32).numpy().astype("<f4").tobytes() for name in self.header.backbones]
        window = (index, end_s, b"".join(values), pictures)
        try:
            self._connection.execute("INSERT OR REPLACE INTO windows VALUES (?, ?, ?, ?)", window)
        except sqlite3.OperationalError as error:
            code = errno.ENOSPC if error.sqlite_errorcode == sqlite3.SQLITE_FULL else errno.EIO
            raise OSError(code, os.strerror(code), str(self.path)) from error
        self._mark(index, end_s)
        if self.num_done % SYNC_EVERY == 0:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def _mark(self, index: int, end_s: float) -> None:
        if index + 1 >= self.num_windows:
            self.num_windows, self.end_s = index + 1, end_s
        self._done.add(index)
        self.num_done = len(self._done)

    def close(self) -> None:
        """Close the file, and let others have it."""
        if not self._lock.is_locked:
            return
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()
        Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()

    def __enter__(self) -> FeatureLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_records(path: Path) -> Iterator[LogRecord]:
    """Windows of a log, one in memory at a time."""
    header = read_header(path)
    records = _read_sqlite(path) if _is_sqlite(path) else _read_old_format(path, header)
    for index, end_s, features, thumbnails in records:
        if len(features) != header.num_row_bytes or not 0 <= index < MAX_WINDOWS or not np.isfinite(end_s):
            raise InputError(f"{path}: window {index} is damaged")
        rows, position = {}, 0
        for name, (num_rows, width) in header.shapes.items():
            values = np.frombuffer(features, "<f4", num_rows * width, position).astype(np.float32)
            rows[name] = torch.from_numpy(values.reshape(num_rows, width))
            position += values.nbytes
        yield LogRecord(index, end_s, rows, _parse_thumbnails(thumbnails))


def is_in_use(path: Path) -> bool:
    """Whether a process is writing a log."""
    if not path.is_file():
        return False
    try:
        with _writer_lock(path):
            return False
    except Timeout:
        return True


def read_header(path: Path) -> LogHeader:
    """What the rows of a log are. Raises InputError where it cannot be read."""
    try:
        if _is_sqlite(path):
            with closing(_connect(path)) as connection:
                row = connection.execute("SELECT document FROM header").fetchone()
            return LogHeader.from_json(row[0] if row else "", path)
        with path.open("rb") as file:
            return LogHeader.from_json(file.readline(MAX_HEADER_BYTES), path)
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def load_recording(path: Path) -> tuple[VideoFeatures, int]:
    """The features of a whole recording, and how many windows were skipped."""
    header = read_header(path)
    ends_s = {record.index: record.end_s for record in read_records(path)}
    if not ends_s:
        raise InputError(f"{path}: holds no window yet")
    num_windows = max(ends_s) + 1
    end_s = ends_s[num_windows - 1]
    check_fits(num_windows * header.num_row_bytes, f"{path}: its features")
    values = {name: np.empty((num_windows, *shape), dtype=np.float32) for name, shape in header.shapes.items()}
    is_done, thumbnails = np.zeros(num_windows, dtype=bool), {}
    for record in read_records(path):
        for name, array in values.items():
            array[record.index] = record.rows[name].numpy()
        is_done[record.index] = True
        thumbnails[record.index] = record.thumbnails
    # Skipped windows look like the one before them; those at the beginning like the first.
    before = np.maximum.accumulate(np.where(is_done, np.arange(num_windows), -1))
    before[before < 0] = int(is_done.argmax())
    for array in values.values():
        array[~is_done] = array[before[~is_done]]
    track = Thumbnails()
    for index in sorted(thumbnails):
        track.add(thumbnails[index])
    networks = [find_backbone(name) for name in header.backbones]
    rows = {name: torch.from_numpy(array.reshape(-1, array.shape[2])) for name, array in values.items()}
    features = join_windows(networks, rows, end_s, header.spacing_s)
    source = VideoFeatures(features, end_s, header.spacing_s, track.times_s, track.pictures)
    return source, num_windows - int(is_done.sum())


def _is_sqlite(path: Path) -> bool:
    """Whether a file is an SQLite database, not a recording of the earlier format."""
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except FileNotFoundError:
        return False


def _connect(path: Path) -> sqlite3.Connection:
    """Every statement is a transaction of its own; the calls come from one thread at a time."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _is_intact(path: Path) -> bool:
    """Whether a recording can be continued: not after a power failure that damaged it."""
    if not _is_sqlite(path):
        return False
    with closing(_connect(path)) as connection:
        return bool(connection.execute("PRAGMA quick_check").fetchone() == ("ok",))


def _read_sqlite(path: Path) -> Iterator[tuple[int, float, bytes, bytes]]:
    """Windows in their order; what follows a damaged place is left out."""
    with closing(_connect(path)) as connection, suppress(sqlite3.DatabaseError):
        yield from connection.execute("SELECT number, end_s, features, thumbnails FROM windows ORDER BY number")


def _read_old_format(path: Path, header: LogHeader) -> Iterator[tuple[int, float, bytes, bytes]]:
    """Whole records of a file of the earlier format; half a record at its end is left out."""
    size = header.num_row_bytes
    with path.open("rb") as file:
        file.readline(MAX_HEADER_BYTES)
        while len(head := file.read(OLD_RECORD.size)) == OLD_RECORD.size:
            _, index, end_s, num_picture_bytes, checksum = OLD_RECORD.unpack(head)
            payload = file.read(size + min(num_picture_bytes, MAX_THUMBNAILS_BYTES))
            if zlib.crc32(payload) != checksum:
                return
            yield index, end_s, payload[:size], payload[size:]


def _parse_thumbnails(data: bytes) -> list[Thumbnail]:
    out, position = [], 0
    while position + THUMBNAIL.size <= len(data):
        segment, time_s, size = THUMBNAIL.unpack_from(data, position)
        position += THUMBNAIL.size
        out.append(Thumbnail(segment, time_s, data[position : position + size]))
        position += size
    return out


def _writer_lock(path: Path) -> FileLock:
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=0)
