"""Features of a video while it is being recorded: a thread decodes it window by window, in bounded memory.

If the networks are slower than the recording, windows are skipped instead of queued. A camera or an
address does not wait, so a window that finds the queue full is dropped. Windows of a file are skipped
while it is more than `max_delay_s` ahead, and computed when it is finished. A pipe makes its writer wait.
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

TICK_S = 0.25  # between reports that nothing is new
MAX_QUEUE_WINDOWS = 16  # of a lossy source; a window of 24 frames at 260 pixels takes 9 MB
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.25, 30.0  # between attempts to reconnect: doubled each time
JOIN_TIMEOUT_S = 2.0  # for a thread that waits inside FFmpeg; it ends with the process


@dataclass(frozen=True)
class LiveWindow:
    """The features of one window."""

    index: int
    end_s: float
    rows: dict[str, Tensor]
    decoded_at_s: float


class LiveExtraction:
    """Runs the backbones on a recording as it grows."""

    def __init__(
        self,
        source: LiveSource,
        networks: LoadedBackbones,
        log: FeatureLog,
        max_delay_s: float | None,
        stream: int = 0,
        message: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.source, self.networks, self.log, self.message = source, networks, log, message
        self.max_delay_s, self.stream = max_delay_s, stream
        self.spacing_s = log.header.spacing_s
        self.window_s = networks.num_segments * self.spacing_s
        self.num_skipped = 0
        self.end_of_skipped = 0  # index after the last skipped window
        self.decoded_s = 0.0
        self._best_pace_s, self._num_waits = -math.inf, -1
        self._thumbnails = Thumbnails()
        self._outputs: list[Tensor] = []  # of the last window
        self._next_index = -1
        num_queued = max(2, min(MAX_QUEUE_WINDOWS, int((max_delay_s or 0.0) / self.window_s))) if source.is_lossy else 1
        self._queue: queue.Queue[tuple[Segment, float]] = queue.Queue(num_queued)
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._fill_queue, daemon=True)

    def windows(self) -> Iterator[LiveWindow | None]:
        """Windows as they are computed; None from time to time while nothing is new."""
        self._thread.start()
        try:
            while self._thread.is_alive() or not self._queue.empty():
                try:
                    window, decoded_at_s = self._queue.get(timeout=TICK_S)
                except queue.Empty:
                    yield None
                    continue
                rows = self._run(window, self._thumbnails)
                yield LiveWindow(window.index, window.end_s, rows, decoded_at_s)
        finally:
            self.source.stop.set()
            self._closing.set()
            self._thread.join(JOIN_TIMEOUT_S)
        if self._error is not None:
            raise self._error

    def fill_skipped(self, progress: Callable[[float], None]) -> None:
        """Compute the skipped windows of a finished file."""
        assert isinstance(self.source, GrowingFile)
        for window in read_windows(self.source.path, self.networks, self.spacing_s, stream=self.stream):
            if not self.log.has(window.index):
                self._run(window, Thumbnails())  # all thumbnails: the reader of the log selects
            progress(window.end_s)

    def _run(self, window: Segment, thumbnails: Thumbnails) -> dict[str, Tensor]:
        """Compute a window and log it."""
        if not window.is_repeated or window.index != self._next_index:
            self._outputs = self.networks.run([window])
        self._next_index = window.index + 1
        rows = {backbone.name: output for backbone, output in zip(self.networks.backbones, self._outputs, strict=True)}
        pictures = thumbnails.make(window, self.networks.num_segments)
        self._thumbnails.add(pictures)
        self.log.append(window.index, window.end_s, rows, pictures)
        return rows

    # In the decoding thread

    def _fill_queue(self) -> None:
        try:
            for window in self._connected_windows():
                self.decoded_s = window.end_s
                if self._closing.is_set():
                    return
                if not self.log.has(window.index):
                    self._offer(window)
        except BaseException as error:  # raised again by `windows`
            self._error = error

    def _offer(self, window: Segment) -> None:
        """Put a window into the queue, or skip it if it is late."""
        if not self.source.is_lossy and self._is_late(window.end_s):
            self._skip(window)
            return
        while not self._closing.is_set():
            try:
                self._queue.put((window, monotonic()), not self.source.is_lossy, TICK_S)
                return
            except queue.Full:
                if self.source.is_lossy:
                    self._skip(window)
                    return

    def _is_late(self, end_s: float) -> bool:
        """Whether the recording is more than `max_delay_s` ahead.

        A reader that has to wait is not late. Video from before the start may be read slowly, as long
        as the distance does not grow.
        """
        pace_s = end_s - monotonic()  # falls while reading is slower than real time
        is_first, is_waiting = self._num_waits < 0, self.source.num_waits > self._num_waits
        if is_first:  # earlier waits were for the frames that were probed
            is_waiting = False
            self._best_pace_s = -math.inf if self.source.began_at_s is None else -self.source.began_at_s
        self._num_waits = self.source.num_waits
        self._best_pace_s = pace_s if is_waiting else max(self._best_pace_s, pace_s)
        return self.max_delay_s is not None and self._best_pace_s - pace_s > self.max_delay_s

    def _skip(self, window: Segment) -> None:
        if not self.num_skipped:
            is_file = isinstance(self.source, GrowingFile)
            later = "they are computed when the file is finished" if is_file else "they are left out"
            self.message(f"slower than real time at {format_time(window.end_s)}: some windows are skipped; {later}")
        self.num_skipped += 1
        self.end_of_skipped = window.index + 1

    def _connected_windows(self) -> Iterator[Segment]:
        """Windows on the clock of the recording, over any number of connections.

        The clock goes on while a connection is lost, and the windows of that time are missing. Only
        interruptions of more than an hour are left out of the clock.
        """
        name = self.source.name
        num_before = 0  # windows of earlier connections, and between them
        began_s = lost_s = 0.0  # by time.monotonic
        num_attempts = 0
        while True:
            num_windows, failure = 0, "it ended"
            try:
                for window in read_windows(self.source, self.networks, self.spacing_s, stream=self.stream):
                    if not began_s:
                        began_s = monotonic() - window.end_s
                    elif not num_windows:
                        num_before, began_s = self._resume_clock(window, num_before, began_s, lost_s)
                    num_windows, num_attempts = window.index + 1, 0
                    yield _shift(window, num_before, num_before * self.window_s)
            except InputError as error:
                if not began_s:
                    raise
                failure = str(error).removeprefix(f"{name}: ")
            if self.source.stop.is_set() or not self.source.is_lossy or getattr(self.source, "ends", False):
                return
            if num_windows or not lost_s:
                num_before, lost_s = num_before + num_windows, monotonic()
                self.message(f"{name}: connection lost after {format_time(self.decoded_s)} ({failure}); reconnecting")
            if self.source.idle_s is not None and monotonic() - lost_s > self.source.idle_s:
                self.message(f"{name}: could not be reconnected within {self.source.idle_s:.0f} s; the recording ends")
                return
            self.source.stop.wait(min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0**num_attempts))
            num_attempts += 1

    def _resume_clock(self, window: Segment, num_before: int, began_s: float, lost_s: float) -> tuple[int, float]:
        """For the first window of a new connection: the number of windows before it, and the start of the clock."""
        now_s = monotonic()
        away_s = now_s - lost_s
        if away_s > MAX_GAP_S:
            self.message(f"{self.source.name}: reconnected after {format_time(away_s)}, which is left out of the times")
            return num_before, now_s - window.end_s - num_before * self.window_s
        self.message(f"{self.source.name}: reconnected after {away_s:.0f} s")
        return max(num_before, math.floor((now_s - window.end_s - began_s) / self.window_s)), began_s


def _shift(window: Segment, num_windows: int, offset_s: float) -> Segment:
    """Move a window by a number of windows."""
    times_s = tuple(time_s + offset_s for time_s in window.times_s)
    return replace(window, index=window.index + num_windows, times_s=times_s, end_s=window.end_s + offset_s)
