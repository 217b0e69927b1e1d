"""Containers and packets of video files: open and search them, and find keyframes where decoding can begin."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hiero.errors import InputError

SEEK_MARGINS_S = (0.0, 5.0, 60.0, math.inf)  # before a time, from where reading is tried in turn
BEFORE_START_S = 10.0  # before the first timestamp of any stream
NO_TIMESTAMPS = ("avi",)  # containers whose packets have guessed timestamps
START_CODE = b"\x00\x00\x01"
# FFmpeg's names of the containers that are read. Playlists and image sequences, which open other files, are not.
FORMATS = (
    *("mov", "matroska", "avi", "mpegts", "mpeg", "mpegvideo", "asf", "flv", "gif"),
    *("ogg", "mxf", "nut", "dv", "rm", "ivf", "obu", "h264", "hevc", "m4v", "wav"),
)
SAFE_OPTIONS = {"format_whitelist": ",".join(FORMATS), "protocol_whitelist": "file"}
H264_IDR, HEVC_IDR_OR_CRA = {5}, {16, 17, 18, 19, 20, 21}  # types of NAL units


def import_av() -> Any:
    """Import PyAV. Raises InputError if it is missing."""
    try:
        import av
    except ImportError:
        raise InputError("reading and cutting video needs PyAV. Run: pip install 'hiero-video[video]'") from None
    return av


def open_container(path: Path, gpu: int | None = None, file: Any = None) -> Any:
    """Open a file for reading; `gpu` is the number of the NVIDIA GPU that decodes its video, if any.

    `file` is opened in place of the path: a file object of a remote video.
    """
    av = import_av()
    if file is None and not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        # FFmpeg would take the beginning of a name such as "12:30.mp4" for a protocol, but not that of a full path.
        return open_for_decoding(file or str(path.absolute()), gpu)
    except InputError:  # of a remote file
        raise
    except (av.FFmpegError, ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{path}: not a video that FFmpeg can read ({reason}). Playlists and image sequences are not supported."
        ) from error


def open_for_decoding(file: Any, gpu: int | None) -> Any:
    """Open a container whose video is decoded by the CPU or a GPU."""
    import av

    if gpu is None:
        return av.open(file, container_options=SAFE_OPTIONS)
    from av.codec.hwaccel import HWAccel

    hwaccel = HWAccel("cuda", device=str(gpu), allow_software_fallback=False, is_hw_owned=True)
    return av.open(file, hwaccel=hwaccel, container_options=SAFE_OPTIONS)


def find_stream(container: Any, name: object, number: int) -> Any:
    """Find a video stream by its number. Raises InputError if it cannot be decoded."""
    streams = container.streams.video
    if not streams:
        raise InputError(f"{name}: has no video stream")
    if not 0 <= number < len(streams):
        raise InputError(f"{name}: has {len(streams)} video streams; --stream must be less than that, got {number}")
    if streams[number].codec_context is None:
        raise InputError(f"{name}: FFmpeg has no decoder for its video stream")
    streams[number].thread_type = "AUTO"
    return streams[number]


def packets_before(container: Any, stream: Any, tick: int, *others: Any) -> Iterator[Any]:
    """Packets from a keyframe at or before a timestamp of a stream on; from the first packet if there is none.

    Packets of the other streams come as well, in the order of the file.
    """
    start = stream.start_time or 0
    for margin_s in SEEK_MARGINS_S:
        if margin_s == math.inf:  # without an index, a search for the first timestamp can miss it
            target = start - round(BEFORE_START_S / stream.time_base)
        else:
            target = max(start, tick - round(margin_s / stream.time_base))
        # A file without an index is read from where it is, which may be too late.
        with suppress(import_av().FFmpegError):
            container.seek(target, stream=stream)
        packets = iter(container.demux(stream, *others))  # the empty last one flushes the decoder
        first = next(packets, None)
        if first is None:
            continue
        is_before = first.pts is not None and first.pts * first.time_base <= tick * stream.time_base
        if (first.is_keyframe and is_before) or margin_s == math.inf:
            yield first
            yield from packets
            return


def packets_from(container: Any, stream: Any, tick: int, path: Path) -> Iterator[Any]:
    """Packets from the keyframe with exactly this timestamp on."""
    packets = packets_before(container, stream, tick)
    for packet in packets:
        if packet.pts == tick and packet.is_keyframe:
            yield packet
            yield from packets
            return
        if packet.dts is not None and packet.dts > tick:
            break
    raise InputError(f"{path}: changed while it was read, or does not support seeking. Convert it to another format.")


def can_start_decoding(codec: str, extradata: bytes, packet: bytes) -> bool:
    """Whether decoding can begin at a keyframe in the middle of a stream.

    An H.264 intra picture that is not an IDR picture depends on the picture numbers before it.
    """
    if codec not in ("h264", "hevc"):
        return True
    length_at = 4 if codec == "h264" else 21
    if not extradata or extradata.startswith((START_CODE, b"\x00" + START_CODE)):
        units = [part.rstrip(b"\x00") for part in re.split(START_CODE, packet)]
    elif len(extradata) > length_at:
        units = _split_lengths(packet, (extradata[length_at] & 3) + 1)
    else:  # damaged
        return True
    first_bytes = [unit[0] for unit in units if unit]
    if codec == "h264":
        return any(byte & 0x1F in H264_IDR for byte in first_bytes)
    return any(byte >> 1 & 0x3F in HEVC_IDR_OR_CRA for byte in first_bytes)


def _split_lengths(data: bytes, length_size: int) -> list[bytes]:
    """Split NAL units that follow their lengths."""
    units, position = [], 0
    while position + length_size <= len(data):
        length = int.from_bytes(data[position : position + length_size], "big")
        units.append(data[position + length_size : position + length_size + length])
        position += length_size + length
    return units
