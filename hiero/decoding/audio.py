"""The sound of a video as samples on the video's own clock: 16 kHz, one channel, what speech recognisers take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hiero.decoding.packets import open_container
from hiero.errors import InputError

SAMPLE_RATE = 16_000
MAX_DRIFT_S = 0.1  # between timestamps and counted samples; more is a gap, which becomes silence
MAX_GAP_S = 3600.0  # a longer gap is a damaged timestamp
BLOCK_S = 10.0  # of silence at a time


def has_audio(path: Path | str) -> bool:
    """Whether a file has a sound track that can be decoded. Raises InputError where it cannot be opened."""
    with open_container(Path(path), "reading sound") as container:
        return _audio_stream(container) is not None


def read_audio(path: Path | str) -> Iterator[np.ndarray]:
    """The samples of a video's first sound track, block by block, in bounded memory.

    Sample i is at i / 16,000 seconds from the first frame of the picture on, as all times are here:
    a track that begins later begins with silence, what comes before the picture is left out, and
    gaps become silence. A track that breaks off ends there.
    """
    import av

    path = Path(path)
    with open_container(path, "reading sound") as container:
        stream = _audio_stream(container)
        if stream is None:
            raise InputError(f"{path}: has no sound track")
        picture = container.streams.video[0] if container.streams.video else None
        begins = picture is not None and picture.start_time is not None and picture.time_base is not None
        begin_s = float(picture.start_time * picture.time_base) if picture is not None and begins else 0.0
        resampler = av.AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
        num_samples = 0  # so far
        try:
            for frame in container.decode(stream):
                time_s = (
                    None
                    if frame.pts is None or frame.time_base is None
                    else float(frame.pts * frame.time_base) - begin_s
                )
                samples = _resample(resampler, frame)
                if time_s is not None:
                    late_s = time_s - num_samples / SAMPLE_RATE
                    tolerance_s = MAX_DRIFT_S if num_samples else 0.0
                    if tolerance_s < late_s <= MAX_GAP_S:
                        for silence in _silence(late_s):
                            num_samples += len(silence)
                            yield silence
                    elif -MAX_GAP_S <= late_s < -tolerance_s:
                        samples = samples[round(-late_s * SAMPLE_RATE) :]
                num_samples += len(samples)
                if len(samples):
                    yield samples
            if len(samples := _resample(resampler, None)):
                yield samples
        except av.FFmpegError as error:
            if not num_samples:
                raise InputError(f"{path}: its sound cannot be decoded ({error})") from error


def _resample(resampler: Any, frame: Any) -> np.ndarray:
    """A frame, or what the resampler still holds where it is None, as samples."""
    frames = resampler.resample(frame)
    parts = [part.to_ndarray().reshape(-1) for part in frames]
    return np.concatenate(parts) if parts else np.zeros(0, np.int16)


def _silence(length_s: float) -> Iterator[np.ndarray]:
    rest = round(length_s * SAMPLE_RATE)
    while rest > 0:
        size = min(rest, round(BLOCK_S * SAMPLE_RATE))
        yield np.zeros(size, np.int16)
        rest -= size


def _audio_stream(container: Any) -> Any:
    """The first sound track that has a decoder; None where there is none."""
    return next((stream for stream in container.streams.audio if stream.codec_context is not None), None)
