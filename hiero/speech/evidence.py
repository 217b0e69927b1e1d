"""What is said in a video as evidence: which words of a transcript a text is near to, and how it is
joined with what is seen.

Utterances are encoded by the sentence encoder, and windows of one to three neighbours are compared
with texts: recognisers cut sentences in the middle. A sentence's vector is the mean over its words,
so that of a window follows from its utterances. Each node gets the cosine of the best window around
it, and a text spreads its belief over the nodes as it does over what is seen
(`hiero.steps.grounding`). Both give a probability for every candidate span, and the two are
independent witnesses:

    p = 1 − (1 − p_seen) (1 − p_said)

Parameters were chosen by `python -m benchmarks.speech` on its development half.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hiero.speech.transcripts import Transcript
from hiero.steps.grounding import score_spans
from hiero.text.minilm import MINILM_SIZE, encode_minilm
from hiero.types import Clock, RestsOn, Utterance
from hiero.vectors import unit_vectors

MAX_WINDOW = 3  # utterances that are compared as one
MAX_PAUSE_S = 4.0  # between utterances of one window
SILENCE = 0.0  # similarity of a node where nothing is said: that of unrelated texts
SPEECH_TEMPERATURE = 0.1  # with which a text spreads its belief over what is said
# Slope and offset: how likely a text is said, by the cosine of the best window. Fitted with as many
# texts that are said as not (13.5 and -6.8), then at odds of 3 to 7: most of what is asked about a
# video is not said in it.
SPEECH_PRESENCE = (13.5, -7.6)
MAX_OVERLAP = 0.5  # of two answers, as a share of the shorter one
BOTH_SHARE = 0.25  # of the evidence: where one of the two has less, the answer rests on the other alone
CHUNK = 512  # texts that are encoded between two reports
MAX_QUOTE_LENGTH = 200  # characters

# What people say around a step and not of it, at the beginning of a phrase.
FILLER = re.compile(
    r"(?:(?:and|so|now|then|next|okay|ok|well|first|after that|all right|alright|um|uh|also|finally|just|"
    r"(?:here|this|that|there|it|what)(?:'s| is| are)?|"
    r"(?:i|we|you)(?:'m|'re|'ll|'ve| am| are| will| have| can| could| should| want| need| like)?"
    r"(?: just| now| also| then)?(?: going to| gonna| to| got to)?|"
    r"let's|let us|let me|please|go ahead and|it's time to|time to)\b[\s,]*)+",
    re.IGNORECASE,
)
CLAUSE_END = re.compile(r"[.,;:!?…]+|\b(?:and then|and|then|because|so that|which|while|until|but)\b", re.IGNORECASE)
MIN_PHRASE_WORDS, MAX_PHRASE_WORDS = 2, 7
MAX_STEP_PHRASES = 5  # that may name one step
# A phrase that is said in a step is its name more often than any other: by these log odds, and more
# where the step is all about it.
SPOKEN_LOG_ODDS, CENTRAL_LOG_ODDS = 1.0, 2.0


@dataclass(frozen=True, eq=False)
class SpeechEvidence:
    """The windows of a transcript, and their vectors."""

    windows: tuple[Utterance, ...]
    vectors: np.ndarray

    @classmethod
    def from_transcript(
        cls, transcript: Transcript, progress: Callable[[float], None] = lambda _: None
    ) -> SpeechEvidence:
        """Encode a transcript; vectors of texts that were encoded before come from the cache."""
        utterances = transcript.utterances
        parts = [np.zeros((0, MINILM_SIZE), np.float32)]
        for start in range(0, len(utterances), CHUNK):
            chunk = utterances[start : start + CHUNK]
            parts.append(encode_minilm([utterance.text for utterance in chunk]))
            progress(chunk[-1].end_s)
        runs = window_runs(transcript)
        return cls(
            tuple(_join(utterances[first:end]) for first, end in runs),
            window_vectors(utterances, np.concatenate(parts), runs),
        )

    def spans(self, clock: Clock, num_nodes: int) -> np.ndarray:
        """The nodes [start, end) of each window, (W, 2); at least one node each."""
        spans = [clock.span(window.start_s, window.end_s, num_nodes) for window in self.windows]
        return np.array(spans, dtype=int).reshape(-1, 2)

    def similarity(self, texts: Sequence[str], clock: Clock, num_nodes: int) -> np.ndarray:
        """Of each text with what is said at each node, (Q, T): the best window's; `SILENCE` where nothing is said."""
        cosines = encode_minilm(list(texts)) @ self.vectors.T
        return spread_windows(cosines, self.spans(clock, num_nodes), num_nodes)

    def quote(self, vector: np.ndarray, span: Sequence[int] | np.ndarray, clock: Clock, num_nodes: int) -> str | None:
        """The words inside a span that are nearest to a text."""
        spans = self.spans(clock, num_nodes)
        inside = np.flatnonzero((spans[:, 0] < span[1]) & (spans[:, 1] > span[0]))
        if not len(inside):
            return None
        # Of windows that are as near the shortest: what they add is not what was asked for.
        cosines = self.vectors[inside] @ vector
        return shorten_quote(self.windows[inside[int(np.argmax(cosines))]].text)


def shorten_quote(text: str) -> str:
    """What is shown of words that were said: all, or their beginning."""
    return text if len(text) <= MAX_QUOTE_LENGTH else text[: MAX_QUOTE_LENGTH - 1].rstrip() + "…"


def window_runs(transcript: Transcript) -> list[tuple[int, int]]:
    """Runs [first, end) of one to three neighbouring utterances without long pauses between them, in
    the order of beginnings.
    """
    utterances = transcript.utterances
    runs = []
    for first in range(len(utterances)):
        for last in range(first, min(first + MAX_WINDOW, len(utterances))):
            if last > first and utterances[last].start_s - utterances[last - 1].end_s > MAX_PAUSE_S:
                break
            runs.append((first, last + 1))
    return runs


def window_vectors(utterances: Sequence[Utterance], vectors: np.ndarray, runs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Unit vectors of runs of utterances, (W, S): the means of their vectors (U, S), each as often
    as it has words.
    """
    weighted = vectors * np.array([[len(utterance.text.split())] for utterance in utterances])
    total = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(weighted, axis=0, dtype=np.float64)])
    first, end = np.array(runs, dtype=int).reshape(-1, 2).T
    sums = total[end] - total[first]
    return unit_vectors(sums).astype(np.float32)


def _join(utterances: Sequence[Utterance]) -> Utterance:
    """Neighbouring utterances as one."""
    return Utterance(
        utterances[0].start_s, max(part.end_s for part in utterances), " ".join(part.text for part in utterances)
    )


def spread_windows(cosines: np.ndarray, spans: np.ndarray, num_nodes: int) -> np.ndarray:
    """The largest of the values (Q, W) of the windows that cover each node, (Q, T); `SILENCE` where none does."""
    out = np.full((len(cosines), num_nodes), SILENCE, dtype=np.float64)
    for column, (start, end) in enumerate(spans):
        np.maximum(out[:, start:end], cosines[:, column, None], out=out[:, start:end])
    return out


def speech_probability(similarity: np.ndarray, spans: np.ndarray, spacing_s: float) -> np.ndarray:
    """How likely each span is where each text is said, (Q, N)."""
    scores = score_spans(similarity, spans, spacing_s, SPEECH_TEMPERATURE)
    return np.asarray(spoken_probability(similarity.max(1))[:, None] * scores / scores.max(1, keepdims=True))


def spoken_probability(similarity: np.ndarray) -> np.ndarray:
    """How likely a text is said, by its similarity with the best window."""
    slope, offset = SPEECH_PRESENCE
    return np.asarray(1 / (1 + np.exp(-slope * similarity - offset)))


def join_evidence(seen: np.ndarray, spoken: np.ndarray) -> np.ndarray:
    """Two independent witnesses: the probability that at least one is right."""
    return np.asarray(1 - (1 - seen) * (1 - spoken))


def distinct_spans(spans: np.ndarray, scores: np.ndarray, num: int) -> list[int]:
    """Greedily the best spans, none of which lies for half or more in a better one, nor a better one in it.

    Stricter than `nms`: utterances are short, and pieces of the video around them would be the same answer again.
    """
    chosen: list[int] = []
    remaining = np.argsort(-scores, kind="stable")
    lengths = spans[:, 1] - spans[:, 0]
    while len(remaining) and len(chosen) < num:
        best = int(remaining[0])
        chosen.append(best)
        common = np.minimum(spans[best, 1], spans[remaining, 1]) - np.maximum(spans[best, 0], spans[remaining, 0])
        remaining = remaining[common < MAX_OVERLAP * np.minimum(lengths[best], lengths[remaining])]
    return chosen


def name_witness(seen: float, spoken: float) -> RestsOn:
    """What an answer rests on."""
    seen_weight, speech_weight = (-np.log1p(-min(p, 1 - 1e-9)) for p in (seen, spoken))
    speech_share = speech_weight / max(seen_weight + speech_weight, 1e-12)
    if speech_share > 1 - BOTH_SHARE:
        return "speech"
    return "pictures" if speech_share < BOTH_SHARE else "both"


# Names of steps


@dataclass(frozen=True)
class SpokenPhrase:
    """A phrase that may name a step."""

    text: str
    log_odds: float


def step_phrases(utterances: Sequence[Utterance]) -> list[SpokenPhrase]:
    """Short phrases out of what is said in a step, those first that most of it is about."""
    phrases = list(dict.fromkeys(phrase for utterance in utterances for phrase in split_phrases(utterance.text)))
    if not phrases:
        return []
    centrality = np.zeros(1)
    if len(phrases) > 1:
        vectors = encode_minilm(phrases)
        centrality = (vectors @ vectors.sum(0) - 1) / (len(phrases) - 1)  # the mean cosine with the others
    order = np.argsort(-centrality, kind="stable")[:MAX_STEP_PHRASES]
    return [
        SpokenPhrase(phrases[i], SPOKEN_LOG_ODDS + CENTRAL_LOG_ODDS * max(0.0, float(centrality[i]))) for i in order
    ]


def split_phrases(text: str) -> list[str]:
    """The clauses of an utterance that are short enough for a name, without what is said around it.

    Examples:
        >>> split_phrases("Okay, now we're going to cut the onion, and then I wash it.")
        ['cut the onion', 'wash it']
    """
    phrases = []
    for clause in CLAUSE_END.split(text):
        phrase = FILLER.sub("", clause.strip(), count=1).strip() if FILLER.match(clause.strip()) else clause.strip()
        words = phrase.split()
        if MIN_PHRASE_WORDS <= len(words) <= MAX_PHRASE_WORDS and any(len(word) > 2 for word in words):
            phrases.append(phrase[0].lower() + phrase[1:])
    return phrases
