"""Answers: when does each query happen? What is shown, spoken and named is independent evidence.

Each kind of evidence is compared with the queries once. The result has candidate spans, similarities with
the nodes, and the probability that each span answers each query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hiero.engine.evidence import Sight
from hiero.engine.names import ComparedNames
from hiero.engine.speech import ComparedSpeech, SpeechEvidence, join_evidence
from hiero.errors import InputError
from hiero.steps.grounding import TEMPERATURE, best_ordered_spans, distinct_spans, log_lift, same_moments, span_sums
from hiero.steps.similarity import softmax
from hiero.types import Answer, Hierarchy, Match

MAX_ANSWER_SHARE = 0.8  # of the video; see `_is_short_enough`
MIN_INSIDE_SHARE = 0.5


class Compared(Protocol):
    """What one kind of evidence says about Q queries."""

    @property
    def spans(self) -> np.ndarray:
        """Candidate spans, (N, 2)."""

    @property
    def similarities(self) -> Sequence[tuple[np.ndarray, float]]:
        """Similarities with the nodes (Q, T), each with its temperature."""

    def probability(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probability that each span answers each query, (Q, N): to rank spans, and of the step at its moment."""

    def certain(self, spans: np.ndarray) -> np.ndarray:
        """Whether each span answers each query whatever else is known, (Q, N)."""

    def explain(self, match: Match, query: int, span: np.ndarray, shown: tuple[float, float]) -> Match | None:
        """The match with this evidence as its reason, or None if other evidence is stronger."""


@dataclass(frozen=True)
class ComparedSight:
    """What a video shows, compared with queries."""

    sight: Sight
    edits: Hierarchy | None
    queries: Sequence[str]
    similarity: np.ndarray  # with the nodes, (Q, T)

    @property
    def spans(self) -> np.ndarray:
        return self.sight.spans

    @property
    def similarities(self) -> tuple[tuple[np.ndarray, float], ...]:
        return ((self.similarity, TEMPERATURE),)

    def probability(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first one is that of the most probable step, less where nodes are less similar."""
        steps, probability = self.sight.probable_steps(self.queries, self.edits)
        num = len(self.spans)
        scores = self.sight.rank_scores(self.queries, self.similarity, np.concatenate([self.spans, spans]))
        relative = np.minimum(scores[:, num:] / scores[:, :num].max(1, keepdims=True), 1.0)
        is_same = same_moments(spans, steps)
        at_moment = np.stack([np.where(is_same, row, 0.0).max(1) for row in probability])
        return probability.max(1, keepdims=True) * relative, at_moment

    def certain(self, spans: np.ndarray) -> np.ndarray:
        return np.zeros((len(self.queries), len(spans)), dtype=bool)

    def explain(self, match: Match, query: int, span: np.ndarray, shown: tuple[float, float]) -> Match:
        return match


@dataclass(frozen=True)
class Unseen:
    """In place of `ComparedSight` for features that cannot be compared with texts."""

    sight: Sight
    queries: Sequence[str]
    similarities: tuple[tuple[np.ndarray, float], ...] = ()

    @property
    def spans(self) -> np.ndarray:
        return self.sight.spans

    def probability(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nothing = np.zeros((len(self.queries), len(spans)))
        return nothing, nothing

    def certain(self, spans: np.ndarray) -> np.ndarray:
        return np.zeros((len(self.queries), len(spans)), dtype=bool)

    def explain(self, match: Match, query: int, span: np.ndarray, shown: tuple[float, float]) -> Match:
        return match


def find_answers(
    sight: Sight,
    speech: SpeechEvidence | None,
    edits: Hierarchy | None,
    queries: Sequence[str],
    num: int,
    in_order: bool = False,
) -> list[Answer]:
    """Answers from what a video shows, what is spoken in it, and the names in the steps that people corrected."""
    if not queries or not all(query.strip() for query in queries):
        raise InputError("queries must not be empty")
    if num < 1:
        raise InputError(f"num must be at least 1, got {num}")
    if in_order and len(queries) > len(sight.nodes):
        raise InputError(f"{len(queries)} steps in order do not fit into {len(sight.nodes)} segments")
    compared = _compare(sight, speech, edits, queries)
    spans = np.unique(np.concatenate([each.spans for each in compared]), axis=0)
    similarities = [pair for each in compared for pair in each.similarities]
    if in_order:
        lifts = [log_lift(similarity, temperature) for similarity, temperature in similarities]
        spans = np.concatenate([spans, best_ordered_spans(np.sum(lifts, axis=0), sight.clock.spacing_s)])
    probability = at_moment = np.zeros((len(queries), len(spans)))
    by_evidence = [each.probability(spans) for each in compared]
    shown, shown_at_moment = by_evidence[0]
    for ranked, local in by_evidence:
        probability, at_moment = join_evidence(probability, ranked), join_evidence(at_moment, local)
    present = probability.max(1)
    inside = np.mean([softmax(similarity / temperature) for similarity, temperature in similarities], axis=0)
    is_answer = np.any([each.certain(spans) for each in compared], axis=0)
    probability = np.where(_is_short_enough(inside, spans, probability) | is_answer, probability, 0.0)
    answers = []
    for i, query in enumerate(queries):
        chosen = [len(spans) - len(queries) + i]
        if not in_order:
            chosen = [j for j in distinct_spans(spans, probability[i], num) if probability[i, j] > 0]
        matches = []
        # The best match is as probable as the best step, and no match is more probable than a better one.
        for j, p in zip(chosen, np.minimum.accumulate([present[i], *at_moment[i, chosen[1:]]]), strict=True):
            match = sight.make_match(spans[j], float(p))
            seen = float(shown[i, j]), float(shown_at_moment[i, j])
            explained = (each.explain(match, i, spans[j], seen) for each in reversed(compared))
            matches.append(next((found for found in explained if found is not None), match))
        answers.append(Answer(query, float(present[i]), tuple(matches)))
    return answers


def _compare(
    sight: Sight, speech: SpeechEvidence | None, edits: Hierarchy | None, queries: Sequence[str]
) -> list[Compared]:
    """The queries compared with all evidence of a video: what is shown, spoken, and named by people."""
    is_comparable = sight.engine.has_text or speech is None  # otherwise `similarity` says that there is no text encoder
    compared: list[Compared] = [
        ComparedSight(sight, edits, queries, sight.similarity(queries)) if is_comparable else Unseen(sight, queries)
    ]
    if speech is not None:
        compared.append(ComparedSpeech(speech, queries, sight.clock.spacing_s))
    if named := [step for step in edits or () if step.is_named_by_person]:
        compared.append(ComparedNames.compare(named, sight.level_spans(named), queries))
    return compared


def _is_short_enough(belief: np.ndarray, spans: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Whether each span may answer each query, (Q, N), given the probability of each node, (Q, T).

    A span that covers nearly all of the video is no answer if a shorter one is more probable or holds
    half of what it holds.
    """
    is_long = spans[:, 1] - spans[:, 0] > MAX_ANSWER_SHARE * belief.shape[1]
    inside = span_sums(belief, spans)
    shorter = np.where(is_long, 0.0, inside).max(1, keepdims=True)
    is_best = probability > np.where(is_long, 0.0, probability).max(1, keepdims=True)
    return np.asarray(~is_long | (is_best & (shorter < MIN_INSIDE_SHARE * inside)))
