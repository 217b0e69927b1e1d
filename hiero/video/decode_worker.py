"""A process that decodes parts of videos: tasks come as lines of JSON, pictures go into memory that is shared.

Started by `hiero.video.parallel_decode`, which says what a part is. It ends when its input does.
"""

from __future__ import annotations

import json
import mmap
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TextIO

import numpy as np

from hiero.errors import InputError
from hiero.storage.cache import file_state
from hiero.video.decode import MAX_FRAME_S, DisplayedFrame, VideoReader, new_reformatter, sample_time
from hiero.video.packets import packets_from

MIN_LAST_FRAMES = 2  # of a last part: how long the last frame is shown may depend on the one before


class PartError(Exception):
    """A part does not decode by itself as it does in the whole video."""


@dataclass(frozen=True)
class PartTask:
    """A part of a video, from a keyframe to the next part's.

    Attributes:
        path: The file.
        version: Its `file_state`: another file of the same name is another.
        stream: Number of the video stream.
        skip_unreferenced: As `read_segments` has it.
        gpu: Number of the NVIDIA GPU that decodes; None: the CPU.
        short_side: Of the pictures.
        shape: Height and width of a picture; a part whose pictures are others fails.
        entry: Timestamp of its first frame, a keyframe, in ticks.
        end: That of the first frame after it; None: the part is the last.
        first_timestamp_s: Of the video's first frame.
        begin_s: When the part's first frame is shown, from the video's first on.
        first_sample: Number of the first sampled time that is not before `begin_s`.
        spacing_s: Length of a segment.
        num_frames: Of a segment.
    """

    path: str
    version: tuple[int, ...]
    stream: int
    skip_unreferenced: bool
    gpu: int | None
    short_side: int | None
    shape: tuple[int, int]
    entry: int
    end: int | None
    first_timestamp_s: float
    begin_s: float
    first_sample: int
    spacing_s: float
    num_frames: int

    @property
    def picture_bytes(self) -> int:
        """Bytes of a picture."""
        return 3 * self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class PartReply:
    """What a part shows. Its pictures lie one after the other in the shared memory.

    Attributes:
        shown: Number of the picture that each sampled time shows.
        num_pictures: In the memory; the last one, of a last part, is its last frame.
        last_s: When the last frame of a last part is shown.
        end_s: When it ends.
        warnings: Of a last part, that it breaks off.
    """

    shown: tuple[int, ...]
    num_pictures: int
    last_s: float
    end_s: float
    warnings: tuple[str, ...] = ()


class PictureWriter(Protocol):
    """Puts pictures of a part into memory, one after the other, each frame once."""

    num: int

    def write(self, frame: DisplayedFrame) -> int:
        """The number of a frame's picture. Raises PartError where it does not fit."""

    def finish(self) -> None:
        """Wait until all pictures are in the memory."""


class PartDecoder:
    """Decodes parts.

    Args:
        new_writer: Takes a part and the memory for its pictures.
        stays_open: A file stays open for its next part, until `close`. Otherwise whoever waits for the next one holds no file that
            someone may want to delete.
    """

    def __init__(self, new_writer: Callable[[PartTask, np.ndarray], PictureWriter] | None = None, stays_open: bool = False) -> None:
        self.new_writer, self.stays_open = new_writer or CpuPictureWriter, stays_open
        self.reformatter = new_reformatter()
        self.is_stopped = False  # set by another thread, it ends a part at the next frame
        self.reader: VideoReader | None = None
        self.opened: tuple[object, ...] = ()

    def decode(self, task: PartTask, memory: np.ndarray) -> PartReply:
        """Decode a part.

        Args:
            task: The part.
            memory: (N,) uint8, for the pictures.

        Raises:
            PartError: Not all of it decodes, or its timestamps, sizes or number of pictures are not as they should be.
            InputError: The file cannot be read.
        """
        is_done = False
        try:
            reader = self._open(task)
            reader.start_clock(task.first_timestamp_s, task.begin_s)
            reader.messages = []
            reply = self._decode(task, reader, memory)
            is_done = True
            return reply
        finally:
            if not (is_done and self.stays_open):
                self.close()

    def _open(self, task: PartTask) -> VideoReader:
        path = Path(task.path)
        wanted = (task.path, task.version, task.stream, task.skip_unreferenced, task.gpu)
        if self.reader is None or self.opened != wanted:
            self.close()
            reader = VideoReader(path, task.stream, 1, task.skip_unreferenced, task.gpu)
            self.reader, self.opened = reader.__enter__(), wanted
        if file_state(path) != task.version:
            raise PartError("the file has changed")
        return self.reader

    def close(self) -> None:
        """Close the file that is open."""
        if self.reader is not None:
            self.reader.__exit__()
        self.reader = None

    def _decode(self, task: PartTask, reader: VideoReader, memory: np.ndarray) -> PartReply:
        shown: list[int] = []
        pictures = self.new_writer(task, memory)
        current: DisplayedFrame | None = None
        num_frames = 0

        def show(frame: DisplayedFrame, until_s: float) -> None:
            while sample_time(task.first_sample + len(shown), task.num_frames, task.spacing_s) < until_s:
                shown.append(pictures.write(frame))

        for frame in reader.frames(packets_from(reader.container, reader.stream, task.entry, Path(task.path), with_end=True)):
            if self.is_stopped:
                raise PartError("nobody waits for it")
            if frame.pts is None:
                raise PartError("a frame without a timestamp")
            if current is None and frame.pts < task.entry:  # leading pictures: the part before has them
                continue
            if current is None and frame.pts != task.entry:
                raise PartError("its keyframe is not shown first")
            if current is not None:
                gap = frame.pts - current.frame.pts
                if not 0 < float(gap * frame.time_base) <= MAX_FRAME_S:
                    raise PartError("timestamps jump")
            time_s = reader.time_of(frame)
            if current is not None:
                show(current, time_s)
            if task.end is not None and frame.pts >= task.end:
                if frame.pts != task.end:
                    raise PartError("the next part does not follow")
                if reader.messages:
                    raise PartError(reader.messages[0])
                pictures.finish()
                return PartReply(tuple(shown), pictures.num, 0.0, 0.0)
            current, num_frames = DisplayedFrame(frame, self.reformatter, threads=1), num_frames + 1
        if task.end is not None or current is None or num_frames < MIN_LAST_FRAMES:
            raise PartError("breaks off")
        if task.gpu is not None and reader.messages:  # the fault may be the GPU's: the CPU says whether the file breaks off
            raise PartError(reader.messages[0])
        show(current, reader.end_s)
        pictures.write(current)
        pictures.finish()
        return PartReply(tuple(shown), pictures.num, reader.last_s, reader.end_s, tuple(reader.messages or ()))


class CpuPictureWriter:
    """Scales frames one by one.

    Args:
        task: The part.
        memory: (N,) uint8, for the pictures.
    """

    def __init__(self, task: PartTask, memory: np.ndarray) -> None:
        self.task, self.memory, self.num = task, memory, 0
        self.last: DisplayedFrame | None = None

    def write(self, frame: DisplayedFrame) -> int:
        """The number of a frame's picture."""
        if frame is not self.last:
            picture = frame.picture(self.task.short_side)
            begin = self.num * self.task.picture_bytes
            if picture.shape[:2] != tuple(self.task.shape) or begin + self.task.picture_bytes > len(self.memory):
                raise PartError("pictures of another size, or too many")
            self.memory[begin : begin + self.task.picture_bytes] = picture.reshape(-1)
            self.last, self.num = frame, self.num + 1
        return self.num - 1

    def finish(self) -> None:
        """Nothing is left to do."""


def serve(tasks: TextIO, replies: TextIO, memories: list[int]) -> None:
    """Answer tasks until there are no more.

    Args:
        tasks: Lines of JSON: `id`, `memory`, its `num_bytes`, and the fields of a `PartTask`.
        replies: Lines of JSON: the same `id`, and the fields of a `PartReply` or `error`.
        memories: File descriptors of shared memory.
    """
    decoder = PartDecoder()
    mapped: dict[int, mmap.mmap] = {}
    for line in tasks:
        fields = json.loads(line)
        task_id, number, num_bytes = fields.pop("id"), fields.pop("memory"), fields.pop("num_bytes")
        if number not in mapped or len(mapped[number]) != num_bytes:
            if number in mapped:
                mapped.pop(number).close()
            mapped[number] = mmap.mmap(memories[number], num_bytes)
        fields |= {name: tuple(fields[name]) for name in ("shape", "version")}
        try:
            memory: np.ndarray | None = np.frombuffer(mapped[number], np.uint8)
            assert memory is not None
            reply = asdict(decoder.decode(PartTask(**fields), memory))
        except (PartError, InputError, OSError, ValueError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        finally:
            memory = None  # a memory that is still looked at cannot be closed
        replies.write(json.dumps({"id": task_id, **reply}) + "\n")
        replies.flush()


def main(memories: list[str]) -> None:
    """Answer tasks of the standard input.

    Args:
        memories: File descriptors of shared memory.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    replies, sys.stdout = sys.stdout, sys.stderr  # what anything else prints is no answer
    with suppress(BrokenPipeError):
        serve(sys.stdin, replies, [int(descriptor) for descriptor in memories])
