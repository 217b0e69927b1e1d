"""Audio of a clip that is joined from pieces of videos: copied where it can be, else encoded, in step
with the pictures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hiero.decoding.cut_plan import CutPlan
from hiero.decoding.packets import FLUSH, import_av, open_container, seek_packets

MP4 = ("mp4", "mov")
AUDIO_RATE, AUDIO_LAYOUT = 48_000, "stereo"  # where audio must be encoded anew

TimedPackets = Iterator[tuple[float, Any]]


class CannotJoinError(Exception):
    """Encoded and copied parts do not fit together after all."""


def add_from_template(out: Any, template: Any) -> Any:
    """A stream that is copied, with its tags."""
    try:
        stream = out.add_stream_from_template(template)
    except (ValueError, import_av().FFmpegError) as error:
        raise CannotJoinError(f"its container does not take {template.codec_context.name} ({error})") from error
    stream.metadata.update(
        {key: value for key, value in template.metadata.items() if key in ("language", "title", "handler_name")}
    )
    return stream


def audio_tracks(out: Any, container: str, plans: list[CutPlan]) -> list[TimedPackets]:
    """Packets of each audio stream. They are copied where all pieces have the same kind, and encoded
    as AAC or Opus where not.
    """
    num_tracks = [plan.source.num_audio for plan in plans]
    if not any(num_tracks):
        return []
    paths = list(dict.fromkeys(plan.source.path for plan in plans))
    kinds = {path: _audio_kinds(path) for path in paths}
    if len({tuple(kind) for kind in kinds.values()}) == 1 and all(kind is not None for kind in kinds[paths[0]]):
        tracks = []
        with open_container(paths[0]) as source:
            for number, template in enumerate(source.streams.audio):
                with suppress(CannotJoinError):  # a container that does not take it, such as one for another ending
                    tracks.append(_copied_audio(add_from_template(out, template), container, plans, number))
        return tracks
    stream = out.add_stream("libopus" if container == "webm" else "aac", rate=AUDIO_RATE, layout=AUDIO_LAYOUT)
    return [_encoded_audio(stream, plans)]


def _audio_kinds(path: Path) -> list[Any]:
    """What must be the same for packets of audio streams to be joined."""
    with open_container(path) as container:
        out: list[Any] = []
        for stream in container.streams.audio:
            context = stream.codec_context
            if context is None:
                out.append(None)
            else:
                out.append((context.name, context.sample_rate, context.layout.name, bytes(context.extradata or b"")))
        return out


def _copied_audio(stream: Any, container: str, plans: list[CutPlan], number: int) -> TimedPackets:
    offset_s, last = Fraction(0), None
    for position, plan in enumerate(plans):
        origin_s, end_s = plan.source.seconds(plan.origin), plan.source.seconds(plan.end)
        for packet in _audio_packets(plan.source.path, number, float(origin_s)):
            if packet.pts is None:
                continue
            begin_s = packet.pts * packet.time_base
            length_s = (packet.duration or 0) * packet.time_base
            if begin_s >= end_s:
                break
            # MP4 can begin within a packet: its list of edits leaves the first part out. Elsewhere
            # the first whole one begins.
            if begin_s + length_s <= origin_s or (begin_s < origin_s and (container not in MP4 or position)):
                continue
            time = round((offset_s + begin_s - origin_s) / packet.time_base)
            if last is not None and time < last:
                continue  # the last packet of the piece before reaches into this one
            last = time + max(1, packet.duration or 0)
            packet.stream = stream
            packet.pts = packet.dts = time
            yield float(time * packet.time_base), packet
        offset_s += plan.duration_s


def _audio_packets(path: Path, number: int, start_s: float) -> Iterator[Any]:
    """Packets of an audio stream from one at or before a time on."""
    with open_container(path) as container:
        stream = container.streams.audio[number]
        start = math.floor(start_s / stream.time_base)
        for margin_s in (1.0, 10.0, math.inf):
            packets = seek_packets(container, stream, start, margin_s)
            first = next((packet for packet in packets if packet.pts is not None), None)
            if first is not None and (first.pts <= start or margin_s == math.inf):
                yield first
                yield from packets
                return


def _encoded_audio(stream: Any, plans: list[CutPlan]) -> TimedPackets:
    """Audio of sources of different kinds, and silence for those that have none, sample by sample in
    step with the pictures.
    """
    av = import_av()
    time_base = Fraction(1, AUDIO_RATE)
    position, offset_s = 0, Fraction(0)
    fifo = av.AudioFifo()

    def encode(samples: np.ndarray) -> Iterator[Any]:
        nonlocal position
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), format="fltp", layout=AUDIO_LAYOUT)
        frame.sample_rate, frame.pts, frame.time_base = AUDIO_RATE, position, time_base
        position += samples.shape[1]
        fifo.write(frame)
        size = stream.codec_context.frame_size or 1024
        while (chunk := fifo.read(size)) is not None:
            yield from stream.encode(chunk)

    def timed(packets: Iterable[Any]) -> TimedPackets:
        for packet in packets:
            yield float((packet.dts or 0) * packet.time_base), packet

    for plan in plans:
        target = round((offset_s + plan.duration_s) * AUDIO_RATE)
        if plan.source.num_audio:
            for begin, samples in _decode_audio(plan, offset_s):
                begin = max(begin, 0)
                if begin > position:
                    yield from timed(encode(np.zeros((2, min(begin, target) - position), dtype=np.float32)))
                part = samples[:, max(0, position - begin) : max(0, target - begin)]
                if part.shape[1]:
                    yield from timed(encode(part))
        while position < target:
            yield from timed(encode(np.zeros((2, min(AUDIO_RATE, target - position)), dtype=np.float32)))
        offset_s += plan.duration_s
    rest = fifo.read(0, partial=True)
    if rest is not None:
        yield from timed(stream.encode(rest))
    yield from timed(stream.encode(FLUSH))


def _decode_audio(plan: CutPlan, offset_s: Fraction) -> Iterator[tuple[int, np.ndarray]]:
    """Samples (2, N) of a piece, with the number of the first one in the clip."""
    av = import_av()
    resampler = av.AudioResampler(format="fltp", layout=AUDIO_LAYOUT, rate=AUDIO_RATE)
    origin_s, end_s = plan.source.seconds(plan.origin), plan.source.seconds(plan.end)
    begin = None
    for packet in _audio_packets(plan.source.path, 0, float(origin_s)):
        for frame in packet.decode():
            if frame.pts is None:
                continue
            time_s = frame.pts * frame.time_base
            if time_s >= end_s:
                return
            for resampled in resampler.resample(frame):
                samples = resampled.to_ndarray()
                if begin is None:
                    begin = round((offset_s + time_s - origin_s) * AUDIO_RATE)
                shift = max(0, math.ceil(offset_s * AUDIO_RATE) - begin)
                if shift < samples.shape[1]:
                    yield begin + shift, samples[:, shift:]
                begin += samples.shape[1]
