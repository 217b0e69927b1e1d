"""Clips from spans of videos: encoded and exact to the frame, or copied from keyframe to keyframe.

Times are seconds from the first frame of a video. A frame belongs to a span if it appears inside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.media.audio import audio_streams, resample_from
from hiero.media.decode import NO_FRAMES, VideoReader, crop_or_pad, quarter_turns
from hiero.media.packets import NO_TIMESTAMPS, find_stream, import_av, open_container, packets_before
from hiero.storage.files import atomic_path, is_disk_full

# FFmpeg's name of the container, by the suffix of a file.
CONTAINERS = {
    **dict.fromkeys((".mp4", ".m4v", ".3gp"), "mp4"),
    ".mov": "mov",
    ".mkv": "matroska",
    ".webm": "webm",
    **dict.fromkeys((".ts", ".mts", ".m2ts"), "mpegts"),
}
MP4 = ("mp4", "mov")
# Codecs for video and audio, and options of the video encoder.
ENCODERS = ("libx264", "aac", {"preset": "veryfast", "crf": "18"})
WEBM_ENCODERS = ("libvpx-vp9", "libopus", {"crf": "24", "b": "0", "deadline": "realtime", "cpu-used": "6"})
PIXEL_FORMAT = "yuv420p"
KEPT_PROPERTIES = ("color_primaries", "color_trc", "colorspace", "color_range", "sample_aspect_ratio")
SKIPPED_TAGS = ("major_brand", "minor_version", "compatible_brands", "encoder", "duration")
LAYOUTS = ("mono", "stereo", "5.1")  # of audio channels that stay as they are; others are mixed to stereo
DEFAULT_AUDIO_RATE, DEFAULT_LAYOUT = 48_000, "stereo"
COMMON_TICKS = 90_000  # per second, for sources with different clocks
TIME_TOLERANCE_S = 1e-4  # spans may be rounded
MAX_GAP_S = 0.5  # a span whose first frame comes later than this starts with the frame that is on the screen
AUDIO_MARGIN_S = 1.0  # audio decoders need some packets before the first one that is heard
WITHOUT_COPY = "Cut without --copy."
av = import_av()


@dataclass(frozen=True)
class FileSpan:
    """A span of a video file."""

    path: Path
    start_s: float
    end_s: float
    stream: int = 0


@dataclass(frozen=True)
class NamedSpan:
    """A named part of a clip, in seconds."""

    start_s: float
    end_s: float
    title: str

    def to_ffmpeg(self, number: int) -> dict[str, Any]:
        """The description that PyAV takes, in milliseconds."""
        times = {"start": round(1000 * self.start_s), "end": round(1000 * self.end_s)}
        return {"id": number, **times, "time_base": Fraction(1, 1000), "metadata": {"title": self.title}}


@dataclass(frozen=True)
class WrittenClip:
    """Length of a clip, its number of frames, and where each span starts in it."""

    duration_s: float
    num_frames: int
    starts_s: tuple[float, ...]


def write_clip(
    path: Path,
    spans: Sequence[FileSpan],
    *,
    title: str = "",
    chapters: Sequence[NamedSpan] = (),
    copy: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> WrittenClip:
    """Join spans of videos in one file, with chapters that players show.

    They are encoded at the size of the first one; rotation, tags and variable frame rates are kept.
    With `copy`, packets are copied instead: each span starts at the keyframe at or before its start.
    """
    container = CONTAINERS[path.suffix.lower()]
    options = {"movflags": "+faststart"} if container in MP4 else {}
    starts_s = []
    with atomic_path(path) as temporary:
        try:
            with av.open(str(temporary.absolute()), "w", format=container, container_options=options) as out:
                writer = _Copier(out) if copy else _Encoder(out, spans)
                _copy_tags(spans[0].path, out, title)
                out.set_chapters([chapter.to_ffmpeg(number) for number, chapter in enumerate(chapters)])
                for span in spans:
                    starts_s.append(writer.offset_s)
                    writer.add(span)
                    progress(span.path.name)
                if not copy:  # write what the encoders still hold
                    for stream in out.streams:
                        out.mux(stream.encode(None))
        except av.FFmpegError as error:
            if is_disk_full(error):
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise InputError(f"{spans[0].path}: cannot be written as {container} ({error})") from error
    return WrittenClip(writer.offset_s, writer.num_frames, tuple(starts_s))


def _copy_tags(path: Path, out: Any, title: str) -> None:
    """Copy the tags of a file, such as when and where it was recorded."""
    with open_container(path) as container:
        tags = {key: value for key, value in container.metadata.items() if key.lower() not in SKIPPED_TAGS}
    out.metadata.update(tags | ({"title": title} if title else {}))


class _Encoder:
    """Encodes spans one after the other into an output container, audio in sync with the frames."""

    def __init__(self, out: Any, spans: Sequence[FileSpan]) -> None:
        self.out = out
        video_codec, audio_codec, options = WEBM_ENCODERS if out.format.name == "webm" else ENCODERS
        files = list(dict.fromkeys(span.path for span in spans))
        with VideoReader(spans[0].path, spans[0].stream) as reader:
            frame = next(reader.frames(), None)
            if frame is None:
                raise InputError(NO_FRAMES.format(spans[0].path))
            rotation, source = 90 * quarter_turns(frame), reader.stream
            # Only MP4 stores the rotation reliably; for other containers the pictures are turned.
            self.rotation = rotation if out.format.name in MP4 else 0
            is_upright = (rotation - self.rotation) % 180 == 0
            width, height = (frame.width, frame.height) if is_upright else (frame.height, frame.width)
            self.size = max(2, width // 2 * 2), max(2, height // 2 * 2)  # 4:2:0 needs even sizes
            self.time_base = Fraction(source.time_base) if len(files) == 1 else Fraction(1, COMMON_TICKS)
            self.video = out.add_stream(video_codec, rate=source.average_rate or source.guessed_rate)
            context = self.video.codec_context
            context.width, context.height, context.pix_fmt, context.options = *self.size, PIXEL_FORMAT, options
            context.time_base = self.video.time_base = self.time_base
            for name in KEPT_PROPERTIES:
                if value := getattr(source.codec_context, name):
                    setattr(context, name, value)
            if self.rotation:
                self.video.set_display_rotation(self.rotation)
        self.tracks = [_AudioTrack(out, audio_codec, *kind) for kind in _audio_kinds(files)]
        self.num_frames, self.offset_s, self.last_pts = 0, 0.0, -1

    def add(self, span: FileSpan) -> None:
        """Append a span."""
        with ExitStack() as stack:
            reader = stack.enter_context(VideoReader(span.path, span.stream))
            reader.messages = []  # damage was reported when the file was read
            frames = _frames_of(reader, span)
            first = next(frames, None)
            if first is None:
                raise _too_short(span)
            origin_s = first[0]
            for number, track in enumerate(self.tracks):
                track.begin(stack, span.path, number, (reader.first_timestamp_s or 0.0) + origin_s)
            length_s = 0.0
            for begin_s, end_s, frame in itertools.chain([first], frames):
                self._encode(frame, self.offset_s + begin_s - origin_s)
                length_s = end_s - origin_s
            self.offset_s += length_s
            for track in self.tracks:
                track.advance(self.offset_s)

    def _encode(self, frame: Any, time_s: float) -> None:
        frame = _fit(frame, self.size, self.rotation)
        self.last_pts = max(self.last_pts + 1, round(time_s / self.time_base))
        frame.pts, frame.time_base, frame.pict_type = self.last_pts, self.time_base, 0
        self.out.mux(self.video.encode(frame))
        self.num_frames += 1
        for track in self.tracks:
            track.advance(time_s)


def _audio_kinds(files: Sequence[Path]) -> list[tuple[int, str]]:
    """Sample rates and layouts of the audio streams of the file that has the most of them."""
    kinds: list[tuple[int, str]] = []
    for path in files:
        with open_container(path) as container:
            contexts = [stream.codec_context for stream in audio_streams(container)]
            if len(contexts) > len(kinds):
                kinds = [(context.sample_rate, context.layout.name) for context in contexts]
    return kinds


def _frames_of(reader: VideoReader, span: FileSpan) -> Iterator[tuple[float, float, Any]]:
    """Frames of a span, with the times from when and until when each is shown."""
    start_s, end_s = span.start_s - TIME_TOLERANCE_S, span.end_s - TIME_TOLERANCE_S
    for (time_s, frame), (next_s, following) in itertools.pairwise(_frames_from(reader, span.start_s)):
        until_s = min(span.end_s, next_s) if next_s - span.end_s > MAX_GAP_S else next_s
        is_long = next_s >= min(end_s, start_s + MAX_GAP_S) or following is None
        if start_s <= time_s < end_s or (time_s < start_s and next_s > span.start_s and is_long):
            yield max(time_s, span.start_s), until_s, frame
        if next_s >= end_s:
            return


def _frames_from(reader: VideoReader, start_s: float) -> Iterator[tuple[float, Any]]:
    """Frames from a keyframe at or before a time on, then None with the time when the last one ends."""
    first = next(reader.frames(), None)
    if first is None:
        return
    reader.time_of(first)
    tick = first.pts or 0
    if reader.container.format.name not in NO_TIMESTAMPS and first.pts is not None:
        tick += int(start_s / first.time_base)
    packets = packets_before(reader.container, reader.stream, tick)
    keyframe = next(packets)
    is_inside = keyframe.pts is not None and first.pts is not None and keyframe.pts > first.pts
    begin_s = float((keyframe.pts - first.pts) * first.time_base) if is_inside else 0.0
    reader.start_clock(reader.first_timestamp_s, begin_s)
    for frame in reader.frames(itertools.chain([keyframe], packets)):
        # Pictures before the keyframe may refer to frames that were not decoded.
        if not is_inside or frame.pts is None or frame.pts >= keyframe.pts:
            yield reader.time_of(frame), frame
    yield reader.end_s, None


def _fit(frame: Any, size: tuple[int, int], rotation: int) -> Any:
    """A frame of the clip's size and pixel format: turned, scaled to fit, with black around it."""
    width, height = size
    num_turns = (quarter_turns(frame) - rotation // 90) % 4
    is_near = abs(frame.width - width) <= 1 and abs(frame.height - height) <= 1
    if not num_turns and is_near:
        same = (frame.width, frame.height, frame.format.name) == (width, height, PIXEL_FORMAT)
        return frame if same else frame.reformat(width=width, height=height, format=PIXEL_FORMAT)
    picture = np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), num_turns))
    scale = min(width / picture.shape[1], height / picture.shape[0])
    inner = {"width": max(2, round(picture.shape[1] * scale)), "height": max(2, round(picture.shape[0] * scale))}
    scaled = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(**inner).to_ndarray()
    canvas = crop_or_pad(scaled, (height, width))
    return av.VideoFrame.from_ndarray(canvas, format="rgb24").reformat(format=PIXEL_FORMAT)


class _AudioTrack:
    """An encoded audio stream that is filled up to given times; silence where a source has no audio."""

    def __init__(self, out: Any, codec: str, rate: int, layout: str) -> None:
        rates = av.Codec(codec, "w").audio_rates
        self.rate = rate if rate in rates else DEFAULT_AUDIO_RATE
        self.layout = layout if layout in LAYOUTS else DEFAULT_LAYOUT
        self.out, self.stream = out, out.add_stream(codec, rate=self.rate, layout=self.layout)
        self.silence = np.zeros((av.AudioLayout(self.layout).nb_channels, self.rate), np.float32)
        self.position = 0
        self.blocks: Iterator[np.ndarray] = iter(())
        self.rest = self.silence[:, :0]

    def begin(self, stack: ExitStack, path: Path, number: int, begin_s: float) -> None:
        """Continue with the audio of another file, from a timestamp on."""
        self.blocks, self.rest = iter(()), self.silence[:, :0]
        container = stack.enter_context(open_container(path))
        streams = audio_streams(container)
        if number < len(streams):
            self.blocks = self._read(container, streams[number], begin_s)

    def _read(self, container: Any, stream: Any, begin_s: float) -> Iterator[np.ndarray]:
        resampler = av.AudioResampler(format="fltp", layout=self.layout, rate=self.rate)
        packets = packets_before(container, stream, int((begin_s - AUDIO_MARGIN_S) / stream.time_base))
        with suppress(av.FFmpegError):  # audio that cannot be decoded becomes silence
            yield from resample_from((frame for packet in packets for frame in packet.decode()), begin_s, resampler)

    def advance(self, time_s: float) -> None:
        """Encode all samples before a time of the clip."""
        while (num_missing := round(time_s * self.rate) - self.position) > 0:
            if not self.rest.shape[1]:
                self.rest = next(self.blocks, self.silence)
            samples, self.rest = self.rest[:, :num_missing], self.rest[:, num_missing:]
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), "fltp", self.layout)
            frame.sample_rate, frame.pts, frame.time_base = self.rate, self.position, Fraction(1, self.rate)
            self.position += samples.shape[1]
            self.out.mux(self.stream.encode(frame))


class _Copier:
    """Copies packets of spans one after the other into an output container."""

    def __init__(self, out: Any) -> None:
        self.out = out
        self.kinds: list[tuple[Any, ...]] = []
        self.last_dts: dict[int, int] = {}
        self.num_frames, self.offset_s = 0, 0.0

    def add(self, span: FileSpan) -> None:
        """Append a span."""
        with open_container(span.path) as container:
            video = find_stream(container, span.path, span.stream)
            begin_s, end_s = _find_span(container, video, span)
            streams = [video, *audio_streams(container)]
            self._match_streams(span.path, streams)
            clip_end_s = self.offset_s
            # Audio may lie before the frames that it belongs to, or after them.
            first_tick = int((begin_s - AUDIO_MARGIN_S) / video.time_base)
            for packet in packets_before(container, video, first_tick, *streams[1:]):
                if packet.pts is None or packet.dts is None:
                    continue
                if packet.dts * packet.time_base > end_s + AUDIO_MARGIN_S:
                    break
                if packet.pts < round(begin_s / packet.time_base) or packet.dts * packet.time_base > end_s:
                    continue
                number = streams.index(packet.stream)
                self._shift(packet, number, round((self.offset_s - begin_s) / packet.time_base))
                if number == 0:
                    clip_end_s = max(clip_end_s, float((packet.pts + (packet.duration or 0)) * packet.time_base))
                    self.num_frames += 1
                self.out.mux(packet)
            self.offset_s = clip_end_s

    def _shift(self, packet: Any, number: int, ticks: int) -> None:
        """Move a packet in time to an output stream, after the last one there."""
        packet.dts = max(packet.dts + ticks, self.last_dts.get(number, -(2**62)) + 1)
        packet.pts = max(packet.pts + ticks, packet.dts)
        self.last_dts[number] = packet.dts
        packet.stream = self.out.streams[number]

    def _match_streams(self, path: Path, streams: Sequence[Any]) -> None:
        """Create the streams of the clip from those of the first span; the others must have the same."""
        kinds = [_kind_of(stream) for stream in streams]
        if not self.kinds:
            self.kinds = kinds
            for stream in streams:
                try:
                    self.out.add_stream_from_template(stream)
                except (ValueError, av.FFmpegError) as error:
                    name, container = stream.codec_context.name, self.out.format.name
                    raise InputError(f"{path}: {container} cannot hold {name} ({error}). {WITHOUT_COPY}") from error
        elif kinds != self.kinds:
            raise InputError(f"{path}: its codecs or sizes differ from those of the first video. {WITHOUT_COPY}")


def _kind_of(stream: Any) -> tuple[Any, ...]:
    """What streams must have in common so that packets of one can follow packets of the other."""
    context = stream.codec_context
    kind = context.name, bytes(context.extradata or b""), stream.time_base
    if stream.type == "video":
        return *kind, context.width, context.height, context.pix_fmt
    return *kind, context.sample_rate, context.layout.name


def _find_span(container: Any, stream: Any, span: FileSpan) -> tuple[float, float]:
    """Timestamps in seconds of the last keyframe at or before the start of a span, and of its end."""
    first = next(container.decode(stream), None)
    if first is None or first.pts is None or container.format.name in NO_TIMESTAMPS:
        raise InputError(f"{span.path}: its packets have no timestamps. {WITHOUT_COPY}")
    start, keyframe = first.pts + int((span.start_s + TIME_TOLERANCE_S) / stream.time_base), first.pts
    has_more = False
    for packet in packets_before(container, stream, start):
        if packet.pts is None or packet.dts is None:
            continue
        if packet.is_keyframe and packet.pts <= start:
            keyframe = packet.pts
        has_more = has_more or packet.pts + (packet.duration or 1) > start
        if packet.dts > start:
            break
    if not has_more:
        raise _too_short(span)
    end_s = float(first.pts * stream.time_base) + span.end_s - TIME_TOLERANCE_S
    return float(keyframe * stream.time_base), end_s


def _too_short(span: FileSpan) -> InputError:
    return InputError(f"{span.path}: contains no frame after {span.start_s:.2f} s")
