"""Exact cuts: a file from pieces of videos, of which only the edges are encoded anew.

A video can be entered at some keyframes only, and left after any packet up to which all pictures
are complete. A piece is therefore written in three parts: its first pictures up to the first such
keyframe (encoded), the packets from there on (as they are), and the few pictures after the last
packet that could be taken (encoded). Encoded parts have the codec, size, pixels and profile of the
rest, and their own parameter sets beside those of the rest. What came out is decoded at its joints
and compared with the source; where it differs, or where a codec does not allow joints, the piece is
encoded as a whole.

Times are seconds from the first frame of a video, as everywhere.
"""

from __future__ import annotations

import errno
import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hiero.decoding.bitstream import HEVC_CRA, HEVC_END_OF_SEQUENCE, NalFormat
from hiero.decoding.clip_audio import MP4, CannotJoinError, TimedPackets, add_from_template, audio_tracks
from hiero.decoding.cut_plan import CutPlan, read_plan
from hiero.decoding.cut_plan import Piece as Piece
from hiero.decoding.packets import (
    COLOURS,
    FLUSH,
    TIME_TOLERANCE_S,
    Source,
    decode_frames,
    decode_from,
    find_stream,
    import_av,
    open_container,
    open_source,
    packets_from,
)
from hiero.errors import InputError
from hiero.storage.files import atomic_path

# FFmpeg's name of the container, by the ending of a file. What is in others goes to Matroska, which
# holds almost anything.
CONTAINERS = {
    ".mp4": "mp4",
    ".m4v": "mp4",
    ".mov": "mov",
    ".3gp": "mp4",
    ".mkv": "matroska",
    ".webm": "webm",
    ".ts": "mpegts",
    ".mts": "mpegts",
    ".m2ts": "mpegts",
}
OTHER_SUFFIX = ".mkv"
# By codec: the encoder, and options that leave no difference to be seen.
ENCODERS: dict[str, tuple[str, dict[str, str]]] = {
    "h264": ("libx264", {"preset": "fast", "crf": "15"}),
    "hevc": ("libx265", {"preset": "fast", "crf": "16", "x265-params": "log-level=error"}),
    "vp9": (
        "libvpx-vp9",
        {"crf": "16", "b": "0", "deadline": "good", "cpu-used": "5", "lag-in-frames": "0", "auto-alt-ref": "0"},
    ),
    "vp8": (
        "libvpx",
        {"crf": "6", "b": "20M", "deadline": "good", "cpu-used": "5", "lag-in-frames": "0", "auto-alt-ref": "0"},
    ),
    "av1": ("libsvtav1", {"preset": "9", "crf": "20", "svtav1-params": "lookahead=0"}),
    "mpeg4": ("mpeg4", {"qmin": "2", "qmax": "3"}),
    "mpeg2video": ("mpeg2video", {"qmin": "2", "qmax": "3"}),
    "mjpeg": ("mjpeg", {"qmin": "2", "qmax": "3"}),
}
FALLBACK_CODEC = "h264"
JOINED_CODECS = ("h264", "hevc", "vp8", "vp9")  # whose encoded and copied parts play as one stream
PROFILES = {
    "Baseline": "baseline",
    "Constrained Baseline": "baseline",
    "Main": "main",
    "High": "high",
    "High 10": "high10",
    "High 4:2:2": "high422",
    "High 4:4:4 Predictive": "high444",
}
NUM_CHECKED = 3  # copied frames that are compared at a joint
CHECKED_SIDE = 32  # pixels of a picture that is compared
MAX_COPIED_ERROR, MAX_ENCODED_ERROR = 0.5, 6.0  # mean difference of grey values up to 255
CHECKED_GAP_S = 8.0  # frames to be compared that are further apart are looked for one by one
COMMON_TICKS = 90_000  # a second, where sources differ
NO_ENTRY = "it has no keyframe inside at which it can be joined"


@dataclass(frozen=True)
class WrittenClip:
    """How a clip was written."""

    duration_s: float
    num_copied: int
    num_encoded: int
    note: str = ""


def container_of(path: Path) -> str:
    """FFmpeg's name of the container that a file's ending stands for."""
    return CONTAINERS.get(path.suffix.lower(), CONTAINERS[OTHER_SUFFIX])


def write_clip(path: Path, pieces: Sequence[Piece], *, title: str = "") -> WrittenClip:
    """Join pieces of videos in one file, exactly cut, with as few frames encoded as can be.

    Pieces of one codec, size and pixel format are joined as they are; otherwise all are encoded as
    H.264 of the first one's size. Audio is copied where all pieces have the same kind. Rotation,
    colours, tags and variable frame rates stay.
    """
    sources: dict[tuple[Path, int], Source] = {}
    for piece in pieces:
        if (piece.path, piece.stream) not in sources:
            sources[piece.path, piece.stream] = open_source(piece.path, piece.stream)
    plans = [read_plan(piece, sources[piece.path, piece.stream]) for piece in pieces]
    container = container_of(path)
    note = _obstacle(plans)
    with atomic_path(path) as temporary:
        if not note and any(plan.copied for plan in plans):
            try:
                _write(temporary, container, plans, title, joined=True)
                note = _compare_joints(temporary, plans)
            except CannotJoinError as error:
                note = str(error)
            if not note:
                num_copied = sum(len(plan.copied) for plan in plans)
                num_encoded = sum(plan.num_frames for plan in plans) - num_copied
                return WrittenClip(_total_s(plans), num_copied, num_encoded)
        note = note or NO_ENTRY
        plans = [plan.encoded_whole() for plan in plans]
        _write(temporary, container, plans, title, joined=False)
    return WrittenClip(_total_s(plans), 0, sum(plan.num_frames for plan in plans), note)


def _total_s(plans: list[CutPlan]) -> float:
    return float(sum((plan.duration_s for plan in plans), Fraction(0)))


def _obstacle(plans: list[CutPlan]) -> str:
    """Why parts cannot be joined; empty where they can."""
    first = plans[0].source
    if any(plan.source.picture != first.picture for plan in plans):
        return "the videos have different codecs, sizes or pixels"
    needs_encoder = any(plan.head or plan.tail for plan in plans)
    if needs_encoder and not first.is_intra and first.codec not in JOINED_CODECS:
        return f"{first.codec} cannot be joined in the middle"
    if needs_encoder and first.codec not in ENCODERS:
        return f"there is no encoder for {first.codec}"
    return ""


# Writing


def _write(path: Path, container: str, plans: list[CutPlan], title: str, *, joined: bool) -> None:
    """Write all parts of all pieces, video and audio in the order of time."""
    av = import_av()
    options = {"movflags": "+faststart"} if container in MP4 else {}
    if container in ("matroska", "webm"):
        options["avoid_negative_ts"] = "disabled"  # it stores when frames are shown, never when they are decoded
    try:
        with av.open(str(path), "w", format=container, container_options=options) as out:
            _copy_tags(plans[0].source.path, out, title)
            write = _JoinedVideo(out, container, plans) if joined else _EncodedVideo(out, container, plans)
            audio = audio_tracks(out, container, plans)
            packets = [write.packets(), *(track for track in audio)]
            for _, packet in heapq.merge(*packets, key=lambda timed: timed[0]):
                out.mux(packet)
    except av.FFmpegError as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO):
            raise OSError(error.errno, error.strerror, str(path)) from error
        if joined:
            raise CannotJoinError(f"FFmpeg refused to join it ({error})") from error
        raise InputError(f"{plans[0].source.path}: cannot be written as {container} ({error})") from error


class _JoinedVideo:
    """A stream of copied and encoded parts."""

    def __init__(self, out: Any, container: str, plans: list[CutPlan]) -> None:
        self.plans, first = plans, plans[0].source
        self.format = first.nal_format
        same = all(plan.source.time_base == first.time_base for plan in plans)
        self.time_base = first.time_base if same else Fraction(1, COMMON_TICKS)
        headers = {plan.source.extradata for plan in plans}
        self.in_band = self.format is not None and (
            len(headers) > 1 or first.codec == "hevc" or not self.format.length_size
        )
        self.sps_id = self.format.free_id() if self.format is not None and first.codec == "h264" else None
        self.parts = [(self._encode(plan, plan.head), self._encode(plan, plan.tail)) for plan in plans]
        header, tag = first.extradata, None
        if (self.format is not None and any(head or tail for head, tail in self.parts)) or len(headers) > 1:
            header, tag = self._header()
        with open_container(first.path) as source:
            self.stream = add_from_template(out, find_stream(source, first.path, first.stream))
        self.stream.time_base = self.time_base
        if header:
            self.stream.codec_context.extradata = header
        if tag is not None and container in MP4:
            self.stream.codec_context.codec_tag = tag

    def _encode(self, plan: CutPlan, frames: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
        """Frames as packets: their timestamps in the source, and data in the framing of the stream."""
        if not frames:
            return []
        encoder = _edge_encoder(plan.source, self.sps_id)
        source_times = dict(frames)
        out = []

        def keep(packets: Iterable[Any]) -> None:
            for packet in packets:
                data = bytes(packet)
                if self.format is not None:
                    units = NalFormat(self.format.codec, 0, (), b"").split(data)
                    data = self.format.join(units)
                out.append((int(packet.pts), data))

        for frame in decode_frames(plan.source, list(source_times), plan.seek):
            frame.pts, frame.time_base, frame.pict_type = source_times[frame.pts], plan.source.time_base, 0
            keep(encoder.encode(frame))
        keep(encoder.encode(FLUSH))
        if [pts for pts, _ in out] != [pts for _, pts in frames]:
            raise CannotJoinError("some of its frames cannot be decoded")
        return out

    def _header(self) -> tuple[bytes, str | None]:
        """The header of the file, and its tag in MP4. Parameter sets go there, or, where ids are the
        same, into the packets.
        """
        format_ = self.format
        if format_ is None:
            return self.plans[0].source.extradata, None
        encoded = [part for parts in self.parts for part in parts if part]
        if not self.in_band:
            sets = {unit for part in encoded for unit in format_.split(part[0][1]) if format_.is_parameter_set(unit)}
            merged = format_.with_parameter_sets(sorted(sets)) if self.sps_id is not None and len(sets) == 2 else None
            if merged is not None:
                self.parts = [(self._strip(head), self._strip(tail)) for head, tail in self.parts]
                return merged.header, None
            self.in_band = True
        return self.plans[0].source.extradata, "avc3" if format_.codec == "h264" else "hev1"

    def _strip(self, part: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Packets without parameter sets."""
        assert self.format is not None
        format_ = self.format
        return [
            (pts, format_.join([u for u in format_.split(data) if not format_.is_parameter_set(u)]))
            for pts, data in part
        ]

    def packets(self) -> TimedPackets:
        """All packets, with the times of decoding that B-frames need: the sorted times of showing,
        moved ahead together.
        """
        shown: list[int] = []
        offset_s = Fraction(0)
        for plan, (head, tail) in zip(self.plans, self.parts, strict=True):
            times = [*(pts for pts, _ in head), *plan.copied, *(pts for pts, _ in tail)]
            shown += [self._tick(plan, pts, offset_s) for pts in times]
            offset_s += plan.duration_s
        ordered = sorted(shown)
        if len(set(ordered)) < len(ordered):
            raise CannotJoinError("frames have the same time")
        delay = max(sorted_ - pts for sorted_, pts in zip(ordered, shown, strict=True))
        lengths = dict(zip(ordered, np.diff([*ordered, math.ceil(offset_s / self.time_base)]).tolist(), strict=True))
        raw = self._raw_packets()
        for i, (pts, decoded) in enumerate(zip(shown, ordered, strict=True)):
            data, is_key = next(raw)
            packet = import_av().Packet(data)
            packet.stream, packet.time_base = self.stream, self.time_base
            packet.pts, packet.dts, packet.duration, packet.is_keyframe = (
                pts,
                decoded - delay,
                max(1, lengths[pts]),
                is_key or i == 0,
            )
            yield float((decoded - delay) * self.time_base), packet

    def _tick(self, plan: CutPlan, pts: int, offset_s: Fraction) -> int:
        return round((offset_s + plan.source.seconds(pts - plan.origin)) / self.time_base)

    def _raw_packets(self) -> Iterator[tuple[bytes, bool]]:
        """Data of all packets in order, and whether each is a keyframe."""
        is_first = True
        for plan, (head, tail) in zip(self.plans, self.parts, strict=True):
            for i, (_, data) in enumerate(head):
                yield data, i == 0
            if plan.copied:
                yield from self._copied(plan, after_other=bool(head) or not is_first)
            for i, (_, data) in enumerate(tail):
                yield data, i == 0
            is_first = False

    def _copied(self, plan: CutPlan, after_other: bool) -> Iterator[tuple[bytes, bool]]:
        source, num_left, format_ = plan.source, len(plan.copied), plan.source.nal_format
        with open_container(source.path) as container:
            video = find_stream(container, source.path, source.stream)
            for packet in packets_from(container, video, plan.copied[0], source.path):
                if packet.pts is None or packet.pts < plan.copied[0]:  # a leading picture
                    continue
                data = bytes(packet)
                if packet.pts == plan.copied[0] and format_ is not None and (self.in_band or plan.drops_leading):
                    units = format_.split(data)
                    if self.in_band:
                        units = [*format_.parameter_sets, *units]
                    if after_other and any(format_.type_of(u) == HEVC_CRA for u in units) and format_.codec == "hevc":
                        units = [HEVC_END_OF_SEQUENCE, *units]
                    data = format_.join(units)
                yield data, packet.is_keyframe
                num_left -= 1
                if not num_left:
                    return
        raise CannotJoinError("the file changed while it was read")


class _EncodedVideo:
    """A stream that is encoded as a whole: of the first source's codec, or H.264 where that has no
    encoder or sources differ.
    """

    def __init__(self, out: Any, container: str, plans: list[CutPlan]) -> None:
        self.plans, first = plans, plans[0].source
        is_mixed = any(plan.source.picture != first.picture for plan in plans)
        codec = first.codec if first.codec in ENCODERS and not (is_mixed and container in MP4) else FALLBACK_CODEC
        if container == "webm" and codec not in ("vp8", "vp9", "av1"):
            codec = "vp9"
        name, options = ENCODERS[codec]
        same = all(plan.source.time_base == first.time_base for plan in plans)
        self.time_base = first.time_base if same else Fraction(1, COMMON_TICKS)
        self.stream = out.add_stream(name, rate=round(1 / first.frame_s) or 1)
        context = self.stream.codec_context
        turned = {plan.source.rotation for plan in plans}
        self.rotation = first.rotation if len(turned) == 1 else 0
        self.size = _displayed_size(first) if len(turned) > 1 else (first.width, first.height)
        if len({(plan.source.width, plan.source.height) for plan in plans}) > 1 or len(turned) > 1:
            self.size = self.size[0] // 2 * 2, self.size[1] // 2 * 2  # what 4:2:0 can hold
        self.pix_fmt = _encoder_format(context.codec, first.pix_fmt)
        context.width, context.height = self.size
        context.pix_fmt, context.time_base, context.options = self.pix_fmt, self.time_base, options
        self.stream.time_base = self.time_base
        _set_colours(context, first)
        if self.rotation:
            self.stream.set_display_rotation(self.rotation)

    def packets(self) -> TimedPackets:
        offset_s, last = Fraction(0), -1
        for plan in self.plans:
            source_times = dict(plan.head)
            for frame in decode_frames(plan.source, list(source_times), plan.seek):
                pts = source_times[frame.pts]
                frame = self._fit(frame, plan.source)
                last = max(last + 1, round((offset_s + plan.source.seconds(pts - plan.origin)) / self.time_base))
                frame.pts, frame.time_base, frame.pict_type = last, self.time_base, 0
                yield from self._timed(self.stream.encode(frame))
            offset_s += plan.duration_s
        yield from self._timed(self.stream.encode(FLUSH))

    def _timed(self, packets: Iterable[Any]) -> TimedPackets:
        for packet in packets:
            time = packet.dts if packet.dts is not None else packet.pts
            yield float(time * packet.time_base), packet

    def _fit(self, frame: Any, source: Source) -> Any:
        """A frame of the stream's size and pixels: scaled to fit, with black around it."""
        if (frame.width, frame.height) == self.size and source.rotation == self.rotation:
            return frame if frame.format.name == self.pix_fmt else frame.reformat(format=self.pix_fmt)
        av, (width, height) = import_av(), self.size
        picture = frame.to_ndarray(format="rgb24")
        if source.rotation != self.rotation:
            picture = np.ascontiguousarray(np.rot90(picture, round(source.rotation / 90) % 4))
        scale = min(width / picture.shape[1], height / picture.shape[0])
        inner = max(2, round(picture.shape[1] * scale)), max(2, round(picture.shape[0] * scale))
        scaled = (
            av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(width=inner[0], height=inner[1]).to_ndarray()
        )
        canvas = np.zeros((height, width, 3), dtype=np.uint8)
        top, left = (height - scaled.shape[0]) // 2, (width - scaled.shape[1]) // 2
        canvas[top : top + scaled.shape[0], left : left + scaled.shape[1]] = scaled
        return av.VideoFrame.from_ndarray(canvas, format="rgb24").reformat(format=self.pix_fmt)


def _displayed_size(source: Source) -> tuple[int, int]:
    is_turned = round(source.rotation / 90) % 2
    return (source.height, source.width) if is_turned else (source.width, source.height)


def _encoder_format(codec: Any, pix_fmt: str) -> str:
    """The pixel format of a source, or the nearest that an encoder takes."""
    names = [format_.name for format_ in codec.video_formats or []]
    if pix_fmt in names or not names:
        return pix_fmt
    plain = pix_fmt.replace("yuvj", "yuv")
    return plain if plain in names else "yuv420p" if "yuv420p" in names else names[0]


def _set_colours(context: Any, source: Source) -> None:
    for name, value in zip(COLOURS, source.colours, strict=True):
        if value:
            setattr(context, name, value)
    if source.aspect:
        context.sample_aspect_ratio = source.aspect


def _edge_encoder(source: Source, sps_id: int | None) -> Any:
    """An encoder for a few frames between copied ones: their codec, size, pixels and profile; no frame
    is shown before another.
    """
    name, options = ENCODERS[source.codec]
    context = import_av().CodecContext.create(name, "w")
    context.width, context.height, context.pix_fmt = source.width, source.height, source.pix_fmt
    context.time_base, context.framerate = source.time_base, 1 / source.frame_s
    options = dict(options)
    if source.codec == "h264":
        options["x264-params"] = "bframes=0:scenecut=0:keyint=infinite:open-gop=0" + (
            f":sps-id={sps_id}" if sps_id else ""
        )
        if source.profile in PROFILES:
            options["profile"] = PROFILES[source.profile]
    elif source.codec == "hevc":
        options["x265-params"] += ":bframes=0:scenecut=0:keyint=-1:open-gop=0:repeat-headers=1"
    elif source.codec in ("vp8", "vp9"):
        options["g"] = "9999"
    context.options = options
    _set_colours(context, source)
    try:
        context.open()
    except import_av().FFmpegError as error:
        raise CannotJoinError(f"{name} does not take {source.pix_fmt} ({error})") from error
    return context


def _copy_tags(path: Path, out: Any, title: str) -> None:
    """Tags of the first source, such as when and where it was recorded."""
    with open_container(path) as source:
        skipped = ("major_brand", "minor_version", "compatible_brands", "encoder", "duration")
        out.metadata.update({key: value for key, value in source.metadata.items() if key.lower() not in skipped})
    if title:
        out.metadata["title"] = title


# The comparison at joints


def _compare_joints(path: Path, plans: list[CutPlan]) -> str:
    """Decode a clip around the joints; returns what is wrong, empty where all frames are those of the sources."""
    expected = _frames_at_joints(plans)
    try:
        clip = open_source(path)
        for group in _groups([frame.time_s for frame in expected], CHECKED_GAP_S):
            frames = iter([frame for frame in expected if group[0] <= frame.time_s <= group[-1]])
            wanted = next(frames, None)
            for pts, decoded in decode_from(clip, group[0]):
                late_s = float(clip.seconds(pts - clip.zero)) - (wanted.time_s if wanted is not None else 0.0)
                if wanted is None:
                    break
                if late_s > TIME_TOLERANCE_S:
                    return "the joined frames have gaps"
                if late_s >= -TIME_TOLERANCE_S:
                    if float(np.abs(_small_grey(decoded) - wanted.grey).mean()) > wanted.max_error:
                        return "the joined frames differ from the source"
                    wanted = next(frames, None)
            if wanted is not None:
                return "the joined frames end early"
    except InputError as error:
        return f"the joined frames cannot be decoded ({error})"
    return ""


@dataclass(frozen=True)
class _ExpectedFrame:
    """When a clip shows a frame, a small picture of it, and how much that may differ."""

    time_s: float
    grey: np.ndarray
    max_error: float


def _frames_at_joints(plans: list[CutPlan]) -> list[_ExpectedFrame]:
    """All encoded frames of the sources, and the copied ones beside them, in the order of time."""
    out = []
    offset_s = Fraction(0)
    for plan in plans:
        copied = sorted(plan.copied)
        near = [
            *(copied[:NUM_CHECKED] if plan.head or len(plans) > 1 else []),
            *(copied[-NUM_CHECKED:] if plan.tail else []),
        ]
        encoded = dict((*plan.head, *plan.tail))
        times = {pts: pts for pts in near} | encoded
        for group in _groups(sorted(times), CHECKED_GAP_S / plan.source.time_base):
            for frame in decode_frames(plan.source, group, plan.seek):
                time_s = offset_s + plan.source.seconds(times[frame.pts] - plan.origin)
                max_error = MAX_ENCODED_ERROR if frame.pts in encoded else MAX_COPIED_ERROR
                out.append(_ExpectedFrame(float(time_s), _small_grey(frame), max_error))
        offset_s += plan.duration_s
    return sorted(out, key=lambda frame: frame.time_s)


def _groups(times: Sequence[Any], gap: Any) -> list[list[Any]]:
    """Sorted times in groups between which there are gaps."""
    out: list[list[Any]] = []
    for time in times:
        if not out or time - out[-1][-1] > gap:
            out.append([])
        out[-1].append(time)
    return out


def _small_grey(frame: Any) -> np.ndarray:
    return np.asarray(
        frame.reformat(width=CHECKED_SIDE, height=CHECKED_SIDE, format="gray").to_ndarray(), dtype=np.float32
    )
