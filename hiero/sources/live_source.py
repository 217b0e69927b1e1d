"""Video that is still being recorded: a file that grows, a pipe, a camera, or an address on the network.

Each gives FFmpeg containers through PyAV. What cannot be read twice is said by `can_reopen`; what
loses packets by `is_lossy`. Addresses may hold passwords: messages only ever have their `name`,
which is without.
"""

from __future__ import annotations

import functools
import os
import re
import select
import stat
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from hiero.errors import InputError

PROTOCOLS = ("rtsp", "rtsps", "rtmp", "rtmps", "http", "https", "udp", "rtp", "srt", "tcp")
FILE_IDLE_S = 10.0  # a file that did not grow for so long is taken for finished
ADDRESS_IDLE_S = 120.0  # so long an address or a camera may be away before the recording ends
READ_AHEAD_BYTES = 2**15  # that FFmpeg has read and not decoded
MIN_MEASURED_BYTES = 4 * READ_AHEAD_BYTES  # before these it is not known how many bytes a second has
POLL_S = 0.1  # how often a file is looked at for more
CLOSED_S = 1.0  # a file whose writer has gone and that did not grow for so long is finished
OPEN_TIMEOUT_S, READ_TIMEOUT_S = 20.0, 10.0  # of addresses and cameras
MAX_REPLAY_BYTES = 2**27  # of the beginning of a pipe that can be read a second time
MAX_BOXES_BYTES = 2**16  # of the beginning of an MP4 file, where it says whether it can be read while it is written


class LiveSource:
    """Where a recording comes from."""

    can_reopen = False
    is_lossy = False
    is_file = False
    keeps_pace = False

    def __init__(self, name: str, idle_s: float | None) -> None:
        self.name, self.idle_s = name, idle_s
        self.stop = threading.Event()
        self.began_at_s: float | None = None
        self.num_waits = 0

    def __str__(self) -> str:
        return self.name

    def open(self) -> Any:
        """An FFmpeg container."""
        raise NotImplementedError

    def unread_s(self, decoded_s: float) -> float:
        """Seconds of video that are there already and not yet read, estimated."""
        del decoded_s
        return 0.0


def open_live_source(text: str, idle_s: float | None = None) -> LiveSource:
    """A source by its name."""
    if idle_s is not None and not idle_s > 0:
        raise InputError(f"--idle-s must be positive, got {idle_s}")
    if text == "-":
        return Pipe("standard input", sys.stdin.fileno(), idle_s)
    if "://" in text:
        return Address(text, ADDRESS_IDLE_S if idle_s is None else idle_s)
    if text.isdecimal():
        text = f"/dev/video{text}"
    path = Path(text)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if text.startswith("/dev/video"):
            cameras = ", ".join(sorted(str(camera) for camera in Path("/dev").glob("video*"))) or "none"
            raise InputError(f"{text}: no such camera; there are: {cameras}") from error
        reason = "no such file; start the recording first" if isinstance(error, FileNotFoundError) else error.strerror
        raise InputError(f"{text}: {reason}") from error
    if stat.S_ISCHR(mode):
        return Camera(path, ADDRESS_IDLE_S if idle_s is None else idle_s)
    if stat.S_ISFIFO(mode):
        return Pipe(text, os.open(path, os.O_RDONLY), idle_s)
    if not stat.S_ISREG(mode):
        raise InputError(f"{text}: not a file, a pipe or a camera")
    return GrowingFile(path, FILE_IDLE_S if idle_s is None else idle_s)


def hide_credentials(address: str) -> str:
    """An address as it may be shown: without user, password, and what follows a question mark."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # no port, no host that could be
        return f"{address.split('://', 1)[0]}://…"
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}{parts.path}"


class GrowingFile(LiveSource):
    """A file that another program is writing: MPEG-TS, Matroska, or fragmented MP4.

    It is over when it did not grow for `idle_s`, or its writer was seen and has closed it. Read
    through a non-seekable reader, so that FFmpeg never looks for an end which is not there yet.
    """

    can_reopen = True
    is_file = True

    def __init__(self, path: Path, idle_s: float) -> None:
        super().__init__(str(path), idle_s)
        self.path = path
        self.position = 0
        self.reached_end = False
        self.began_at_s = monotonic() if path.stat().st_size == 0 else None
        self._offset = 0  # of the container that was opened last
        self._writer_seen = False
        self._writer_checked_s = 0.0
        self._has_writer = False

    def open(self) -> Any:
        """See `LiveSource.open`."""
        try:
            self._check_mp4()
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise InputError(f"{self.name}: cannot be read ({error.strerror})") from error
        reader = _Reader(functools.partial(self._read, descriptor))
        weakref.finalize(reader, os.close, descriptor)  # PyAV closes the container, not what it reads through
        kinds = "is it a video, and of a kind that can be read while it is written (.ts, .mkv, fragmented .mp4)?"
        return _open_container(reader, self.name, hint=f"; {kinds}")

    @property
    def is_read_whole(self) -> bool:
        """Whether the recording was over, and nothing came after that."""
        try:
            return self.reached_end and self.path.stat().st_size == self.position
        except OSError:
            return False

    def unread_s(self, decoded_s: float) -> float:
        """See `LiveSource.unread_s`: by the bytes that a second had so far. None of the first, which say little."""
        if self._offset < MIN_MEASURED_BYTES:
            return 0.0
        try:
            num_unread = self.path.stat().st_size - self._offset
        except OSError:
            return 0.0
        return max(0, num_unread) * decoded_s / (self._offset - READ_AHEAD_BYTES)

    def _read(self, descriptor: int, size: int) -> bytes:
        """Up to `size` bytes; waits at the end of the file for more. Empty when the recording is over."""
        waiting_since_s, offset = monotonic(), os.lseek(descriptor, 0, os.SEEK_CUR)
        while not self.stop.is_set() or offset < self.position:  # what was read once, to try it, is read again
            self._look_for_writer()  # also while there is something to read: it must be seen before it goes
            if data := os.read(descriptor, size):
                if not self.position and self.num_waits:
                    self.began_at_s = monotonic()
                self._offset = offset + len(data)
                self.position = max(self.position, self._offset)
                return data
            waited_s = monotonic() - waiting_since_s
            is_closed = self._writer_seen and not self._has_writer and waited_s >= CLOSED_S
            if is_closed or (self.idle_s is not None and waited_s >= self.idle_s):
                self.reached_end = True
                return b""
            self.num_waits += 1
            self.stop.wait(POLL_S)
        return b""

    def _look_for_writer(self) -> None:
        """Once a second: whether a program has the file open for writing. Programs of other users cannot be seen."""
        if monotonic() - self._writer_checked_s < CLOSED_S:
            return
        self._has_writer = _is_being_written(self.path)
        self._writer_seen |= self._has_writer
        self._writer_checked_s = monotonic()

    def _check_mp4(self) -> None:
        """Refuse at once an MP4 file whose index comes after its frames: nothing of it can be read
        before it is whole.
        """
        with self.path.open("rb") as file:
            head = file.read(MAX_BOXES_BYTES)
        position = 0
        while head[4:8] == b"ftyp" and position + 8 <= len(head):
            size, kind = int.from_bytes(head[position : position + 4], "big"), head[position + 4 : position + 8]
            if kind == b"mdat":
                raise InputError(
                    f"{self.name}: its index comes at its end, so it can be read only when it is whole: hiero steps "
                    f"{self.name}. To watch a recording write .ts, .mkv, or fragmented MP4 (ffmpeg: -movflags "
                    "frag_keyframe+empty_moov)"
                )
            if kind == b"moov" or size < 8:
                return
            position += size


class Pipe(LiveSource):
    """Standard input, or a named pipe. Its writer waits while nobody reads, so nothing is lost.

    Its beginning is remembered until it was opened a second time: to see how often frames come that
    others refer to.
    """

    can_reopen = True

    def __init__(self, name: str, descriptor: int, idle_s: float | None) -> None:
        super().__init__(name, idle_s)
        self._descriptor = descriptor
        self._beginning = bytearray()
        self._is_second = False

    def open(self) -> Any:
        """See `LiveSource.open`. The second time it begins with the same bytes; a third time is an error."""
        if self._is_second and not self._beginning:
            raise InputError(f"{self.name}: a pipe can be read once")
        is_first, self._is_second = not self._is_second, True
        reader = _Reader(self._read_first if is_first else self._read_second)
        return _open_container(reader, self.name, hint="; send a stream such as MPEG-TS (ffmpeg: -f mpegts -)")

    def _read_first(self, size: int) -> bytes:
        # An end before its time is no harm: only the frames until here are counted.
        data = self._read(size) if len(self._beginning) < MAX_REPLAY_BYTES else b""
        self._beginning += data
        return data

    def _read_second(self, size: int) -> bytes:
        if self._beginning:
            data = bytes(self._beginning[:size])
            del self._beginning[:size]
            return data
        return self._read(size)

    def _read(self, size: int) -> bytes:
        waiting_since_s = monotonic()
        while not self.stop.is_set():
            # select knows no pipes on Windows: there a read waits, and --idle-s has no effect.
            if sys.platform == "win32" or select.select([self._descriptor], [], [], POLL_S)[0]:
                return os.read(self._descriptor, size)
            self.num_waits += 1
            if self.idle_s is not None and monotonic() - waiting_since_s >= self.idle_s:
                return b""
        return b""


class Camera(LiveSource):
    """A camera of this machine, through Video4Linux."""

    is_lossy = True
    keeps_pace = True

    def __init__(self, path: Path, idle_s: float) -> None:
        super().__init__(str(path), idle_s)
        self.path = path

    def open(self) -> Any:
        """See `LiveSource.open`."""
        hint = "; is it a camera, and free?"
        return _open_container(str(self.path), self.name, format="v4l2", timeout=_timeouts(self.idle_s), hint=hint)


class Address(LiveSource):
    """A stream on the network: RTSP, RTMP, HTTP (also HLS), UDP, RTP, SRT, TCP."""

    is_lossy = True
    keeps_pace = True

    def __init__(self, address: str, idle_s: float) -> None:
        scheme = address.split("://", 1)[0].lower()
        if scheme not in PROTOCOLS:
            raise InputError(f"{scheme}:// is not a protocol that is watched; these are: {', '.join(PROTOCOLS)}")
        super().__init__(hide_credentials(address), idle_s)
        self._address, self._scheme = address, scheme
        self.ends = False

    def open(self) -> Any:
        """See `LiveSource.open`."""
        options = {}
        if self._scheme in ("rtsp", "rtsps"):
            options["rtsp_flags"] = "prefer_tcp"  # nothing is lost on the way where the camera allows it
        elif self._scheme == "udp":
            options |= {"overrun_nonfatal": "1", "fifo_size": "50000"}
        container = _open_container(self._address, self.name, options=options, timeout=_timeouts(self.idle_s), hint="")
        self.ends = container.duration is not None
        return container


class _Reader:
    """What PyAV reads through: no `seek`, so that FFmpeg takes the file as a stream."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.read = read


def _open_container(target: Any, name: str, *, hint: str, **arguments: Any) -> Any:
    """`av.open`, whose errors become one line without the address."""
    try:
        import av
    except ImportError:
        raise InputError("reading video needs PyAV; run: pip install 'hiero-video[video]'") from None
    try:
        return av.open(target, **arguments)
    except av.error.ExitError as error:  # PyAV's word for a timeout
        raise InputError(f"{name}: nothing came within {arguments['timeout'][0]:.0f} s") from error
    except (av.FFmpegError, ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__  # str(error) holds the address
        raise InputError(f"{name}: cannot be opened ({reason}){hint}") from error


def _timeouts(idle_s: float | None) -> tuple[float, float]:
    """For opening and for reading: none is longer than what may pass without anything new."""
    longest_s = OPEN_TIMEOUT_S if idle_s is None else max(1.0, idle_s)
    return min(OPEN_TIMEOUT_S, longest_s), min(READ_TIMEOUT_S, longest_s)


def _is_being_written(path: Path) -> bool:
    """Whether a program that this user may look at has a file open for writing. Always False where
    there is no /proc.
    """
    target = str(path.resolve())
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            entries = list(os.scandir(folder))
        except OSError:  # of another user, or gone
            continue
        for entry in entries:
            try:
                if os.readlink(entry.path) != target:  # noqa: PTH115
                    continue
                info = (folder.parent / "fdinfo" / entry.name).read_text()
            except OSError:
                continue
            flags = re.search(r"flags:\s*(\d+)", info)
            if flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                return True
    return False
