"""Videos with words that espeak-ng speaks, so that tests know what is said and when."""

from __future__ import annotations

import io
import subprocess
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hiero.types import Utterance
from tests.films import import_av
from tests.optional import program_or_skip

RATE = 22_050  # of espeak-ng


def speak(text: str) -> np.ndarray:
    """A text as samples, (n,) int16 at `RATE`; the test is skipped where espeak-ng is missing."""
    command = [program_or_skip("espeak-ng"), "-v", "en-us", "-s", "140", "--stdout", text]
    sound = subprocess.run(command, check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(sound)) as file:
        assert file.getframerate() == RATE
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return samples[: len(samples) // 2 * 2]


def add_speech(
    video: Path, out: Path, lines: Sequence[tuple[float, str]], length_s: float, start_s: float = 0.0
) -> list[Utterance]:
    """Write a video again with a sound track in which each text is spoken at its time.

    start_s: when the sound track begins, which leaves out what would come before. Returns what is said, and when.
    """
    av = import_av()
    track = np.random.default_rng(0).normal(0, 20, round(length_s * RATE))  # a microphone is never silent
    utterances = []
    for time_s, text in lines:
        samples, first = speak(text), round(time_s * RATE)
        track[first : first + len(samples)] += samples[: len(track) - first]
        utterances.append(Utterance(time_s, time_s + len(samples) / RATE, text))
    pcm = np.clip(track, -(2**15), 2**15 - 1).astype(np.int16)[round(start_s * RATE) :]
    with av.open(str(video)) as source, av.open(str(out), "w") as target:
        pictures = target.add_stream_from_template(source.streams.video[0])
        sound = target.add_stream("aac", rate=RATE, layout="mono")
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = pictures
                target.mux(packet)
        for first in range(0, len(pcm), 1024):
            frame = av.AudioFrame.from_ndarray(pcm[None, first : first + 1024], format="s16", layout="mono")
            frame.sample_rate, frame.pts = RATE, first + round(start_s * RATE)
            target.mux(sound.encode(frame))
        target.mux(sound.encode(None))
    return utterances
