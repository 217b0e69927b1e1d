"""A process that decodes parts of videos, and its client in the process that started it.

Tasks come as lines of JSON on the standard input; pictures go into shared memory. The process ends
when its input does. `hiero.decoding.parallel_decode` says what a part is.
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

EXACT_CODECS = ("h264", "hevc", "vp9")  # whose frames are the same in every bit, whoever decodes them
MIN_LAST_FRAMES = 2  # of a last part: how long the last frame is shown may depend on the one before


NUM_MEMORIES = 2  # of a worker: it fills one while the other is read
CLOSE_TIMEOUT_S = 1.0
CPU = "cpu"  # in place of the number of a GPU
PROGRAM = (
    "import importlib, sys; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2]).main(sys.argv[3:])"
)


def python_command(module: str, *arguments: str) -> list[str]:
    """Command of a process that calls `main` of a module, from the same copy of hiero as this process."""
    root = Path(__file__).resolve().parents[2]
    # -P: modules in the current folder are not imported
    return [sys.executable, "-P", "-c", PROGRAM, str(root), module, *arguments]


class PartError(Exception):
    """A part does not decode by itself as it does in the whole video."""


@dataclass(frozen=True)
class PartTask:
    """A part of a video, from a keyframe to the next part's."""

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
        """The reverse of `asdict`, through JSON."""
        tuples = {name: tuple(fields[name]) for name in ("shape", "version")}
        return cls(**fields | tuples | {"sampling": Sampling(**fields["sampling"])})

    @property
    def picture_bytes(self) -> int:
        """Bytes of a picture."""
        return 3 * self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class PartReply:
    """What a part shows. Its pictures lie one after the other in the shared memory."""

    shown: tuple[int, ...]
    num_pictures: int
    last_s: float
    end_s: float
    warnings: tuple[str, ...] = ()


class PartDecoder:
    """Decodes parts."""

    def __init__(self, gpu: int | None = None) -> None:
        self.gpu = gpu
        self.reformatter, self.converter = new_reformatter(), new_reformatter()
        self.reader: VideoReader | None = None
        self.opened: tuple[object, ...] = ()
        self.failed: set[tuple[object, ...]] = set()  # videos that the GPU could not decode

    def decode(self, task: PartTask, memory: np.ndarray) -> PartReply:
        """Decode a part."""
        video = (task.path, task.version, task.sampling.stream, task.sampling.skip_unreferenced)
        if self.gpu is not None and video not in self.failed:
            try:
                # To make a GPU's decoder takes 70 ms: it stays for the next part.
                return self._decode(task, self._open(task, video, self.gpu), memory)
            # no such GPU, no decoder for it, no memory, a broken file: the CPU says what is wrong,
            # if anything
            except Exception:
                self.failed.add(video)
                self.close()
        try:
            return self._decode(task, self._open(task, video, None), memory)
        finally:
            self.close()  # whoever waits for the next part holds no file that someone may want to delete

    def _open(self, task: PartTask, video: tuple[object, ...], gpu: int | None) -> VideoReader:
        path = Path(task.path)
        if self.reader is None or self.opened != video:
            self.close()
            reader = VideoReader(path, task.sampling.stream, 1, task.sampling.skip_unreferenced, gpu)
            self.reader, self.opened = reader.__enter__(), video
            if gpu is not None and self.reader.stream.codec_context.codec.canonical_name not in EXACT_CODECS:
                raise PartError("a codec whose decoders may differ")
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
        pictures = PictureWriter(task, memory)
        current: DisplayedFrame | None = None
        num_frames = 0

        def show(frame: DisplayedFrame, until_s: float) -> None:
            while task.sampling.time_of(task.first_sample + len(shown)) < until_s:
                shown.append(pictures.write(frame))

        packets = packets_from(reader.container, reader.stream, task.entry, Path(task.path))
        for frame in reader.frames(packets):
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
                return PartReply(tuple(shown), pictures.num, 0.0, 0.0)
            current, num_frames = self._display(frame, task, reader), num_frames + 1
        if task.end is not None or current is None or num_frames < MIN_LAST_FRAMES:
            raise PartError("breaks off")
        # the fault may be the GPU's: the CPU says whether the file breaks off
        if reader.gpu is not None and reader.messages:
            raise PartError(reader.messages[0])
        show(current, reader.end_s)
        pictures.write(current)
        return PartReply(tuple(shown), pictures.num, reader.last_s, reader.end_s, tuple(reader.messages or ()))

    def _display(self, frame: Any, task: PartTask, reader: VideoReader) -> DisplayedFrame:
        if reader.gpu is None:
            return DisplayedFrame(frame, self.reformatter, threads=1)
        context = reader.stream.codec_context
        # of frames on a GPU, FFmpeg does not cut off all sides
        if (frame.width, frame.height) != (context.width, context.height):
            raise PartError("a frame that is cropped")
        return GpuFrame(frame, self.reformatter, self.converter, task.pixel_format)


class GpuFrame(DisplayedFrame):
    """A frame that a GPU has decoded, in its own layout.

    Scaled, it becomes the picture that it would be in the CPU's. Of frames that keep their size
    swscale converts each layout in another way, and rounds otherwise: they are brought into the
    CPU's layout first.
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


class PictureWriter:
    """Puts pictures of a part into memory, one after the other, each frame once."""

    def __init__(self, task: PartTask, memory: np.ndarray) -> None:
        self.task, self.memory, self.num = task, memory, 0
        self.last: DisplayedFrame | None = None

    def write(self, frame: DisplayedFrame) -> int:
        """The number of a frame's picture. Raises PartError where it does not fit."""
        if frame is not self.last:
            picture = frame.picture(self.task.sampling.short_side)
            begin = self.num * self.task.picture_bytes
            if picture.shape[:2] != tuple(self.task.shape) or begin + self.task.picture_bytes > len(self.memory):
                raise PartError("pictures of another size, or too many")
            self.memory[begin : begin + self.task.picture_bytes] = picture.reshape(-1)
            self.last, self.num = frame, self.num + 1
        return self.num - 1


def serve(tasks: TextIO, replies: TextIO, memories: list[int], gpu: int | None = None) -> None:
    """Answer tasks until there are no more."""
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
            memory = None  # a memory that is still looked at cannot be closed
        replies.write(json.dumps({"id": task_id, **reply}) + "\n")
        replies.flush()


def main(arguments: list[str]) -> None:
    """Answer tasks of the standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    replies, sys.stdout = sys.stdout, sys.stderr  # what anything else prints is no answer
    decoder, *memories = arguments
    with suppress(BrokenPipeError):
        serve(
            sys.stdin,
            replies,
            [int(descriptor) for descriptor in memories],
            int(decoder) if decoder.isdecimal() else None,
        )


class FailedPartError(Exception):
    """The process is well, but the part does not decode as it should."""


@dataclass
class DecodedPart:
    """A part that is decoded, or why it is not."""

    task: PartTask
    reply: PartReply | None
    error: str | None
    pictures: np.ndarray
    on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """Give the memory back to its worker."""
        self.pictures = np.empty(0, np.uint8)
        if self.on_release is not None:
            self.on_release()
            self.on_release = None


class PartWorker:
    """A process that decodes parts, one at a time, each into one of its memories. One that dies is started again."""

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
        """Decode a part."""
        try:
            memory = self._map(number, num_bytes)
            reply = self._ask(task, len(memory), number)
        except Exception as error:  # whatever it is, whoever waits must hear of it
            if not isinstance(error, FailedPartError):  # it died, or says something else: another process begins anew
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
            raise ValueError("the answer to another task")
        if "error" in answer:
            raise FailedPartError(answer["error"])
        answer["shown"], answer["warnings"] = tuple(answer["shown"]), tuple(answer["warnings"])
        return PartReply(**answer)

    def rest(self) -> None:
        """Let the process close its file and give the GPU's memory back: no part has come for a while."""
        process = self.process  # once: another thread may close it
        if self.gpu is not None and process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):  # it has died, or was closed
                process.stdin.write("\n")
                process.stdin.flush()

    def _map(self, number: int, num_bytes: int) -> mmap.mmap:
        """Memory of at least this size. It grows, and shrinks never."""
        memory = self.memories[number]
        if memory is None or len(memory) < num_bytes:
            os.ftruncate(self.descriptors[number], num_bytes)
            memory = self.memories[number] = mmap.mmap(self.descriptors[number], num_bytes)
        return memory

    def _start(self) -> subprocess.Popen[str]:
        """The process; another where it has died."""
        if self.process is not None and self.process.poll() is not None:
            self.close()
        if self.process is None:
            decoder = CPU if self.gpu is None else str(self.gpu)
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
        """Say that no part comes any more, and do not wait for the end."""
        process = self.process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):  # of what was not sent
                process.stdin.close()

    def close(self, kill: bool = False) -> None:
        """End the process, which ends with its input; or at once."""
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
