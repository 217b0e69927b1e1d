"""Decoders of the codecs that cameras and phones write."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

from hiero.cli.diagnostics.findings import Finding, Machine, first_line
from hiero.plugins import DISTRIBUTION

# A codec's decoder is tried on a stream that one of these encoders makes; wheels of PyAV have most of them.
ENCODERS = {
    "h264": ("libx264", "libopenh264"),
    "hevc": ("libx265",),
    "av1": ("libsvtav1", "libaom-av1"),
    "vp9": ("libvpx-vp9",),
}
ENCODER_OPTIONS = {"libx265": {"x265-params": "log-level=none:pools=none"}, "libx264": {"preset": "ultrafast"}}


def check_decoders(_: Machine) -> Iterator[Finding]:
    """Decoders of the common codecs, each tried on a small stream that is made for it where this
    build can make one.
    """
    try:
        import av
    except ImportError as error:
        advice = f"pip install --force-reinstall 'av>=12'; or: pip install '{DISTRIBUTION}[video]'"
        yield Finding("decoders", "warning", f"no video can be read: {first_line(error)}", advice)
        return
    ffmpeg = getattr(av, "ffmpeg_version_info", None) or "of libavcodec " + ".".join(
        map(str, av.library_versions["libavcodec"])
    )
    yield Finding("decoders", "ok", f"PyAV {av.__version__} with FFmpeg {ffmpeg}")
    for codec in ENCODERS:
        name = f"decoder {codec}"
        encoder = _find_encoder(av, codec)
        stream = _encode(av, encoder) if encoder else None
        try:
            av.codec.Codec(codec, "r")
            num_frames = _try_decoder(av, codec, stream) if stream else None
        except (ValueError, OSError) as error:  # what PyAV's errors are
            advice = f"pip install --force-reinstall --only-binary av av; videos in {codec} cannot be read until then"
            yield Finding(name, "warning", f"does not work: {first_line(error)}", advice)
            continue
        if num_frames == 0:
            advice = "pip install --force-reinstall --only-binary av av"
            yield Finding(name, "warning", f"decodes nothing of a stream made by {encoder}", advice)
        elif num_frames:
            yield Finding(name, "ok", f"decodes a stream made by {encoder}")
        else:
            yield Finding(name, "ok", f"there; not tried, since {encoder or 'this build'} cannot encode")


def _find_encoder(av: Any, codec: str) -> str | None:
    for encoder in ENCODERS[codec]:
        try:
            av.codec.Codec(encoder, "w")
        except ValueError:
            continue
        return encoder
    return None


def _encode(av: Any, encoder: str) -> bytes | None:
    """A stream of two frames; None where the encoder fails, which says nothing about the decoder."""
    import numpy as np

    os.environ.setdefault("SVT_LOG", "1")  # errors only: its encoder writes to the terminal by itself
    buffer = io.BytesIO()
    try:
        with av.open(buffer, "w", format="matroska") as container:
            stream = container.add_stream(encoder, rate=25, options=ENCODER_OPTIONS.get(encoder, {}))
            stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
            picture = np.add.outer(np.arange(64), np.arange(64)).astype(np.uint8)
            for shift in (0, 8):
                frame = av.VideoFrame.from_ndarray(
                    np.repeat(np.roll(picture, shift, 1)[..., None], 3, 2), format="rgb24"
                )
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
    except (ValueError, OSError):  # what PyAV's errors are
        return None
    return buffer.getvalue()


def _try_decoder(av: Any, codec: str, stream: bytes) -> int:
    """Frames that are decoded of a stream."""
    with av.open(io.BytesIO(stream)) as container:
        assert container.streams.video[0].codec_context.codec.canonical_name == codec
        return sum(1 for _ in container.decode(video=0))
