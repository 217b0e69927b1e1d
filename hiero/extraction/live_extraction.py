"""Features of a video while it is being recorded: decoded in a thread, a window at a time, in memory
that does not grow.

Where the networks are slower than the recording, windows are skipped rather than queued: a camera
and an address go on while nobody reads, so a window that finds the queue full is dropped; of a
file, windows are skipped while more than `max_delay_s` of it lie unread (they can be read again
when it is finished); a pipe makes its writer wait.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import monotonic

from torch import Tensor

from hiero.decoding.decode import MAX_GAP_S, Segment
from hiero.errors import InputError
from hiero.extraction.extractor import LoadedBackbones, Thumbnails, read_windows
from hiero.extraction.feature_log import FeatureLog
from hiero.sources.live_source import GrowingFile, LiveSource
from hiero.types import format_time

TICK_S = 0.25  # how often a caller hears that nothing is new
QUEUE_WINDOWS = 1  # that wait for the networks, of what can be read late
MAX_QUEUE_WINDOWS = 16  # of what cannot; a window of 24 frames at 260 pixels takes 9 MB
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.25, 30.0  # between attempts to connect again: twice as long each time
JOIN_TIMEOUT_S = 2.0  # for a thread that waits inside FFmpeg; it ends with the process


@dataclass(frozen=True)
class LiveWindow:
    """A window that went through the networks."""

    index: int
    end_s: float
    rows: dict[str, Tensor]
    decoded_at_s: float


@dataclass(frozen=True)
class LiveSampling:
    """Which windows of a recording are read: those of a stream, unless more than `max_delay_s` of it wait."""

    spacing_s: float
    max_delay_s: float | None
    stream: int = 0


class LiveExtraction:
    """Runs the backbones over a recording as it comes."""

    def __init__(
        self,
        source: LiveSource,
        networks: LoadedBackbones,
        log: FeatureLog,
        sampling: LiveSampling,
        message: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.source, self.networks, self.log, self.message = source, networks, log, message
        self.spacing_s, self.max_delay_s, self.stream = sampling.spacing_s, sampling.max_delay_s, sampling.stream
        self.window_s = networks.num_segments * self.spacing_s
        self.num_skipped = 0
        self.end_of_skipped = 0  # the number of the window after the last one that was skipped
        self.decoded_s = 0.0
        self._best_pace_s, self._num_waits = -math.inf, -1
        self._thumbnails = Thumbnails()
        num_queued = QUEUE_WINDOWS
        if source.keeps_pace:
            num_queued = max(2, min(MAX_QUEUE_WINDOWS, int((self.max_delay_s or 0.0) / self.window_s)))
        self._queue: queue.Queue[tuple[Segment, float]] = queue.Queue(num_queued)
        self._ended, self._closing = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._fill_queue, daemon=True)

    def windows(self) -> Iterator[LiveWindow | None]:
        """Windows as they are computed; None now and then while nothing is new."""
        self._thread.start()
        try:
            while not (self._ended.is_set() and self._queue.empty()):
                try:
                    window, decoded_at_s = self._queue.get(timeout=TICK_S)
                except queue.Empty:
                    yield None
                    continue
                yield LiveWindow(window.index, window.end_s, self._run(window), decoded_at_s)
        finally:
            self.source.stop.set()
            self._closing.set()
            self._thread.join(JOIN_TIMEOUT_S)
        if self._error is not None:
            raise self._error

    def fill_skipped(self, progress: Callable[[float], None]) -> None:
        """Compute the windows of a finished file that were skipped."""
        assert isinstance(self.source, GrowingFile)
        for window in read_windows(self.source.path, self.networks, self.spacing_s, stream=self.stream):
            if not self.log.has(window.index):
                self._run(window, Thumbnails())  # all of its thumbnails: which are wanted is seen when the log is read
            progress(window.end_s)

    def _run(self, window: Segment, thumbnails: Thumbnails | None = None) -> dict[str, Tensor]:
        """Compute a window and log it."""
        outputs = self.networks.run([window])
        rows = {backbone.name: output for backbone, output in zip(self.networks.backbones, outputs, strict=True)}
        made = (thumbnails or self._thumbnails).make(window, self.networks.num_segments)
        self._thumbnails.add(made)
        self.log.append(window.index, window.end_s, rows, made)
        return rows

    # In the thread that decodes

    def _fill_queue(self) -> None:
        try:
            for window in self._connected_windows():
                self.decoded_s = window.end_s
                if self._closing.is_set():
                    return
                if not self.log.has(window.index):
                    self._offer(window)
        except BaseException as error:  # whatever it is belongs to the consumer
            self._error = error
        finally:
            self._ended.set()

    def _offer(self, window: Segment) -> None:
        """Hand a window over, or skip it where it is late."""
        if self.source.keeps_pace:
            try:
                self._queue.put_nowait((window, monotonic()))
            except queue.Full:
                self._skip(window)
            return
        if self._is_late(window.end_s):
            self._skip(window)
            return
        while not self._closing.is_set():
            try:
                self._queue.put((window, monotonic()), timeout=TICK_S)
                return
            except queue.Full:
                continue

    def _is_late(self, end_s: float) -> bool:
        """Whether a recording in real time has come further ahead of us than it may.

        Whoever waits for more is not behind. What was there before we came may take its time, but
        must not become more.
        """
        pace_s = end_s - monotonic()  # falls while we are slower than time
        is_first, is_waiting = self._num_waits < 0, self.source.num_waits > self._num_waits
        if is_first:  # waits before were for the frames that were tried
            is_waiting = False
            self._best_pace_s = -math.inf if self.source.began_at_s is None else -self.source.began_at_s
        self._num_waits = self.source.num_waits
        self._best_pace_s = pace_s if is_waiting else max(self._best_pace_s, pace_s)
        return self.max_delay_s is not None and self._best_pace_s - pace_s > self.max_delay_s

    def _skip(self, window: Segment) -> None:
        if not self.num_skipped:
            later = "they are computed when the file is finished" if self.source.is_file else "they are left out"
            self.message(
                f"slower than real time from {format_time(window.end_s)} on: some windows are skipped; {later}"
            )
        self.num_skipped += 1
        self.end_of_skipped = window.index + 1

    def _connected_windows(self) -> Iterator[Segment]:
        """Windows on the clock of the recording, over as many connections as it takes.

        While a connection is lost time goes on: its windows are missing. Only what is more than an
        hour is left out of the clock.
        """
        num_before = 0  # windows of earlier connections, and between them
        began_s = lost_s = 0.0  # by time.monotonic
        num_attempts = 0
        while True:
            num_windows, failure = 0, "it ended"
            try:
                for window in read_windows(self.source, self.networks, self.spacing_s, stream=self.stream):
                    now_s = monotonic()
                    if not began_s:
                        began_s = now_s - window.end_s
                    elif not num_windows:
                        num_before, began_s = self._return(window, num_before, began_s, lost_s)
                    num_windows, num_attempts = window.index + 1, 0
                    yield _shift(window, num_before, self.window_s)
            except InputError as error:
                if not began_s:
                    raise
                failure = str(error).removeprefix(f"{self.source.name}: ")
            reconnects = self.source.keeps_pace and not getattr(self.source, "ends", False)
            if self.source.stop.is_set() or not reconnects:
                return
            if num_windows or not lost_s:
                num_before, lost_s = num_before + num_windows, monotonic()
                self.message(
                    f"{self.source.name}: connection lost after {format_time(self.decoded_s)} ({failure}); "
                    "connecting again"
                )
            if self.source.idle_s is not None and monotonic() - lost_s > self.source.idle_s:
                self.message(
                    f"{self.source.name}: did not come back within {self.source.idle_s:.0f} s; the recording ends"
                )
                return
            self.source.stop.wait(min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0**num_attempts))
            num_attempts += 1

    def _return(self, window: Segment, num_before: int, began_s: float, lost_s: float) -> tuple[int, float]:
        """The first window after a lost connection: how many windows are before it, and when the recording began."""
        now_s = monotonic()
        away_s = now_s - lost_s
        if away_s > MAX_GAP_S:
            self.message(f"{self.source.name}: back after {format_time(away_s)}, which is left out of the clock")
            return num_before, now_s - window.end_s - num_before * self.window_s
        self.message(f"{self.source.name}: back after {away_s:.0f} s")
        return max(num_before, math.floor((now_s - window.end_s - began_s) / self.window_s)), began_s


def _shift(window: Segment, num_windows: int, window_s: float) -> Segment:
    """A window that comes after `num_windows` others."""
    if not num_windows:
        return window
    offset_s = num_windows * window_s
    return replace(
        window,
        index=window.index + num_windows,
        times_s=tuple(time_s + offset_s for time_s in window.times_s),
        end_s=window.end_s + offset_s,
    )
