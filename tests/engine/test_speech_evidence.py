"""What is said as evidence: windows, their spread over nodes, and two witnesses as one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.engine.answers import join_evidence, strongest_evidence
from hiero.engine.naming import split_phrases, step_phrases
from hiero.engine.speech import (
    SILENCE,
    SpeechEvidence,
    speech_probability,
    spread_windows,
    window_runs,
    window_vectors,
)
from hiero.engine.transcripts import Transcript
from hiero.types import Clock, Utterance
from tests.evaluation.simulated import know_texts
from tests.oracle import speech as oracle

SPANS = st.lists(st.tuples(st.integers(0, 19), st.integers(1, 8)), min_size=1, max_size=12)


def to_spans(rows):
    return np.array([(start, min(20, start + length)) for start, length in rows])


@given(SPANS, st.integers(0, 2**31))
def test_windows_spread_as_one_by_one(rows, seed):
    spans = to_spans(rows)
    cosines = np.random.default_rng(seed).uniform(-1, 1, (3, len(spans)))
    np.testing.assert_array_equal(
        spread_windows(cosines, spans, 20), oracle.spread_windows(cosines, spans, 20, SILENCE)
    )


def test_windows_are_neighbours_without_long_pauses():
    texts_at = ((0, "we take"), (2, "the onion"), (4, "and cut it"), (30, "done"))
    utterances = [Utterance(start_s, start_s + 2, text) for start_s, text in texts_at]
    assert window_runs(Transcript(tuple(utterances))) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (3, 4)]
    vectors = np.random.default_rng(0).normal(size=(4, 5))
    joined = window_vectors(utterances, vectors, [(0, 1), (1, 3)])
    for row, expected in zip(joined, (2 * vectors[0], 2 * vectors[1] + 3 * vectors[2]), strict=True):
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), rtol=1e-5)


def test_windows_of_a_transcript(tmp_path, monkeypatch):
    texts = ["we take", "the onion", "done", "late"]
    know_texts(monkeypatch, tmp_path, lambda missing: np.eye(384)[[texts.index(text) for text in missing]], texts)
    times = [(0.2, 1.4), (1.9, 4.1), (30.0, 32.0), (99.0, 100.0)]
    transcript = Transcript(tuple(Utterance(*span, text) for span, text in zip(times, texts, strict=True)))
    times_s = []
    evidence = SpeechEvidence.from_transcript(transcript, Clock(1, 1), 40, times_s.append)
    assert [(window.start_s, window.end_s, window.text) for window in evidence.windows] == [
        (0.2, 1.4, "we take"),
        (0.2, 4.1, "we take the onion"),
        (1.9, 4.1, "the onion"),
        (30.0, 32.0, "done"),
        (99.0, 100.0, "late"),
    ]
    onion = evidence.vectors[1, :3] / np.linalg.norm(evidence.vectors[1])
    assert (onion > 0).tolist() == [True, True, False]
    assert times_s == [100]
    assert evidence.spans.tolist() == [[0, 2], [0, 5], [1, 5], [30, 32], [39, 40]]
    halves = SpeechEvidence.from_transcript(transcript, Clock(1, 2), 20)
    assert halves.spans.tolist() == [[0, 1], [0, 3], [0, 3], [15, 16], [19, 20]]


def test_where_a_text_is_said():
    similarity = np.full((2, 100), SILENCE)
    similarity[:, 40:44] = [[0.9], [0.2]]
    spans = np.array([[0, 100], [40, 44], [40, 80], [60, 64]])
    spoken, silent = speech_probability(similarity, spans, 1.0)
    assert spoken.argmax() == silent.argmax() == 1
    assert spoken[1] > 0.95
    assert silent[1] < 0.05


def test_two_witnesses():
    assert join_evidence(np.array([0.0, 0.5, 0.9]), np.array([0.7, 0.5, 0.0])) == pytest.approx([0.7, 0.75, 0.9])
    pairs = [(0.0, 0.9), (0.9, 0.0), (0.8, 0.9), (0.0, 0.0), (1.0, 1.0)]
    assert [strongest_evidence(*pair) for pair in pairs] == ["speech", "pictures", "both", "pictures", "both"]


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("Okay, now we're going to cut the onion, and then I wash it.", ["cut the onion", "wash it"]),
        ("Let's crack two eggs into a bowl", ["crack two eggs into a bowl"]),
        ("Here is my cat!", ["my cat"]),
        ("So.", []),
        ("um", []),
        ("and this is why I have always thought that one should never ever do it in that way", []),
        ("", []),
    ],
)
def test_phrases_of_an_utterance(text, phrases):
    assert split_phrases(text) == phrases


def test_phrases_that_most_is_about_come_first(tmp_path, monkeypatch):
    vectors = {"nice weather today": [0.0, -1.0], "cut the onion": [1.0, 0.0], "chop the onion": [0.8, 0.6]}
    know_texts(monkeypatch, tmp_path, lambda texts: np.array([vectors[text] for text in texts]), list(vectors))
    first, *_, last = step_phrases([Utterance(i, i + 1, text) for i, text in enumerate(vectors)])
    assert first.text == "cut the onion"
    assert first.log_odds > last.log_odds > 0
    assert step_phrases([]) == []
