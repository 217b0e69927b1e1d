"""A process that decodes parts of videos, and its client in the process that started it.

Tasks and replies are pickles on the standard input and output; pictures are written to shared memory.
The process ends with its input. `hiero.decoding.parallel_decode` defines the parts.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hiero.decoding.decode import MAX_FRAME_S, DisplayedFrame, Sampling, VideoReader, new_reformatter, scaled_size
from hiero.decoding.packets import packets_from
from hiero.errors import InputError
from hiero.storage.cache import file_state

EXACT_CODECS = ("h264", "hevc", "vp9")  # for which all decoders produce the same bits
MIN_LAST_FRAMES = 2  # in the last part: the duration of the last frame may depend on the one before
REST_AFTER_S = 1.0  # without a task, after which a process closes its file and frees the GPU's memory
PROGRAM = (
    "import importlib, sys; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2]).main(sys.argv[3:])"
)


def python_command(module: str, *arguments: str) -> list[str]:
    """Command of a process that calls `main` of a module, from the same copy of hiero as this process."""
    root = Path(__file__).resolve().parents[2]
    # -P: modules in the current folder are not imported
    return [sys.executable, "-P", "-c", PROGRAM, str(root), module, *arguments]


class PartError(Exception):
    """A part cannot be decoded separately with the same result as in the whole video."""


@dataclass(frozen=True)
class PartTask:
    """A part of a video, from one keyframe to the keyframe of the next part."""

    path: str
    version: tuple[int, ...]
    sampling: Sampling
    pixel_format: str = ""
    shape: tuple[int, int] = (0, 0)
    entry: int = 0
    end: int | None = None
    first_timestamp_s: float = 0.0
    begin_s: float = 0.0
    first_sample: int = 0

    @property
    def picture_bytes(self) -> int:
        return 3 * self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class PartReply:
    """The decoded part. Its pictures follow each other in the shared memory; `shown` has their numbers in time."""

    shown: list[int]
    num_pictures: int
    last_s: float
    end_s: float
    warnings: list[str]


class PartDecoder:
    """Decodes parts in the worker process."""

    def __init__(self, gpu: int | None = None) -> None:
        self.gpu = gpu
        self.reformatter, self.converter = new_reformatter(), new_reformatter()
        self.reader: VideoReader | None = None
        self.opened: tuple[object, ...] = ()
        self.failed: set[tuple[object, ...]] = set()  # videos that the GPU could not decode

    def decode(self, task: PartTask, memory: np.ndarray) -> PartReply:
        video = (task.path, task.version, task.sampling.stream, task.sampling.skip_unreferenced)
        if self.gpu is not None and video not in self.failed:
            try:
                # A GPU's decoder takes 70 ms to create, so it is kept for the next part.
                return self._decode(task, self._open(task, video, self.gpu), memory)
            except Exception:  # the CPU reports what is wrong with the file, if anything
                self.failed.add(video)
                self.close()
        try:
            return self._decode(task, self._open(task, video, None), memory)
        finally:
            self.close()  # the file may be deleted while the process is idle

    def _open(self, task: PartTask, video: tuple[object, ...], gpu: int | None) -> VideoReader:
        path = Path(task.path)
        if self.reader is None or self.opened != video:
            self.close()
            reader = VideoReader(path, task.sampling.stream, 1, task.sampling.skip_unreferenced, gpu)
            self.reader, self.opened = reader.__enter__(), video
            if gpu is not None and self.reader.stream.codec_context.codec.canonical_name not in EXACT_CODECS:
                raise PartError("the GPU may decode this codec differently")
        if file_state(path) != task.version:
            raise PartError("the file has changed")
        self.reader.start_clock(task.first_timestamp_s, task.begin_s)
        return self.reader

    def close(self) -> None:
        """Close the file that is open."""
        if self.reader is not None:
            self.reader.__exit__()
        self.reader = None

    def _decode(self, task: PartTask, reader: VideoReader, memory: np.ndarray) -> PartReply:
        shown: list[int] = []
        pictures = _PictureWriter(task, memory)
        current: DisplayedFrame | None = None
        num_frames = 0
        messages = reader.messages = []

        def show(frame: DisplayedFrame, until_s: float) -> None:
            while task.sampling.time_of(task.first_sample + len(shown)) < until_s:
                shown.append(pictures.write(frame))

        packets = packets_from(reader.container, reader.stream, task.entry, Path(task.path))
        for frame in reader.frames(packets):
            if frame.pts is None:
                raise PartError("a frame has no timestamp")
            if current is None and frame.pts < task.entry:  # leading pictures belong to the part before
                continue
            if current is None and frame.pts != task.entry:
                raise PartError("the keyframe is not the first frame shown")
            time_s = reader.time_of(frame)
            if current is not None:
                if not 0 < float((frame.pts - current.frame.pts) * frame.time_base) <= MAX_FRAME_S:
                    raise PartError("its timestamps jump")
                show(current, time_s)
            if task.end is not None and frame.pts >= task.end:
                if frame.pts != task.end or messages:
                    raise PartError(messages[0] if messages else "the next part does not follow")
                return PartReply(shown, pictures.num, 0.0, 0.0, [])
            current, num_frames = self._display(frame, task, reader), num_frames + 1
        if task.end is not None or current is None or num_frames < MIN_LAST_FRAMES:
            raise PartError("it ends early")
        if reader.gpu is not None and messages:  # the CPU shows whether the file is really damaged
            raise PartError(messages[0])
        show(current, reader.end_s)
        pictures.write(current)
        return PartReply(shown, pictures.num, reader.last_s, reader.end_s, messages)

    def _display(self, frame: Any, task: PartTask, reader: VideoReader) -> DisplayedFrame:
        if reader.gpu is None:
            return DisplayedFrame(frame, self.reformatter, threads=1)
        context = reader.stream.codec_context
        if (frame.width, frame.height) != (context.width, context.height):  # FFmpeg does not crop all sides on a GPU
            raise PartError("the GPU does not crop frames")
        return GpuFrame(frame, self.reformatter, self.converter, task.pixel_format)


class GpuFrame(DisplayedFrame):
    """A frame in the pixel format of the GPU that decoded it.

    Scaling gives the same picture for the formats of CPU and GPU. For frames that keep their size,
    swscale rounds differently for each format, so they are converted to the CPU's format first.
    """

    def __init__(self, frame: Any, reformatter: Any, converter: Any, pixel_format: str) -> None:
        super().__init__(frame, reformatter, threads=1)
        self.converter, self.pixel_format = converter, pixel_format

    def picture(self, short_side: int | None) -> np.ndarray:
        """RGB (H, W, 3), scaled and turned."""
        size = self.frame.width, self.frame.height
        if size == scaled_size(*size, short_side):
            self.frame = self.converter.reformat(self.frame, format=self.pixel_format)
        return super().picture(short_side)


class _PictureWriter:
    """Writes the pictures of a part to memory, each frame once."""

    def __init__(self, task: PartTask, memory: np.ndarray) -> None:
        self.task, self.memory, self.num = task, memory, 0
        self.last: DisplayedFrame | None = None

    def write(self, frame: DisplayedFrame) -> int:
        """The number of the frame's picture. Raises PartError if it does not fit."""
        if frame is not self.last:
            picture, size = frame.picture(self.task.sampling.short_side), self.task.picture_bytes
            begin = self.num * size
            if picture.shape[:2] != tuple(self.task.shape) or begin + size > len(self.memory):
                raise PartError("its frames differ in size, or are too many")
            self.memory[begin : begin + size] = picture.reshape(-1)
            self.last, self.num = frame, self.num + 1
        return self.num - 1


def main(arguments: list[str]) -> None:
    """Answer the tasks on the standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends it
    tasks, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # other output must not be taken for a reply
    decoder = PartDecoder(int(arguments[0]) if arguments[0].isdecimal() else None)
    with suppress(BrokenPipeError, EOFError):
        while True:
            if not select.select([tasks], [], [], REST_AFTER_S)[0]:
                decoder.close()
            task, memory_path = pickle.load(tasks)
            reply: PartReply | Exception
            try:
                with Path(memory_path).open("r+b") as memory:
                    reply = decoder.decode(task, np.frombuffer(mmap.mmap(memory.fileno(), 0), np.uint8))
            except (PartError, InputError, OSError, ValueError) as error:
                reply = PartError(f"{type(error).__name__}: {error}")
            pickle.dump(reply, replies)
            replies.flush()


class PartWorker:
    """A process that decodes one part at a time. It is restarted if it dies."""

    def __init__(self, gpu: int | None = None) -> None:
        self.gpu = gpu
        self.process: subprocess.Popen[bytes] | None = None

    def decode(self, task: PartTask, num_bytes: int) -> tuple[PartReply, np.ndarray]:
        """The reply, and the pictures (N, H, W, 3). Raises PartError if the part cannot be decoded."""
        memory = os.memfd_create("hiero-pictures")
        try:
            os.ftruncate(memory, num_bytes)
            reply = self._ask(task, f"/proc/{os.getpid()}/fd/{memory}")
            mapped = mmap.mmap(memory, num_bytes)  # freed with the last picture
        except PartError:
            raise
        except Exception as error:  # the process died or sent something else: start another one
            self.close()
            raise PartError(str(error) or type(error).__name__) from error
        finally:
            os.close(memory)
        pixels = np.frombuffer(mapped, np.uint8, reply.num_pictures * task.picture_bytes)
        return reply, pixels.reshape(reply.num_pictures, *task.shape, 3)

    def _ask(self, task: PartTask, memory_path: str) -> PartReply:
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        pickle.dump((task, memory_path), process.stdin)
        process.stdin.flush()
        reply = pickle.load(process.stdout)
        if isinstance(reply, PartError):
            raise reply
        assert isinstance(reply, PartReply)
        return reply

    def _start(self) -> subprocess.Popen[bytes]:
        """The process, restarted if it has died."""
        if self.process is not None and self.process.poll() is not None:
            self.close()
        if self.process is None:
            command = python_command("hiero.decoding.decode_worker", "cpu" if self.gpu is None else str(self.gpu))
            pipe, null = subprocess.PIPE, subprocess.DEVNULL
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null)
        return self.process

    def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is not None:
            with suppress(OSError), process:  # which also closes its pipes
                process.kill()
