"""Video files as segments on a clock in seconds.

Segment i covers [i, i + 1) · spacing_s from the first frame on, and holds frames at evenly spread moments inside it: at each moment
the frame that a player would show. Only timestamps count, never frame numbers, so variable frame rates, missing durations and late
starts come out right. Frames are decoded once, in order, and scaled only if they are used: memory does not grow with the length.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError


class BrokenVideoWarning(UserWarning):
    """A file ends before its time; what could be read is used."""


@dataclass(frozen=True)
class VideoInfo:
    """What a file says about itself. duration_s and fps are None where it does not say; width and height are as shown."""

    path: Path
    duration_s: float | None
    fps: float | None
    width: int
    height: int
    codec: str
    num_streams: int


@dataclass(frozen=True)
class Segment:
    """frames (N, H, W, 3) uint8 RGB, shown at `times_s`; the number of the segment; where it ends (the last: with the video)."""

    index: int
    times_s: tuple[float, ...]
    frames: np.ndarray
    end_s: float


def probe(path: Path | str, stream: int = 0) -> VideoInfo:
    """Open a file and look, without decoding more than a frame."""
    with _Opened(Path(path), stream) as opened:
        video = opened.stream
        frame = next(opened.frames(), None)
        if frame is None:
            raise InputError(f"{path}: holds no frame that can be decoded")
        height, width = _shown(frame)
        duration = float(video.duration * video.time_base) if video.duration else None
        if duration is None and opened.container.duration:
            duration = opened.container.duration / 1e6
        return VideoInfo(
            Path(path), duration, _frame_rate(video), width, height, video.codec_context.name,
            len(opened.container.streams.video),
        )  # fmt: skip


def _frame_rate(video: Any) -> float | None:
    """Frames a second: the rate that the stream was made at where its average agrees with it, which rounding of durations blurs."""
    average, base = video.average_rate or video.guessed_rate, video.base_rate
    if average and base and abs(float(base / average) - 1) < 0.005:
        return float(base)
    return float(average) if average else None


def read_segments(
    path: Path | str,
    *,
    spacing_s: float = 1.0,
    num_frames: int = 16,
    short_side: int | None = 256,
    stream: int = 0,
    threads: int = 0,
    min_share: float = 0.5,
) -> Iterator[Segment]:
    """Segments of a video in order. A last one of which less than `min_share` is there is left out, unless it is the only one.

    short_side: scale frames so that the shorter side has this many pixels (None: as they are). threads: of the decoder, 0 chooses.
    A broken tail gives what came before it and a `BrokenVideoWarning` warning; a file without any frame is an InputError.
    """
    if not spacing_s > 0 or num_frames < 1:
        raise InputError(f"spacing_s must be positive and num_frames at least 1, got {spacing_s} and {num_frames}")
    path = Path(path)
    with _Opened(path, stream, threads) as opened:
        part = _Collector(spacing_s, num_frames, short_side)
        shown: _Shown | None = None
        for frame in opened.frames():
            time_s = opened.time_of(frame)
            if shown is not None:
                yield from part.show(shown, until_s=time_s)
            shown = _Shown(frame)
        if shown is None:
            raise InputError(f"{path}: holds no frame that can be decoded")
        yield from part.show(shown, until_s=opened.end_s)
        yield from part.rest(shown, opened.last_s, opened.end_s, min_share)


class _Collector:
    """Fills moments, in order, with what is shown at them."""

    def __init__(self, spacing_s: float, num_frames: int, short_side: int | None) -> None:
        self.spacing_s, self.num_frames, self.short_side = spacing_s, num_frames, short_side
        self.index = 0
        self.shape: tuple[int, int] | None = None
        self.frames: list[np.ndarray] = []
        self.times: list[float] = []

    def show(self, shown: _Shown, until_s: float) -> Iterator[Segment]:
        """Use a frame for all moments before `until_s`; a segment is given out when it is full."""
        while (moment := (self.index + (len(self.frames) + 0.5) / self.num_frames) * self.spacing_s) < until_s:
            self.frames.append(self._picture(shown))
            self.times.append(moment)
            if len(self.frames) == self.num_frames:
                yield self._full()

    def rest(self, last: _Shown, last_s: float, end_s: float, min_share: float) -> Iterator[Segment]:
        """The last segment, if enough of it is there or it is the only one; the last frame stands for what is missing."""
        if (self.frames and len(self.frames) >= min_share * self.num_frames) or not self.index:
            missing = self.num_frames - len(self.frames)
            self.times += [max([last_s, *self.times])] * missing
            self.frames += [self._picture(last)] * missing
            yield self._full(end_s)

    def _picture(self, shown: _Shown) -> np.ndarray:
        """A picture of the first one's size: where a stream changes it, the middle is kept, or framed in black."""
        picture = shown.picture(self.short_side)
        if self.shape is None:
            self.shape = picture.shape[0], picture.shape[1]
        if picture.shape[:2] == self.shape:
            return picture
        out = np.zeros((*self.shape, 3), dtype=np.uint8)
        height, width = min(picture.shape[0], self.shape[0]), min(picture.shape[1], self.shape[1])
        top, left = (picture.shape[0] - height) // 2, (picture.shape[1] - width) // 2
        y, x = (self.shape[0] - height) // 2, (self.shape[1] - width) // 2
        out[y : y + height, x : x + width] = picture[top : top + height, left : left + width]
        return out

    def _full(self, end_s: float | None = None) -> Segment:
        end_s = (self.index + 1) * self.spacing_s if end_s is None else end_s
        segment = Segment(self.index, tuple(self.times), np.stack(self.frames), end_s)
        self.index, self.frames, self.times = self.index + 1, [], []
        return segment


class _Shown:
    """The frame on the screen; its picture is made once, when it is first wanted."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.made: np.ndarray | None = None

    def picture(self, short_side: int | None) -> np.ndarray:
        if self.made is None:
            width, height = self.frame.width, self.frame.height
            if short_side is not None:
                scale = short_side / min(width, height)
                width, height = max(1, round(width * scale)), max(1, round(height * scale))
            picture = self.frame.reformat(width=width, height=height, format="rgb24").to_ndarray()
            turns = round(_rotation(self.frame) / 90) % 4
            self.made = np.ascontiguousarray(np.rot90(picture, turns)) if turns else picture
        return self.made


def _rotation(frame: Any) -> int:
    """Degrees that a player must turn the picture by, counterclockwise."""
    return int(getattr(frame, "rotation", 0) or 0)


def _shown(frame: Any) -> tuple[int, int]:
    """Height and width after the turn."""
    return (frame.width, frame.height) if round(_rotation(frame) / 90) % 2 else (frame.height, frame.width)


class _Opened:
    """A container and one of its video streams. Knows when each frame is shown, and where the last one ends."""

    def __init__(self, path: Path, stream: int, threads: int = 0) -> None:
        self.path, self.number, self.threads = path, stream, threads

    def __enter__(self) -> _Opened:
        try:
            import av
        except ImportError:
            raise InputError("reading video needs PyAV; run: pip install 'hiero-video[video]'") from None
        self.failure: Any = av.FFmpegError
        if not self.path.is_file():
            raise InputError(f"{self.path}: no such file")
        try:
            self.container = av.open(str(self.path))
        except (av.FFmpegError, ValueError, OSError) as error:
            raise InputError(f"{self.path}: not a video that FFmpeg can read ({error})") from error
        streams = self.container.streams.video
        if self.number >= len(streams) or self.number < 0:
            self.container.close()
            if not streams:
                raise InputError(f"{self.path}: has no video stream")
            raise InputError(f"{self.path}: has {len(streams)} video streams, number {self.number} is not one of them")
        self.stream: Any = streams[self.number]
        self.stream.thread_type = "AUTO"
        if self.threads:
            self.stream.codec_context.thread_count = self.threads
        rate = self.stream.average_rate or self.stream.guessed_rate
        self.usual_s = 1 / float(rate) if rate else 1 / 25
        self.first: float | None = None
        self.last_s = 0.0
        self.end_s = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.container.close()

    def frames(self) -> Iterator[Any]:
        """Frames in the order they are shown. Ends at a break in the file, with a warning if there were frames before it."""
        num = 0
        try:
            for frame in self.container.decode(self.stream):
                num += 1
                yield frame
        except self.failure as error:
            if not num:
                raise InputError(f"{self.path}: cannot be decoded ({error})") from error
            warnings.warn(
                BrokenVideoWarning(f"{self.path}: breaks off after {self.end_s:.1f} s ({error}); what comes before is used"),
                stacklevel=3,
            )

    def time_of(self, frame: Any) -> float:
        """Seconds from the first frame. A frame without a timestamp follows the last one at the usual rate."""
        time_s = None if frame.pts is None or frame.time_base is None else float(frame.pts * frame.time_base)
        if self.first is None:
            self.first = time_s if time_s is not None else 0.0
            now = 0.0
        else:
            now = time_s - self.first if time_s is not None else self.last_s + self.usual_s
            now = max(now, self.last_s)  # time does not run back
        duration = float(frame.duration * frame.time_base) if frame.duration and frame.time_base is not None else self.usual_s
        gap = now - self.last_s
        self.last_s = now
        self.end_s = now + (duration if 0 < duration < 10 else gap or self.usual_s)
        return now
