"""The audio of a video as samples on the video's clock: 16 kHz, one channel, as speech recognisers expect it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.media.packets import import_av, open_container

SAMPLE_RATE = 16_000
MAX_DRIFT_S = 0.1  # between timestamps and counted samples; more is a gap
MAX_GAP_S = 3600.0  # a longer gap is a damaged timestamp
BLOCK_S = 10.0  # of silence at a time


def has_audio(path: Path | str) -> bool:
    """Whether a file has an audio stream that can be decoded. Raises InputError if it cannot be opened."""
    with open_container(Path(path)) as container:
        return bool(audio_streams(container))


def read_audio(path: Path | str) -> Iterator[np.ndarray]:
    """The samples of a video's first audio stream, block by block, in bounded memory.

    Sample i is i / 16,000 seconds after the first video frame: audio that begins later is preceded by
    silence, audio before the first frame is left out, and gaps become silence. A damaged stream ends
    at the damage.
    """
    path = Path(path)
    av = import_av()
    with open_container(path) as container:
        streams = audio_streams(container)
        if not streams:
            raise InputError(f"{path}: has no audio stream")
        begin_s = 0.0
        for video in container.streams.video[:1]:
            if video.start_time is not None and video.time_base is not None:
                begin_s = float(video.start_time * video.time_base)
        resampler = av.AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
        is_empty = True
        try:
            for samples in resample_from(container.decode(streams[0]), begin_s, resampler):
                is_empty = False
                yield samples[0]
        except av.FFmpegError as error:
            if is_empty:
                raise InputError(f"{path}: its audio cannot be decoded ({error})") from error


def audio_streams(container: Any) -> list[Any]:
    """Audio streams that have a decoder."""
    return [stream for stream in container.streams.audio if stream.codec_context is not None]


def resample_from(frames: Iterable[Any], begin_s: float, resampler: Any) -> Iterator[np.ndarray]:
    """Samples (channels, N) of audio frames from a timestamp on, block by block; gaps become silence."""
    rate, num_samples = resampler.rate, 0
    for frame in frames:
        samples = _resample(resampler, frame)
        if frame.pts is not None and frame.time_base is not None:
            late_s = float(frame.pts * frame.time_base) - begin_s - num_samples / rate
            tolerance_s = MAX_DRIFT_S if num_samples else 0.0
            if tolerance_s < late_s <= MAX_GAP_S:
                num_missing = round(late_s * rate)
                for begin in range(0, num_missing, round(BLOCK_S * rate)):
                    yield np.zeros((len(samples), min(round(BLOCK_S * rate), num_missing - begin)), samples.dtype)
                num_samples += num_missing
            elif -MAX_GAP_S <= late_s < -tolerance_s:
                samples = samples[:, round(-late_s * rate) :]
        num_samples += samples.shape[1]
        if samples.shape[1]:
            yield samples
    if (samples := _resample(resampler, None)).shape[1]:
        yield samples


def _resample(resampler: Any, frame: Any) -> np.ndarray:
    """Samples (channels, N) of a frame, or the rest in the resampler for None."""
    parts = [part.to_ndarray() for part in resampler.resample(frame)]
    if not parts:
        return np.zeros((resampler.layout.nb_channels, 0), np.int16 if resampler.format.name == "s16" else np.float32)
    return np.concatenate(parts, axis=1)
