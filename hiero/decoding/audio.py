"""The sound of a video as samples on the video's own clock: 16 kHz, one channel, what speech recognisers take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hiero.decoding.packets import import_av, open_container
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
    path = Path(path)
    av = import_av("reading sound")
    with open_container(path, "reading sound") as container:
        stream = _audio_stream(container)
        if stream is None:
            raise InputError(f"{path}: has no sound track")
        picture = container.streams.video[0] if container.streams.video else None
        begins = picture is not None and picture.start_time is not None and picture.time_base is not None
        begin_s = float(picture.start_time * picture.time_base) if picture is not None and begins else 0.0
        resampler = av.AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
        is_empty = True
        try:
            for samples in resample_from(container.decode(stream), begin_s, resampler):
                is_empty = False
                yield samples[0]
        except av.FFmpegError as error:
            if is_empty:
                raise InputError(f"{path}: its sound cannot be decoded ({error})") from error


def resample_from(frames: Iterable[Any], begin_s: float, resampler: Any) -> Iterator[np.ndarray]:
    """Samples (channels, N) of audio frames from a timestamp on, block by block; gaps become silence."""
    rate, num_samples = resampler.rate, 0
    for frame in frames:
        samples = _resample(resampler, frame)
        if frame.pts is not None and frame.time_base is not None:
            late_s = float(frame.pts * frame.time_base) - begin_s - num_samples / rate
            tolerance_s = MAX_DRIFT_S if num_samples else 0.0
            if tolerance_s < late_s <= MAX_GAP_S:
                for silence in _silence(samples, round(late_s * rate), round(BLOCK_S * rate)):
                    num_samples += silence.shape[1]
                    yield silence
            elif -MAX_GAP_S <= late_s < -tolerance_s:
                samples = samples[:, round(-late_s * rate) :]
        num_samples += samples.shape[1]
        if samples.shape[1]:
            yield samples
    if (samples := _resample(resampler, None)).shape[1]:
        yield samples


def _resample(resampler: Any, frame: Any) -> np.ndarray:
    """A frame, or what the resampler still holds where it is None, as samples (channels, N)."""
    parts = [part.to_ndarray() for part in resampler.resample(frame)]
    if not parts:
        return np.zeros((resampler.layout.nb_channels, 0), np.int16 if resampler.format.name == "s16" else np.float32)
    return np.concatenate(parts, axis=1)


def _silence(like: np.ndarray, num_samples: int, block: int) -> Iterator[np.ndarray]:
    for begin in range(0, num_samples, block):
        yield np.zeros((like.shape[0], min(block, num_samples - begin)), like.dtype)


def _audio_stream(container: Any) -> Any:
    """The first sound track that has a decoder; None where there is none."""
    return next((stream for stream in container.streams.audio if stream.codec_context is not None), None)
