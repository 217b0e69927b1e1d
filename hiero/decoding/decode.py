"""Video files as segments on a clock in seconds.

Segment i covers [i, i + 1) · spacing_s from the first frame on, and holds frames at evenly spread
times inside it: at each time the frame that a player would show. Only timestamps count, never frame
numbers, so variable frame rates, missing durations and late starts come out right. Frames are
decoded once, in order, and scaled only if they are used: memory does not grow with the length.
Frames that no other frame refers to (B-frames, mostly) can be left out where the others come often
enough: half the work and less.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hiero.decoding.packets import find_stream, import_av, open_container
from hiero.errors import InputError
from hiero.storage.files import check_fits
from hiero.types import format_time

PURPOSE = "reading video"
RATE_TOLERANCE = 0.005  # relative difference up to which the average frame rate is the base rate, blurred by rounding
DEFAULT_FPS = 25  # where a stream says nothing
MAX_MISSING, MAX_MISSING_S = 0.05, 1.0  # of the stated length: more than this share and second were cut off
MAX_FRAME_S = 10.0  # a longer duration of a single frame is not believed
MAX_GAP_S = 3600.0  # between two frames; slides stand for minutes, but a longer gap is a damaged timestamp
# that all gaps longer than MAX_FRAME_S may add together: a damaged clock stretches each of them
MAX_GAPS_S = 24 * 3600.0
MIN_GPU_PYAV = 18  # before, a frame that comes back from a GPU loses its colour range
NVDEC_LIBRARY = "libnvcuvid.so.1"
MAX_PIXELS = 2**27  # of a frame: 16,384 × 8,192
MAX_ASPECT = 8  # of a scaled frame; a longer one is squeezed, since a strip two pixels high would become a million wide
DECODER_FRAMES = 16  # that FFmpeg may hold at once: those that others refer to, and those of its threads
TRIED_S = 4.0  # of a video, to see how often frames come that others refer to
LATE_SHARE = 0.05  # of the gaps between them may be longer than the sampling


class BrokenVideoWarning(UserWarning):
    """A file ends before its time, or its clock jumps; what could be read is used."""


class StreamSource(Protocol):
    """Where frames come from, if not from a whole file. See `hiero.sources.live_source`."""

    can_reopen: bool
    is_lossy: bool

    def open(self) -> Any:
        """An FFmpeg container. Raises InputError where it cannot be opened."""


@dataclass(frozen=True)
class VideoInfo:
    """What a file says about itself."""

    path: Path
    duration_s: float | None
    fps: float | None
    width: int
    height: int
    codec: str
    num_streams: int


@dataclass(frozen=True)
class Sampling:
    """Which frames of a video are read, and how.

    Attributes:
        spacing_s: Length of a segment.
        num_frames: Frames of a segment, evenly spread.
        short_side: Pixels of the shorter side of a frame; None keeps the size of the video.
        min_share: Share of its frames that the last segment must have.
        stream: Number of the video stream.
        skip_unreferenced: Skip frames that no other frame refers to, where the others come often enough.
    """

    spacing_s: float = 1.0
    num_frames: int = 16
    short_side: int | None = 256
    min_share: float = 0.5
    stream: int = 0
    skip_unreferenced: bool = False

    def time_of(self, sample: int) -> float:
        """The time in seconds of a sampled frame, counted over the whole video."""
        index, number = divmod(sample, self.num_frames)
        return (index + (number + 0.5) / self.num_frames) * self.spacing_s


DEFAULT_SAMPLING = Sampling()


@dataclass(frozen=True)
class Segment:
    """A piece of a video as frames."""

    index: int
    times_s: tuple[float, ...]
    frames: np.ndarray
    end_s: float


def probe(path: Path | str, stream: int = 0, file: Any = None) -> VideoInfo:
    """What a file says about itself, without decoding more than a frame.

    `file` is opened in place of the path: a file object of a remote video.
    """
    with VideoReader(Path(path), stream, file=file) as reader:
        video = reader.stream
        frame = next(reader.frames(), None)
        if frame is None:
            raise InputError(f"{path}: holds no frame that can be decoded")
        height, width = _displayed_size(frame)
        duration_s = float(video.duration * video.time_base) if video.duration else None
        if duration_s is None and reader.container.duration:
            duration_s = reader.container.duration / 1e6  # in microseconds
        return VideoInfo(
            Path(path),
            duration_s,
            _frame_rate(video),
            width,
            height,
            video.codec_context.name,
            len(reader.container.streams.video),
        )


def _frame_rate(video: Any) -> float | None:
    """Frames a second: the base rate where the average agrees with it, since rounding of durations
    blurs the average.
    """
    average, base = video.average_rate or video.guessed_rate, video.base_rate
    if average and base and abs(float(base / average) - 1) < RATE_TOLERANCE:
        return float(base)
    return float(average) if average else None


def read_segments(
    path: Path | str | StreamSource, sampling: Sampling = DEFAULT_SAMPLING, threads: int = 0
) -> Iterator[Segment]:
    """Segments of a video in order.

    Warns:
        BrokenVideoWarning: The file breaks off, and the segments before that are given; or its
            timestamps jump, and the jump is left out.
    """
    if not sampling.spacing_s > 0 or sampling.num_frames < 1:
        got = f"{sampling.spacing_s} and {sampling.num_frames}"
        raise InputError(f"spacing_s must be positive and num_frames at least 1, got {got}")
    source = Path(path) if isinstance(path, str | Path) else path
    skip = (isinstance(source, Path) or source.can_reopen) and can_skip_unreferenced(source, sampling, threads)
    with VideoReader(source, sampling.stream, threads, skip) as reader:
        builder, reformatter = SegmentBuilder(sampling), new_reformatter()
        current: DisplayedFrame | None = None
        for frame in reader.frames():
            time_s = reader.time_of(frame)
            if current is not None:  # how long a frame is shown is known when the next one comes
                yield from builder.add(current, until_s=time_s)
            current = DisplayedFrame(frame, reformatter)
        if current is None:
            raise InputError(f"{path}: holds no frame that can be decoded")
        yield from builder.add(current, until_s=reader.end_s)
        yield from builder.finish(current, reader.last_s, reader.end_s)


def can_skip_unreferenced(path: Path | StreamSource, sampling: Sampling, threads: int = 0) -> bool:
    """Whether unreferenced frames should be skipped: the others come often enough in the first seconds."""
    if not sampling.skip_unreferenced:
        return False
    with VideoReader(path, sampling.stream, threads, skip_unreferenced=True) as reader, warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenVideoWarning)  # said when it is read
        times_s = []
        for frame in reader.frames():
            times_s.append(reader.time_of(frame))
            if times_s[-1] > TRIED_S:
                break
        gaps_s = np.diff(times_s)
        # A hair of tolerance: timestamps are rounded.
        is_late = gaps_s > 1.01 * sampling.spacing_s / sampling.num_frames
        return len(gaps_s) > 0 and float(np.mean(is_late)) <= LATE_SHARE


class SegmentBuilder:
    """Samples frames at the times of each segment, in order."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.index = 0
        self.shape: tuple[int, int] | None = None
        self.frames: list[np.ndarray] = []
        self.times_s: list[float] = []

    @property
    def next_sample(self) -> int:
        """Number of the next sampled time, counted over the whole video."""
        return self.index * self.sampling.num_frames + len(self.frames)

    def add(self, frame: DisplayedFrame, until_s: float) -> Iterator[Segment]:
        """Use a frame for all sampled times before `until_s`; yields the segments that this completes."""
        while self.sampling.time_of(self.next_sample) < until_s:
            yield from self.add_picture(self._picture(frame))

    def add_picture(self, picture: np.ndarray) -> Iterator[Segment]:
        """Use a picture for the next sampled time; yields the segment that this completes."""
        self.times_s.append(self.sampling.time_of(self.next_sample))
        self.frames.append(picture)
        if len(self.frames) == self.sampling.num_frames:
            yield self._complete()

    def finish(self, last: DisplayedFrame | np.ndarray, last_s: float, end_s: float) -> Iterator[Segment]:
        """The last segment, if it has enough frames or is the only one; the last frame fills it up."""
        if (self.frames and len(self.frames) >= self.sampling.min_share * self.sampling.num_frames) or not self.index:
            num_missing = self.sampling.num_frames - len(self.frames)
            self.times_s += [max([last_s, *self.times_s])] * num_missing
            self.frames += [last if isinstance(last, np.ndarray) else self._picture(last)] * num_missing
            yield self._complete(end_s)

    def _picture(self, frame: DisplayedFrame) -> np.ndarray:
        """A picture of the first one's size: where a stream changes its size, cropped to the middle or
        padded with black.
        """
        picture = frame.picture(self.sampling.short_side)
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

    def _complete(self, end_s: float | None = None) -> Segment:
        end_s = (self.index + 1) * self.sampling.spacing_s if end_s is None else end_s
        segment = Segment(self.index, tuple(self.times_s), np.stack(self.frames), end_s)
        self.index, self.frames, self.times_s = self.index + 1, [], []
        return segment


class DisplayedFrame:
    """The frame on the screen; it is converted once, and only if it is sampled."""

    def __init__(self, frame: Any, reformatter: Any, threads: int = 0) -> None:
        """`threads` scale the frame; 0 lets FFmpeg choose."""
        self.frame, self.reformatter, self.threads = frame, reformatter, threads
        self._cached: np.ndarray | None = None

    def picture(self, short_side: int | None) -> np.ndarray:
        """RGB (H, W, 3), scaled and turned."""
        if self._cached is None:
            width, height = scaled_size(self.frame.width, self.frame.height, short_side)
            size: dict[str, Any] = {"width": width, "height": height, "format": "rgb24"}
            try:
                scaled = self.reformatter.reformat(self.frame, **size, threads=self.threads)
            except TypeError:  # old PyAV scales in one thread
                scaled = self.reformatter.reformat(self.frame, **size)
            picture = scaled.to_ndarray()
            num_turns = quarter_turns(self.frame)
            self._cached = np.ascontiguousarray(np.rot90(picture, num_turns)) if num_turns else picture
        return self._cached


def scaled_size(width: int, height: int, short_side: int | None) -> tuple[int, int]:
    """Width and height of a frame that is scaled."""
    if short_side is None:
        return width, height
    scale, longest = short_side / min(width, height), MAX_ASPECT * short_side
    return min(longest, max(1, round(width * scale))), min(longest, max(1, round(height * scale)))


@functools.cache
def has_gpu_decoder() -> bool:
    """Whether PyAV decodes on NVIDIA GPUs here: it was built for that, gives frames back unchanged,
    and the driver is whole.

    Containers often have the part of the driver that computes, and not the one that decodes.
    """
    try:
        import av
        from av.codec.hwaccel import hwdevices_available
    except ImportError:  # an old PyAV, or none
        return False
    if int(av.__version__.split(".")[0]) < MIN_GPU_PYAV or "cuda" not in hwdevices_available():
        return False
    try:
        ctypes.CDLL(NVDEC_LIBRARY)
    except OSError:
        return False
    return True


def new_reformatter() -> Any:
    """What scales frames. One for all frames of a video: to prepare it takes as long as to scale a frame."""
    from av.video.reformatter import VideoReformatter

    return VideoReformatter()


def quarter_turns(frame: Any) -> int:
    """Quarter turns, counterclockwise, that a player gives the picture (phones store it lying). Old
    PyAV does not know.
    """
    return round(int(getattr(frame, "rotation", 0) or 0) / 90) % 4


def _displayed_size(frame: Any) -> tuple[int, int]:
    """Height and width after the turn."""
    return (frame.width, frame.height) if quarter_turns(frame) % 2 else (frame.height, frame.width)


class VideoReader:
    """A container and one of its video streams. Knows when each frame is shown, and when the last one ends."""

    def __init__(
        self,
        path: Path | StreamSource,
        stream: int,
        threads: int = 0,
        skip_unreferenced: bool = False,
        gpu: int | None = None,
        file: Any = None,
    ) -> None:
        """With `gpu`, that NVIDIA GPU decodes, and frames stay in its memory until they are scaled."""
        self.path, self.stream_index, self.threads, self.skip_unreferenced = path, stream, threads, skip_unreferenced
        self.gpu, self.file = gpu, file
        self.messages: list[str] | None = None  # a list takes what would be warned of

    def __enter__(self) -> VideoReader:
        self.decode_error: Any = import_av(PURPOSE).FFmpegError
        if isinstance(self.path, Path):
            self.container: Any = open_container(self.path, PURPOSE, self.gpu, self.file)
        else:
            self.container = self.path.open()
        try:
            self.stream: Any = find_stream(self.container, self.path, self.stream_index)
            self._check_size(self.stream.codec_context.width, self.stream.codec_context.height)
        except InputError:
            self.container.close()
            raise
        if self.threads:
            self.stream.codec_context.thread_count = self.threads
        if self.skip_unreferenced:
            self.stream.codec_context.skip_frame = "NONREF"
        self.start_clock()
        return self

    def start_clock(self, first_timestamp_s: float | None = None, begin_s: float = 0.0) -> None:
        """Begin to count time, at the first frame of the video or in its middle."""
        rate = self.stream.average_rate or self.stream.guessed_rate
        self.usual_frame_s = 1 / float(rate) if rate else 1 / DEFAULT_FPS
        self.first_timestamp_s = first_timestamp_s
        self.last_s = begin_s  # when the last frame so far is shown, from the first one on
        self.end_s = begin_s  # when it ends
        self.left_out_s = 0.0  # of the timestamps, by jumps
        self.gap_s = 0.0  # between the last two frames
        self.gaps_s = 0.0  # that long gaps have added
        self.has_jumped = False

    def __exit__(self, *_: object) -> None:
        self.container.close()

    def _check_size(self, width: int, height: int) -> None:
        """Refuse frames that do not fit, before one is decoded."""
        description = f"{self.path}: its frames are {width} × {height}"
        if width * height > MAX_PIXELS:
            raise InputError(f"{description}, more than the {MAX_PIXELS:,} pixels that are read; scale the video down")
        check_fits(3 * width * height * DECODER_FRAMES, f"{description}; decoding")
        self.checked_size = width, height

    def frames(self, packets: Iterator[Any] | None = None) -> Iterator[Any]:
        """Frames in the order they are shown. Ends at a break in the file, with a warning if there
        were frames before it.
        """
        num_frames, last_packet = 0, None
        try:
            for packet in self.container.demux(self.stream) if packets is None else packets:
                for frame in self._decode(packet):
                    num_frames += 1
                    if (frame.width, frame.height) != self.checked_size:  # it may change on the way
                        self._check_size(frame.width, frame.height)
                    yield frame
                if packet.pts is not None and (last_packet is None or packet.pts > last_packet.pts):
                    last_packet = packet
            if self.skip_unreferenced and last_packet is not None:  # the last frame may be one that was left out
                shown_s = (
                    float(last_packet.pts * last_packet.time_base) - (self.first_timestamp_s or 0.0) - self.left_out_s
                )
                if shown_s < self.last_s + MAX_GAP_S:
                    self.end_s = max(self.end_s, shown_s + self._duration_of(last_packet, self.usual_frame_s))
        except self.decode_error as error:
            # As text: an error that is kept holds this frame, and with it the decoder. An address may hold a password.
            reason = str(error) if isinstance(self.path, Path) else error.strerror
            if not num_frames:
                raise InputError(f"{self.path}: cannot be decoded ({reason})") from error
            self._warn(
                f"{self.path}: breaks off after {self.end_s:.1f} s ({reason}); what comes before is used", stacklevel=4
            )
            return
        # With threads FFmpeg ends some broken files as if nothing was wrong: only their length tells.
        stated_s = float(self.stream.duration * self.stream.time_base) if self.stream.duration else None
        if stated_s is not None and not self.has_jumped and self.end_s < (1 - MAX_MISSING) * stated_s - MAX_MISSING_S:
            message = f"{self.path}: breaks off after {self.end_s:.1f} of {stated_s:.1f} s; what comes before is used"
            self._warn(message, stacklevel=4)

    def _decode(self, packet: Any) -> list[Any]:
        """Frames of a packet; none of a damaged one where a stream may lose some, as it does where it
        is joined in the middle.
        """
        try:
            frames: list[Any] = packet.decode()
        except self.decode_error:
            if isinstance(self.path, Path) or not self.path.is_lossy:
                raise
            return []
        return frames

    def time_of(self, frame: Any) -> float:
        """Seconds from the first frame, for each frame in turn. One without a timestamp follows the
        last at the usual rate.

        So does one whose timestamp is more than an hour away, and later ones are counted from it:
        one changed number in a file would otherwise add years of a standing picture. All long gaps
        together may add a day.
        """
        timestamp_s = None if frame.pts is None or frame.time_base is None else float(frame.pts * frame.time_base)
        if self.first_timestamp_s is None:
            self.first_timestamp_s = timestamp_s if timestamp_s is not None else 0.0
            time_s = 0.0
        else:
            time_s = self.last_s + self.usual_frame_s
            if timestamp_s is not None:
                time_s = timestamp_s - self.first_timestamp_s - self.left_out_s
            gap_s = time_s - self.last_s
            self.gaps_s += gap_s if MAX_FRAME_S < gap_s <= MAX_GAP_S else 0.0
            if abs(gap_s) > MAX_GAP_S or (gap_s > MAX_FRAME_S and self.gaps_s > MAX_GAPS_S):
                self._warn_of_jump(gap_s)
                # the stated rate counts the jump
                self.usual_frame_s = min(self.gap_s or self.usual_frame_s, MAX_FRAME_S)
                self.left_out_s += gap_s - self.usual_frame_s
                time_s = self.last_s + self.usual_frame_s
            time_s = max(time_s, self.last_s)  # time does not run back
        self.gap_s = time_s - self.last_s
        self.last_s = time_s
        self.end_s = time_s + self._duration_of(frame, self.gap_s or self.usual_frame_s)
        return time_s

    def _warn_of_jump(self, gap_s: float) -> None:
        """Say once that timestamps jump by `gap_s`."""
        if not self.has_jumped:
            direction = "ahead" if gap_s > 0 else "back"
            jump = f"jump {direction} by {format_time(abs(gap_s))} after {format_time(self.last_s)}"
            self._warn(f"{self.path}: its timestamps {jump}; such jumps are left out", stacklevel=5)
        self.has_jumped = True

    def _warn(self, message: str, stacklevel: int) -> None:
        """Say that the video is broken, or note it for whoever wants it so: in a thread warnings cannot be caught."""
        if self.messages is None:
            warnings.warn(BrokenVideoWarning(message), stacklevel=stacklevel)
        else:
            self.messages.append(message)

    def _duration_of(self, frame_or_packet: Any, otherwise_s: float) -> float:
        """How long something is shown, in seconds, as far as it says so and can be believed."""
        if not frame_or_packet.duration or frame_or_packet.time_base is None:
            return self.usual_frame_s
        duration_s = float(frame_or_packet.duration * frame_or_packet.time_base)
        return duration_s if 0 < duration_s < MAX_FRAME_S else otherwise_s
