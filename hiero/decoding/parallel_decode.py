"""Segments of a video, decoded by several processes: parts of one video, or of several videos, in parallel.

A part begins at a keyframe where decoding can begin, and ends at the next part. A process
(`hiero.decoding.decode_worker`) decodes it on the CPU or a GPU, scales the sampled frames, and writes
them to shared memory; this module joins them to segments. The segments equal those of `read_segments`
pixel by pixel; only pictures after damage in a video may differ. If a part is not as expected (its
timestamps jump, its size changes, a frame cannot be decoded, or a process dies), `read_segments` reads
the rest of the video.

Threads would not help: FFmpeg's own leave scaling and all of Python to one of them.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import math
import os
import queue
import sys
import threading
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from hiero.decoding.decode import (
    DEFAULT_SAMPLING,
    BrokenVideoWarning,
    DisplayedFrame,
    Sampling,
    Segment,
    SegmentBuilder,
    VideoReader,
    can_skip_unreferenced,
    new_reformatter,
    read_segments,
)
from hiero.decoding.decode_worker import PartError, PartReply, PartTask, PartWorker
from hiero.decoding.packets import NO_TIMESTAMPS, can_start_decoding
from hiero.errors import InputError
from hiero.storage.cache import cache_folder, file_state

logger = logging.getLogger(__name__)

PART_S = 4.0  # minimum length of a part, since each one costs a search and a frame
MAX_PART_BYTES = 2**27  # of pictures: 12 s at 30 per second; videos with fewer keyframes are read by one process
PARTS_PER_WORKER = 1.5  # in memory at a time, of all videos that are being read


def read_segments_parallel(
    path: Path | str, sampling: Sampling = DEFAULT_SAMPLING, *, processes: int, gpu: int | None = None
) -> Iterator[Segment]:
    """Segments of a video in order: those of `read_segments`, decoded by several processes.

    Warns:
        BrokenVideoWarning: As `read_segments` does.
    """
    path = Path(path)
    num_segments = 0
    is_valid = sampling.spacing_s > 0 and sampling.num_frames > 0 and path.is_file()
    # A copy of a remote file may be evicted while it is read, unless one process keeps it open.
    is_valid = is_valid and not path.is_relative_to(cache_folder("remote"))
    if is_valid and processes > 1 and can_start_processes():
        skip = can_skip_unreferenced(path, sampling)
        task = PartTask(str(path.absolute()), file_state(path), replace(sampling, skip_unreferenced=skip))
        try:
            for segment in _read_parts(task, decoding_pool(processes, gpu)):
                yield segment
                num_segments = segment.index + 1
            return
        except (PartError, InputError, av.FFmpegError) as error:  # `read_segments` reports what is wrong
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
            if part is None and not (packet.is_keyframe and packet.pts == first.entry):
                raise PartError("it does not begin with a keyframe")
            is_due = part is None or (packet.pts - part.entry) * time_base >= PART_S
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
        self.readers: set[SegmentBuilder] = set()  # of the videos that are being read
        self._threads = ThreadPoolExecutor(processes)
        self._idle: queue.SimpleQueue[PartWorker] = queue.SimpleQueue()
        for worker in self.workers:
            self._idle.put(worker)

    def submit(self, task: PartTask, num_bytes: int) -> Future[tuple[PartReply, np.ndarray]]:
        """Queue a part for the next idle worker."""
        return self._threads.submit(self._decode, task, num_bytes)

    def _decode(self, task: PartTask, num_bytes: int) -> tuple[PartReply, np.ndarray]:
        worker = self._idle.get()
        try:
            return worker.decode(task, num_bytes)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End the threads and their processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.close()


_pools: dict[tuple[int, int | None], DecodingPool] = {}
_lock = threading.Lock()


def _forget_pools() -> None:
    """In a forked process: the threads were not copied, so there is nothing to wait for."""
    global _pools, _lock
    _pools, _lock = {}, threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_pools)


def decoding_pool(processes: int, gpu: int | None = None) -> DecodingPool:
    """The pool with this many processes, shared by all videos until this process ends."""
    with _lock:
        if (processes, gpu) not in _pools:
            _pools[processes, gpu] = DecodingPool(processes, gpu)
        return _pools[processes, gpu]


@atexit.register
def close_pools() -> None:
    """End all workers."""
    with _lock:
        for pool in _pools.values():
            pool.close()
        _pools.clear()
