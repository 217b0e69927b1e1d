"""Segments of a video, decoded by several processes or by a GPU: parts of it at the same time, and parts of several videos.

A part begins at a keyframe where decoding can begin, and ends at the next part's. A process (`hiero.video.decode_worker`) decodes
it, scales the frames that are sampled, and puts them into memory that is shared; here they become segments, in order. The segments
are those of `read_segments`, pixel by pixel; of a damaged video, pictures after the damage may differ. A GPU decodes and scales
likewise (`hiero.video.gpu_decode`), up to rounding. Where a part does not fit what is expected (a jump of the clock, another size,
a frame that does not decode, a process that died, other videos that hold all of the memory), the next slower way reads the video:
processes, then `read_segments`. What was given already is left out.

On a CPU threads would not do: FFmpeg's own leave scaling and all of Python to one of them.
"""

from __future__ import annotations

import atexit
import itertools
import json
import logging
import math
import mmap
import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import av
import numpy as np

from hiero.errors import InputError
from hiero.storage.cache import file_state
from hiero.storage.remote import find_remote
from hiero.video.bitstream import NalFormat
from hiero.video.decode import (
    BrokenVideoWarning,
    DisplayedFrame,
    Segment,
    SegmentBuilder,
    VideoReader,
    has_gpu_decoder,
    new_reformatter,
    read_segments,
    referenced_suffice,
    sample_time,
)
from hiero.video.decode_worker import PartReply, PartTask
from hiero.video.gpu_decode import NUM_THREADS, GpuWorker
from hiero.video.part_worker import NUM_MEMORIES, DecodedPart, PartWorker

logger = logging.getLogger(__name__)
Item = TypeVar("Item")

PART_S = 4.0  # length of a part at least: to begin one costs a search and a frame
MAX_PART_BYTES = 2**27  # of pictures: 12 s of 30 a second; a video with rarer keyframes is read by one process
PARTS_PER_WORKER = 1.5  # of a video, that are begun or waiting: a quarter of the memories is left for other videos
START_TIMEOUT_S = 30.0  # that a part waits for a process; others, which nobody may be reading, hold all of the memory then
NO_TIMESTAMPS = ("avi",)  # containers whose timestamps of packets are guesses
CLOSE_TIMEOUT_S = 1.0
JOIN_TIMEOUT_S = 10.0  # threads stop at the next frame
REST_AFTER_S = 1.0  # without a task, or without a memory
NO_MEMORY = -1
# Of a process: the same hiero as here, wherever it is imported from.
PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from hiero.video.decode_worker import main; main(sys.argv[2:])"


class _PartsError(Exception):
    """The video cannot be read on in parts."""


class _NoPartsError(_PartsError):
    """Whoever decodes: it has no parts, or none that fit."""


def read_segments_parallel(
    path: Path | str,
    *,
    processes: int,
    spacing_s: float = 1.0,
    num_frames: int = 16,
    short_side: int | None = 256,
    stream: int = 0,
    min_share: float = 0.5,
    skip_unreferenced: bool = False,
    gpu: int | None = None,
) -> Iterator[Segment]:
    """Segments of a video in order: those of `read_segments`, with the same arguments, decoded by several processes or a GPU.

    Args:
        path: The file. A remote one is read as `read_segments` does.
        processes: How many, shared by all videos that are read at the same time.
        spacing_s: Length of a segment.
        num_frames: Frames of a segment, evenly spread.
        short_side: Frames are scaled so that their shorter side has this many pixels; None leaves them as they are.
        stream: Number of the video stream.
        min_share: A last segment of which less is there is left out, unless it is the only one.
        skip_unreferenced: Leave frames out that no other refers to, where the others come as often as frames are sampled.
        gpu: Number of the NVIDIA GPU that decodes, where it can; None: the CPU.

    Raises:
        InputError: The file cannot be read or holds no frame, or an argument makes no sense.

    Warns:
        BrokenVideoWarning: As `read_segments` does.
    """
    path = Path(path)
    num_segments = 0
    is_valid = spacing_s > 0 and num_frames > 0 and path.is_file() and find_remote(path) is None
    pools = _fitting_pools(processes, gpu) if is_valid else iter(())
    if (first := next(pools, None)) is not None:
        skip = skip_unreferenced and referenced_suffice(path, stream, 0, spacing_s / num_frames)
        template = PartTask(
            path=str(path.absolute()), version=file_state(path), stream=stream,
            skip_unreferenced=skip, gpu=None, short_side=short_side, shape=(0, 0), entry=0, end=None,
            first_timestamp_s=0.0, begin_s=0.0, first_sample=0, spacing_s=spacing_s, num_frames=num_frames,
        )  # fmt: skip
        for part_gpu, pool in itertools.chain([first], pools):
            try:
                for segment in _read_parts(replace(template, gpu=part_gpu), pool, min_share):
                    if segment.index >= num_segments:
                        yield segment
                        num_segments = segment.index + 1
                return
            except (_PartsError, InputError, av.FFmpegError) as error:  # what is wrong with the file, if anything, is said below
                logger.debug("%s is not read in parts: %s", path, error)
                if isinstance(error, _NoPartsError):
                    break
    for segment in read_segments(
        path, spacing_s=spacing_s, num_frames=num_frames, short_side=short_side, stream=stream, min_share=min_share,
        skip_unreferenced=skip_unreferenced,
    ):  # fmt: skip
        if segment.index >= num_segments:
            yield segment


def _fitting_pools(processes: int, gpu: int | None) -> Iterator[tuple[int | None, DecodingPool]]:
    """Pools that can decode here, fastest first, each with the number of its GPU; one is made only when it is its turn."""
    if gpu is not None and has_gpu_decoder():
        yield gpu, decoding_pool(NUM_THREADS, GpuWorker)
    if processes > 1 and can_start_processes():
        yield None, decoding_pool(processes)


def can_start_processes() -> bool:
    """Whether processes can share memory by file descriptors here: on Linux."""
    return hasattr(os, "memfd_create") and bool(sys.executable)


def _read_parts(template: PartTask, pool: DecodingPool, min_share: float) -> Iterator[Segment]:
    """Segments from parts that are decoded by a pool. Raises _PartsError where the video must be read on in another way."""
    builder = SegmentBuilder(template.spacing_s, template.num_frames, template.short_side)
    waiting: deque[Future[DecodedPart]] = deque()
    tasks = _find_parts(template)
    try:
        is_more = True
        while True:
            while is_more and len(waiting) < PARTS_PER_WORKER * pool.num_workers:
                task, num_bytes = next(tasks, (None, 0))
                if task is None:
                    is_more = False
                else:
                    waiting.append(pool.submit(task, num_bytes))
            if not waiting:
                return
            part = _wait_for(waiting[0])
            waiting.popleft()  # only now: an interruption leaves it to be released below
            try:
                if part.reply is None:
                    raise _PartsError(part.error)
                for number in part.reply.shown:
                    yield from builder.add_picture(part.pictures[number])
                if part.task.end is None:
                    for message in part.reply.warnings:
                        warnings.warn(BrokenVideoWarning(message), stacklevel=3)
                    yield from builder.finish(part.pictures[-1], part.reply.last_s, part.reply.end_s, min_share)
                # Those of a segment that goes on in the next part: the memory is used again as soon as it is released.
                builder.frames = [picture.copy() for picture in builder.frames]
            finally:
                part.release()
    finally:
        tasks.close()
        for future in waiting:
            if not future.cancel():
                future.add_done_callback(_release)


def _wait_for(future: Future[DecodedPart]) -> DecodedPart:
    """A part that is decoded. Raises _PartsError where it was not even begun for long."""
    try:
        return future.result(START_TIMEOUT_S)
    except TimeoutError:
        if future.cancel():
            raise _PartsError("no process is free") from None
        return future.result()


def _release(future: Future[DecodedPart]) -> None:
    future.result().release()


def _find_parts(template: PartTask) -> Generator[tuple[PartTask, int]]:
    """Parts of a video with the bytes of memory that each needs, found by its packets without decoding more than a frame.

    Raises:
        _NoPartsError: There is only one, one is too long, or timestamps are missing or run back at keyframes.
    """
    path = Path(template.path)
    with VideoReader(path, template.stream, 1) as reader:
        frame = next(reader.frames(), None)
        if frame is None or frame.pts is None or reader.container.format.name in NO_TIMESTAMPS:
            raise _NoPartsError("no timestamps")
        picture = DisplayedFrame(frame, new_reformatter()).picture(template.short_side)
        first, time_base = frame.pts, frame.time_base
        codec = reader.stream.codec_context.codec.canonical_name
        nal_format = NalFormat.from_extradata(codec, bytes(reader.stream.codec_context.extradata or b""))
    first_timestamp_s = float(first * time_base)

    def begin_part(entry: int) -> PartTask:
        begin_s = float(entry * time_base) - first_timestamp_s
        first_sample = max(0, math.floor(begin_s / template.spacing_s) * template.num_frames - 1)
        while sample_time(first_sample, template.num_frames, template.spacing_s) < begin_s:
            first_sample += 1
        return replace(
            template, shape=(picture.shape[0], picture.shape[1]), entry=entry, first_timestamp_s=first_timestamp_s,
            begin_s=begin_s, first_sample=first_sample,
        )  # fmt: skip

    def count_bytes(part: PartTask, until: int) -> int:
        # As many pictures as sampled times, and one for the last frame.
        num_pictures = (float((until - part.entry) * time_base) / part.spacing_s + 1) * part.num_frames + 2
        num_bytes = math.ceil(num_pictures) * part.picture_bytes
        if num_bytes > MAX_PART_BYTES:
            raise _NoPartsError("too long")
        return num_bytes

    with VideoReader(path, template.stream, 1) as reader:
        part: PartTask | None = None
        latest = first
        for packet in reader.container.demux(reader.stream):
            if not packet.size:
                continue
            if packet.pts is None or packet.is_discard or packet.time_base != time_base:
                raise _NoPartsError("no timestamps")
            if packet.is_keyframe and (part is None or (packet.pts - part.entry) * time_base >= PART_S):
                if part is None and packet.pts != first:
                    raise _NoPartsError("does not begin with a keyframe")
                if nal_format is None or nal_format.can_enter(bytes(packet)):
                    if part is not None:
                        yield replace(part, end=packet.pts), count_bytes(part, packet.pts)
                    part = begin_part(packet.pts)
            latest = max(latest, packet.pts)
            if part is None:
                raise _NoPartsError("does not begin with a keyframe")
            count_bytes(part, latest)
        if part is None or part.entry == first:
            raise _NoPartsError("a single part")
        yield part, count_bytes(part, latest)


class DecodingPool:
    """Workers that decode parts of videos, each served by a thread here.

    Args:
        num_workers: How many.
        new_worker: Makes one.
    """

    def __init__(self, num_workers: int, new_worker: Callable[[], PartWorker]) -> None:
        self.num_workers, self.is_closed = num_workers, False
        self.tasks: queue.SimpleQueue[tuple[PartTask, int, Future[DecodedPart]] | None] = queue.SimpleQueue()
        self.workers = [new_worker() for _ in range(num_workers)]
        self.threads = [threading.Thread(target=self._serve, args=(worker,), daemon=True) for worker in self.workers]
        for thread in self.threads:
            thread.start()

    def submit(self, task: PartTask, num_bytes: int) -> Future[DecodedPart]:
        """Let a worker decode a part; the oldest that waits comes first.

        Args:
            task: The part.
            num_bytes: Memory for its pictures at most.
        """
        future: Future[DecodedPart] = Future()
        self.tasks.put((task, num_bytes, future))
        return future

    def _serve(self, worker: PartWorker) -> None:
        while True:
            # A memory first, then a task: all that is taken from the queue runs, so a reader never waits for a part behind its own.
            number = _get_or_rest(worker.free, worker)
            item = None if self.is_closed else _get_or_rest(self.tasks, worker)
            if item is None or self.is_closed:
                return
            task, num_bytes, future = item
            if not future.set_running_or_notify_cancel():
                worker.free.put(number)
                continue
            future.set_result(worker.decode(task, num_bytes, number))

    def close(self) -> None:
        """End the threads and what they serve."""
        self.is_closed = True
        for worker in self.workers:
            self.tasks.put(None)
            worker.free.put(NO_MEMORY)  # wakes a thread that waits for one
            worker.close()
        # A thread that uses the GPU while the interpreter ends takes it down.
        end_s = time.monotonic() + JOIN_TIMEOUT_S
        for thread in self.threads:
            thread.join(max(0.0, end_s - time.monotonic()))


def _get_or_rest(items: queue.SimpleQueue[Item], worker: PartWorker) -> Item:
    """The next item; while none comes, the worker holds nothing."""
    try:
        return items.get(timeout=REST_AFTER_S)
    except queue.Empty:
        worker.rest()
        return items.get()


class ProcessWorker(PartWorker):
    """A process and the memory that it shares. One that dies is started again."""

    def __init__(self) -> None:
        super().__init__()
        self.process: subprocess.Popen[str] | None = None
        self.num_tasks = 0
        self.descriptors = [os.memfd_create("hiero-pictures") for _ in range(NUM_MEMORIES)]
        self.memories: list[mmap.mmap | None] = [None] * NUM_MEMORIES

    def _decode(self, task: PartTask, num_bytes: int, number: int) -> tuple[PartReply, np.ndarray]:
        memory = self._map(number, num_bytes)
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        self.num_tasks += 1
        fields = {"id": self.num_tasks, "memory": number, "num_bytes": len(memory), **asdict(task)}
        process.stdin.write(json.dumps(fields) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        if answer.pop("id") != self.num_tasks:
            raise ValueError("the answer to another task")
        if "error" in answer:
            raise _PartsError(answer["error"])
        answer["shown"], answer["warnings"] = tuple(answer["shown"]), tuple(answer["warnings"])
        return PartReply(**answer), np.frombuffer(memory, np.uint8)

    def _recover(self, task: PartTask, error: Exception) -> None:
        if not isinstance(error, _PartsError):  # it died, or says something else: another process begins anew
            self.close(kill=True)

    def rest(self) -> None:
        """It holds nothing."""

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
            root = str(Path(__file__).resolve().parents[2])
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, root, *map(str, self.descriptors)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                pass_fds=self.descriptors,
            )  # fmt: skip
        return self.process

    def close(self, kill: bool = False) -> None:
        """End the process, which ends with its input; or at once."""
        process, self.process = self.process, None
        if process is None or process.stdin is None or process.stdout is None:
            return
        if kill:
            process.kill()
        with suppress(OSError):  # of what was not sent
            process.stdin.close()
        try:
            process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


_pools: dict[tuple[int, Callable[[], PartWorker]], DecodingPool] = {}
_lock = threading.Lock()


def _forget_pools() -> None:
    """In a process that was forked: its threads did not come along, so there is nobody to wait for."""
    global _pools, _lock
    _pools, _lock = {}, threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_pools)


def decoding_pool(num_workers: int, new_worker: Callable[[], PartWorker] = ProcessWorker) -> DecodingPool:
    """The pool of this many workers, which all videos share; it lives as long as this process does.

    Args:
        num_workers: How many.
        new_worker: Makes one.
    """
    with _lock:
        key = num_workers, new_worker
        if key not in _pools:
            _pools[key] = DecodingPool(num_workers, new_worker)
        return _pools[key]


@atexit.register
def close_pools() -> None:
    """End all workers."""
    with _lock:
        for pool in _pools.values():
            pool.close()
        _pools.clear()
