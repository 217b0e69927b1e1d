"""Video that is still being recorded: a growing file, a pipe, a camera, or an address on the network.

Each source opens FFmpeg containers through PyAV. Addresses may contain passwords, so messages only
use the `name` of a source, which does not.
"""

from __future__ import annotations

import functools
import glob
import math
import os
import re
import select
import stat
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from hiero.errors import InputError
from hiero.sources.addresses import HTTP_SCHEMES, LIVE_SCHEMES, public_address

PROTOCOLS = (*LIVE_SCHEMES, *HTTP_SCHEMES)
PREFER_TCP = {"rtsp_flags": "prefer_tcp"}  # no packets are lost if the camera supports it
FFMPEG_OPTIONS = {"rtsp": PREFER_TCP, "rtsps": PREFER_TCP, "udp": {"overrun_nonfatal": "1", "fifo_size": "50000"}}
FILE_IDLE_S = 10.0  # without growth, after which a file counts as finished
STREAM_IDLE_S = 120.0  # without an address or a camera, after which the recording ends
READ_AHEAD_BYTES = 2**15  # read by FFmpeg but not decoded yet
MIN_MEASURED_BYTES = 4 * READ_AHEAD_BYTES  # for an estimate of the bytes per second
POLL_S = 0.1  # between checks whether a file has grown
CLOSED_IDLE_S = 1.0  # without growth, after which a file that its writer has closed is finished
OPEN_TIMEOUT_S, READ_TIMEOUT_S = 20.0, 10.0  # for addresses and cameras
MAX_REPLAY_BYTES = 2**27  # of the beginning of a pipe, which can be read twice
MAX_BOXES_BYTES = 2**16  # of an MP4 file, which show whether it can be read while it is written


class LiveSource:
    """Where a recording comes from. A lossy source drops packets that are not read in time and can be read once."""

    is_lossy = False
    position: float = math.inf  # bytes that were read so far, if they are counted

    def __init__(self, name: str, idle_s: float | None) -> None:
        self.name, self.idle_s = name, idle_s
        self.stop = threading.Event()
        self.began_at_s: float | None = None
        self.num_waits = 0

    def __str__(self) -> str:
        return self.name

    def open(self) -> Any:
        """Open an FFmpeg container."""
        raise NotImplementedError

    def unread_s(self, decoded_s: float) -> float:
        """Estimated seconds of video that exist but were not read yet."""
        del decoded_s
        return 0.0


def open_live_source(text: str, idle_s: float | None = None) -> LiveSource:
    """Open a source by its name."""
    if idle_s is not None and not idle_s > 0:
        raise InputError(f"--idle-s must be positive, got {idle_s}")
    if text == "-":
        return Pipe("standard input", sys.stdin.fileno(), idle_s)
    if "://" in text:
        return Stream(text, idle_s or STREAM_IDLE_S)
    path = Path(f"/dev/video{text}" if text.isdecimal() else text)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if str(path).startswith("/dev/video"):
            cameras = ", ".join(sorted(str(camera) for camera in Path("/dev").glob("video*"))) or "none"
            raise InputError(f"{path}: no such camera. Cameras of this machine: {cameras}.") from error
        reason = "no such file. Start the recording first." if isinstance(error, FileNotFoundError) else error.strerror
        raise InputError(f"{path}: {reason}") from error
    if stat.S_ISCHR(mode):
        return Stream(str(path), idle_s or STREAM_IDLE_S)
    if stat.S_ISFIFO(mode):
        return Pipe(str(path), os.open(path, os.O_RDONLY), idle_s)
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: must be a file, a pipe or a camera")
    return GrowingFile(path, idle_s or FILE_IDLE_S)


class GrowingFile(LiveSource):
    """A file that another program is writing: MPEG-TS, Matroska, or fragmented MP4.

    It is finished if it has not grown for `idle_s`, or if its writer was seen and has closed it. It is
    read without seeking, so that FFmpeg never looks for an end that does not exist yet.
    """

    def __init__(self, path: Path, idle_s: float) -> None:
        super().__init__(str(path), idle_s)
        self.path = path
        self.position = 0
        self.reached_end = False
        self.began_at_s = monotonic() if path.stat().st_size == 0 else None
        self._offset = 0  # in the container that was opened last
        self._writer_seen = False
        self._writer_checked_s = 0.0
        self._has_writer = False

    def open(self) -> Any:
        """Open a container that reads the file from its beginning."""
        try:
            self._check_mp4()
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise InputError(f"{self.name}: cannot be read ({error.strerror})") from error
        reader = _Reader(functools.partial(self._read, descriptor))
        weakref.finalize(reader, os.close, descriptor)  # PyAV only closes the container
        hint = "Is it a video that can be read while it is written (.ts, .mkv, fragmented .mp4)?"
        return _open_container(reader, self.name, hint)

    @property
    def is_fully_read(self) -> bool:
        """Whether the recording has ended, and the file has not grown since."""
        try:
            return self.reached_end and self.path.stat().st_size == self.position
        except OSError:
            return False

    def unread_s(self, decoded_s: float) -> float:
        """Estimated from the bytes per second so far; 0 while too few bytes were read."""
        if self._offset < MIN_MEASURED_BYTES:
            return 0.0
        try:
            num_unread = self.path.stat().st_size - self._offset
        except OSError:
            return 0.0
        return max(0, num_unread) * decoded_s / (self._offset - READ_AHEAD_BYTES)

    def _read(self, descriptor: int, size: int) -> bytes:
        """Read up to `size` bytes. At the end of the file, wait for more; empty when the recording has ended."""
        waiting_since_s, offset = monotonic(), os.lseek(descriptor, 0, os.SEEK_CUR)
        while not self.stop.is_set() or offset < self.position:  # the part that was probed is read again
            self._look_for_writer()  # also while there is something to read: it must be seen before it closes the file
            if data := os.read(descriptor, size):
                if not self.position and self.num_waits:
                    self.began_at_s = monotonic()
                self._offset = offset + len(data)
                self.position = max(self.position, self._offset)
                return data
            waited_s = monotonic() - waiting_since_s
            is_closed = self._writer_seen and not self._has_writer and waited_s >= CLOSED_IDLE_S
            if is_closed or (self.idle_s is not None and waited_s >= self.idle_s):
                self.reached_end = True
                return b""
            self.num_waits += 1
            self.stop.wait(POLL_S)
        return b""

    def _look_for_writer(self) -> None:
        """Check once a second whether a program has the file open for writing; those of other users are invisible."""
        if monotonic() - self._writer_checked_s < CLOSED_IDLE_S:
            return
        self._has_writer = _is_being_written(self.path)
        self._writer_seen |= self._has_writer
        self._writer_checked_s = monotonic()

    def _check_mp4(self) -> None:
        """Refuse an MP4 file whose index comes after its frames: it cannot be read before it is complete."""
        with self.path.open("rb") as file:
            head = file.read(MAX_BOXES_BYTES)
        position = 0
        while head[4:8] == b"ftyp" and position + 8 <= len(head):
            size, kind = int.from_bytes(head[position : position + 4], "big"), head[position + 4 : position + 8]
            if kind == b"mdat":
                raise InputError(
                    f"{self.name}: its index comes at its end, so it can only be read when it is complete: "
                    f"hiero steps {self.name}. To watch a recording, write .ts, .mkv, or fragmented MP4 "
                    "(ffmpeg: -movflags frag_keyframe+empty_moov)."
                )
            if kind == b"moov" or size < 8:
                return
            position += size


class Pipe(LiveSource):
    """Standard input, or a named pipe. Its writer waits while nobody reads, so nothing is lost.

    Its beginning is kept until the pipe is opened for the second time: the first time only probes it.
    """

    def __init__(self, name: str, descriptor: int, idle_s: float | None) -> None:
        super().__init__(name, idle_s)
        self._descriptor = descriptor
        self._beginning = bytearray()
        self._is_second = False

    def open(self) -> Any:
        """Open a container. The second one begins with the same bytes; a third one is an error."""
        if self._is_second and not self._beginning:
            raise InputError(f"{self.name}: a pipe can only be read once")
        reader = _Reader(self._read_second if self._is_second else self._read_first)
        self._is_second = True
        return _open_container(reader, self.name, "Send a stream such as MPEG-TS (ffmpeg: -f mpegts -).")

    def _read_first(self, size: int) -> bytes:
        # An early end does no harm, since only the frames so far are counted.
        data = self._read(size) if len(self._beginning) < MAX_REPLAY_BYTES else b""
        self._beginning += data
        return data

    def _read_second(self, size: int) -> bytes:
        if not self._beginning:
            return self._read(size)
        data = bytes(self._beginning[:size])
        del self._beginning[:size]
        return data

    def _read(self, size: int) -> bytes:
        waiting_since_s = monotonic()
        while not self.stop.is_set():
            # On Windows select does not work with pipes: a read waits, and --idle-s has no effect.
            if sys.platform == "win32" or select.select([self._descriptor], [], [], POLL_S)[0]:
                return os.read(self._descriptor, size)
            self.num_waits += 1
            if self.idle_s is not None and monotonic() - waiting_since_s >= self.idle_s:
                return b""
        return b""


class Stream(LiveSource):
    """A camera of this machine (Video4Linux), or an address: RTSP, RTMP, HTTP (also HLS), UDP, RTP, SRT, TCP."""

    is_lossy = True

    def __init__(self, address: str, idle_s: float) -> None:
        self._scheme = address.partition("://")[0].lower() if "://" in address else ""
        if self._scheme not in (*PROTOCOLS, ""):
            raise InputError(f"{self._scheme}:// is not supported. Supported protocols: {', '.join(PROTOCOLS)}.")
        super().__init__(public_address(address) if self._scheme else address, idle_s)
        self._address = address
        self.timeout_s = max(1.0, idle_s)
        self.ends = False

    def open(self) -> Any:
        """Connect."""
        timeouts = min(OPEN_TIMEOUT_S, self.timeout_s), min(READ_TIMEOUT_S, self.timeout_s)
        hint = "" if self._scheme else "Is it a camera, and not in use?"
        options = FFMPEG_OPTIONS.get(self._scheme, {})
        format = None if self._scheme else "v4l2"
        container = _open_container(self._address, self.name, hint, format=format, options=options, timeout=timeouts)
        self.ends = container.duration is not None
        return container


class _Reader:
    """The file object that PyAV reads from. It has no `seek`, so that FFmpeg treats it as a stream."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.read = read


def _open_container(target: Any, name: str, hint: str, **arguments: Any) -> Any:
    """Call `av.open`; errors become one line without the address."""
    import av

    try:
        return av.open(target, **arguments)
    except av.error.ExitError as error:  # a timeout
        raise InputError(f"{name}: no answer within {arguments['timeout'][0]:.0f} s") from error
    except (av.FFmpegError, ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__  # str(error) contains the address
        raise InputError(f"{name}: cannot be opened ({reason}). {hint}".rstrip()) from error


def _is_being_written(path: Path) -> bool:
    """Whether a visible program has a file open for writing. Always False without /proc."""
    target = str(path.resolve())
    for link in glob.iglob("/proc/[0-9]*/fd/[0-9]*"):  # noqa: PTH207 (Path.glob fails if a process ends)
        with suppress(OSError):  # a program of another user, or one that has ended
            if os.readlink(link) == target:  # noqa: PTH115
                flags = re.search(r"flags:\s*(\d+)", Path(link.replace("/fd/", "/fdinfo/")).read_text())
                if flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    return False
