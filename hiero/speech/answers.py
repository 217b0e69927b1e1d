"""Answers and names of steps by what is seen and what is said together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hiero.speech.evidence import (
    SPEECH_TEMPERATURE,
    SpeechEvidence,
    SpokenPhrase,
    distinct_spans,
    join_evidence,
    name_witness,
    speech_probability,
    spoken_probability,
    step_phrases,
)
from hiero.speech.transcripts import Transcript
from hiero.steps.grounding import TEMPERATURE, best_ordered_spans, log_lift, score_spans, span_means
from hiero.steps.similarity import LABEL_TEMPERATURE, MATCH, presence_probability, softmax
from hiero.text.minilm import encode_minilm
from hiero.types import Answer, Clock, Match, Step

# of a phrase as the name of a step, where pictures were read: nothing is said rather than wrong
MIN_SPOKEN_PROBABILITY = 0.7


@dataclass(frozen=True)
class SeenEvidence:
    """What a video shows: spans of nodes that could be answers, and the similarity (Q, T) of the queries
    with its nodes, None where its model has no text encoder.
    """

    clock: Clock
    num_nodes: int
    spans: np.ndarray
    similarity: np.ndarray | None
    temperature: float
    presence: tuple[float, ...]
    make_match: Callable[[np.ndarray, float], Match]

    def probability(self, spans: np.ndarray) -> np.ndarray | float:
        """How likely each span shows what each text says, (Q, N): as `Video.ask` scores its matches."""
        if self.similarity is None:
            return 0.0
        own = score_spans(self.similarity, self.spans, self.clock.spacing_s, self.temperature)
        present = presence_probability(self.similarity, self.spans, own.argmax(1).tolist(), self.presence)
        scores = score_spans(self.similarity, spans, self.clock.spacing_s, self.temperature)
        return np.asarray(np.array(present)[:, None] * np.minimum(scores / own.max(1, keepdims=True), 1.0))


def ask_with_speech(
    queries: Sequence[str], seen: SeenEvidence, speech: SpeechEvidence, num: int, in_order: bool
) -> list[Answer]:
    """`Video.ask` of a video with a transcript; by speech alone where its model has no text encoder."""
    num_nodes, clock = seen.num_nodes, seen.clock
    speech_similarity = speech.similarity(queries, clock, num_nodes)
    spans = np.unique(np.concatenate([seen.spans, speech.spans(clock, num_nodes)]), axis=0)
    if in_order:
        gain = log_lift(speech_similarity, SPEECH_TEMPERATURE)
        gain = gain if seen.similarity is None else gain + log_lift(seen.similarity, TEMPERATURE)
        spans = np.concatenate([spans, np.array(best_ordered_spans(gain))])
    by_speech = speech_probability(speech_similarity, spans, clock.spacing_s)
    by_sight = np.broadcast_to(seen.probability(spans), by_speech.shape)
    probability = join_evidence(by_sight, by_speech)
    vectors = encode_minilm(list(queries))
    answers = []
    for i, query in enumerate(queries):
        present = float(probability[i].max())
        chosen = [len(spans) - len(queries) + i] if in_order else distinct_spans(spans, probability[i], num)
        matches = []
        for j in chosen:
            # Not `by_speech`, in which a long span pays for its length: what is said in a part of
            # it speaks for all of it.
            spoken = spoken_probability(speech_similarity[i, spans[j, 0] : spans[j, 1]].max())
            rests_on = name_witness(float(by_sight[i, j]), float(spoken))
            quote = None if rests_on == "pictures" else speech.quote(vectors[i], spans[j], clock, num_nodes)
            match = seen.make_match(spans[j], present if in_order else float(probability[i, j]))
            matches.append(replace(match, rests_on=rests_on, quote=quote))
        answers.append(Answer(query, present, tuple(matches)))
    return answers


def name_by_speech(
    level: Sequence[Step],
    spans: np.ndarray,
    transcript: Transcript,
    compare: Callable[[Sequence[str]], np.ndarray],
    others: np.ndarray | None,
) -> list[Step]:
    """Steps of a level, each with a phrase that is said in it as its name where that is probable, and
    more so than its label.

    `compare` gives the similarity of texts with the nodes; `others` is that of all labels with the
    steps, (V, N), and None where pictures were read.
    """
    by_step = [step_phrases(transcript.between(step.start_s, step.end_s)) for step in level]
    texts = list(dict.fromkeys(phrase.text for phrases in by_step for phrase in phrases))
    if not texts:
        return list(level)
    similarity = span_means(compare(texts), spans)  # (phrases, steps)
    index = {text: i for i, text in enumerate(texts)}
    out = []
    for number, (step, phrases) in enumerate(zip(level, by_step, strict=True)):
        if not phrases:
            out.append(step)
            continue
        own = np.array([similarity[index[phrase.text], number] for phrase in phrases])
        if others is None:
            probabilities, least = _match_probabilities(phrases, own), max(MIN_SPOKEN_PROBABILITY, step.score or 0.0)
        else:
            shares = _label_shares(phrases, own, others[:, number])
            probabilities, least = shares[: len(phrases)], float(shares[len(phrases) :].max())
        best = int(np.argmax(probabilities))
        is_probable = probabilities[best] >= least
        out.append(replace(step, label=phrases[best].text, score=float(probabilities[best])) if is_probable else step)
    return out


def _match_probabilities(phrases: Sequence[SpokenPhrase], similarity: np.ndarray) -> np.ndarray:
    """How likely each phrase is the name, by its similarity with pictures of the step, (P,)."""
    slope, offset = MATCH
    log_odds = np.array([phrase.log_odds for phrase in phrases])
    return np.asarray(1 / (1 + np.exp(-slope * similarity - offset - log_odds)))


def _label_shares(phrases: Sequence[SpokenPhrase], similarity: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How belief is shared among the phrases (P,) and all labels (V,), (P + V,)."""
    log_odds = np.array([phrase.log_odds for phrase in phrases])
    logits = np.concatenate([similarity / LABEL_TEMPERATURE + log_odds, others / LABEL_TEMPERATURE])
    return np.asarray(softmax(logits[None])[0])
