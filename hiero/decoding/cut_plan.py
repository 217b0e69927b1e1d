"""What becomes of each frame of a piece of a video that is cut out: copied, or encoded anew."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from hiero.decoding.packets import PacketIndex, Source, decode_all, index_packets, open_source
from hiero.errors import InputError

MAX_GAP_S = 0.5  # a piece that begins so long before its next frame begins with the one that is on the screen


@dataclass(frozen=True)
class Piece:
    """A stretch of a video file."""

    path: Path
    start_s: float
    end_s: float
    stream: int = 0


@dataclass(frozen=True)
class CutPlan:
    """What becomes of each frame of a piece."""

    source: Source
    head: list[tuple[int, int]]
    copied: list[int]
    tail: list[tuple[int, int]]
    seek: int
    drops_leading: bool
    origin: int
    end: int

    @property
    def num_frames(self) -> int:
        return len(self.head) + len(self.copied) + len(self.tail)

    @property
    def duration_s(self) -> Fraction:
        return self.source.seconds(self.end - self.origin)

    def encoded_whole(self) -> CutPlan:
        """The same frames, all of them encoded."""
        middle = [(pts, pts) for pts in sorted(self.copied)]
        return CutPlan(self.source, [*self.head, *middle, *self.tail], [], [], self.seek, False, self.origin, self.end)


def plan_cut(source: Source, index: PacketIndex, start: int, end: int) -> CutPlan:
    """Which packets of [start, end) can be copied: the most that leave all other frames to be encoded."""
    shown = sorted(index.pts)
    inside = [pts for pts in shown if start <= pts < end]
    before = [pts for pts in shown if pts < start]
    after = [pts for pts in shown if pts >= end]
    max_gap = MAX_GAP_S / source.time_base
    repeated = []
    if before and (not inside or inside[0] - start > max_gap):
        repeated = [(before[-1], start)]  # the frame that is on the screen when the piece begins
    is_after_end = not inside and not after and bool(before) and start - before[-1] > max_gap
    if is_after_end or not (inside or repeated):
        raise InputError(
            f"{source.path}: no frame from {float(source.seconds(start - source.zero)):.2f} s on; it is shorter"
        )
    first_shown = repeated[0][0] if repeated else inside[0]
    keys = (pts for pts, is_key in zip(index.pts, index.is_key, strict=True) if is_key and pts <= first_shown)
    seek = max(keys, default=shown[0])
    origin = repeated[0][1] if repeated else inside[0]
    last = inside[-1] if inside else start
    duration = dict(zip(index.pts, index.durations, strict=True)).get(last) or round(source.frame_s / source.time_base)
    piece_end = (
        last + duration if not after else min(after[0], max(end, last + 1)) if after[0] - end > max_gap else after[0]
    )
    first, stop = _copied_range(index, start, end)
    copied = [pts for pts in index.pts[first:stop] if pts >= index.pts[first]] if stop > first else []
    if not copied:
        return CutPlan(source, repeated + [(p, p) for p in inside], [], [], seek, False, origin, piece_end)
    head = repeated + [(p, p) for p in inside if p < copied[0]]
    tail = [(p, p) for p in inside if p > max(copied)]
    return CutPlan(source, head, copied, tail, seek, index.has_leading[first], origin, piece_end)


def _copied_range(index: PacketIndex, start: int, end: int) -> tuple[int, int]:
    """The longest range of packets, from one that can be entered on, that holds all that is shown
    between its frames.
    """
    first = next((i for i, pts in enumerate(index.pts) if index.can_enter[i] and start <= pts < end), None)
    if first is None or not index.is_complete:
        return 0, 0
    # The earliest frame of all later packets: a range is complete where nothing that follows is
    # shown before its last frame.
    earliest = np.minimum.accumulate(np.array([*index.pts[first:], 2**62], dtype=np.int64)[::-1])[::-1]
    stop, latest = first, -(2**62)
    for i in range(first, len(index.pts)):
        latest = max(latest, index.pts[i])
        if latest >= end:
            break
        rest = earliest[i - first + 1]
        if latest < rest:
            stop = i + 1
    return first, stop


def read_plan(piece: Piece, source: Source | None = None) -> CutPlan:
    """Plan a piece of a file."""
    source = source or open_source(piece.path, piece.stream)
    start, end = source.tick(piece.start_s), source.tick(piece.end_s)
    index = index_packets(source, start, end)
    if index.is_complete:
        return plan_cut(source, index, start, end)
    # Without timestamps of packets only decoding says when frames are shown.
    times = [pts for pts, _ in decode_all(source) if start <= pts < end]
    if not times:
        raise InputError(f"{piece.path}: no frame from {piece.start_s:.2f} s on; it is shorter")
    frame = round(source.frame_s / source.time_base)
    return CutPlan(source, [(pts, pts) for pts in times], [], [], -1, False, times[0], times[-1] + max(1, frame))
