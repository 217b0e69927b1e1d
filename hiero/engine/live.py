"""Steps of a video while it is being recorded: in the last minutes at first, over the whole video at the end.

The model sees a sliding window, so that each second of video costs the same, however long the
recording is. A step is closed when its end has not moved for a while, and does not change after that.
The features of all windows are logged on the disk; when the recording ends, they are processed like
those of a complete file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import torch

from hiero.backbones.registry import fetch_weights, find_backbone
from hiero.devices import choose_device
from hiero.engine.embedder import NO_TEXT
from hiero.engine.engine import Engine
from hiero.engine.video import Video, is_probable_label
from hiero.errors import InputError
from hiero.extraction.extractor import SEGMENTS_PER_WINDOW, LoadedBackbones, join_windows
from hiero.extraction.feature_log import FeatureLog, LogHeader, LogInUseError, is_in_use, load_recording, read_records
from hiero.extraction.live_extraction import LiveExtraction
from hiero.extraction.video_features import RECORDING_SUFFIX, VideoFeatures
from hiero.sources.live_source import GrowingFile, LiveSource
from hiero.steps.hierarchy import STEP_S, build_hierarchy, group_into_threads
from hiero.storage.cache import cache_folder
from hiero.types import Clock, Hierarchy, ProgressCallback, ProgressEvent, Step, format_time, no_progress
from hiero.vectors import unit_vectors

WINDOW_S = 900.0  # of video that the model sees
SETTLE_S = 10.0  # after which an end that has not moved is closed
END_TOLERANCE_S = 3.0  # distance of ends that count as the same
MIN_STEP_S = 4.0  # from the end of a closed step to the next end
MAX_DELAY_S = 10.0  # between a recording and its features, beyond which windows are skipped
UPDATE_SHARE = 0.25  # of the time for finding steps; the rest is for the networks
REPLAY_EVERY_S = 30.0  # of video between updates, however fast existing video is read
CONFIRMED_S = 5.0  # distance up to which an end that was shown agrees with the result
HEAD_BYTES = 2**20  # of a file, which identify it when a run is resumed
RECORDING = f"recording{RECORDING_SUFFIX}"


@dataclass(frozen=True)
class LiveSettings:
    """How a recording is followed.

    Steps are about `step_s` long and found in the last `window_s`. The features of recordings that
    cannot be read again are kept in `folder`.
    """

    step_s: float = STEP_S
    window_s: float = WINDOW_S
    labels: Sequence[str] | None = None
    max_delay_s: float | None = None
    stream: int = 0
    folder: Path | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        if not self.step_s > 0 or not self.window_s >= 2 * self.step_s:
            got = f"--window-s {self.window_s:g} and --step-s {self.step_s:g}"
            raise InputError(f"--step-s must be positive and at most half of --window-s, got {got}")
        if self.max_delay_s is not None and not self.max_delay_s > 0:
            raise InputError(f"--max-delay-s must be positive, got {self.max_delay_s}")


DEFAULT_SETTINGS = LiveSettings()


@dataclass(frozen=True)
class LiveUpdate:
    """Steps that were closed since the last update, and those that are still open."""

    end_s: float
    closed: tuple[Step, ...]
    open_steps: tuple[Step, ...]
    delay_s: float = 0.0


@dataclass(frozen=True)
class LiveResult:
    """The result of a recording that has ended."""

    video: Video
    differences: tuple[str, ...]
    num_shown: int
    num_confirmed: int


class LiveSteps:
    """Finds steps in the windows so far."""

    def __init__(self, engine: Engine, settings: LiveSettings = DEFAULT_SETTINGS, name: str = "live") -> None:
        if settings.labels and not engine.has_text:
            raise InputError(NO_TEXT)
        self.engine, self.name = engine, name
        self.step_s, self.labels = settings.step_s, settings.labels
        self.backbones = [find_backbone(name) for name in engine.backbones]
        self.spacing_s = engine.spacing_s
        self.num_segments = 1 if self.backbones[0].num_frames else SEGMENTS_PER_WINDOW
        self.closed: list[Step] = []
        self.end_s = 0.0
        self._window_clock = Clock(1.0, self.num_segments * self.spacing_s)
        self._num_kept = max(2, round(settings.window_s / self._window_clock.spacing_s))
        self._windows: deque[dict[str, torch.Tensor]] = deque(maxlen=self._num_kept)
        self._num_windows = 0  # so far, also those that are no longer kept
        self._pending: list[tuple[float, float]] = []  # ends of open steps, and when each was first seen
        self._open: list[Step] = []

    def add(self, index: int, end_s: float, rows: dict[str, torch.Tensor]) -> None:
        """Add a window. Windows that were skipped before it repeat the one before them."""
        for _ in range(min(index - self._num_windows, self._num_kept)):
            self._windows.append(self._windows[-1] if self._windows else rows)
        self._windows.append(rows)
        self._num_windows, self.end_s = index + 1, end_s

    def update(self) -> LiveUpdate:
        """Find the steps in the window."""
        video = self._window_video()
        x, clock = video.segmentation_features, video.clock
        num = int(len(x) * clock.spacing_s // self.step_s) + 1
        level = build_hierarchy(x, clock, [num], length_prior=video.length_prior)[-1]
        closed_s = self.closed[-1].end_s if self.closed else 0.0
        ends_s, num_closed = self._settle([step.start_s for step in level[1:]], closed_s, clock.start_s)
        spans = [Step("", start, end, 0) for start, end in pairwise([closed_s, *ends_s, self.end_s])]
        steps = self._number(self._name(spans, video), x, clock)
        self.closed += steps[:num_closed]
        self._open = steps[num_closed:]
        return LiveUpdate(self.end_s, tuple(steps[:num_closed]), tuple(self._open))

    def hierarchy(self) -> Hierarchy:
        """Steps so far, closed and open, as one level. There are none before the first update."""
        return Hierarchy(self.name, self.engine.name, self.end_s, ((*self.closed, *self._open),))

    def _window_video(self) -> Video:
        """The last minutes as a video of their own, on the clock of the recording."""
        start_s = self._window_clock.edge_s(self._num_windows - len(self._windows))
        rows = {b.name: torch.cat([window[b.name] for window in self._windows]) for b in self.backbones}
        length_s = self.end_s - start_s
        features = join_windows(self.backbones, rows, length_s, self.spacing_s)
        source = VideoFeatures(features, length_s, self.spacing_s)
        clock = Clock(1.0, self.spacing_s, start_s)
        nodes = unit_vectors(self.engine.embed_nodes(features[self.engine.backbones[0]], clock))
        return Video(self.engine, Path(self.name), clock, self.end_s, nodes.astype(np.float32), source)

    def _settle(self, ends_s: list[float], closed_s: float, start_s: float) -> tuple[list[float], int]:
        """The ends after the last closed step, and how many of them are closed now."""
        pending = []
        for end_s in ends_s:
            if end_s >= closed_s + MIN_STEP_S:
                seen = [seen_s for other_s, seen_s in self._pending if abs(other_s - end_s) <= END_TOLERANCE_S]
                pending.append((end_s, min(seen, default=self.end_s)))
        num = 0
        # An end that is about to leave the window is closed in any case.
        while num < len(pending) and (
            self.end_s - pending[num][1] >= SETTLE_S or pending[num][0] < start_s + self.step_s / 2
        ):
            num += 1
        self._pending = pending[num:]
        return [end_s for end_s, _ in pending], num

    def _name(self, steps: list[Step], video: Video) -> list[Step]:
        """Add labels to the steps that one fits."""
        if self.labels == [] or not self.engine.has_text:
            return steps
        first = 0
        if video.pictures is not None:
            # Similarity with pictures does not depend on other nodes, so closed steps are left out.
            first, _ = video.clock.span(steps[0].start_s, self.end_s, len(video.nodes))
        source = VideoFeatures(
            {name: rows[first:] for name, rows in video.source.features.items()}, 0.0, self.spacing_s
        )
        clock = replace(video.clock, start_s=video.clock.edge_s(first))
        part = Video(self.engine, video.path, clock, self.end_s, video.nodes[first:], source)
        seen = [step for step in steps if step.end_s > clock.start_s]
        if first == 0:  # likely_labels needs steps that cover the video
            seen = [*(step for step in self.closed if step.end_s > clock.start_s), *seen]
        labelled = {}
        for step, best in zip(seen, part.likely_labels(seen, self.labels, num=1), strict=True):
            if best and is_probable_label(video, *best[0]):
                labelled[step.start_s] = replace(step, label=best[0][0], probability=best[0][1])
        return [labelled.get(step.start_s, step) for step in steps]

    def _number(self, steps: list[Step], x: np.ndarray, clock: Clock) -> list[Step]:
        """Add ids and threads: a step that resembles an earlier one in the window gets its thread."""
        before = [step for step in self.closed if step.end_s > clock.start_s + clock.spacing_s]
        starts = [clock.span(step.start_s, step.end_s, len(x))[0] for step in (*before, *steps)]
        edges = [0, *(max(start, 1) for start in starts[1:]), len(x)]
        is_ascending = all(a < b for a, b in pairwise(edges))
        groups = group_into_threads(x, edges) if is_ascending else list(range(len(edges) - 1))
        threads: dict[int, int] = {}
        for step, group in zip(before, groups, strict=False):
            threads.setdefault(group, step.thread)
        out, new_threads = [], count(1 + max((step.thread for step in self.closed), default=-1))
        for number, (step, group) in enumerate(zip(steps, groups[len(before) :], strict=True), len(self.closed) + 1):
            if group not in threads:
                threads[group] = next(new_threads)
            out.append(replace(step, id=f"step-{number}", thread=threads[group]))
        return out


class LiveReader:
    """Reads a recording as it grows, and all of it when it ends."""

    def __init__(
        self,
        engine: Engine,
        source: LiveSource,
        settings: LiveSettings = DEFAULT_SETTINGS,
        message: Callable[[str], None] = lambda _: None,
        progress: ProgressCallback = no_progress,
    ) -> None:
        engine.check_width()
        self.engine, self.source, self.settings, self.message = engine, source, settings, message
        self.steps = LiveSteps(engine, settings, source.name)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._is_lasting = False  # whether the log is a result
        self.log = self._open_log(LogHeader(engine.backbones, self.steps.num_segments, engine.spacing_s, source.name))
        for backbone in self.steps.backbones:
            fetch_weights(backbone, progress)
        loaded = LoadedBackbones.load(engine.backbones, choose_device(engine.device), engine.precision)
        max_delay_s = settings.max_delay_s
        if max_delay_s is None and (source.is_lossy or isinstance(source, GrowingFile)):
            max_delay_s = MAX_DELAY_S
        self.extraction = LiveExtraction(source, loaded, self.log, max_delay_s, settings.stream, message)

    def stop(self) -> None:
        """End the recording, from any thread or a signal handler. The result covers what was read so far."""
        self.source.stop.set()

    def updates(self) -> Iterator[LiveUpdate | None]:
        """Steps as they are found; None from time to time while nothing is new."""
        if self.log.num_done:
            self.message(f"resuming after {format_time(self.log.end_s)}")
            yield from self._replay()
        next_update_s, updated_s, is_warm = 0.0, 0.0, False
        try:
            for window in self.extraction.windows():
                if window is None:
                    yield None
                    continue
                self.steps.add(window.index, window.end_s, window.rows)
                begin_s = time.monotonic()
                # Existing video is read fast; the second condition makes sure that ends are seen more than once.
                if begin_s >= next_update_s or window.end_s - updated_s >= REPLAY_EVERY_S:
                    updated_s, update = window.end_s, self.steps.update()
                    delay_s = time.monotonic() - window.decoded_at_s
                    yield replace(update, delay_s=delay_s + self.source.unread_s(self.extraction.decoded_s))
                    end_s = time.monotonic()
                    # The first update also loads the model, so its time says nothing about the others.
                    next_update_s = end_s + (end_s - begin_s) * (1 / UPDATE_SHARE - 1) * is_warm
                    is_warm = True
        except InputError as error:
            if not self.log.num_done:
                raise
            self.message(f"{error}; the recording ends")
        except OSError as error:  # the disk with the log is full
            self.message(f"{self.log.path}: {error.strerror or error}; the recording ends")

    def finish(self, progress: ProgressCallback = no_progress) -> LiveResult:
        """Find the steps of the whole recording, as for a complete file."""
        if not self.log.num_done:
            self.close()
            raise InputError(f"{self.source.name}: ended before a window was complete")
        is_whole = isinstance(self.source, GrowingFile) and self.source.is_fully_read
        if is_whole and self._num_skipped:

            def report(done_s: float) -> None:
                progress(ProgressEvent("read", self.source.name, done_s, self.log.end_s))

            report(0.0)
            self.extraction.fill_skipped(report)
        self.log.close()
        differences = self._differences(is_whole)
        video = self._read_whole(is_whole)
        shown = [step.end_s for step in self.steps.closed]
        ends = np.array([step.end_s for step in video.steps(labels=[]).levels[-1]])
        num_confirmed = sum(bool((np.abs(ends - end_s) <= CONFIRMED_S).any()) for end_s in shown)
        if not self._is_lasting:
            self._remove_log()
        return LiveResult(video, differences, len(shown), num_confirmed)

    def close(self) -> None:
        """Close the log. It is kept if it is a result or a later run can resume it."""
        self.log.close()
        if not self.log.num_done:
            self._remove_log()

    @property
    def _num_windows(self) -> int:
        """Windows of the recording so far, including those that were skipped at its end."""
        return max(self.log.num_windows, self.extraction.end_of_skipped)

    @property
    def _num_skipped(self) -> int:
        """Windows of the recording that were skipped or lost."""
        return self._num_windows - self.log.num_done

    def _differences(self, is_whole: bool) -> tuple[str, ...]:
        """Why the result may differ from that of the complete recording."""
        differences = []
        if isinstance(self.source, GrowingFile) and not is_whole:
            stopped = f"stopped after {format_time(self.log.end_s)}; the file may be longer"
            differences.append(f"{stopped}, and all of it may have other steps: hiero steps {self.source.name}")
        if self._num_skipped and not is_whole:
            share = f"{self._num_skipped} of {self._num_windows} windows ({self._num_skipped / self._num_windows:.0%})"
            differences.append(f"{share} were skipped or lost; the result uses the window before each of them instead")
        return tuple(differences)

    def _read_whole(self, is_whole: bool) -> Video:
        if is_whole and self.settings.cache and isinstance(self.source, GrowingFile):
            features, _ = load_recording(self.log.path)
            self.engine.store_features(self.source.path, features, stream=self.settings.stream)
            return self.engine.read(self.source.path, stream=self.settings.stream, edits=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # skipped windows are reported as differences
            video = self.engine.read(self.log.path, cache=self.settings.cache and self._is_lasting, edits=False)
        video.path, video.origin = Path(self.source.name), None
        return video

    def _replay(self) -> Iterator[LiveUpdate]:
        """Find the steps in the windows of an earlier run."""
        updated_s = 0.0
        for record in read_records(self.log.path):
            if record.end_s <= self.steps.end_s:  # skipped at first and computed later
                continue
            self.steps.add(record.index, record.end_s, record.rows)
            if record.end_s - updated_s >= min(REPLAY_EVERY_S, self.steps.step_s / 2):
                updated_s = record.end_s
                yield self.steps.update()

    def _open_log(self, header: LogHeader) -> FeatureLog:
        """Open the log: among the results for recordings that cannot be read again, else in the cache."""
        if isinstance(self.source, GrowingFile):
            return self._open_file_log(header, self.source.path)
        if self.settings.folder is None:
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}{RECORDING_SUFFIX}"
            return FeatureLog(cache_folder("live") / name, header)
        path = self.settings.folder / RECORDING
        if path.exists():
            shown = f"to see it: hiero steps {path}"
            raise InputError(f"{path}: contains an earlier recording ({shown}). Choose another folder for a new one.")
        self._is_lasting = True
        return FeatureLog(path, header)

    def _open_file_log(self, header: LogHeader, file: Path) -> FeatureLog:
        """Open the log of a growing file, which a later run can resume."""
        if not self.settings.cache:
            self._temporary = tempfile.TemporaryDirectory(prefix="hiero-")
            return FeatureLog(Path(self._temporary.name) / RECORDING, header)
        identity = f"{file.resolve()}\0{file.stat().st_ino}\0{self.engine._feature_key(self.settings.stream)}"
        name = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        own = replace(header, key=_head_key(file, file.stat().st_size))
        for number in range(100):  # other processes may be watching the same file
            path = cache_folder("live") / f"{name}-{number}{RECORDING_SUFFIX}"
            with suppress(LogInUseError):
                return FeatureLog(path, own, is_same=lambda other: _has_head(file, other.key))
        raise InputError(f"{file}: too many processes are watching it")

    def _remove_log(self) -> None:
        with suppress(OSError):
            self.log.path.unlink(missing_ok=True)
        if self._temporary is not None:
            self._temporary.cleanup()


def interrupted_recordings() -> list[Path]:
    """Recordings of cameras and addresses without a folder whose process was killed: they can still be read."""
    return sorted(path for path in cache_folder("live").glob(f"20*{RECORDING_SUFFIX}") if not is_in_use(path))


def _head_key(file: Path, num_bytes: int) -> str:
    """Identifies a file by its first bytes; includes their number, since the file grows."""
    num_bytes = min(num_bytes, HEAD_BYTES)
    with file.open("rb") as head:
        return f"{num_bytes}-{hashlib.sha256(head.read(num_bytes)).hexdigest()[:32]}"


def _has_head(file: Path, key: str) -> bool:
    """Whether a file begins like the one with this key."""
    num_bytes = key.split("-")[0]
    return num_bytes.isdecimal() and key == _head_key(file, int(num_bytes))
