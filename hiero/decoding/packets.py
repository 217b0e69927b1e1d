"""Packets of a video stream: which there are, where decoding can begin, and frames by their exact timestamps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from hiero.decoding.bitstream import NalFormat
from hiero.errors import InputError
from hiero.sources.remote import open_copy

SEEK_MARGINS_S = (0.0, 5.0, 60.0, math.inf)  # how far before a moment to begin reading, one after another
TIME_TOLERANCE_S = 0.0021  # of a frame's time in a container that counts milliseconds
BEFORE_START_S = 10.0  # of a time that is before every stream's first
DEFAULT_FPS = 25  # where a stream says nothing
FLUSH = None
COLOURS = ("color_primaries", "color_trc", "colorspace", "color_range")


@dataclass(frozen=True)
class Source:
    """A video stream of a file: what is needed to cut it."""

    path: Path
    stream: int
    codec: str
    width: int
    height: int
    pix_fmt: str
    profile: str
    time_base: Fraction
    frame_s: Fraction
    zero: int
    rotation: int
    colours: tuple[int, ...]
    aspect: Fraction | None
    extradata: bytes
    nal_format: NalFormat | None
    is_intra: bool
    num_audio: int

    @property
    def picture(self) -> tuple[Any, ...]:
        """What streams must share to be joined without encoding."""
        length_size = None if self.nal_format is None else self.nal_format.length_size
        return self.codec, self.width, self.height, self.pix_fmt, self.rotation, length_size

    def tick(self, time_s: float) -> int:
        """The first tick that is not before a time; times are read from tables that round to milliseconds or less."""
        return self.zero + math.ceil(Fraction(time_s).limit_denominator(10**6) / self.time_base - Fraction(1, 100))

    def seconds(self, ticks: int) -> Fraction:
        """A number of ticks as seconds."""
        return ticks * self.time_base


def open_source(path: Path, stream: int = 0) -> Source:
    """Look at a video stream."""
    with open_container(path) as container:
        video = find_stream(container, path, stream)
        frame = next(decode_packets(container.demux(video)), None)
        if frame is None:
            raise InputError(f"{path}: holds no frame that can be decoded")
        context = video.codec_context
        codec = context.codec.canonical_name
        extradata = bytes(context.extradata or b"")
        rate = video.average_rate or video.guessed_rate or DEFAULT_FPS
        colours = tuple(int(getattr(context, name) or 0) for name in COLOURS)
        return Source(
            path,
            stream,
            codec,
            context.width,
            context.height,
            frame.format.name,
            str(context.profile or ""),
            Fraction(video.time_base),
            1 / Fraction(rate),
            frame.pts or 0,
            int(getattr(frame, "rotation", 0) or 0),
            colours,
            context.sample_aspect_ratio,
            extradata,
            NalFormat.from_extradata(codec, extradata),
            bool(context.codec.intra_only),
            len(container.streams.audio),
        )


@dataclass
class PacketIndex:
    """Packets of a part of a video stream, in the order of decoding, from a keyframe before its beginning on."""

    pts: list[int] = field(default_factory=list)
    is_key: list[bool] = field(default_factory=list)
    can_enter: list[bool] = field(default_factory=list)
    has_leading: list[bool] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    is_complete: bool = True


def index_packets(source: Source, start: int, end: int) -> PacketIndex:
    """List the packets that frames in [start, end) need, without decoding."""
    with open_container(source.path) as container:
        video = find_stream(container, source.path, source.stream)
        index = PacketIndex()
        if container.format.name == "avi" and not source.is_intra:  # stores no timestamps: those of packets are guesses
            index.is_complete = False
            return index
        for margin_s in SEEK_MARGINS_S:
            index = PacketIndex()
            for packet in seek_packets(container, video, start, margin_s):
                if not index.pts and not packet.is_keyframe:
                    continue
                if packet.pts is None or packet.is_discard:
                    index.is_complete = False
                    return index
                if not index.pts and packet.pts > start and margin_s < math.inf:
                    break
                data = bytes(packet) if packet.is_keyframe and source.nal_format is not None else b""
                index.pts.append(packet.pts)
                index.is_key.append(packet.is_keyframe)
                index.can_enter.append(
                    packet.is_keyframe and (source.nal_format is None or source.nal_format.can_enter(data))
                )
                index.has_leading.append(False)
                index.durations.append(packet.duration or 0)
                if packet.dts is not None and packet.dts >= end:  # what comes later is shown later
                    break
                if packet.dts is None and sum(1 for i in _after(index, end) if index.is_key[i]) > 1:
                    break
            if index.pts:
                break
    index.is_complete = index.is_complete and len(set(index.pts)) == len(index.pts) > 0
    _mark_leading(source, index)
    return index


def _after(index: PacketIndex, end: int) -> Iterator[int]:
    return (i for i in range(len(index.pts) - 1, -1, -1) if index.pts[i] >= end)


def _mark_leading(source: Source, index: PacketIndex) -> None:
    """Find keyframes with leading pictures. Only HEVC says what a decoder does without these; others
    are not entered there.
    """
    lowest = math.inf
    for i in range(len(index.pts) - 1, -1, -1):
        if index.can_enter[i] and lowest < index.pts[i]:
            index.has_leading[i] = True
            index.can_enter[i] = source.codec == "hevc"
        # Behind the next keyframe everything is shown after it, or is leading there.
        lowest = index.pts[i] if index.is_key[i] else min(lowest, index.pts[i])


def import_av(purpose: str = "cutting video") -> Any:
    """The package, or InputError where it is missing."""
    try:
        import av
    except ImportError:
        raise InputError(f"{purpose} needs PyAV; run: pip install 'hiero-video[video]'") from None
    return av


def open_container(path: Path, purpose: str = "cutting video") -> Any:
    """A file to read packets or frames from."""
    av = import_av(purpose)
    file = open_copy(path)
    try:
        return av.open(file)
    except InputError:  # of a remote file: no fault of its content
        raise
    except (av.FFmpegError, ValueError, OSError) as error:
        raise InputError(f"{path}: not a video that FFmpeg can read ({error})") from error


def find_stream(container: Any, path: Path, number: int) -> Any:
    streams = container.streams.video
    if not 0 <= number < len(streams):
        raise InputError(f"{path}: has {len(streams)} video streams, number {number} is not one of them")
    if streams[number].codec_context is None:
        raise InputError(f"{path}: FFmpeg has no decoder for its video stream")
    streams[number].thread_type = "AUTO"
    return streams[number]


def seek_packets(container: Any, stream: Any, tick: int, margin_s: float, with_end: bool = False) -> Iterator[Any]:
    """Packets of a stream from about `margin_s` before a tick on; with an infinite margin from the beginning."""
    first = stream.start_time or 0
    # Where a stream has no index a search for its first timestamp can end behind it, one for an earlier time cannot.
    target = (
        first - round(BEFORE_START_S / stream.time_base)
        if margin_s == math.inf
        else max(first, tick - round(margin_s / stream.time_base))
    )
    # a file that cannot be sought in is read on, and the caller sees that it is too late
    with suppress(import_av().FFmpegError):
        container.seek(target, stream=stream)
    return (packet for packet in container.demux(stream) if packet.size or with_end)


def packets_from(container: Any, stream: Any, pts: int, path: Path, with_end: bool = False) -> Iterator[Any]:
    """Packets of a stream from the keyframe with a timestamp on; `with_end` as in `seek_packets`."""
    for margin_s in SEEK_MARGINS_S:
        packets = seek_packets(container, stream, pts, margin_s, with_end)
        for packet in packets:
            if packet.pts == pts and packet.is_keyframe:
                yield packet
                yield from packets
                return
            if packet.dts is not None and packet.dts > pts:
                break
    raise InputError(f"{path}: changed while it was read, or cannot be sought in; copy it to a file of another kind")


def decode_packets(packets: Iterable[Any]) -> Iterator[Any]:
    """Frames of packets, as far as they can be decoded."""
    error_type = import_av().FFmpegError
    stream = None
    for packet in packets:
        stream = packet.stream
        with suppress(error_type):
            yield from packet.decode()
    if stream is not None:
        with suppress(error_type, EOFError):
            yield from stream.codec_context.decode(FLUSH)


def decode_frames(source: Source, wanted: list[int], seek: int) -> Iterator[Any]:
    """Frames with some timestamps, in order. Those that cannot be decoded are left out."""
    missing = set(wanted)
    if seek < 0:
        for pts, frame in decode_all(source):
            if pts in missing:
                frame.pts = pts
                yield frame
        return
    with open_container(source.path) as container:
        video = find_stream(container, source.path, source.stream)
        key = keyframe_before(source, wanted[0], seek)
        for frame in decode_packets(packets_from(container, video, key, source.path)):
            pts = frame.pts  # who gets the frame may change it
            if pts in missing:
                missing.discard(pts)
                yield frame
            if not missing or (pts is not None and pts > wanted[-1]):
                return


def keyframe_before(source: Source, pts: int, known: int) -> int:
    """The last keyframe at or before a timestamp; `known` is one of them, perhaps far before it."""
    index = index_packets(source, pts, pts + 1)
    keys = [time for time, key in zip(index.pts, index.is_key, strict=True) if key and time <= pts]
    return max(keys, default=known)


def decode_from(source: Source, start_s: float) -> Iterator[tuple[int, Any]]:
    """Timestamps and frames of a stream from a keyframe before a time on."""
    start = source.tick(max(0.0, start_s - TIME_TOLERANCE_S))
    index = index_packets(source, start, start + 1)
    if not index.is_complete:
        yield from decode_all(source)
        return
    key = keyframe_before(source, start, index.pts[0])
    with open_container(source.path) as container:
        video = find_stream(container, source.path, source.stream)
        for frame in decode_packets(packets_from(container, video, key, source.path)):
            if frame.pts is not None and frame.pts >= start:
                yield frame.pts, frame


def decode_all(source: Source) -> Iterator[tuple[int, Any]]:
    """Timestamps and frames from the beginning; a frame without one follows the last at the usual rate."""
    with open_container(source.path) as container:
        video = find_stream(container, source.path, source.stream)
        last, usual = None, max(1, round(source.frame_s / source.time_base))
        # has a fixed rate; timestamps of B-frames come in the order of decoding
        is_counted = container.format.name == "avi"
        for frame in decode_packets(container.demux(video)):
            follows = source.zero if last is None else last + usual
            pts = follows if frame.pts is None or is_counted else frame.pts
            last = pts if last is None else max(pts, last + 1)
            yield last, frame
