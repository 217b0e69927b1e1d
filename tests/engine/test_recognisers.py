"""Recognisers: sound is cut in its pauses, words become utterances, and what is missing is said."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.engine.transcripts import (
    CHUNK_S,
    SAMPLE_RATE,
    WHISPER_VARIABLE,
    Transcript,
    cut_at_pauses,
    load_recogniser,
    load_transcript,
    quietest_sample,
)
from hiero.errors import InputError
from hiero.media.source import VideoSource
from hiero.types import Utterance, VideoFile
from tests.optional import weights_or_skip


@given(st.lists(st.integers(0, 900_000), max_size=5), st.integers(0, 2**31))
def test_chunks_are_the_sound(sizes, seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.integers(-9000, 9000, size, dtype=np.int16) for size in sizes]
    chunks = list(cut_at_pauses(blocks))
    assert all(0 < len(chunk) <= CHUNK_S * SAMPLE_RATE for chunk in chunks)
    whole = np.concatenate([np.zeros(0, np.int16), *blocks])
    np.testing.assert_array_equal(np.concatenate([np.zeros(0, np.int16), *chunks]), whole)


def test_sound_is_cut_where_it_is_quiet():
    samples = np.full(60 * SAMPLE_RATE, 5000, np.int16)
    samples[50 * SAMPLE_RATE : 51 * SAMPLE_RATE] = 3
    samples[20 * SAMPLE_RATE : 30 * SAMPLE_RATE] = 0  # too early
    assert 50 * SAMPLE_RATE < quietest_sample(samples) < 51 * SAMPLE_RATE
    assert quietest_sample(samples[:100]) == 100


def stub_whisper(monkeypatch, model):
    """faster-whisper's interface, whose models cannot be downloaded in a test; None if it is not installed."""
    module = model and SimpleNamespace(WhisperModel=model, __spec__=object())
    monkeypatch.setitem(sys.modules, "faster_whisper", module)


def test_whisper(monkeypatch):
    calls = []

    class WhisperModel:
        def __init__(self, name, device, compute_type):
            calls.append(name)

        def transcribe(self, audio, vad_filter):
            assert audio.dtype == np.float32
            assert np.abs(audio).max() <= 1
            rows = [(0.0, 1.2, " Cut the  onion. "), (1.2, 9.0, " Done."), (1.5, 1.6, "  "), (30.0, 31.0, "beyond")]
            return (SimpleNamespace(start=start, end=end, text=text) for start, end, text in rows), None

    stub_whisper(monkeypatch, WhisperModel)
    monkeypatch.setenv(WHISPER_VARIABLE, "/models/my whisper")
    recogniser = load_recogniser()
    utterances = recogniser.recognise(np.full(2 * SAMPLE_RATE, -(2**15), np.int16))
    assert [(u.start_s, u.end_s, u.text) for u in utterances] == [(0.0, 1.2, "Cut the onion."), (1.2, 2.0, "Done.")]
    assert calls == ["/models/my whisper"]
    assert not {"/", " "} & set(recogniser.key)


def test_a_recogniser_that_cannot_be_had(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no connection")

    stub_whisper(monkeypatch, fail)
    with pytest.raises(InputError, match=r"base\.en.*no connection"):
        load_recogniser().recognise(np.zeros(10, np.int16))
    stub_whisper(monkeypatch, None)
    with pytest.raises(InputError, match="--transcript"):
        load_recogniser()


def test_each_file_of_a_video_has_its_transcript_beside_it(tmp_path):
    """The last utterance begins after its file ends. The first file has none."""
    weights_or_skip("minilm")
    paths = [tmp_path / "one.mp4", tmp_path / "two.mp4"]
    spoken = [Utterance(time_s, time_s + 1, f"now {time_s}") for time_s in (0.5, 4.0, 10.0, 16.0)]
    (tmp_path / "two.srt").write_text(Transcript(tuple(spoken)).to_srt())
    files = (VideoFile(str(paths[0]), 0.0, 100.0), VideoFile(str(paths[1]), 100.0, 12.0))
    lines = []
    transcript = load_transcript(files, VideoSource.of(paths), log=lines.append)
    assert [utterance.start_s for utterance in transcript] == [100.5, 104.0, 110.0]
    assert len(lines) == 1
