"""Videos written frame by frame, so that tests know what each moment shows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest


def grey(value: int, width: int = 64, height: int = 48) -> np.ndarray:
    """A frame of one grey, (H, W, 3) uint8."""
    return np.full((height, width, 3), value, dtype=np.uint8)


def import_av():
    """PyAV; without it, or where its libraries do not load, the test or module is skipped."""
    try:
        import av
    # pytest.importorskip takes only that it is missing, and warns of libraries that do not load
    except ImportError as error:
        pytest.skip(f"needs PyAV: pip install 'hiero-video[video]' ({error})", allow_module_level=True)
    return av


def write_video(
    path, values, times_s=None, fps=10, codec="libx264", container=None, pictures=None, start_s=0.0, options=None
):
    """A video whose frame i is plain grey of values[i], shown at times_s[i] (or at start_s + i / fps).

    pictures: frames (H, W, 3) in place of the greys. options: of the encoder libx264.
    """
    av = import_av()
    times_s = [start_s + i / fps for i in range(len(values))] if times_s is None else times_s
    with av.open(str(path), "w", format=container) as out:
        stream = out.add_stream(codec, rate=fps)
        first = grey(0) if pictures is None else pictures[0]
        stream.width, stream.height = first.shape[1], first.shape[0]
        stream.pix_fmt = {"gif": "rgb8", "ffv1": "yuv420p"}.get(codec, "yuv420p")
        ticks_per_s = {".gif": 100, ".avi": fps}.get(path.suffix, 1000)  # what the container can hold
        stream.time_base = stream.codec_context.time_base = Fraction(1, ticks_per_s)
        if codec == "libx264":
            stream.options = {"crf": "1", "preset": "ultrafast", **(options or {})}
        for i, (value, time_s) in enumerate(zip(values, times_s, strict=True)):
            frame = av.VideoFrame.from_ndarray(grey(value) if pictures is None else pictures[i], format="rgb24")
            frame.time_base = stream.time_base
            frame.pts = round(time_s / stream.time_base)
            for packet in stream.encode(frame):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)
    return path


def write_streams(path, values, num_frames=10):
    """A video with a stream of plain grey for each value."""
    with import_av().open(str(path), "w") as out:
        streams = [out.add_stream("mpeg4", rate=10, width=64, height=48, pix_fmt="yuv420p") for _ in values]
        for i in range(num_frames):
            for stream, value in zip(streams, values, strict=True):
                frame = import_av().VideoFrame.from_ndarray(grey(value), format="rgb24")
                frame.pts = i
                out.mux(stream.encode(frame))
        for stream in streams:
            out.mux(stream.encode(None))


def join_clips(clips, path, width=480, height=270, rate=25):
    """Write clips one after the other into a video of constant rate.

    Returns the starts of the clips and the end of the last one, in seconds.
    """
    av = import_av()
    boundaries = [0.0]
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", 4_000_000
        for clip in clips:
            with av.open(str(clip)) as container:
                frames = [
                    (float(f.pts * f.time_base), f.reformat(width, height, "rgb24").to_ndarray())
                    for f in container.decode(video=0)
                ]
            times_s = np.array([time_s for time_s, _ in frames]) - frames[0][0]
            num_frames = int((times_s[-1] + np.median(np.diff(times_s))) * rate)
            for i in range(num_frames):
                # the frame that is shown at i / rate
                index = max(0, int(np.searchsorted(times_s, i / rate, side="right")) - 1)
                for packet in stream.encode(av.VideoFrame.from_ndarray(frames[index][1], "rgb24")):
                    out.mux(packet)
            boundaries.append(boundaries[-1] + num_frames / rate)
        for packet in stream.encode():
            out.mux(packet)
    return boundaries
