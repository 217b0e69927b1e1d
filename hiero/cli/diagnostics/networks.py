"""Checks of weights, built-in models, ONNX Runtime, and decoders of common video codecs."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hiero
from hiero.cli.diagnostics import Finding, Machine, first_line, ok, problem, warning
from hiero.errors import InputError
from hiero.plugins import DISTRIBUTION
from hiero.storage import weights

DEFAULT_WEIGHTS = ("i3d-k400", "dinov2-text", "minilm")  # used by the built-in models


def check_weights(_: Machine) -> Iterator[Finding]:
    """Downloaded weights, compared with their published hashes."""
    shared = os.environ.get("HIERO_WEIGHTS")
    if shared and not Path(shared).is_dir():
        yield warning("weights", f"HIERO_WEIGHTS: no folder {shared}", "mount the folder, or unset the variable")
    for entry in weights.REGISTRY.values():
        name, command = f"weights {entry.name}", f"hiero weights get {entry.name}"
        folder = weights.find(entry.name)
        if folder is None:
            if entry.name in DEFAULT_WEIGHTS:
                yield warning(name, f"not installed ({entry.megabytes} MB, downloaded on first use)", command)
            else:
                yield Finding(name, "ok", f"not installed ({entry.megabytes} MB, optional)", f"optional: {command}")
            continue
        damaged = [
            file for file, (_, checksum) in entry.files.items() if not weights.is_genuine(folder / file, checksum)
        ]
        if damaged:
            files = " ".join(str(folder / file) for file in damaged)
            message = f"damaged: {', '.join(damaged)} (unexpected hash)"
            yield problem(name, message, f"delete {files} and run: {command}")
        elif all(checksum for _, checksum in entry.files.values()):
            yield ok(name, f"in {folder}, verified")
        else:
            yield ok(name, f"in {folder}; not verified, because not all of its files have a published hash")


def check_models(machine: Machine) -> Iterator[Finding]:
    """Whether the built-in models can be loaded, which imports torch."""
    if machine.fast:
        return
    from hiero.model.model_folder import SHIPPED

    for name in SHIPPED:
        try:
            model = hiero.load_model(name)
        except InputError as error:
            yield problem(f"model {name}", str(error), f"pip install --force-reinstall --no-deps {DISTRIBUTION}")
            continue
        num_weights = sum(parameter.numel() for parameter in model.parameters())
        yield ok(f"model {name}", f"loads, {num_weights / 1e6:.1f} million weights")


def check_onnxruntime(_: Machine) -> Iterator[Finding]:
    """The runtime of ONNX networks, which the default image-text comparison needs."""
    try:
        import onnxruntime
    except ImportError as error:
        advice = f"pip install '{DISTRIBUTION}[video]'"
        yield warning("onnxruntime", f"text cannot be compared with pictures: {first_line(error)}", advice)
        return
    providers = ", ".join(name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers())
    yield ok("onnxruntime", f"{onnxruntime.__version__}: {providers}")


# Each decoder is tested on a stream from one of these encoders, most of which PyAV wheels include.
ENCODERS = {
    "h264": ("libx264", "libopenh264"),
    "hevc": ("libx265",),
    "av1": ("libsvtav1", "libaom-av1"),
    "vp9": ("libvpx-vp9",),
}
ENCODER_OPTIONS = {"libx265": {"x265-params": "log-level=none:pools=none"}, "libx264": {"preset": "ultrafast"}}


def check_decoders(_: Machine) -> Iterator[Finding]:
    """Decoders of common codecs, each tested on a small stream if PyAV can encode one."""
    try:
        import av
    except ImportError as error:
        advice = f"pip install --force-reinstall 'av>=18'; or: pip install '{DISTRIBUTION}[video]'"
        yield warning("decoders", f"no video can be read: {first_line(error)}", advice)
        return
    libavcodec = ".".join(map(str, av.library_versions["libavcodec"]))
    ffmpeg = getattr(av, "ffmpeg_version_info", None) or f"of libavcodec {libavcodec}"
    yield ok("decoders", f"PyAV {av.__version__} with FFmpeg {ffmpeg}")
    advice = "pip install --force-reinstall --only-binary av av"
    for codec, encoders in ENCODERS.items():
        name = f"decoder {codec}"
        encoder = next((name for name in encoders if name in av.codec.codecs_available), None)
        stream = _encode(av, encoder) if encoder else None
        try:
            av.codec.Codec(codec, "r")
            num_frames = _count_frames(av, codec, stream) if stream else None
        except (ValueError, OSError) as error:  # the base classes of PyAV's errors
            yield warning(name, f"does not work, videos in {codec} cannot be read: {first_line(error)}", advice)
            continue
        if num_frames == 0:
            yield warning(name, f"decodes no frame of a stream from {encoder}", advice)
        elif num_frames:
            yield ok(name, f"decodes a stream from {encoder}")
        else:
            yield ok(name, f"available; not tested, because {encoder or 'this build'} cannot encode")


def _encode(av: Any, encoder: str) -> bytes | None:
    """A stream of two frames; None if the encoder fails, which says nothing about the decoder."""
    import numpy as np

    os.environ.setdefault("SVT_LOG", "1")  # makes this encoder print errors only
    buffer = io.BytesIO()
    try:
        with av.open(buffer, "w", format="matroska") as container:
            stream = container.add_stream(encoder, rate=25, options=ENCODER_OPTIONS.get(encoder, {}))
            stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
            grey = np.add.outer(np.arange(64), np.arange(64)).astype(np.uint8)
            for shift in (0, 8):
                picture = np.repeat(np.roll(grey, shift, 1)[..., None], 3, 2)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
    except (ValueError, OSError):  # the base classes of PyAV's errors
        return None
    return buffer.getvalue()


def _count_frames(av: Any, codec: str, stream: bytes) -> int:
    """The number of frames that can be decoded from a stream."""
    with av.open(io.BytesIO(stream)) as container:
        assert container.streams.video[0].codec_context.codec.canonical_name == codec
        return sum(1 for _ in container.decode(video=0))
