"""A process that decodes parts of videos, and its client in the process that started it.

Tasks are lines of JSON on the standard input; pictures are written to shared memory. The process ends
with its input. `hiero.decoding.parallel_decode` defines the parts.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from hiero.decoding.decode import MAX_FRAME_S, DisplayedFrame, Sampling, VideoReader, new_reformatter, scaled_size
from hiero.decoding.packets import packets_from
from hiero.errors import InputError
from hiero.storage.cache import file_state

EXACT_CODECS = ("h264", "hevc", "vp9")  # for which all decoders produce the same bits
MIN_LAST_FRAMES = 2  # in the last part: the duration of the last frame may depend on the one before
NUM_MEMORIES = 2  # per worker: it fills one while the other is read
CLOSE_TIMEOUT_S = 1.0
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

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> PartTask:
        """Restore a task from JSON."""
        tuples = {name: tuple(fields[name]) for name in ("shape", "version")}
        return cls(**fields | tuples | {"sampling": Sampling(**fields["sampling"])})

    @property
    def picture_bytes(self) -> int:
        return 3 * self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class PartReply:
    """The decoded part. Its pictures follow each other in the shared memory; `shown` has their numbers in time."""

    shown: tuple[int, ...]
    num_pictures: int
    last_s: float
    end_s: float
    warnings: tuple[str, ...] = ()


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
        self.reader.messages = []
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
                if frame.pts != task.end or reader.messages:
                    raise PartError(reader.messages[0] if reader.messages else "the next part does not follow")
                return PartReply(tuple(shown), pictures.num, 0.0, 0.0)
            current, num_frames = self._display(frame, task, reader), num_frames + 1
        if task.end is not None or current is None or num_frames < MIN_LAST_FRAMES:
            raise PartError("it ends early")
        if reader.gpu is not None and reader.messages:  # the CPU shows whether the file is really damaged
            raise PartError(reader.messages[0])
        show(current, reader.end_s)
        pictures.write(current)
        return PartReply(tuple(shown), pictures.num, reader.last_s, reader.end_s, tuple(reader.messages or ()))

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


def serve(tasks: TextIO, replies: TextIO, memories: list[int], gpu: int | None = None) -> None:
    """Answer tasks until the input ends; an empty line closes the open file."""
    decoder = PartDecoder(gpu)
    mapped: dict[int, mmap.mmap] = {}
    for line in tasks:
        if not line.strip():
            decoder.close()
            continue
        fields = json.loads(line)
        task_id, number, num_bytes = fields.pop("id"), fields.pop("memory"), fields.pop("num_bytes")
        if number not in mapped or len(mapped[number]) != num_bytes:
            if number in mapped:
                mapped.pop(number).close()
            mapped[number] = mmap.mmap(memories[number], num_bytes)
        try:
            memory: np.ndarray | None = np.frombuffer(mapped[number], np.uint8)
            assert memory is not None
            reply = asdict(decoder.decode(PartTask.from_dict(fields), memory))
        except (PartError, InputError, OSError, ValueError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        finally:
            memory = None  # memory that is referenced cannot be closed
        replies.write(json.dumps({"id": task_id, **reply}) + "\n")
        replies.flush()


def main(arguments: list[str]) -> None:
    """Answer the tasks on the standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends it
    replies, sys.stdout = sys.stdout, sys.stderr  # other output must not be taken for a reply
    decoder, *memories = arguments
    with suppress(BrokenPipeError):
        serve(sys.stdin, replies, list(map(int, memories)), int(decoder) if decoder.isdecimal() else None)


class FailedPartError(Exception):
    """The process works, but cannot decode the part."""


@dataclass
class DecodedPart:
    """A decoded part, or the reason why it is missing."""

    task: PartTask
    reply: PartReply | None
    error: str | None
    pictures: np.ndarray
    on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """Return the memory to its worker."""
        self.pictures = np.empty(0, np.uint8)
        if self.on_release is not None:
            self.on_release()
            self.on_release = None


class PartWorker:
    """A process that decodes one part at a time into one of its memories. It is restarted if it dies."""

    def __init__(self, gpu: int | None = None) -> None:
        self.gpu = gpu
        self.free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(NUM_MEMORIES):
            self.free.put(number)
        self.process: subprocess.Popen[str] | None = None
        self.num_tasks = 0
        self.descriptors = [os.memfd_create("hiero-pictures") for _ in range(NUM_MEMORIES)]
        self.memories: list[mmap.mmap | None] = [None] * NUM_MEMORIES

    def decode(self, task: PartTask, num_bytes: int, number: int) -> DecodedPart:
        try:
            memory = self._map(number, num_bytes)
            reply = self._ask(task, len(memory), number)
        except Exception as error:  # reported to the reader that waits for the part
            if not isinstance(error, FailedPartError):  # the process died or sent something else: start another one
                self.close(kill=True)
            self.free.put(number)
            return DecodedPart(task, None, str(error) or type(error).__name__, np.empty(0, np.uint8))
        pixels = np.frombuffer(memory, np.uint8, reply.num_pictures * task.picture_bytes)
        pictures = pixels.reshape(reply.num_pictures, *task.shape, 3)
        return DecodedPart(task, reply, None, pictures, functools.partial(self.free.put, number))

    def _ask(self, task: PartTask, num_bytes: int, number: int) -> PartReply:
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        self.num_tasks += 1
        fields = {"id": self.num_tasks, "memory": number, "num_bytes": num_bytes, **asdict(task)}
        process.stdin.write(json.dumps(fields) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        if answer.pop("id") != self.num_tasks:
            raise ValueError("this reply belongs to another task")
        if "error" in answer:
            raise FailedPartError(answer["error"])
        answer["shown"], answer["warnings"] = tuple(answer["shown"]), tuple(answer["warnings"])
        return PartReply(**answer)

    def rest(self) -> None:
        """Let an idle process close its file and free the GPU's memory."""
        process = self.process  # another thread may close it
        if self.gpu is not None and process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):  # it has ended
                process.stdin.write("\n")
                process.stdin.flush()

    def _map(self, number: int, num_bytes: int) -> mmap.mmap:
        """Memory of at least this size; it never shrinks."""
        memory = self.memories[number]
        if memory is None or len(memory) < num_bytes:
            os.ftruncate(self.descriptors[number], num_bytes)
            memory = self.memories[number] = mmap.mmap(self.descriptors[number], num_bytes)
        return memory

    def _start(self) -> subprocess.Popen[str]:
        """The process, restarted if it has died."""
        if self.process is not None and self.process.poll() is not None:
            self.close()
        if self.process is None:
            decoder = "cpu" if self.gpu is None else str(self.gpu)
            self.process = subprocess.Popen(
                python_command("hiero.decoding.decode_worker", decoder, *map(str, self.descriptors)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                pass_fds=self.descriptors,
            )
        return self.process

    def end_input(self) -> None:
        """Tell the process to end, without waiting for it."""
        process = self.process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):
                process.stdin.close()

    def close(self, kill: bool = False) -> None:
        """End the process with its input, or at once."""
        if kill and self.process is not None:
            self.process.kill()
        self.end_input()
        process, self.process = self.process, None
        if process is None or process.stdout is None:
            return
        try:
            process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
