"""Features of a video in one pass over it: decode, run the backbones, keep small pictures on the way.

One row a segment. The networks that we fetch share a pass of windows of two segments (of 1 s): those that see motion look at all
its frames and their outputs are interpolated to the segments; those that see pictures look at the middle frame of each segment. A
tower for video has a pass of its own, where a window is one segment (16 frames at 30 a second), or a few that overlap.
Decoding runs in a thread of its own. Every minute what is done is saved, so that an interrupted run goes on from there.
"""

from __future__ import annotations

import io
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hiero.errors import InputError
from hiero.extraction.video_features import VideoFeatures
from hiero.video.decode import Segment, read_segments
from hiero.video.registry import Backbone, Precision, find_backbone, load_backbone

NUM_FRAMES = 24  # of a window of two segments; see docs/performance.md for what more and fewer cost and give
FRAMES_PER_SEGMENT = 2  # frames of a segment that networks for pictures look at
MAX_PICTURES = 2000
PICTURE_HEIGHT = 90
SAVE_EVERY_S = 60.0


@dataclass
class LoadedBackbones:
    """Backbones that read a video together, loaded. May be shared by threads that read several videos: one batch runs at a time."""

    backbones: list[Backbone]
    modules: list[nn.Module]
    device: torch.device
    num_frames: int
    """Frames of a window of `num_segments` segments."""
    num_segments: int
    turn: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def load(
        cls,
        names: Sequence[str],
        device: str | torch.device = "cpu",
        precision: Precision = "auto",
        num_frames: int | None = None,
        folder: Path | None = None,
        overlap: int = 1,
    ) -> LoadedBackbones:
        """num_frames: that a tower looks at in a segment, where not its own; overlap: segments of its windows.

        folder: weights in place of the fetched ones.
        """
        chosen = [find_backbone(name) for name in names]
        if any(backbone.num_frames for backbone in chosen) and len(chosen) > 1:
            raise InputError(f"{', '.join(names)}: a tower for video reads alone")
        tower = chosen[0].num_frames > 0
        if num_frames is not None and (num_frames < 1 or not tower):
            raise InputError(f"frames of a segment: at least 1, and only of towers for video, got {num_frames} for {names[0]}")
        device = torch.device(device)
        frames = (num_frames or chosen[0].num_frames) if tower else NUM_FRAMES
        if tower and device.type != "cuda" and precision in ("float16", "bfloat16"):
            raise InputError(f"towers run in float32 on {device.type}; leave --precision out")
        kind = choose_precision(device, tower) if precision == "auto" else getattr(torch, precision)
        modules = [load_backbone(backbone, device, kind, overlap * frames if tower else None, folder) for backbone in chosen]
        return cls(chosen, modules, device, frames, 1 if tower else 2)

    def run(self, batch: list[Segment]) -> list[Tensor]:
        """Features of a batch of windows by each of the backbones."""
        with self.turn, torch.inference_mode():
            return [run_backbone(b, m, batch, self.device) for b, m in zip(self.backbones, self.modules, strict=True)]


def extract_features(
    path: Path | str,
    names: Sequence[str] = ("i3d-k400", "lite2-imagenet"),
    *,
    networks: LoadedBackbones | None = None,
    spacing_s: float | None = None,
    overlap: int = 1,
    device: str | torch.device = "cpu",
    precision: Precision = "auto",
    batch_size: int | None = None,
    stream: int = 0,
    threads: int = 0,
    pictures: bool = True,
    partial: Path | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> VideoFeatures:
    """Features of a video, one row every `spacing_s` seconds, from each of the named backbones (or from `networks`, loaded before).

    overlap: segments that a tower's window spans; the next one begins a segment later. threads: of the decoder, 0 chooses.
    partial: where to keep what is done, to go on from after an interruption; the caller removes it when it has kept the result.
    progress: told the seconds of video that are done. batch_size: windows that go through the networks together (1 on a CPU,
    16 on a GPU).
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"the batch size is at least 1, got {batch_size}")
    networks = networks or LoadedBackbones.load(names, device, precision)
    chosen, num = networks.backbones, networks.num_segments
    spacing_s = chosen[0].spacing_s if spacing_s is None else spacing_s
    done = _PartialResult.resume(partial, [backbone.name for backbone in chosen])
    windows = read_segments(
        path, spacing_s=num * spacing_s, num_frames=networks.num_frames, short_side=chosen[0].short_side, stream=stream,
        threads=threads, min_share=0.0,
    )  # fmt: skip
    size = batch_size or (16 if networks.device.type == "cuda" else 1)
    saved = time.monotonic()
    with _Prefetcher(_batches(_overlapping(windows, overlap), done.num_windows, size)) as batches:
        for batch in batches:
            if batch[-1].index < done.num_windows:  # done in an earlier run
                progress(batch[-1].end_s)
                continue
            for backbone, rows in zip(chosen, networks.run(batch), strict=True):
                done.rows[backbone.name].append(rows)
            done.count(batch)
            if pictures:
                done.look(batch, num)
            progress(done.end_s)
            if partial is not None and time.monotonic() - saved > SAVE_EVERY_S:
                with suppress(OSError):  # a full disk must not end what it only protects
                    done.save(partial)
                saved = time.monotonic()
    rows_there = max(1, round(done.end_s / spacing_s))
    features = {
        b.name: _rows_per_segment(torch.cat(done.rows[b.name]), rows_there, num == 1 or b.per_frame).numpy() for b in chosen
    }
    return VideoFeatures(features, done.end_s, spacing_s, done.picture_times, done.pictures)


def run_backbone(backbone: Backbone, module: nn.Module, batch: list[Segment], device: torch.device) -> Tensor:
    """Features of a batch of windows: (windows, width), or for pictures (2 · windows, width)."""
    dtype = next(module.parameters()).dtype
    if backbone.per_frame:
        at = [int((i + 0.5) * NUM_FRAMES / (2 * FRAMES_PER_SEGMENT)) for i in range(2 * FRAMES_PER_SEGMENT)]
        frames = torch.from_numpy(np.concatenate([s.frames[at] for s in batch]))
        found = module(backbone.prepare(frames.to(device)).to(dtype)).float().cpu().unflatten(0, (-1, FRAMES_PER_SEGMENT))
        return found.softmax(2).mean(1).clamp_min(1e-8).log() if backbone.scores else found.mean(1)
    frames = torch.from_numpy(np.concatenate([s.frames for s in batch])).to(device)
    clips = backbone.prepare(frames).to(dtype).unflatten(0, (len(batch), -1))
    found = module(clips).float().cpu()
    if dtype == torch.float16 and not torch.isfinite(found).all():  # beyond what half precision holds
        found = module.float()(clips.float()).float().cpu()
    return found


def _rows_per_segment(rows: Tensor, num: int, per_frame: bool) -> Tensor:
    """Rows for `num` segments: as they are, or from windows of two segments by interpolation between their middles."""
    if per_frame:
        at = torch.arange(num).clamp_max(len(rows) - 1)
        return rows[at].contiguous()
    place = ((torch.arange(num) + 0.5) / 2 - 0.5).clamp(0, len(rows) - 1)  # middles of windows are 1, 3, 5 … segments in
    low = place.floor().long()
    return torch.lerp(rows[low], rows[(low + 1).clamp_max(len(rows) - 1)], (place - low)[:, None])


def choose_precision(device: torch.device, tower: bool = False) -> torch.dtype:
    """Half precision on GPUs, and on CPUs that are clearly faster with it: measured, because neither name nor flag says so.

    Towers take bfloat16 on a GPU, which does not overflow, and float32 elsewhere.
    """
    if device.type == "cuda":
        return torch.bfloat16 if tower else torch.float16
    if tower or device.type != "cpu":
        return torch.float32
    spent = {}
    for dtype in (torch.float32, torch.float16):
        x, weight = torch.zeros(1, 64, 28, 28, dtype=dtype), torch.zeros(64, 64, 3, 3, dtype=dtype)
        try:
            torch.nn.functional.conv2d(x, weight, padding=1)
            begin = time.perf_counter()
            for _ in range(4):
                torch.nn.functional.conv2d(x, weight, padding=1)
            spent[dtype] = time.perf_counter() - begin
        except RuntimeError:  # not there on this machine
            return torch.float32
    return torch.float16 if spent[torch.float16] < 0.8 * spent[torch.float32] else torch.float32


@dataclass
class _PartialResult:
    """What an extraction has so far."""

    rows: dict[str, list[Tensor]]
    num_windows: int = 0
    end_s: float = 0.0
    every: int = 1
    picture_times: list[float] = field(default_factory=list)
    pictures: list[bytes] = field(default_factory=list)

    @classmethod
    def resume(cls, partial: Path | None, names: list[str]) -> _PartialResult:
        if partial is None or not partial.is_file():
            return cls({name: [] for name in names})
        try:
            held = VideoFeatures.load(partial)
            num = held.features.pop("windows")
        except (InputError, KeyError):  # damaged: begin again
            return cls({name: [] for name in names})
        rows = {name: [torch.from_numpy(value)] for name, value in held.features.items()}
        return cls(rows, int(num[0, 0]), held.duration_s, int(num[0, 1]), held.picture_times, held.pictures)

    def save(self, partial: Path) -> None:
        rows = {name: torch.cat(found).numpy() for name, found in self.rows.items()}
        rows["windows"] = np.array([[self.num_windows, self.every]])
        VideoFeatures(rows, self.end_s, 1.0, self.picture_times, self.pictures).save(partial)

    def count(self, batch: list[Segment]) -> None:
        self.num_windows = batch[-1].index + 1
        self.end_s = batch[-1].end_s

    def look(self, batch: list[Segment], num_segments: int) -> None:
        """Keep some pictures of a batch: never more than MAX_PICTURES, evenly spread."""
        for window in batch:
            for part in range(num_segments):
                at = (2 * part + 1) * len(window.times_s) // (2 * num_segments)
                if (num_segments * window.index + part) % self.every == 0 and window.times_s[at] <= window.end_s:
                    self.picture_times.append(window.times_s[at])
                    self.pictures.append(make_thumbnail(window.frames[at]))
            if len(self.pictures) > MAX_PICTURES:
                self.every *= 2
                self.picture_times, self.pictures = self.picture_times[::2], self.pictures[::2]


def make_thumbnail(frame: np.ndarray) -> bytes:
    """An RGB frame as a small JPEG."""
    from PIL import Image

    image = Image.fromarray(frame)
    image.thumbnail((PICTURE_HEIGHT * 4, PICTURE_HEIGHT))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=70)
    return out.getvalue()


def _overlapping(segments: Iterator[Segment], num: int) -> Iterator[Segment]:
    """Windows of `num` segments that begin one segment after the other. At the end they step back, as far as the video reaches."""
    if num < 1:
        raise InputError(f"a window spans at least 1 segment, got {num}")
    if num == 1:
        yield from segments
        return
    held: deque[Segment] = deque(maxlen=num)
    index = 0

    def window(end_s: float) -> Segment:
        frames, times = np.concatenate([s.frames for s in held]), tuple(time for s in held for time in s.times_s)
        return Segment(index, times, frames, end_s)

    for segment in segments:
        held.append(segment)
        if len(held) == num:
            yield window(held[0].end_s)
            index += 1
    for segment in list(held)[1 if index else 0 :]:
        yield window(segment.end_s)
        index += 1


def _batches(windows: Iterator[Segment], skip: int, size: int) -> Iterator[list[Segment]]:
    batch: list[Segment] = []
    for window in windows:
        if window.index < skip:
            yield [window]
            continue
        batch.append(window)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class _Prefetcher:
    """Iterate in a thread, a few items ahead. Leaving the block, even by an error, ends the thread; its errors come out here."""

    def __init__(self, source: Iterator[Any], num: int = 2) -> None:
        self.source = source
        self.items: queue.Queue[Any] = queue.Queue(num)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._fill, daemon=True)

    def __enter__(self) -> Iterator[Any]:
        self.thread.start()
        return self._items()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        while self.thread.is_alive():
            while not self.items.empty():
                self.items.get_nowait()
            self.thread.join(0.05)

    def _items(self) -> Iterator[Any]:
        while True:
            kind, value = self.items.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value

    def _fill(self) -> None:
        try:
            for item in self.source:
                if self.stop.is_set():
                    return
                self._put("item", item)
            self._put("end", None)
        except BaseException as error:  # whatever it is belongs to the caller
            self._put("error", error)

    def _put(self, kind: str, value: Any) -> None:
        while not self.stop.is_set():
            try:
                self.items.put((kind, value), timeout=0.1)
                return
            except queue.Full:
                continue
