"""Segments of a video, decoded by several processes: parts of one video, or of several videos, in parallel.

A part begins at a keyframe where decoding can begin, and ends at the next part. A process decodes it on
the CPU or a GPU, scales the sampled frames, and writes them to shared memory; they are joined to
segments here. Tasks and replies are pickles on the standard input and output of the process. The
segments equal those of `read_segments` pixel by pixel; only pictures after damage in a video may
differ. If a part is not as expected (its timestamps jump, its size changes, a frame cannot be decoded,
or a process dies), `read_segments` reads the rest of the video.

Threads would not help: FFmpeg's own leave scaling and all of Python to one of them.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import math
import mmap
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.media.decode import (
    DEFAULT_SAMPLING,
    MAX_FRAME_S,
    BrokenVideoWarning,
    DisplayedFrame,
    Sampling,
    Segment,
    SegmentBuilder,
    VideoReader,
    can_skip_unreferenced,
    new_reformatter,
    read_segments,
    scaled_size,
)
from hiero.media.packets import NO_TIMESTAMPS, can_start_decoding, import_av, packets_from
from hiero.storage.cache import FileState, cache_folder, file_state

logger = logging.getLogger(__name__)

PART_S = 4.0  # minimum length of a part, since each one costs a search and a frame
MAX_PART_BYTES = 2**27  # of pictures: 12 s at 30 per second; videos with fewer keyframes are read by one process
PARTS_PER_WORKER = 1.5  # in memory at a time, of all videos that are being read
EXACT_CODECS = ("h264", "hevc", "vp9")  # for which all decoders produce the same bits
MIN_LAST_FRAMES = 2  # in the last part: the duration of the last frame may depend on the one before
REST_AFTER_S = 1.0  # without a task, after which a process closes its file and frees the GPU's memory
PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from hiero.media.parallel_decode import main; main(sys.argv[2])"


def read_segments_parallel(
    path: Path | str, sampling: Sampling = DEFAULT_SAMPLING, *, processes: int, gpu: int | None = None
) -> Iterator[Segment]:
    """Segments of a video in order, and warnings: those of `read_segments`, decoded by several processes."""
    path = Path(path)
    num_segments = 0
    # A copy of a remote file may be evicted while it is read, unless one process keeps it open.
    is_lasting = path.is_file() and not path.is_relative_to(cache_folder("remote"))
    if is_lasting and processes > 1 and can_start_processes():
        skip = can_skip_unreferenced(path, sampling)
        task = PartTask(str(path.absolute()), file_state(path), replace(sampling, skip_unreferenced=skip))
        try:
            for segment in _read_parts(task, decoding_pool(processes, gpu)):
                yield segment
                num_segments = segment.index + 1
            return
        except (PartError, InputError, import_av().FFmpegError) as error:  # `read_segments` reports what is wrong
            logger.debug("%s is decoded by one process: %s", path, error)
    for segment in read_segments(path, sampling):
        if segment.index >= num_segments:
            yield segment


def can_start_processes() -> bool:
    """Whether processes can share memory by file descriptors: only on Linux."""
    return hasattr(os, "memfd_create") and bool(sys.executable)


def _read_parts(template: PartTask, pool: DecodingPool) -> Iterator[Segment]:
    """Segments from parts that a pool decodes. Raises PartError if the rest must be read in another way."""
    builder = SegmentBuilder(template.sampling)
    waiting: deque[tuple[PartTask, Future[tuple[PartReply, np.ndarray]]]] = deque()
    tasks = _find_parts(template)
    pool.readers.add(builder)
    try:
        while True:
            max_waiting = math.ceil(PARTS_PER_WORKER * len(pool.workers) / len(pool.readers))
            for task, num_bytes in itertools.islice(tasks, max(0, max_waiting - len(waiting))):
                waiting.append((task, pool.submit(task, num_bytes)))
            if not waiting:
                return
            task, future = waiting.popleft()
            reply, pictures = future.result()
            for number in reply.shown:
                yield from builder.add_picture(pictures[number])
            if task.end is None:
                for message in reply.warnings:
                    warnings.warn(BrokenVideoWarning(message), stacklevel=3)
                yield from builder.finish(pictures[-1], reply.last_s, reply.end_s)
    finally:
        pool.readers.discard(builder)
        tasks.close()
        for _, future in waiting:
            future.cancel()


def _find_parts(template: PartTask) -> Generator[tuple[PartTask, int]]:
    """Find the parts of a video in its packets, with the bytes of memory that each needs."""
    part: PartTask | None = None
    with VideoReader(Path(template.path), template.sampling.stream, 1) as reader:
        first, time_base = _read_first_frame(template, reader)
        context, latest = reader.stream.codec_context, first.entry
        codec, extradata = context.codec.canonical_name, bytes(context.extradata or b"")
    with VideoReader(Path(template.path), template.sampling.stream, 1) as reader:
        for packet in reader.container.demux(reader.stream):
            if not packet.size:
                continue
            if packet.pts is None or packet.is_discard or packet.time_base != time_base:
                raise PartError("it has no timestamps")
            is_due = packet.pts == first.entry if part is None else (packet.pts - part.entry) * time_base >= PART_S
            if packet.is_keyframe and is_due and can_start_decoding(codec, extradata, bytes(packet)):
                if part is not None:
                    yield replace(part, end=packet.pts), _count_bytes(part, packet.pts, time_base)
                part = _begin_part(first, packet.pts, time_base)
            if part is None:
                raise PartError("it does not begin with a keyframe")
            latest = max(latest, packet.pts)
            _count_bytes(part, latest, time_base)
    if part is None or part.entry == first.entry:
        raise PartError("it has a single part")
    yield part, _count_bytes(part, latest, time_base)


def _read_first_frame(template: PartTask, reader: VideoReader) -> tuple[PartTask, Fraction]:
    """The first part of a video, as far as its first frame describes it, and the unit of timestamps."""
    frame = next(reader.frames(), None)
    if frame is None or frame.pts is None or reader.container.format.name in NO_TIMESTAMPS:
        raise PartError("it has no timestamps")
    picture = DisplayedFrame(frame, new_reformatter()).picture(template.sampling.short_side)
    first = replace(
        template,
        pixel_format=frame.format.name,
        shape=(picture.shape[0], picture.shape[1]),
        entry=frame.pts,
        first_timestamp_s=float(frame.pts * frame.time_base),
    )
    return first, frame.time_base


def _begin_part(first: PartTask, entry: int, time_base: Fraction) -> PartTask:
    """The part from a keyframe on. Its first sample is at or after the keyframe."""
    sampling = first.sampling
    begin_s = float(entry * time_base) - first.first_timestamp_s
    first_sample = max(0, math.floor(begin_s / sampling.spacing_s) * sampling.num_frames - 1)
    while sampling.time_of(first_sample) < begin_s:
        first_sample += 1
    return replace(first, entry=entry, begin_s=begin_s, first_sample=first_sample)


def _count_bytes(part: PartTask, until: int, time_base: Fraction) -> int:
    """Memory for a picture of each sampled time, and one of the last frame."""
    num_segments = float((until - part.entry) * time_base) / part.sampling.spacing_s + 1
    num_bytes = math.ceil(num_segments * part.sampling.num_frames + 2) * part.picture_bytes
    if num_bytes > MAX_PART_BYTES:
        raise PartError("a part is too long")
    return num_bytes


class DecodingPool:
    """Processes that decode parts of videos, with a thread of this process for each."""

    def __init__(self, processes: int, gpu: int | None = None) -> None:
        self.workers = [PartWorker(gpu) for _ in range(processes)]
        self.readers: set[SegmentBuilder] = set()  # one for each video that is being read
        self._threads = ThreadPoolExecutor(processes)
        self._idle: queue.SimpleQueue[PartWorker] = queue.SimpleQueue()
        for worker in self.workers:
            self._idle.put(worker)

    def submit(self, task: PartTask, num_bytes: int) -> Future[tuple[PartReply, np.ndarray]]:
        """Queue a part for the next idle worker."""

        def decode() -> tuple[PartReply, np.ndarray]:
            worker = self._idle.get()
            try:
                return worker.decode(task, num_bytes)
            finally:
                self._idle.put(worker)

        return self._threads.submit(decode)

    def close(self) -> None:
        """End the threads and their processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.close()


_pools: dict[tuple[int, int | None], DecodingPool] = {}
if hasattr(os, "register_at_fork"):  # not on Windows
    # The threads of a pool are not copied to a forked process, which must not end the workers either.
    os.register_at_fork(after_in_child=_pools.clear)


def decoding_pool(processes: int, gpu: int | None = None) -> DecodingPool:
    """The pool with this many processes, shared by all videos until this process ends."""
    # A new pool has no threads or processes yet, so that it costs nothing if there is one already.
    return _pools.setdefault((processes, gpu), DecodingPool(processes, gpu))


@atexit.register
def close_pools() -> None:
    """End all workers."""
    for pool in _pools.values():
        pool.close()
    _pools.clear()


class PartError(Exception):
    """A part cannot be decoded separately with the same result as in the whole video."""


@dataclass(frozen=True)
class PartTask:
    """A part of a video, from one keyframe to the keyframe of the next part."""

    path: str
    version: FileState
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
    last_s: float = 0.0
    end_s: float = 0.0
    warnings: Sequence[str] = ()


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
            self.reader = VideoReader(path, task.sampling.stream, 1, task.sampling.skip_unreferenced, gpu)
            self.opened = video
            if gpu is not None and self.reader.stream.codec_context.codec.canonical_name not in EXACT_CODECS:
                raise PartError("the GPU may decode this codec differently")
        if file_state(path) != task.version:
            raise PartError("the file has changed")
        self.reader.start_clock(task.first_timestamp_s, task.begin_s)
        return self.reader

    def close(self) -> None:
        """Close the file that is open."""
        if self.reader is not None:
            self.reader.container.close()
        self.reader = None

    def _decode(self, task: PartTask, reader: VideoReader, memory: np.ndarray) -> PartReply:
        pictures = _PictureWriter(task, memory)
        current: DisplayedFrame | None = None
        num_frames = 0
        messages = reader.messages = []
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
                pictures.show(current, time_s)
            if task.end is not None and frame.pts >= task.end:
                if frame.pts != task.end or messages:
                    raise PartError(messages[0] if messages else "the next part does not follow")
                return PartReply(pictures.shown, pictures.num)
            current, num_frames = self._display(frame, task, reader), num_frames + 1
        if task.end is not None or current is None or num_frames < MIN_LAST_FRAMES:
            raise PartError("it ends early")
        if reader.gpu is not None and messages:  # the CPU shows whether the file is really damaged
            raise PartError(messages[0])
        pictures.show(current, reader.end_s, is_last=True)
        return PartReply(pictures.shown, pictures.num, reader.last_s, reader.end_s, messages)

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
        self.shown: list[int] = []  # number of the picture at each sampled time

    def show(self, frame: DisplayedFrame, until_s: float, is_last: bool = False) -> None:
        """Show a frame at all sampled times before `until_s`. The last frame is written even if there are none."""
        num_before = len(self.shown)
        while self.task.sampling.time_of(self.task.first_sample + len(self.shown)) < until_s:
            self.shown.append(self.num)
        if len(self.shown) == num_before and not is_last:
            return
        picture, size = frame.picture(self.task.sampling.short_side), self.task.picture_bytes
        begin = self.num * size
        if picture.shape[:2] != tuple(self.task.shape) or begin + size > len(self.memory):
            raise PartError("its frames differ in size, or are too many")
        self.memory[begin : begin + size] = picture.reshape(-1)
        self.num += 1


def main(decoder_name: str) -> None:
    """In the process: answer the tasks on the standard input with the CPU or the GPU of this number."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends it
    tasks, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # other output must not be taken for a reply
    decoder = PartDecoder(int(decoder_name) if decoder_name.isdecimal() else None)
    with suppress(BrokenPipeError, EOFError):
        while True:
            if not select.select([tasks], [], [], REST_AFTER_S)[0]:
                decoder.close()
            task, memory_path = pickle.load(tasks)
            reply: PartReply | PartError
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
            process = self._start()
            pickle.dump((task, f"/proc/{os.getpid()}/fd/{memory}"), process.stdin)
            process.stdin.flush()
            reply: PartReply | PartError = pickle.load(process.stdout)
            if isinstance(reply, PartError):
                raise reply
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

    def _start(self) -> Any:
        """The process, restarted if it has died."""
        if self.process is not None and self.process.poll() is not None:
            self.close()
        if self.process is None:
            # From the same copy of hiero as this process; -P: modules in the current folder are not imported.
            arguments = [str(Path(__file__).resolve().parents[2]), "cpu" if self.gpu is None else str(self.gpu)]
            command = [sys.executable, "-P", "-c", PROGRAM, *arguments]
            pipe, null = subprocess.PIPE, subprocess.DEVNULL
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null)
        return self.process

    def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is not None:
            with suppress(OSError), process:  # which also closes its pipes
                process.kill()
