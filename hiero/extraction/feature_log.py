"""FeatureLog: features of a video that is still being recorded, in an SQLite file with a row for each window.

Each window is a transaction: a process that is killed at any time loses at most the window that it was
writing, and a power failure at most what was written since the last checkpoint of SQLite. Windows that
were skipped have no row.
"""

from __future__ import annotations

import errno
import json
import math
import os
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from hiero.backbones.registry import find_backbone
from hiero.errors import InputError
from hiero.extraction.extractor import Thumbnail, Thumbnails, join_windows
from hiero.extraction.video_features import VideoFeatures
from hiero.storage.files import check_fits, parse_json, path_beside

FORMAT = "hiero recording 2"
# A write-ahead log needs no sync for each window and survives a power failure.
SETUP = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 100;
CREATE TABLE IF NOT EXISTS windows (
    number INTEGER PRIMARY KEY, end_s REAL NOT NULL, features BLOB NOT NULL, thumbnails BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS header (document TEXT NOT NULL);
"""
MAX_WINDOWS = 2**31
THUMBNAIL = struct.Struct("<QdI")  # segment, time, bytes of the picture


@dataclass(frozen=True)
class LogHeader:
    """Which backbones produced the rows of a log, from which source, and how."""

    backbones: tuple[str, ...]
    num_segments: int
    spacing_s: float
    source: str
    key: str = ""

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and width of the features of a window, for each backbone."""
        networks = [find_backbone(name) for name in self.backbones]
        return {network.name: (self.num_segments if network.per_frame else 1, network.width) for network in networks}

    @property
    def num_row_bytes(self) -> int:
        """Bytes of the features of a window."""
        return 4 * sum(rows * width for rows, width in self.shapes.values())


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
        """Open a log. Windows of an existing log are kept if `is_same` accepts its header."""
        self.path, self.header = path, header
        self.end_s, self.num_windows = 0.0, 0
        self._done: set[int] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _writer_lock(path)
        try:
            self._lock.acquire()
        except Timeout:
            raise LogInUseError(f"{path}: another hiero watch is writing it. Choose another folder with -o.") from None
        try:
            if not self._resume(is_same):
                for suffix in ("", "-wal", "-shm", "-journal"):
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
            self._connection = _connect(path, "rwc")
            self._connection.executescript(SETUP)
            if not self._done:
                document = json.dumps({"format": FORMAT, **asdict(self.header)})
                self._connection.execute("INSERT INTO header VALUES (?)", [document])
        except BaseException as error:
            self._lock.release()
            if isinstance(error, sqlite3.DatabaseError):
                raise InputError(f"{path}: is damaged ({error}). Choose another folder with -o.") from error
            raise

    @property
    def num_done(self) -> int:
        """Number of windows in the log."""
        return len(self._done)

    def _resume(self, is_same: Callable[[LogHeader], bool]) -> bool:
        """Keep the windows of an earlier run of the same recording, if there are any."""
        try:
            header = read_header(self.path)
            if replace(header, key=self.header.key) != self.header or not is_same(header):
                return False
            for index, end_s in [(record.index, record.end_s) for record in read_records(self.path)]:
                self._mark(index, end_s)
        except InputError:  # missing, damaged, or of another version
            return False
        self.header = header
        return bool(self._done)

    def has(self, index: int) -> bool:
        """Whether a window is in the log."""
        return index in self._done

    def append(
        self, index: int, end_s: float, rows: Mapping[str, Tensor], thumbnails: Sequence[Thumbnail] = ()
    ) -> None:
        """Add a window. Raises OSError if it cannot be written, for example on a full disk."""
        pictures = b"".join(THUMBNAIL.pack(t.segment, t.time_s, len(t.picture)) + t.picture for t in thumbnails)
        values = [rows[name].to(torch.float32).numpy().astype("<f4").tobytes() for name in self.header.backbones]
        features = b"".join(values)
        window = (index, end_s, features, pictures, _checksum(index, end_s, features, pictures))
        try:
            self._connection.execute("INSERT OR REPLACE INTO windows VALUES (?, ?, ?, ?, ?)", window)
        except sqlite3.DatabaseError as error:
            code = errno.ENOSPC if error.sqlite_errorcode == sqlite3.SQLITE_FULL else errno.EIO
            raise OSError(code, os.strerror(code), str(self.path)) from error
        self._mark(index, end_s)

    def _mark(self, index: int, end_s: float) -> None:
        if index + 1 >= self.num_windows:
            self.num_windows, self.end_s = index + 1, end_s
        self._done.add(index)

    def close(self) -> None:
        """Close the file and release its lock."""
        if not self._lock.is_locked:
            return
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()
        Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()


def read_header(path: Path) -> LogHeader:
    """Read the header of a log. Raises InputError if it cannot be read."""
    text = next(_query(path, "SELECT document FROM header"), ("",))[0]
    try:
        document = parse_json(text)
        document.pop("widths", None)  # of earlier versions
        if document.pop("format") != FORMAT:
            raise ValueError("unknown format")
        header = LogHeader(**document | {"backbones": tuple(document["backbones"])})
        if not header.num_row_bytes or header.num_segments not in (1, 2) or not 1e-3 < header.spacing_s < 1e3:
            raise ValueError("invalid numbers in its header")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a recording of hiero watch ({error})") from error
    return header


def read_records(path: Path) -> Iterator[LogRecord]:
    """Windows of a log, one in memory at a time. Damaged windows are left out as if they had been skipped."""
    header = read_header(path)
    shapes = header.shapes
    ends = np.cumsum([num_rows * width for num_rows, width in shapes.values()])
    statement = "SELECT number, end_s, features, thumbnails, checksum FROM windows ORDER BY number"
    for index, end_s, features, pictures, checksum in _query(path, statement):
        is_typed = isinstance(end_s, float) and isinstance(features, bytes) and isinstance(pictures, bytes)
        if not is_typed or _checksum(index, end_s, features, pictures) != checksum:
            continue
        if len(features) != header.num_row_bytes:
            names = ", ".join(header.backbones)
            raise InputError(f"{path}: no installed backbones named {names} produce features of these widths")
        if not 0 <= index < MAX_WINDOWS or not math.isfinite(end_s):
            raise InputError(f"{path}: window {index} is damaged")
        values = np.split(np.frombuffer(features, "<f4").astype(np.float32), ends[:-1])
        rows = {
            name: torch.from_numpy(part.reshape(shape))
            for (name, shape), part in zip(shapes.items(), values, strict=True)
        }
        yield LogRecord(index, end_s, rows, list(_parse_thumbnails(pictures)))


def load_recording(path: Path) -> tuple[VideoFeatures, int]:
    """The features of a whole recording, and the number of skipped windows."""
    header = read_header(path)
    records = {record.index: record for record in read_records(path)}
    if not records:
        raise InputError(f"{path}: contains no windows yet")
    indices = sorted(records)
    num_windows, end_s = indices[-1] + 1, records[indices[-1]].end_s
    check_fits(num_windows * header.num_row_bytes, f"{path}: its features")
    # Skipped windows repeat the one before them; those at the beginning repeat the first.
    shown = np.searchsorted(indices, np.arange(num_windows), side="right") - 1
    windows = [records[indices[position]] for position in np.maximum(shown, 0)]
    rows = {name: torch.cat([window.rows[name] for window in windows]) for name in header.backbones}
    track = Thumbnails()
    for index in indices:
        track.add(records[index].thumbnails)
    features = join_windows([find_backbone(name) for name in header.backbones], rows, end_s, header.spacing_s)
    source = VideoFeatures(features, end_s, header.spacing_s, track.times_s, track.pictures)
    return source, num_windows - len(records)


def is_in_use(path: Path) -> bool:
    """Whether a process is writing a log."""
    try:
        with _writer_lock(path):
            return False
    except Timeout:
        return True


def _writer_lock(path: Path) -> FileLock:
    return FileLock(path_beside(path, ".lock", "."), timeout=0)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Every statement is a transaction of its own; only one thread at a time makes calls."""
    address = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _query(path: Path, statement: str) -> Iterator[tuple[Any, ...]]:
    """Rows of a query. Raises InputError if the file is missing, damaged, or of an earlier version."""
    try:
        with closing(_connect(path, "rw")) as connection:
            yield from connection.execute(statement)
    except sqlite3.Error as error:
        raise InputError(f"{path}: is not a recording of hiero watch, or is damaged ({error})") from error


def _checksum(index: int, end_s: float, features: bytes, pictures: bytes) -> int:
    return zlib.crc32(f"{index} {end_s}".encode() + features + pictures)


def _parse_thumbnails(data: bytes) -> Iterator[Thumbnail]:
    while len(data) >= THUMBNAIL.size:
        segment, time_s, size = THUMBNAIL.unpack_from(data)
        yield Thumbnail(segment, time_s, data[THUMBNAIL.size : THUMBNAIL.size + size])
        data = data[THUMBNAIL.size + size :]
