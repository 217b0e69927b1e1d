"""Names of steps, from labels that what is shown makes probable, and from phrases that are spoken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hiero.engine.evidence import MIN_LEARNED_PROBABILITY, Sight
from hiero.engine.speech import name_by_speech
from hiero.engine.transcripts import Transcript
from hiero.steps import calibration
from hiero.steps.grounding import span_means
from hiero.steps.prototypes import place_names
from hiero.steps.segmentation import label_runs
from hiero.types import BOUNDARY_TOLERANCE_S, Step


def name_levels(
    sight: Sight, levels: Sequence[Sequence[Step]], labels: Sequence[str] | None, transcript: Transcript | None
) -> list[list[Step]]:
    """Name steps that people have not named, by default from the vocabulary and the transcript."""
    if not (sight.vocabulary if labels is None else labels):
        return [list(level) for level in levels]
    named = sight.common_names([_label(sight, level, labels) for level in levels])
    if labels is not None or not transcript:
        return named
    return [_name_by_speech(sight, level, transcript) for level in named]


def _label(sight: Sight, level: Sequence[Step], labels: Sequence[str] | None) -> list[Step]:
    named = list(level)
    for i, ((label, probability),) in enumerate(likely_labels(sight, level, labels, num=1)):
        is_free = not level[i].is_named_by_person and not level[i].background
        if is_free and probability >= sight.min_probability(label):
            named[i] = replace(level[i], label=label, probability=probability)
    return named


def _name_by_speech(sight: Sight, level: Sequence[Step], transcript: Transcript) -> list[Step]:
    spans = sight.level_spans(level)

    def compare(texts: Sequence[str]) -> np.ndarray:
        return sight.name_similarity(sight.similarity(texts), spans)

    return name_by_speech(level, transcript, compare, sight.rival_labels(spans))


def likely_labels(
    sight: Sight, level: Sequence[Step], labels: Sequence[str] | None, num: int
) -> list[list[tuple[str, float]]]:
    """The best labels for each step of a level, with their probabilities."""
    is_given = labels is not None
    candidates = list(labels) if labels is not None else sight.vocabulary
    if not candidates or not sight.vocabulary:
        return [[(step.label, step.probability or 0.0)] if step.label else [] for step in level]
    probabilities = sight.label_probabilities(candidates, sight.level_spans(level), _are_whole(level), is_given)
    best_first = np.argsort(-probabilities, axis=1, kind="stable")[:, :num]
    return [[(candidates[i], float(probabilities[row, i])) for i in best] for row, best in enumerate(best_first)]


def _are_whole(level: Sequence[Step]) -> bool:
    """Whether people corrected steps or left gaps, so that they are not parts that the model cut the video into."""
    has_gaps = any(later.start_s - step.end_s > BOUNDARY_TOLERANCE_S for step, later in pairwise(level))
    return has_gaps or any(step.origin != "model" for step in level)


def place_learned_names(sight: Sight, labels: Sequence[str], level: Sequence[Step]) -> list[Step]:
    """Move learned names that occur once from the steps of a level to the spans that fit them best."""
    once = sight.learned_once()
    names = [label for label in labels if label in once]
    if not names:
        return list(level)
    similarity = sight.similarity(names)
    spans = sight.spans[sight.rank_scores(names, similarity, sight.spans).argmax(1)]
    probability = calibration.label(span_means(similarity, spans).diagonal())
    owner = place_names(spans, np.where(probability < MIN_LEARNED_PROBABILITY, 0.0, probability), len(sight.nodes))
    numbers = np.repeat(np.arange(len(level)), np.diff([*(span[0] for span in sight.level_spans(level)), len(owner)]))
    placed = []
    for start, end in label_runs(np.where(owner < 0, numbers, len(level) + owner)):
        step = level[numbers[start]]
        if owner[start] >= 0:
            step = replace(step, label=names[owner[start]], probability=float(probability[owner[start]]))
        elif step.label in once:
            step = step.without_name()
        match = sight.make_match(np.array([start, end]), 0.0)
        placed.append(replace(step, start_s=match.start_s, end_s=match.end_s))
    return placed
