"""Features and thumbnails of one video in one pass: decode it, and run the backbones on the frames.

The features have a row for each segment. There are two kinds of backbones:

- Networks that hiero downloads share a pass over windows of two segments of 1 s. Those for motion see
  all frames of a window, and their outputs are interpolated to the segments; those for single frames
  see one or two frames of each segment.
- A tower for video, such as EgoVLP's, has its own pass. A window is one segment (16 frames at 30 frames
  per second), or several segments in overlapping windows.
"""

from __future__ import annotations

import io
import itertools
import os
import threading
import time
import timeit
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from hiero.devices import num_usable_cores
from hiero.errors import InputError
from hiero.features.video_features import VideoFeatures
from hiero.media.decode import Sampling, Segment, has_gpu_decoder, read_segments
from hiero.media.parallel_decode import read_segments_parallel
from hiero.networks.i3d_int8 import use_fast_integers
from hiero.networks.registry import Backbone, Precision, load_backbone

SEGMENTS_PER_WINDOW = 2  # for networks that share a pass; a tower has 1
NUM_FRAMES = 24  # per window of two segments; docs/performance.md compares other numbers
GPU_BATCH_SIZE = 16  # windows; a CPU is not faster with more than 1
MIN_CORES = 4  # for decoding in processes; with fewer, the threads of the decoder use all of them
MAX_PROCESSES = 32  # that decode
CORES_PER_PROCESS = 4  # if the networks need the cores too
MAX_GPU_PROCESSES = 12  # that decode on a GPU; the largest has seven decoders, but processes also scale frames
GPU_PROCESS_BYTES = 600 * 2**20  # of GPU memory
MAX_GPU_SHARE = 1 / 8  # of the GPU memory for all processes, and at most half of what is free
CORES_PER_GPU_PROCESS = 4  # that decode as fast as one process with a GPU
MIN_PROBABILITY = 1e-8  # of a class, so that its logarithm is finite
MAX_THUMBNAILS = 1000
THUMBNAIL_WIDTHS = (320, 384)  # smallest and largest, in pixels
THUMBNAIL_QUALITY = 70
SAVE_EVERY_S = 60.0  # between saves from which an interrupted run resumes
END = object()  # marks the end of an iterator
HALF_SPEEDUP = 0.8  # share of the time of single precision below which a CPU uses half precision
NUM_TIMED = 6  # convolutions that are timed for it, in each precision

Item = TypeVar("Item")


@dataclass
class LoadedBackbones:
    """Loaded backbones that read a video together. Threads may share them: one batch runs at a time."""

    backbones: list[Backbone]
    modules: list[nn.Module]
    device: torch.device
    num_frames: int
    num_segments: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def load(
        cls,
        backbones: Sequence[Backbone],
        device: str | torch.device = "cpu",
        precision: Precision = "auto",
        num_frames: int | None = None,
        folder: Path | None = None,
        overlap: int = 1,
    ) -> LoadedBackbones:
        """Load backbones that read a video together."""
        tower = backbones[0].num_frames > 0
        if len(backbones) > 1 and any(backbone.num_frames for backbone in backbones):
            names = ", ".join(backbone.name for backbone in backbones)
            raise InputError(f"{names}: a video backbone cannot be combined with other backbones")
        if num_frames is not None and (num_frames < 1 or not tower):
            raise InputError(f"--frames must be at least 1 and needs a video backbone such as egovlp, got {num_frames}")
        device = torch.device(device)
        if tower and device.type != "cuda" and precision in ("float16", "bfloat16"):
            raise InputError(f"video backbones run in float32 on {device.type}. Leave out --precision.")
        window_frames = (num_frames or backbones[0].num_frames) if tower else NUM_FRAMES
        dtype = choose_precision(device, tower) if precision == "auto" else getattr(torch, precision)
        tower_frames = overlap * window_frames if tower else None
        modules = [load_backbone(backbone, device, dtype, tower_frames, folder) for backbone in backbones]
        if precision == "auto" and device.type == "cpu":
            for module in modules:
                if use_fast_integers(module, window_frames):
                    module.float()  # the other layers
        return cls(list(backbones), modules, device, window_frames, 1 if tower else SEGMENTS_PER_WINDOW)

    def run_frames(self, frames: Tensor) -> list[Tensor]:
        """Features by each backbone of windows from `stack_frames`."""
        with self.lock, torch.inference_mode():
            return [run_network(b, m, frames) for b, m in zip(self.backbones, self.modules, strict=True)]


@dataclass(frozen=True)
class ExtractionOptions:
    """How a video is read. `device` and `precision` only apply to backbones that are not loaded yet."""

    spacing_s: float | None = None
    overlap: int = 1
    device: str | torch.device = "cpu"
    precision: Precision = "auto"
    batch_size: int | None = None
    stream: int = 0
    threads: int = 0
    thumbnails: bool = True

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {self.batch_size}")


DEFAULT_OPTIONS = ExtractionOptions()


def extract_features(
    path: Path | str,
    networks: LoadedBackbones | Sequence[Backbone],
    options: ExtractionOptions = DEFAULT_OPTIONS,
    partial: Path | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> VideoFeatures:
    """Extract the features of a video, a row for each segment, with backbones that are loaded, or with others."""
    if not isinstance(networks, LoadedBackbones):
        networks = LoadedBackbones.load(networks, options.device, options.precision)
    backbones = networks.backbones
    spacing_s = backbones[0].spacing_s if options.spacing_s is None else options.spacing_s
    result = _PartialResult.resume(partial, [backbone.name for backbone in backbones])
    segments = read_windows(path, networks, spacing_s, stream=options.stream, threads=options.threads)
    windows = segments if options.overlap == 1 else _overlapping_windows(segments, options.overlap)
    batch_size = options.batch_size or (GPU_BATCH_SIZE if networks.device.type == "cuda" else 1)
    thumbnails = result.thumbnails if options.thumbnails else None
    saved_at_s = time.monotonic()
    # After an error, segments that nobody reads would block the decoder.
    with closing(cast("Generator[Segment]", segments)):
        for window in itertools.islice(windows, result.num_windows):  # an earlier run has done them
            progress(window.end_s)
        # One thread decodes and another prepares batches while the networks run.
        with (
            prefetch(_batches(windows, batch_size)) as decoded,
            prefetch(_prepare_batches(decoded, networks, thumbnails), 1) as batches,
        ):
            for batch in batches:
                result.add(batch, networks)
                progress(result.end_s)
                if partial is not None and time.monotonic() - saved_at_s > SAVE_EVERY_S:
                    with suppress(OSError):  # a full disk must not end the extraction
                        result.save(partial)
                    saved_at_s = time.monotonic()
    window_rows = {backbone.name: torch.cat(result.rows[backbone.name]) for backbone in backbones}
    features = join_windows(backbones, window_rows, result.end_s, spacing_s)
    return VideoFeatures(features, result.end_s, spacing_s, result.thumbnails.times_s, result.thumbnails.pictures)


def read_windows(
    source: Path | str, networks: LoadedBackbones, spacing_s: float, *, stream: int = 0, threads: int = 0
) -> Iterator[Segment]:
    """Windows of a video for the networks, in order and without overlap."""
    sampling = Sampling(
        spacing_s=networks.num_segments * spacing_s,
        num_frames=networks.num_frames,
        short_side=networks.backbones[0].short_side,
        stream=stream,
        skip_unreferenced=networks.num_segments > 1,
    )
    processes, gpu = decoding_processes(networks.device) if threads == 0 else (0, None)
    if processes > 1:
        return read_segments_parallel(source, sampling, processes=processes, gpu=gpu)
    return read_segments(source, sampling, threads)


def decoding_processes(device: torch.device) -> tuple[int, int | None]:
    """How many processes decode videos, and on which GPU."""
    num_cores, is_cuda = num_usable_cores(), device.type == "cuda"
    if is_cuda and os.environ.get("HIERO_GPU_DECODING") != "0" and has_gpu_decoder():
        gpu = torch.cuda.current_device() if device.index is None else device.index
        free_bytes, total_bytes = torch.cuda.mem_get_info(gpu)
        num_fitting = int(min(MAX_GPU_SHARE * total_bytes, free_bytes / 2) / GPU_PROCESS_BYTES)
        if num_fitting > 1 and num_fitting * CORES_PER_GPU_PROCESS >= num_cores:
            return min(MAX_GPU_PROCESSES, num_fitting), gpu
    if num_cores < MIN_CORES:
        return 0, None
    return min(MAX_PROCESSES, num_cores if is_cuda else max(2, num_cores // CORES_PER_PROCESS)), None


def join_windows(
    backbones: Sequence[Backbone], rows: Mapping[str, Tensor], end_s: float, spacing_s: float
) -> dict[str, np.ndarray]:
    """Features with a row for each segment, from the outputs of the backbones for each window."""
    num_rows, is_tower = max(1, round(end_s / spacing_s)), backbones[0].num_frames > 0
    segments = torch.arange(num_rows)
    out = {}
    for backbone in backbones:
        values = rows[backbone.name]
        last = len(values) - 1
        if is_tower or backbone.per_frame:
            out[backbone.name] = values[segments.clamp_max(last)].contiguous().numpy()
            continue
        # The middles of windows are 1, 3, 5 … segments from the start, those of segments ½, 1½, 2½ …
        position = ((segments + 0.5) / 2 - 0.5).clamp(0, last)
        lower = position.floor().long()
        upper = (lower + 1).clamp_max(last)
        out[backbone.name] = torch.lerp(values[lower], values[upper], (position - lower)[:, None]).numpy()
    return out


def stack_frames(batch: Sequence[Segment], device: torch.device) -> Tensor:
    """Frames of B windows on a device, (B, frames, height, width, 3) uint8, for all backbones."""
    if len(batch) == 1 and device.type == "cpu":
        return torch.from_numpy(batch[0].frames)[None]
    # A GPU reads pinned memory several times as fast.
    shape = (len(batch), *batch[0].frames.shape)
    frames = torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")
    for row, window in zip(frames, batch, strict=True):
        row.copy_(torch.from_numpy(window.frames))
    return frames.to(device, non_blocking=True)


def run_network(backbone: Backbone, module: nn.Module, frames: Tensor) -> Tensor:
    """Features of a batch of windows from one backbone."""
    dtype = next(module.parameters()).dtype
    if backbone.per_frame:
        num_shown = SEGMENTS_PER_WINDOW * backbone.frames_per_segment
        shown = [int((i + 0.5) * NUM_FRAMES / num_shown) for i in range(num_shown)]  # evenly spaced
        pictures = backbone.prepare(frames[:, shown].flatten(0, 1)).to(dtype)
        outputs = module(pictures).float().cpu().unflatten(0, (-1, backbone.frames_per_segment))
        # Class scores are averaged as probabilities, features as they are.
        return outputs.softmax(2).mean(1).clamp_min(MIN_PROBABILITY).log() if backbone.scores else outputs.mean(1)
    clips = backbone.prepare(frames.flatten(0, 1)).to(dtype).unflatten(0, (len(frames), -1))
    outputs = module(clips).float().cpu()
    if dtype == torch.float16 and not torch.isfinite(outputs).all():  # an overflow: use single precision from now on
        outputs = module.float()(clips.float()).float().cpu()
    return outputs


def choose_precision(device: torch.device, tower: bool = False) -> torch.dtype:
    """Half precision on GPUs, the fastest one on CPUs, else single precision.

    Towers use bfloat16 on a GPU, which does not overflow, and float32 elsewhere.
    """
    if device.type == "cuda":
        return torch.bfloat16 if tower else torch.float16
    if tower or device.type != "cpu":
        return torch.float32
    return _fastest_precision()


@cache
def _fastest_precision() -> torch.dtype:
    """The precision that this CPU is clearly faster with, else single precision. Measured once per process.

    Neither the name nor the flags of a CPU tell, so a small convolution is timed.
    """
    spent_s = {torch.float32: _time_convolution(torch.float32)}
    for dtype in (torch.float16, torch.bfloat16):
        with suppress(RuntimeError):  # this CPU does not have it
            spent_s[dtype] = _time_convolution(dtype) / HALF_SPEEDUP
    return min(spent_s, key=lambda dtype: spent_s[dtype])


def _time_convolution(dtype: torch.dtype) -> float:
    x, weight = torch.zeros(1, 64, 56, 56, dtype=dtype), torch.zeros(64, 64, 3, 3, dtype=dtype)
    timer = timeit.Timer(lambda: torch.nn.functional.conv2d(x, weight, padding=1))
    return min(timer.repeat(NUM_TIMED, number=1))  # the shortest is little affected by other processes


@dataclass
class _PartialResult:
    """The result of an extraction so far."""

    rows: dict[str, list[Tensor]]
    num_windows: int = 0
    end_s: float = 0.0
    thumbnails: Thumbnails = field(default_factory=lambda: Thumbnails())

    @classmethod
    def resume(cls, partial: Path | None, names: list[str]) -> _PartialResult:
        """Load what an earlier run has saved; empty if there is no valid file."""
        empty = cls({name: [] for name in names})
        if partial is None or not partial.is_file():
            return empty
        try:
            saved = VideoFeatures.load(partial)
            ((num_windows, interval),) = saved.features.pop("windows").astype(int).tolist()
        except (InputError, KeyError, ValueError, TypeError):
            return empty
        is_valid = set(saved.features) == set(names) and num_windows >= 1 and interval >= 1
        if not is_valid or not all(
            len(rows) and len(rows) % num_windows == 0 and np.isfinite(rows).all() for rows in saved.features.values()
        ):
            return empty
        rows = {name: [torch.from_numpy(saved.features[name])] for name in names}
        return cls(rows, num_windows, saved.duration_s, Thumbnails(interval, saved.thumbnail_times, saved.thumbnails))

    def add(self, batch: _PreparedBatch, networks: LoadedBackbones) -> None:
        """Run the networks on a batch; a window that repeats the one before has its rows."""
        if batch.frames is None:
            for backbone in networks.backbones:
                num_rows = networks.num_segments if backbone.per_frame else 1
                self.rows[backbone.name].append(self.rows[backbone.name][-1][-num_rows:])
        else:
            for backbone, rows in zip(networks.backbones, networks.run_frames(batch.frames), strict=True):
                self.rows[backbone.name].append(rows)
        self.num_windows, self.end_s = batch.num_windows, batch.end_s
        for pictures in batch.thumbnails:
            self.thumbnails.add(pictures)

    def save(self, partial: Path) -> None:
        arrays = {name: torch.cat(rows).numpy() for name, rows in self.rows.items()}
        arrays["windows"] = np.array([[self.num_windows, self.thumbnails.interval]])
        VideoFeatures(arrays, self.end_s, 1.0, self.thumbnails.times_s, self.thumbnails.pictures).save(partial)


class _PreparedBatch(NamedTuple):
    """A batch for the networks."""

    num_windows: int  # up to its end
    end_s: float
    frames: Tensor | None  # on the device; None if they repeat those before
    thumbnails: list[list[Thumbnail]]  # of each window


class Thumbnail(NamedTuple):
    """A small picture of a segment."""

    segment: int
    time_s: float
    picture: bytes  # a JPEG file


@dataclass
class Thumbnails:
    """Thumbnails of a video: at most MAX_THUMBNAILS, evenly spaced."""

    interval: int = 1
    times_s: list[float] = field(default_factory=list)
    pictures: list[bytes] = field(default_factory=list)

    def make(self, window: Segment, num_segments: int) -> list[Thumbnail]:
        """Thumbnails of every `interval`-th segment, from the sharpest frame in its middle half."""
        out, num_frames = [], len(window.times_s) // num_segments
        for number in range(num_segments):
            middle = number * num_frames + num_frames // 2
            segment = num_segments * window.index + number
            if segment % self.interval == 0 and window.times_s[middle] <= window.end_s:
                reach = num_frames // 4
                nearest_first = sorted(range(middle - reach, middle + reach + 1), key=lambda i: abs(i - middle))
                best = max(nearest_first, key=lambda i: _sharpness(window.frames[i]))
                out.append(Thumbnail(segment, window.times_s[best], make_thumbnail(window.frames[best])))
        return out

    def add(self, thumbnails: Sequence[Thumbnail]) -> None:
        """Add those of the next window. If there are too many, every second one is dropped."""
        for thumbnail in thumbnails:
            if thumbnail.segment % self.interval == 0:
                self.times_s.append(thumbnail.time_s)
                self.pictures.append(thumbnail.picture)
        if len(self.pictures) > MAX_THUMBNAILS:
            self.interval *= 2
            self.times_s, self.pictures = self.times_s[::2], self.pictures[::2]


def _sharpness(frame: np.ndarray) -> float:
    """Mean contrast between neighbouring pixels, which motion blur reduces."""
    green = frame[::2, ::2, 1].astype(np.int16)
    return float(sum(np.abs(np.diff(green, axis=axis)).mean() for axis in (0, 1)))


def make_thumbnail(frame: np.ndarray) -> bytes:
    """Convert an RGB frame (height, width, 3) to a small JPEG file."""
    from PIL import Image

    image = Image.fromarray(frame)
    width = int(np.clip(image.width, *THUMBNAIL_WIDTHS))
    image = image.resize((width, round(width * image.height / image.width)))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=THUMBNAIL_QUALITY)
    return out.getvalue()


def _overlapping_windows(segments: Iterator[Segment], num_segments: int) -> Iterator[Segment]:
    """Windows of several segments: each segment gets the window that it begins, the last ones the last window."""
    recent: deque[Segment] = deque(maxlen=num_segments)

    def window_of(segment: Segment) -> Segment:
        times_s = tuple(time_s for part in recent for time_s in part.times_s)
        return Segment(segment.index, times_s, np.concatenate([part.frames for part in recent]), segment.end_s)

    for segment in segments:
        recent.append(segment)
        if len(recent) == num_segments:
            yield window_of(recent[0])
    for segment in list(recent)[len(recent) == num_segments :]:
        yield window_of(segment)


def _batches(windows: Iterator[Segment], size: int) -> Iterator[list[Segment]]:
    """Batches of windows; those that repeat the one before come one by one."""
    for is_repeated, run in itertools.groupby(windows, lambda window: window.is_repeated):
        while batch := list(itertools.islice(run, 1 if is_repeated else size)):
            yield batch


def _prepare_batches(
    decoded: Iterator[list[Segment]], networks: LoadedBackbones, thumbnails: Thumbnails | None
) -> Iterator[_PreparedBatch]:
    """Move frames to the device and make thumbnails, except for windows that repeat the one before."""
    for batch in decoded:
        frames, pictures = None, []
        if not batch[-1].is_repeated:
            frames = stack_frames(batch, networks.device)
            if thumbnails is not None:
                pictures = [thumbnails.make(window, networks.num_segments) for window in batch]
        yield _PreparedBatch(batch[-1].index + 1, batch[-1].end_s, frames, pictures)


@contextmanager
def prefetch(source: Iterator[Item], num_ahead: int = 2) -> Iterator[Iterator[Item]]:
    """Read an iterator in a thread, a few items ahead. The thread ends with the block."""
    with ThreadPoolExecutor(1) as pool:
        futures = deque(pool.submit(next, source, END) for _ in range(num_ahead + 1))

        def items() -> Iterator[Item]:
            while (item := futures[0].result()) is not END:
                futures.popleft()
                futures.append(pool.submit(next, source, END))
                yield cast("Item", item)

        try:
            yield items()
        finally:
            for future in futures:
                future.cancel()
