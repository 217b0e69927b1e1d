"""FeatureLog: features of a video that is still being recorded, appended to a file window by window.

The file begins with a line of JSON that names the backbones. A record for each window follows: its
number, when it ends, what each backbone gave for it in single precision, and thumbnails. A process
that is killed leaves at most half a record at the end, which is left out when the file is read:
seconds are lost, not hours. Windows that were skipped have no record.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from hiero.backbones.registry import Backbone, find_backbone
from hiero.errors import InputError
from hiero.extraction.extractor import Thumbnail, Thumbnails, join_windows
from hiero.extraction.video_features import VideoFeatures
from hiero.storage.files import parse_json
from hiero.storage.memory import check_fits

FORMAT = "hiero recording 1"
MAX_HEADER_BYTES = 2**16
MAX_WIDTH = 2**16
MAX_THUMBNAILS_BYTES = 2**22  # of a window
MAX_WINDOWS = 2**31
# its mark, number of the window, when it ends, bytes of thumbnails, checksum of what follows
RECORD = struct.Struct("<4sQdII")
MARK = b"wind"
PICTURE = struct.Struct("<QdI")  # segment, time, bytes of the picture
SYNC_EVERY = 16  # records: what may be lost when the power fails


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
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and width of what each backbone gives for a window."""
        networks = [find_backbone(name) for name in self.backbones]
        return [(self.num_segments if network.per_frame else 1, network.width) for network in networks]

    @classmethod
    def from_line(cls, line: bytes, path: Path) -> LogHeader:
        """The reverse of `to_line`. Raises InputError where it is not the header of a recording."""
        try:
            document = parse_json(line)
            if document.pop("format") != FORMAT:
                raise ValueError("another format")
            header = cls(
                tuple(str(name) for name in document["backbones"]),
                tuple(int(width) for width in document["widths"]),
                int(document["num_segments"]),
                float(document["spacing_s"]),
                str(document["source"]),
                str(document["key"]),
            )
            is_valid = 0 < len(header.backbones) == len(header.widths) and header.num_segments in (1, 2)
            if (
                not is_valid
                or not 1e-3 < header.spacing_s < 1e3
                or not all(0 < width <= MAX_WIDTH for width in header.widths)
            ):
                raise ValueError("it makes no sense")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: not a recording of hiero watch ({error})") from error
        if [width for _, width in header.shapes] != list(header.widths):
            raise InputError(f"{path}: its features are as wide as those of no backbone here that is called so")
        return header

    def to_line(self) -> bytes:
        """A line of JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode() + b"\n"


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
        self._done = bytearray()  # a byte for each window: half an hour has 900
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = path.open("a+b")
        try:
            _lock(self._file, path)
            position = self._resume(is_same)
            self._file.truncate(position)
            if not position:
                self._file.write(header.to_line())
                self._file.flush()
        except BaseException:
            self._file.close()
            raise

    def _resume(self, is_same: Callable[[LogHeader], bool]) -> int:
        """Where the last whole record of the same recording ends; 0 where there is none."""
        self._file.seek(0)
        try:
            header = LogHeader.from_line(self._file.readline(MAX_HEADER_BYTES), self.path)
        except InputError:  # empty, damaged, or killed while the header was written
            return 0
        if replace(header, key=self.header.key) != self.header or not is_same(header):
            return 0
        self.header = header
        position = self._file.tell()
        for record, end in _read_records(self._file, header):
            self._mark(record.index, record.end_s)
            position = end
        return position

    def has(self, index: int) -> bool:
        """Whether a window has a record."""
        return index < len(self._done) and bool(self._done[index])

    def append(
        self, index: int, end_s: float, rows: Mapping[str, Tensor], thumbnails: Sequence[Thumbnail] = ()
    ) -> None:
        """Add a window."""
        pictures = b"".join(PICTURE.pack(t.segment, t.time_s, len(t.picture)) + t.picture for t in thumbnails)
        values = [
            rows[name].to(torch.float32).contiguous().numpy().astype("<f4").tobytes() for name in self.header.backbones
        ]
        payload = b"".join(values) + pictures
        position = self._file.seek(0, os.SEEK_END)
        try:
            self._file.write(RECORD.pack(MARK, index, end_s, len(pictures), zlib.crc32(payload)) + payload)
            self._file.flush()
            if self.num_done % SYNC_EVERY == 0:
                os.fsync(self._file.fileno())
        except OSError:
            with suppress(OSError):
                self._file.truncate(position)
            raise
        self._mark(index, end_s)

    def _mark(self, index: int, end_s: float) -> None:
        if index >= len(self._done):
            self._done.extend(bytes(index + 1 - len(self._done)))
        if index + 1 >= self.num_windows:
            self.num_windows, self.end_s = index + 1, end_s
        self.num_done += not self._done[index]
        self._done[index] = 1

    def close(self) -> None:
        """Write what is buffered, and let others have the file."""
        self._file.close()

    def __enter__(self) -> FeatureLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_records(path: Path) -> Iterator[LogRecord]:
    """Windows of a log in the order they were written, one in memory at a time; half a record at
    its end is left out.
    """
    with path.open("rb") as file:
        header = LogHeader.from_line(file.readline(MAX_HEADER_BYTES), path)
        for record, _ in _read_records(file, header):
            yield record


def is_in_use(path: Path) -> bool:
    """Whether a process is writing a log."""
    try:
        with path.open("rb") as file:
            _lock(file, path)
    except LogInUseError:
        return True
    except OSError:
        return False
    return False


def read_header(path: Path) -> LogHeader:
    """What the rows of a log are. Raises InputError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return LogHeader.from_line(file.readline(MAX_HEADER_BYTES), path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def load_recording(path: Path) -> tuple[VideoFeatures, int]:
    """The features of a whole recording."""
    header = read_header(path)
    last, end_s = -1, 0.0
    for record in read_records(path):
        if record.index >= last:
            last, end_s = record.index, record.end_s
    if last < 0:
        raise InputError(f"{path}: holds no window yet")
    num_windows = last + 1
    check_fits(4 * num_windows * sum(rows * width for rows, width in header.shapes), f"{path}: its features")
    values = {
        name: np.empty((num_windows, rows, width), dtype=np.float32)
        for name, (rows, width) in zip(header.backbones, header.shapes, strict=True)
    }
    is_done, thumbnails = np.zeros(num_windows, dtype=bool), []
    for record in read_records(path):
        for name, array in values.items():
            array[record.index] = record.rows[name].numpy()
        is_done[record.index] = True
        if record.thumbnails:
            thumbnails.append((record.index, record.thumbnails))
    # Skipped windows look like the one before them; those at the beginning like the first.
    before = np.maximum.accumulate(np.where(is_done, np.arange(num_windows), -1))
    before[before < 0] = int(is_done.argmax())
    for array in values.values():
        array[~is_done] = array[before[~is_done]]
    track = Thumbnails()
    for _, of_window in sorted(thumbnails, key=lambda item: item[0]):
        track.add(of_window)
    networks = [find_backbone(name) for name in header.backbones]
    rows = {name: torch.from_numpy(array.reshape(-1, array.shape[2])) for name, array in values.items()}
    features = join_windows(networks, rows, end_s, header.spacing_s)
    source = VideoFeatures(features, end_s, header.spacing_s, track.times_s, track.pictures)
    return source, num_windows - int(is_done.sum())


def _read_records(file: BinaryIO, header: LogHeader) -> Iterator[tuple[LogRecord, int]]:
    """Whole records from where the file is, each with the position of its end."""
    shapes = header.shapes
    num_row_bytes = 4 * sum(rows * width for rows, width in shapes)
    while True:
        head = file.read(RECORD.size)
        if len(head) < RECORD.size:
            return
        mark, index, end_s, num_picture_bytes, checksum = RECORD.unpack(head)
        if mark != MARK or index >= MAX_WINDOWS or num_picture_bytes > MAX_THUMBNAILS_BYTES or not np.isfinite(end_s):
            return
        payload = file.read(num_row_bytes + num_picture_bytes)
        if len(payload) < num_row_bytes + num_picture_bytes or zlib.crc32(payload) != checksum:
            return
        rows, position = {}, 0
        for name, (num_rows, width) in zip(header.backbones, shapes, strict=True):
            values = (
                np.frombuffer(payload, "<f4", num_rows * width, position).astype(np.float32).reshape(num_rows, width)
            )
            rows[name], position = torch.from_numpy(values), position + values.nbytes
        yield LogRecord(index, end_s, rows, _parse_thumbnails(payload[position:])), file.tell()


def _parse_thumbnails(data: bytes) -> list[Thumbnail]:
    out, position = [], 0
    while position + PICTURE.size <= len(data):
        segment, time_s, size = PICTURE.unpack_from(data, position)
        position += PICTURE.size
        out.append(Thumbnail(segment, time_s, data[position : position + size]))
        position += size
    return out


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep other processes out. Where the system has no such locks, they are not kept out."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise LogInUseError(f"{path}: another hiero watch is writing it; choose another folder with -o") from error
