"""Video files as segments on a clock in seconds.

Segment i covers [i, i + 1) · spacing_s from the first frame on. It contains frames at evenly spaced
times: at each time the frame that a player would show. Only timestamps count, never frame numbers, so
variable frame rates, missing durations and late starts are handled correctly. Frames are decoded once,
in order, and only scaled if they are used, so memory does not grow with the length of the video.
Frames that no other frame refers to (mostly B-frames) can be skipped if the others are frequent
enough, which saves more than half of the work.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.formatting import format_time
from hiero.media.packets import find_stream, import_av, open_container, packets_before
from hiero.storage.files import check_fits

NO_FRAMES = "{}: contains no frame that can be decoded"
RATE_TOLERANCE = 0.005  # relative difference up to which the average frame rate counts as the base rate
DEFAULT_FPS = 25  # for streams that state no frame rate
MAX_MISSING, MAX_MISSING_S = 0.05, 1.0  # of the stated length, beyond which a file counts as cut off
MAX_FRAME_S = 10.0  # longer durations of a single frame are ignored
MAX_GAP_S = 3600.0  # between two frames; slides may stay for minutes, but longer gaps are damaged timestamps
# Total of all gaps longer than MAX_FRAME_S, which a damaged clock stretches: as far as the bytes of a file allow.
MIN_GAPS_S, MAX_GAPS_S = 3600.0, 24 * 3600.0
BYTES_PER_GAP_S = 500.0
NVDEC_LIBRARY = "libnvcuvid.so.1"
MAX_PIXELS = 2**27  # per frame: 16,384 × 8,192
MAX_ASPECT = 8  # of a scaled frame; a strip two pixels high would otherwise become a million pixels wide
DECODER_FRAMES = 16  # that FFmpeg may hold at once: references, and those of its threads
GAP_SAMPLE_S = 4.0  # length of the part in which the gaps between referenced frames are measured
MAX_LATE_SHARE = 0.05  # share of these gaps that may be longer than the sampling interval


class BrokenVideoWarning(UserWarning):
    """A file ends early, or its timestamps jump. The readable part is used."""


@dataclass(frozen=True)
class VideoInfo:
    """The properties that a file states."""

    duration_s: float | None
    fps: float | None
    width: int
    height: int
    codec: str


@dataclass(frozen=True)
class Sampling:
    """Which frames of a video are read, and how."""

    spacing_s: float = 1.0  # length of a segment
    num_frames: int = 16  # of a segment, evenly spread
    short_side: int | None = 256  # pixels of the shorter side of a frame; None keeps the size of the video
    stream: int = 0  # number of the video stream
    skip_unreferenced: bool = False  # skip frames that no other refers to, where the others come often enough

    def __post_init__(self) -> None:
        if not self.spacing_s > 0 or self.num_frames < 1:
            raise InputError(f"spacing_s must be positive and num_frames at least 1, got {self}")

    def time_of(self, sample: int) -> float:
        """The time in seconds of a sampled frame, counted over the whole video."""
        index, number = divmod(sample, self.num_frames)
        return (index + (number + 0.5) / self.num_frames) * self.spacing_s


DEFAULT_SAMPLING = Sampling()


@dataclass(frozen=True)
class Segment:
    """The frames of a fixed piece of a video; `is_repeated` if they all equal those of the piece before."""

    index: int
    times_s: tuple[float, ...]
    frames: np.ndarray
    end_s: float
    is_repeated: bool = False


def probe(path: Path | str, stream: int = 0, file: Any = None) -> VideoInfo:
    """Read the properties of a file, decoding only one frame; `file` as in `open_container`."""
    with VideoReader(Path(path), stream, file=file) as reader:
        video = reader.stream
        frame = next(reader.frames(), None)
        if frame is None:
            raise InputError(NO_FRAMES.format(path))
        width, height = (frame.height, frame.width) if quarter_turns(frame) % 2 else (frame.width, frame.height)
        duration_s = float(video.duration * video.time_base) if video.duration else None
        if duration_s is None and reader.container.duration:
            duration_s = reader.container.duration / 1e6  # in microseconds
        return VideoInfo(duration_s, _frame_rate(video), width, height, video.codec_context.name)


def _frame_rate(video: Any) -> float | None:
    """Frames per second: the base rate if the average, which is rounded, agrees with it."""
    average, base = video.average_rate or video.guessed_rate, video.base_rate
    if average and base and abs(float(base / average) - 1) < RATE_TOLERANCE:
        return float(base)
    return float(average) if average else None


def read_segments(path: Path | str, sampling: Sampling = DEFAULT_SAMPLING, threads: int = 0) -> Iterator[Segment]:
    """Segments of a video in order. A BrokenVideoWarning tells if the file ends early, or its timestamps jump."""
    path = Path(path)
    skip = can_skip_unreferenced(path, sampling, threads)
    with VideoReader(path, sampling.stream, threads, skip) as reader:
        builder, reformatter = SegmentBuilder(sampling), new_reformatter()
        current: DisplayedFrame | None = None
        for frame in reader.frames():
            time_s = reader.time_of(frame)
            if current is not None:  # the next frame tells how long it is shown
                yield from builder.add(current, until_s=time_s)
            current = DisplayedFrame(frame, reformatter)
        if current is None:
            raise InputError(NO_FRAMES.format(path))
        yield from builder.add(current, until_s=reader.end_s)
        yield from builder.finish(builder.picture(current), reader.last_s, reader.end_s)


def read_frame(path: Path, time_s: float, file: Any = None) -> np.ndarray:
    """The picture that a video shows at a time, found by seeking. Its last one if it ends before."""
    with VideoReader(path, 0, file=file) as reader:
        reader.messages = []  # the rest of the video is not read, which is no damage
        try:
            first = next(reader.container.demux(reader.stream))  # not every container states where it starts
        except (reader.decode_error, StopIteration) as error:
            raise InputError(f"{path}: cannot be decoded ({error})") from error
        tick = (first.pts or 0) + round(time_s / reader.stream.time_base)
        shown = None
        for frame in reader.frames(packets_before(reader.container, reader.stream, tick)):
            if shown is not None and frame.pts is not None and frame.pts > tick:
                break
            shown = frame
        if shown is None:
            raise InputError(f"{path}: has no pictures")
        return DisplayedFrame(shown, new_reformatter()).picture(None)


def can_skip_unreferenced(path: Path, sampling: Sampling, threads: int = 0) -> bool:
    """Whether unreferenced frames should be skipped: in the first seconds the others are frequent enough."""
    if not sampling.skip_unreferenced:
        return False
    with VideoReader(path, sampling.stream, threads, skip_unreferenced=True) as reader, warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenVideoWarning)  # shown when the video is read
        times_s = []
        for frame in reader.frames():
            times_s.append(reader.time_of(frame))
            if times_s[-1] > GAP_SAMPLE_S:
                break
        gaps_s = np.diff(times_s)
        is_late = gaps_s > 1.01 * sampling.spacing_s / sampling.num_frames  # timestamps are rounded
        return len(gaps_s) > 0 and float(np.mean(is_late)) <= MAX_LATE_SHARE


class SegmentBuilder:
    """Samples frames at the times of each segment, in order."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.index = 0
        self.shape: tuple[int, int] | None = None
        self.frames: list[np.ndarray] = []
        self.times_s: list[float] = []
        self.still: np.ndarray | None = None  # the only picture of the last segment

    @property
    def next_sample(self) -> int:
        """Number of the next sampled time, counted over the whole video."""
        return self.index * self.sampling.num_frames + len(self.frames)

    def add(self, frame: DisplayedFrame, until_s: float) -> Iterator[Segment]:
        """Use a frame for all sampled times before `until_s`; yields completed segments."""
        while self.sampling.time_of(self.next_sample) < until_s:
            yield from self.add_picture(self.picture(frame))

    def add_picture(self, picture: np.ndarray) -> Iterator[Segment]:
        """Use a picture for the next sampled time; yields a completed segment."""
        self.times_s.append(self.sampling.time_of(self.next_sample))
        self.frames.append(picture)
        if len(self.frames) == self.sampling.num_frames:
            yield self._complete()

    def finish(self, last: np.ndarray, last_s: float, end_s: float) -> Iterator[Segment]:
        """Fill the last segment with the last picture, if it has any or is the only one."""
        if self.frames or not self.index:
            num_missing = self.sampling.num_frames - len(self.frames)
            self.times_s += [max([last_s, *self.times_s])] * num_missing
            self.frames += [last] * num_missing
            yield self._complete(end_s)

    def picture(self, frame: DisplayedFrame) -> np.ndarray:
        """A picture of the first one's size; others are cropped to the middle or padded with black."""
        picture = frame.picture(self.sampling.short_side)
        self.shape = self.shape or (picture.shape[0], picture.shape[1])
        return crop_or_pad(picture, self.shape)

    def _complete(self, end_s: float | None = None) -> Segment:
        end_s = (self.index + 1) * self.sampling.spacing_s if end_s is None else end_s
        still = self.frames[0] if all(frame is self.frames[0] for frame in self.frames) else None
        is_repeated = still is not None and still is self.still
        segment = Segment(self.index, tuple(self.times_s), np.stack(self.frames), end_s, is_repeated)
        self.still = still
        self.index, self.frames, self.times_s = self.index + 1, [], []
        return segment


def crop_or_pad(picture: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Crop a picture (H, W, 3) to the middle, or pad it with black."""
    if picture.shape[:2] == shape:
        return picture
    top, left = (max(0, (size - wanted) // 2) for size, wanted in zip(picture.shape, shape, strict=False))
    picture = picture[top : top + shape[0], left : left + shape[1]]
    missing = [wanted - size for size, wanted in zip(picture.shape, shape, strict=False)]
    return np.pad(picture, [*((num // 2, num - num // 2) for num in missing), (0, 0)])


class DisplayedFrame:
    """The frame on the screen, converted once, and only if it is sampled."""

    def __init__(self, frame: Any, reformatter: Any, threads: int = 0) -> None:
        """`threads` scale the frame; 0 lets FFmpeg choose."""
        self.frame, self.reformatter, self.threads = frame, reformatter, threads
        self._cached: np.ndarray | None = None

    def picture(self, short_side: int | None) -> np.ndarray:
        """RGB (H, W, 3), scaled and rotated."""
        if self._cached is None:
            width, height = scaled_size(self.frame.width, self.frame.height, short_side)
            scaled = self.reformatter.reformat(self.frame, width, height, format="rgb24", threads=self.threads)
            picture = scaled.to_ndarray()
            num_turns = quarter_turns(self.frame)
            self._cached = np.ascontiguousarray(np.rot90(picture, num_turns)) if num_turns else picture
        return self._cached


def scaled_size(width: int, height: int, short_side: int | None) -> tuple[int, int]:
    """Width and height of a scaled frame."""
    if short_side is None:
        return width, height
    scale, longest = short_side / min(width, height), MAX_ASPECT * short_side
    return min(longest, max(1, round(width * scale))), min(longest, max(1, round(height * scale)))


@functools.cache
def has_gpu_decoder() -> bool:
    """Whether PyAV can decode on NVIDIA GPUs. Containers often lack the decoding part of the driver."""
    from av.codec.hwaccel import hwdevices_available

    try:
        ctypes.CDLL(NVDEC_LIBRARY)
    except OSError:
        return False
    return "cuda" in hwdevices_available()


def new_reformatter() -> Any:
    """Create the scaler for all frames of a video; that takes as long as scaling one frame."""
    from av.video.reformatter import VideoReformatter

    return VideoReformatter()


def quarter_turns(frame: Any) -> int:
    """Counterclockwise quarter turns with which a player shows the frame."""
    return round(frame.rotation / 90) % 4


class VideoReader:
    """A container and one of its video streams, with the times at which frames are shown."""

    def __init__(
        self,
        path: Path,
        stream: int,
        threads: int = 0,
        skip_unreferenced: bool = False,
        gpu: int | None = None,
        file: Any = None,
    ) -> None:
        """Open the file. With `gpu`, that NVIDIA GPU decodes, and frames stay in its memory until they are scaled."""
        self.path, self.skip_unreferenced, self.gpu = path, skip_unreferenced, gpu
        self.messages: list[str] | None = None  # if set, receives the warnings
        self.decode_error: Any = import_av().FFmpegError
        self.container: Any = open_container(path, gpu, file)
        try:
            self.stream: Any = find_stream(self.container, path, stream)
            context = self.stream.codec_context
            self._check_size(context.width, context.height)
        except InputError:
            self.container.close()
            raise
        if threads:
            context.thread_count = threads
        if skip_unreferenced:
            context.skip_frame = "NONREF"
        self.start_clock()

    def __enter__(self) -> VideoReader:
        return self

    def start_clock(self, first_timestamp_s: float | None = None, begin_s: float = 0.0) -> None:
        """Start the clock at the first frame of the video, or in its middle."""
        rate = self.stream.average_rate or self.stream.guessed_rate
        self.usual_frame_s = 1 / float(rate) if rate else 1 / DEFAULT_FPS
        self.first_timestamp_s = first_timestamp_s
        self.last_s = begin_s  # time of the last frame so far, from the first one on
        self.end_s = begin_s  # end of that frame
        self.left_out_s = 0.0  # total of the jumps in the timestamps
        self.gap_s = 0.0  # between the last two frames
        self.gaps_s = 0.0  # total of the long gaps
        self.has_jumped = False

    def __exit__(self, *_: object) -> None:
        self.container.close()

    def _check_size(self, width: int, height: int) -> None:
        """Raise InputError for frames that are too large, before one is decoded."""
        description = f"{self.path}: its frames have {width} × {height} pixels"
        if width * height > MAX_PIXELS:
            raise InputError(f"{description}, the limit is {MAX_PIXELS:,}. Scale the video down.")
        check_fits(3 * width * height * DECODER_FRAMES, f"{description}; decoding")
        self.checked_size = width, height

    def frames(self, packets: Iterator[Any] | None = None) -> Iterator[Any]:
        """Frames in the order in which they are shown. Ends with a warning where the file is damaged."""
        num_frames, last_packet = 0, None
        try:
            for packet in packets or self.container.demux(self.stream):
                for frame in self._decode(packet):
                    num_frames += 1
                    if (frame.width, frame.height) != self.checked_size:  # it may change in the middle
                        self._check_size(frame.width, frame.height)
                    yield frame
                if packet.pts is not None and (last_packet is None or packet.pts > last_packet.pts):
                    last_packet = packet
            if self.skip_unreferenced and last_packet is not None:  # the last frame may have been skipped
                timestamp_s = float(last_packet.pts * last_packet.time_base)
                shown_s = timestamp_s - (self.first_timestamp_s or 0.0) - self.left_out_s
                if shown_s < self.last_s + MAX_GAP_S:
                    self.end_s = max(self.end_s, shown_s + self._duration_of(last_packet, self.usual_frame_s))
        except self.decode_error as error:
            if not num_frames:
                raise InputError(f"{self.path}: cannot be decoded ({error})") from error
            self._warn(f"ends after {self.end_s:.1f} s ({error}); the part before that is used")
            return
        # With threads, FFmpeg does not report some broken files: only the length shows it.
        stated_s = float(self.stream.duration * self.stream.time_base) if self.stream.duration else 0.0
        if not self.has_jumped and self.end_s < (1 - MAX_MISSING) * stated_s - MAX_MISSING_S:
            times = f"{self.end_s:.1f} of {stated_s:.1f} s"
            self._warn(f"ends after {times}; the part before that is used")

    def _decode(self, packet: Any) -> list[Any]:
        return list(packet.decode())

    def time_of(self, frame: Any) -> float:
        """Seconds from the first frame, for each frame in turn.

        A frame without a timestamp follows the last one at the usual rate. So does a frame whose
        timestamp is more than an hour away, and later ones are counted from it: one damaged number
        would otherwise add years of a still picture. All long gaps together may add an hour, and
        more in a larger file, up to a day.
        """
        timestamp_s = None if frame.pts is None or frame.time_base is None else float(frame.pts * frame.time_base)
        if self.first_timestamp_s is None:
            self.first_timestamp_s, time_s = timestamp_s or 0.0, 0.0
        else:
            if timestamp_s is None:
                time_s = self.last_s + self.usual_frame_s
            else:
                time_s = timestamp_s - self.first_timestamp_s - self.left_out_s
            gap_s = time_s - self.last_s
            self.gaps_s += gap_s if MAX_FRAME_S < gap_s <= MAX_GAP_S else 0.0
            if abs(gap_s) > MAX_GAP_S or (gap_s > MAX_FRAME_S and self.gaps_s > self._max_gaps_s()):
                if not self.has_jumped:
                    direction, last = "ahead" if gap_s > 0 else "back", format_time(self.last_s)
                    jump = f"{direction} by {format_time(abs(gap_s))} after {last}"
                    self._warn(f"its timestamps jump {jump}; such jumps are left out")
                self.has_jumped = True
                self.usual_frame_s = min(self.gap_s or self.usual_frame_s, MAX_FRAME_S)  # the stated rate is wrong
                self.left_out_s += gap_s - self.usual_frame_s
                time_s = self.last_s + self.usual_frame_s
            time_s = max(time_s, self.last_s)  # time never runs backwards
        self.gap_s = time_s - self.last_s
        self.last_s = time_s
        self.end_s = time_s + self._duration_of(frame, self.gap_s or self.usual_frame_s)
        return time_s

    def _max_gaps_s(self) -> float:
        """How long all long gaps together may be, for the bytes of the file."""
        return min(MAX_GAPS_S, MIN_GAPS_S + self.container.size / BYTES_PER_GAP_S)

    def _warn(self, text: str) -> None:
        """Warn that the video is broken, or add that to `messages`: warnings of threads cannot be caught."""
        if self.messages is None:
            warnings.warn(BrokenVideoWarning(f"{self.path}: {text}"), stacklevel=4)
        else:
            self.messages.append(f"{self.path}: {text}")

    def _duration_of(self, frame_or_packet: Any, otherwise_s: float) -> float:
        """How long a frame or packet is shown, in seconds, if it states a plausible duration."""
        if not frame_or_packet.duration or frame_or_packet.time_base is None:
            return self.usual_frame_s
        duration_s = float(frame_or_packet.duration * frame_or_packet.time_base)
        return duration_s if 0 < duration_s < MAX_FRAME_S else otherwise_s
