"""Segments of a video, decoded by several processes: parts of it at the same time, and parts of several videos.

A part begins at a keyframe where decoding can begin, and ends at the next part's. A process
(`hiero.decoding.decode_worker`) decodes it, by the CPU or by a GPU's decoder, scales the frames
that are sampled, and puts them into memory that is shared; here they become segments, in order. The
segments are those of `read_segments`, pixel by pixel; of a damaged video, pictures after the damage
may differ. Where a part does not fit what is expected (a jump of the clock, another size, a frame
that does not decode, a process that died, other videos that hold all of the memory),
`read_segments` reads the video. What was given already is left out.

Threads would not do: FFmpeg's own leave scaling and all of Python to one of them.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import queue
import sys
import threading
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import av

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
from hiero.decoding.decode_worker import DecodedPart, PartTask, PartWorker
from hiero.decoding.packets import NO_TIMESTAMPS, can_enter
from hiero.errors import InputError
from hiero.storage.cache import cache_folder, file_state

logger = logging.getLogger(__name__)
Item = TypeVar("Item")

PART_S = 4.0  # length of a part at least: to begin one costs a search and a frame
MAX_PART_BYTES = 2**27  # of pictures: 12 s of 30 a second; a video with rarer keyframes is read by one process
PARTS_PER_WORKER = 1.5  # of a video, that are begun or waiting: a quarter of the memories is left for other videos
# that a part waits for a process; others, which nobody may be reading, hold all of the memory then
START_TIMEOUT_S = 30.0
REST_AFTER_S = 1.0  # without a task, or without a memory
NO_MEMORY = -1


class _PartsError(Exception):
    """The video cannot be read on in parts."""


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
    # A copy of a remote file may be evicted while it is read; one process keeps it open.
    is_valid = is_valid and not path.is_relative_to(cache_folder("remote"))
    if is_valid and processes > 1 and can_start_processes():
        skip = can_skip_unreferenced(path, sampling)
        task = PartTask(str(path.absolute()), file_state(path), replace(sampling, skip_unreferenced=skip))
        try:
            for segment in _read_parts(task, decoding_pool(processes, gpu)):
                yield segment
                num_segments = segment.index + 1
            return
        # what is wrong with the file, if anything, is said below
        except (_PartsError, InputError, av.FFmpegError) as error:
            logger.debug("%s is not read in parts: %s", path, error)
    for segment in read_segments(path, sampling):
        if segment.index >= num_segments:
            yield segment


def can_start_processes() -> bool:
    """Whether processes can share memory by file descriptors here: on Linux."""
    return hasattr(os, "memfd_create") and bool(sys.executable)


def _read_parts(template: PartTask, pool: DecodingPool) -> Iterator[Segment]:
    """Segments from parts that are decoded by a pool. Raises _PartsError where the video must be read
    on in another way.
    """
    builder = SegmentBuilder(template.sampling)
    waiting: deque[Future[DecodedPart]] = deque()
    tasks = _find_parts(template)
    try:
        is_more = True
        while True:
            while is_more and len(waiting) < PARTS_PER_WORKER * len(pool.workers):
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
                    yield from builder.finish(part.pictures[-1], part.reply.last_s, part.reply.end_s)
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


@dataclass(frozen=True)
class _Stream:
    """What the packets of a video stream are read with."""

    time_base: Fraction
    codec: str
    extradata: bytes


def _find_parts(template: PartTask) -> Generator[tuple[PartTask, int]]:
    """Parts of a video with the bytes of memory that each needs.

    They are found by the packets; only the first frame is decoded.
    """
    first, stream = _read_first_frame(template)
    time_base, part, latest = stream.time_base, None, first.entry
    with VideoReader(Path(template.path), template.sampling.stream, 1) as reader:
        for packet in reader.container.demux(reader.stream):
            if not packet.size:
                continue
            if packet.pts is None or packet.is_discard or packet.time_base != time_base:
                raise _PartsError("no timestamps")
            if part is None and not (packet.is_keyframe and packet.pts == first.entry):
                raise _PartsError("does not begin with a keyframe")
            is_due = part is None or (packet.pts - part.entry) * time_base >= PART_S
            if packet.is_keyframe and is_due and can_enter(stream.codec, stream.extradata, bytes(packet)):
                if part is not None:
                    yield replace(part, end=packet.pts), _count_bytes(part, packet.pts, time_base)
                part = _begin_part(first, packet.pts, time_base)
            if part is None:
                raise _PartsError("does not begin with a keyframe")
            latest = max(latest, packet.pts)
            _count_bytes(part, latest, time_base)
    if part is None or part.entry == first.entry:
        raise _PartsError("a single part")
    yield part, _count_bytes(part, latest, time_base)


def _read_first_frame(template: PartTask) -> tuple[PartTask, _Stream]:
    """The first part of a video, as far as its first frame describes it."""
    with VideoReader(Path(template.path), template.sampling.stream, 1) as reader:
        frame = next(reader.frames(), None)
        if frame is None or frame.pts is None or reader.container.format.name in NO_TIMESTAMPS:
            raise _PartsError("no timestamps")
        picture = DisplayedFrame(frame, new_reformatter()).picture(template.sampling.short_side)
        context = reader.stream.codec_context
        stream = _Stream(frame.time_base, context.codec.canonical_name, bytes(context.extradata or b""))
        first = replace(
            template,
            pixel_format=frame.format.name,
            shape=(picture.shape[0], picture.shape[1]),
            entry=frame.pts,
            first_timestamp_s=float(frame.pts * frame.time_base),
        )
        return first, stream


def _begin_part(first: PartTask, entry: int, time_base: Fraction) -> PartTask:
    """The part from a keyframe on: its first sample is the first one at or after the keyframe."""
    sampling = first.sampling
    begin_s = float(entry * time_base) - first.first_timestamp_s
    first_sample = max(0, math.floor(begin_s / sampling.spacing_s) * sampling.num_frames - 1)
    while sampling.time_of(first_sample) < begin_s:
        first_sample += 1
    return replace(first, entry=entry, begin_s=begin_s, first_sample=first_sample)


def _count_bytes(part: PartTask, until: int, time_base: Fraction) -> int:
    """Memory for as many pictures as there are sampled times, and one for the last frame."""
    num_segments = float((until - part.entry) * time_base) / part.sampling.spacing_s + 1
    num_bytes = math.ceil(num_segments * part.sampling.num_frames + 2) * part.picture_bytes
    if num_bytes > MAX_PART_BYTES:
        raise _PartsError("too long")
    return num_bytes


class DecodingPool:
    """Processes that decode parts of videos, each served by a thread here."""

    def __init__(self, processes: int, gpu: int | None = None) -> None:
        self.tasks: queue.SimpleQueue[tuple[PartTask, int, Future[DecodedPart]] | None] = queue.SimpleQueue()
        self.workers = [PartWorker(gpu) for _ in range(processes)]
        self.is_closed = False
        for worker in self.workers:
            threading.Thread(target=self._serve, args=(worker,), daemon=True).start()

    def submit(self, task: PartTask, num_bytes: int) -> Future[DecodedPart]:
        """Let a worker decode a part; the oldest that waits comes first."""
        future: Future[DecodedPart] = Future()
        self.tasks.put((task, num_bytes, future))
        return future

    def _serve(self, worker: PartWorker) -> None:
        while True:
            # A memory first, then a task: all that is taken from the queue runs, so a reader never
            # waits for a part behind its own.
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
        for worker in self.workers:  # all end at the same time
            worker.end_input()
        for worker in self.workers:
            self.tasks.put(None)
            worker.free.put(NO_MEMORY)  # wakes a thread that waits for one
            worker.close()


def _get_or_rest(items: queue.SimpleQueue[Item], worker: PartWorker) -> Item:
    """The next item; while none comes, the worker holds nothing."""
    try:
        return items.get(timeout=REST_AFTER_S)
    except queue.Empty:
        worker.rest()
        return items.get()


_pools: dict[tuple[int, int | None], DecodingPool] = {}
_lock = threading.Lock()


def _forget_pools() -> None:
    """In a process that was forked: its threads did not come along, so there is nobody to wait for."""
    global _pools, _lock
    _pools, _lock = {}, threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_pools)


def decoding_pool(processes: int, gpu: int | None = None) -> DecodingPool:
    """The pool with this many processes, which all videos share; it lives as long as this process does."""
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
