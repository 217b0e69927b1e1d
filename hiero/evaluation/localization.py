"""Step localization: which steps of a taxonomy are where? mAP, with ActivityNet's definition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from hiero.evaluation.cases import Case, CaseTask, EvalOptions, TextEmbeddings
from hiero.evaluation.grounding import (
    SimilarityCache,
    chosen_methods,
    find_candidates,
    method_similarity,
    nameless_note,
)
from hiero.evaluation.metrics import THRESHOLDS, Detections, match_detections, mean_average_precision
from hiero.evaluation.results import Row, Table, bootstrap_row
from hiero.steps.segmentation import label_runs
from hiero.steps.similarity import label_probabilities

MAX_DRAWS = 100  # of the bootstrap: mAP is slow to compute


def localization_task(
    cases: Sequence[Case], taxonomy: Sequence[str], embeddings: TextEmbeddings, options: EvalOptions
) -> CaseTask[list[Detections | None]]:
    """mAP at each threshold, for each method of grounding."""
    numbers = {text: i for i, text in enumerate(taxonomy)}
    truth = [
        Detections(case.spans_s, np.array([numbers[text] for text in case.texts]), np.zeros(len(case.truth)))
        for case in cases
    ]

    def tabulate(detected: list[list[Detections | None]]) -> list[Table]:
        rows = []
        for i, method in enumerate(chosen_methods(options)):
            detections = [by_method[i] for by_method in detected]
            if None not in detections:
                rows.append(
                    localization_row(method.name, truth, [d for d in detections if d is not None], options.num_draws)
                )
        notes = [
            f"{len(taxonomy)} labels; the score of a span is its label's share of belief.",
            *nameless_note(cases, options),
        ]
        return [Table("Step localization", rows, notes)]

    return CaseTask(partial(_detect, taxonomy=taxonomy, embeddings=embeddings, options=options), tabulate)


def _detect(
    case: Case, taxonomy: Sequence[str], embeddings: TextEmbeddings, options: EvalOptions
) -> list[Detections | None]:
    """The spans that each method labels; None where it has no words."""
    cache: SimilarityCache = {}
    by_method: list[Detections | None] = []
    for method in chosen_methods(options):
        similarity = method_similarity(case, method, taxonomy, embeddings, options, cache)
        if similarity is None:
            by_method.append(None)
            continue
        if method.candidates == "spans":  # they overlap, and a video has one label at a time
            spans = _finest_steps(case)
        elif method.candidates == "windows":
            spans = label_runs(similarity.argmax(0), options.min_nodes)
        else:
            spans = find_candidates(case, method, options)
        probabilities = label_probabilities(similarity, spans)
        by_method.append(Detections(case.to_seconds(spans), probabilities.argmax(1), probabilities.max(1)))
    return by_method


def localization_row(name: str, truth: Sequence[Detections], detections: Sequence[Detections], num_draws: int) -> Row:
    """mAP at each threshold and their mean, in percent; truth and detections of each video."""
    matched = match_detections(truth, detections)

    def values(weights: np.ndarray) -> dict[str, np.ndarray]:
        scores = 100 * mean_average_precision(matched, weights)
        return {**{f"mAP@{t}": scores[:, i] for i, t in enumerate(THRESHOLDS)}, "mean": scores.mean(1)}

    return bootstrap_row(name, values, len(truth), min(MAX_DRAWS, num_draws))


def _finest_steps(case: Case) -> np.ndarray:
    """The finest steps that `hiero steps` finds, in nodes (N, 2)."""
    return case.video.level_spans(case.video.steps(labels=[]).levels[-1])
