"""Answers to questions about a video, from its pictures and its speech.

Both give a probability for every candidate span, and count as independent evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hiero.engine.video_nodes import VideoNodes
from hiero.speech.evidence import (
    SPEECH_TEMPERATURE,
    distinct_spans,
    join_evidence,
    speech_probability,
    strongest_evidence,
)
from hiero.steps import calibration
from hiero.steps.grounding import TEMPERATURE, best_ordered_spans, log_lift, nms, score_spans
from hiero.steps.similarity import presence_statistics
from hiero.types import Answer, Match


def find_answers(video: VideoNodes, queries: Sequence[str], num: int, in_order: bool) -> list[Answer]:
    """Find when each query happens; see `Video.ask`. Without a text encoder, only speech counts."""
    spans, similarities = video.spans, []
    seen, heard = None, None
    if video.engine.has_text or not video.transcript:
        seen = video.similarity(queries)
        similarities.append((seen, TEMPERATURE))
    if video.transcript:
        heard = video.speech.similarity(queries, video.clock, len(video.nodes))
        similarities.append((heard, SPEECH_TEMPERATURE))
        spans = np.unique(np.concatenate([spans, video.speech.spans(video.clock, len(video.nodes))]), axis=0)
    if in_order:
        lifts = [log_lift(similarity, temperature) for similarity, temperature in similarities]
        spans = np.concatenate([spans, best_ordered_spans(np.sum(lifts, axis=0))])
    by_sight = np.zeros((len(queries), len(spans))) if seen is None else sight_probability(video, seen, spans)
    probability = by_sight
    if heard is not None:
        probability = join_evidence(by_sight, speech_probability(heard, spans, video.clock.spacing_s))
    answers = []
    for i, query in enumerate(queries):
        present = float(probability[i].max())
        if in_order:
            last = len(spans) - len(queries) + i
            matches = {last: video.make_match(spans[last], present)}
        else:
            chosen = nms(spans, probability[i], num)[0] if heard is None else distinct_spans(spans, probability[i], num)
            matches = {int(j): video.make_match(spans[j], probability[i, j]) for j in chosen}
        if heard is not None:
            matches = {
                j: _add_evidence(video, match, query, spans[j], by_sight[i, j], heard[i])
                for j, match in matches.items()
            }
        answers.append(Answer(query, present, tuple(matches.values())))
    return answers


def sight_probability(video: VideoNodes, similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Probability that each span shows each text, (Q, N), given the similarity of texts and nodes, (Q, T)."""
    spacing_s, temperature = video.clock.spacing_s, video.temperature
    own = score_spans(similarity, video.spans, spacing_s, temperature)
    statistics = presence_statistics(similarity, video.spans, own.argmax(1).tolist())
    present = calibration.presence(statistics, video.presence)
    scores = score_spans(similarity, spans, spacing_s, temperature)
    return np.asarray(present[:, None] * np.minimum(scores / own.max(1, keepdims=True), 1.0))


def _add_evidence(
    video: VideoNodes, match: Match, query: str, span: np.ndarray, by_sight: float, heard: np.ndarray
) -> Match:
    """Say whether pictures or speech found a match, and quote the speech."""
    # `speech_probability` is lower for long spans, but words in a part of a span are evidence for all of it.
    spoken = calibration.spoken(heard[span[0] : span[1]].max())
    rests_on = strongest_evidence(float(by_sight), float(spoken))
    quote = None if rests_on == "pictures" else video.speech.quote(query, span, video.clock, len(video.nodes))
    return replace(match, rests_on=rests_on, quote=quote)
