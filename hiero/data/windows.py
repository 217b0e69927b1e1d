"""Windows of videos: consecutive ones for training, clips with context for EgoMCQ."""

from __future__ import annotations

from collections.abc import Iterable

from hiero.types import Clock, Window


def cut_windows(num_segments: int, clock: Clock, window_s: float = 300.0) -> list[Window]:
    """Cut a video into consecutive windows; nodes keep their times from the start of the video.

    Window i holds the segments from ⌊i·window_s·fps/stride⌋ up to the same of i + 1, as in the release.
    """
    windows = []
    start_s = clock.start_s
    while (start := clock.index(start_s)) < num_segments:
        end = min(num_segments, clock.index(start_s + window_s))
        window_clock = Clock(clock.fps, clock.stride, clock.start_s + start * clock.spacing_s)
        windows.append(Window(start, end, window_clock))
        start_s += window_s
    return windows


def narrations_in(
    times_s: Iterable[float], index: int, num_segments: int, clock: Clock, window_s: float = 300.0
) -> list[int]:
    """Which narrations fall into a window of `cut_windows`: start ≤ t < min(end of the window, end of the video)."""
    start_s = clock.start_s + index * window_s
    end_s = min(start_s + window_s, clock.start_s + num_segments * clock.spacing_s)
    return [i for i, time_s in enumerate(times_s) if start_s <= time_s < end_s]


def context_window(num_segments: int, clock: Clock, start_s: float, end_s: float, context: int) -> Window:
    """The window of a clip and its context, the same number of segments on both sides; times
    restart at the window.

    A clip that begins beyond the video has no nodes. One that begins at its very end has none either: the release
    puts a zero segment there. The node that represents the clip is num_nodes // 2.
    """
    start = clock.index(start_s)
    end = min(num_segments, max(start + 1, clock.index(end_s)))
    margin = max(0, min(context, start, num_segments - end))
    return Window(start - margin, end + margin, Clock(clock.fps, clock.stride))
