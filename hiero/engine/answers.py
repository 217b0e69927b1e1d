"""Answers: when does each query happen? Every kind of evidence is independent of the others.

Each has been compared with the queries, which gives candidate spans, similarities with the nodes, and the
probability that each span answers each query.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hiero.errors import InputError
from hiero.steps.grounding import distinct_spans
from hiero.steps.recipes import align_in_order, log_lift
from hiero.types import Answer, Clock, Match, RestsOn, Step
from hiero.vectors import unit_vectors

MAX_ANSWER_SHARE = 0.8  # of the video
MIN_EVIDENCE_SHARE = 0.25  # smallest share of the evidence that is mentioned


class Timeline:
    """The nodes of a video on a clock. The last one ends with the video."""

    def __init__(self, clock: Clock, num_nodes: int, duration_s: float) -> None:
        self.clock, self.num_nodes, self.duration_s = clock, num_nodes, duration_s

    def level_spans(self, level: Sequence[Step]) -> np.ndarray:
        """The nodes [start, end) of each step of a level, (N, 2)."""
        spans = [self.clock.span(step.start_s, step.end_s, self.num_nodes) for step in level]
        return np.array(spans, dtype=int).reshape(-1, 2)

    def make_match(self, span: np.ndarray, probability: float) -> Match:
        """Convert a span of nodes [start, end) to a match in seconds."""
        start, end = (int(i) for i in span)
        start_s = self.clock.edge_s(start)
        end_s = self.duration_s if end == self.num_nodes else self.clock.edge_s(end)
        return Match(start_s, max(end_s, start_s), probability)


class Compared:
    """What one kind of evidence says about Q queries. By itself nothing, besides naming candidate spans, (N, 2).

    Attributes:
        similarities: Similarities with the nodes (Q, T), each with its temperature.
    """

    similarities: Sequence[tuple[np.ndarray, float]] = ()

    def __init__(self, queries: Sequence[str], spans: np.ndarray) -> None:
        self.queries, self.spans = queries, spans

    def probability(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probability that each span answers each query, (Q, N): to rank spans, and of the step at its moment."""
        nothing = np.zeros((len(self.queries), len(spans)))
        return nothing, nothing

    def certain(self, spans: np.ndarray) -> np.ndarray:
        """Whether each span answers each query whatever else is known, (Q, N)."""
        return np.zeros((len(self.queries), len(spans)), dtype=bool)

    def explain(self, match: Match, query: int, span: np.ndarray, shown: tuple[float, float]) -> Match | None:
        """The match with this evidence as its reason, or None if other evidence is stronger.

        `shown` are the probabilities of the first kind of evidence, as `probability` gives them.
        """
        return match


def find_answers(
    timeline: Timeline,
    compared: Sequence[Compared],
    queries: Sequence[str],
    num: int,
    placed: Sequence[tuple[int, int] | None] = (),
) -> list[Answer]:
    """Answers from all evidence of a video, that which covers all of it first.

    Args:
        timeline: The nodes of the video.
        compared: All evidence.
        queries: The texts.
        num: Maximum number of matches of each query.
        placed: The only match of each query as a span of nodes, such as `place_in_order` finds.
    """
    spans = np.unique(np.concatenate([each.spans for each in compared]), axis=0)
    if placed:
        spans = np.concatenate([spans, np.array(placed)])
    ranked = at_moment = np.zeros((len(queries), len(spans)))
    by_evidence = [each.probability(spans) for each in compared]
    shown, shown_at_moment = by_evidence[0]
    for best, local in by_evidence:
        ranked, at_moment = join_evidence(ranked, best), join_evidence(at_moment, local)
    present = ranked.max(1)
    is_answer = np.any([each.certain(spans) for each in compared], axis=0)
    probability = np.where(is_short_enough(spans, timeline.num_nodes) | is_answer, ranked, 0.0)
    answers = []
    for i, query in enumerate(queries):
        if placed:
            chosen = [len(spans) - len(queries) + i]
            chances = ranked[i, chosen]
        else:
            chosen = [j for j in distinct_spans(spans, probability[i], num) if probability[i, j] > 0]
            # The best match is as probable as the best step, and no match is more probable than a better one.
            chances = np.minimum.accumulate([present[i], *at_moment[i, chosen[1:]]])
        matches = []
        for j, p in zip(chosen, chances, strict=True):
            match = timeline.make_match(spans[j], float(p))
            seen = float(shown[i, j]), float(shown_at_moment[i, j])
            explained = (each.explain(match, i, spans[j], seen) for each in reversed(compared))
            matches.append(next((found for found in explained if found is not None), match))
        answers.append(Answer(query, float(present[i]), tuple(matches)))
    return answers


def place_in_order(
    compared: Sequence[Compared],
    nodes: np.ndarray,
    spacing_s: float,
    lengths_s: Sequence[float | None] = (),
    is_optional: bool = False,
) -> list[tuple[int, int] | None]:
    """One span of nodes for each of the queries, which happen in their order; see `align_in_order`."""
    num = len(compared[0].queries)
    if num > len(nodes) and not is_optional:
        raise InputError(f"{num} steps in order do not fit into {len(nodes)} segments")
    lifts = [log_lift(similarity, temperature) for each in compared for similarity, temperature in each.similarities]
    gain = np.sum(lifts, axis=0)
    return align_in_order(gain, unit_vectors(nodes), spacing_s, lengths_s=lengths_s, is_optional=is_optional)


def join_evidence(seen: np.ndarray, spoken: np.ndarray) -> np.ndarray:
    """Probability that at least one of two independent sources is right."""
    return np.asarray(1 - (1 - seen) * (1 - spoken))


def strongest_evidence(seen: float, spoken: float) -> RestsOn:
    """The evidence for an answer: pictures, speech or both."""
    seen_weight, speech_weight = (-np.log1p(-min(p, 1 - 1e-9)) for p in (seen, spoken))
    speech_share = speech_weight / max(seen_weight + speech_weight, 1e-12)
    if speech_share > 1 - MIN_EVIDENCE_SHARE:
        return "speech"
    return "pictures" if speech_share < MIN_EVIDENCE_SHARE else "both"


def is_short_enough(spans: np.ndarray, num_nodes: int) -> np.ndarray:
    """Whether each span may be an answer, (N,): one that covers nearly all of the video says nothing about when."""
    lengths = spans[:, 1] - spans[:, 0]
    return np.asarray(lengths <= max(MAX_ANSWER_SHARE * num_nodes, lengths.min()))
