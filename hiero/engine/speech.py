"""Speech as evidence for answers.

The sentence encoder encodes the utterances of a transcript. Windows of one to three neighbouring
utterances are compared with texts, because recognisers cut sentences in the middle. The vector of a
window is the mean of its utterances, weighted by their number of words. Each node gets the cosine of
the best window around it, which is scored like the similarity with pictures
(`hiero.steps.grounding`). Both give a probability for every candidate span and count as independent
evidence:

    p = 1 − (1 − p_seen) (1 − p_spoken)

`python -m benchmarks.speech` chose the parameters on its development half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hiero.engine.answers import Compared, strongest_evidence
from hiero.engine.transcripts import Transcript
from hiero.networks.minilm import MINILM_SIZE, encode_minilm
from hiero.steps import calibration
from hiero.steps.grounding import score_spans
from hiero.types import Clock, Match, Utterance
from hiero.vectors import unit_vectors

MAX_WINDOW = 3  # utterances in a window
MAX_PAUSE_S = 4.0  # longest pause inside a window
SILENCE = 0.0  # similarity of a node without speech, as of unrelated texts
SPEECH_TEMPERATURE = 0.1
CHUNK = 512  # texts encoded between two progress reports
MAX_QUOTE_LENGTH = 200  # characters


@dataclass(frozen=True, eq=False)
class SpeechEvidence:
    """The windows of a transcript, their vectors, and the nodes [start, end) of the video that each touches, (W, 2)."""

    windows: tuple[Utterance, ...]
    vectors: np.ndarray
    spans: np.ndarray
    num_nodes: int

    @classmethod
    def from_transcript(
        cls, transcript: Transcript, clock: Clock, num_nodes: int, progress: Callable[[float], None] = lambda _: None
    ) -> SpeechEvidence:
        """Encode the transcript of a video with some number of nodes."""
        utterances = transcript.utterances
        parts = [np.zeros((0, MINILM_SIZE), np.float32)]
        for start in range(0, len(utterances), CHUNK):
            chunk = utterances[start : start + CHUNK]
            parts.append(encode_minilm([utterance.text for utterance in chunk]))
            progress(chunk[-1].end_s)
        runs = window_runs(transcript)
        windows = tuple(_join(utterances[first:end]) for first, end in runs)
        vectors = window_vectors(utterances, np.concatenate(parts), runs)
        spans = [clock.span(window.start_s, window.end_s, num_nodes) for window in windows]
        return cls(windows, vectors, np.array(spans, dtype=int).reshape(-1, 2), num_nodes)

    def similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Cosine of each text with the best window at each node, (Q, T), or `SILENCE`."""
        return spread_windows(encode_minilm(list(texts)) @ self.vectors.T, self.spans, self.num_nodes)

    def quote(self, text: str, span: Sequence[int] | np.ndarray) -> str | None:
        """The words inside a span that are most similar to a text."""
        inside = np.flatnonzero((self.spans[:, 0] < span[1]) & (self.spans[:, 1] > span[0]))
        if not len(inside):
            return None
        # argmax returns the first of equal windows, which is the shortest.
        cosines = self.vectors[inside] @ encode_minilm([text])[0]
        return shorten_quote(self.windows[inside[int(np.argmax(cosines))]].text)


class ComparedSpeech(Compared):
    """A transcript compared with queries."""

    def __init__(self, speech: SpeechEvidence, queries: Sequence[str], spacing_s: float) -> None:
        super().__init__(queries, speech.spans)
        self.speech, self.spacing_s = speech, spacing_s
        self.similarity = speech.similarity(queries)
        self.similarities = ((self.similarity, SPEECH_TEMPERATURE),)

    def probability(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        spoken = speech_probability(self.similarity, spans, self.spacing_s)
        return spoken, spoken

    def explain(self, match: Match, query: int, span: np.ndarray, shown: tuple[float, float]) -> Match:
        """Say whether a match was seen or heard, and quote the words."""
        # `speech_probability` is lower for long spans, but words in a part of a span are evidence for all of it.
        spoken = calibration.probability(self.similarity[query][span[0] : span[1]].max(), calibration.SPOKEN)
        rests_on = strongest_evidence(shown[0], float(spoken))
        quote = None if rests_on == "pictures" else self.speech.quote(self.queries[query], span)
        return replace(match, rests_on=rests_on, quote=quote)


def shorten_quote(text: str) -> str:
    """Limit a quote to 200 characters."""
    return text if len(text) <= MAX_QUOTE_LENGTH else text[: MAX_QUOTE_LENGTH - 1].rstrip() + "…"


def window_runs(transcript: Transcript) -> list[tuple[int, int]]:
    """Runs [first, end) of one to three neighbouring utterances without long pauses between them."""
    utterances = transcript.utterances
    runs = []
    for first in range(len(utterances)):
        for last in range(first, min(first + MAX_WINDOW, len(utterances))):
            if last > first and utterances[last].start_s - utterances[last - 1].end_s > MAX_PAUSE_S:
                break
            runs.append((first, last + 1))
    return runs


def window_vectors(utterances: Sequence[Utterance], vectors: np.ndarray, runs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Unit vectors of runs of utterances, (W, S): the means of their vectors (U, S), weighted by their words."""
    weighted = vectors * np.array([[len(utterance.text.split())] for utterance in utterances])
    total = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(weighted, axis=0, dtype=np.float64)])
    first, end = np.array(runs, dtype=int).reshape(-1, 2).T
    return unit_vectors(total[end] - total[first]).astype(np.float32)


def _join(utterances: Sequence[Utterance]) -> Utterance:
    end_s = max(part.end_s for part in utterances)
    return Utterance(utterances[0].start_s, end_s, " ".join(part.text for part in utterances))


def spread_windows(cosines: np.ndarray, spans: np.ndarray, num_nodes: int) -> np.ndarray:
    """The largest value (Q, W) among the windows that cover each node, (Q, T), or `SILENCE`."""
    out = np.full((len(cosines), num_nodes), SILENCE, dtype=np.float64)
    for column, (start, end) in enumerate(spans):
        np.maximum(out[:, start:end], cosines[:, column, None], out=out[:, start:end])
    return out


def speech_probability(similarity: np.ndarray, spans: np.ndarray, spacing_s: float) -> np.ndarray:
    """Probability that each span is where each text is spoken, (Q, N)."""
    scores = score_spans(similarity, spans, spacing_s, SPEECH_TEMPERATURE)
    spoken = calibration.probability(similarity.max(1), calibration.SPOKEN)
    return np.asarray(spoken[:, None] * scores / scores.max(1, keepdims=True))
