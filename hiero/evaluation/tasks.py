"""Tasks beside step grounding: procedure learning, step localization and multiple choice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hiero.evaluation.cases import Case, CaseTask, EvalOptions, TextEmbeddings, by_method
from hiero.evaluation.grounding import (
    GROUNDING_METHODS,
    RUN_METHODS,
    Method,
    chosen_methods,
    compare_texts,
    find_candidates,
    score_runs,
    unnamed_classes_note,
)
from hiero.evaluation.metrics import (
    THRESHOLDS,
    Detections,
    choice_accuracy,
    match_detections,
    matched_accuracy,
    mean_average_precision,
    procedure_scores,
)
from hiero.evaluation.results import Row, Table, accuracy_by_kind, bootstrap_row, weighted_means
from hiero.steps.clustering import cluster, contiguous
from hiero.steps.grounding import span_means
from hiero.steps.segmentation import label_runs
from hiero.steps.similarity import LABEL_TEMPERATURE, detect_labels, label_probabilities, softmax

# Procedure learning: do the clusters of a video find its key-steps?

MEASURES = ("F1", "IoU", "precision", "recall", "all frames")
PROCEDURE_METHODS: tuple[tuple[str, str, str], ...] = (  # (name, source of the vectors, clustering)
    ("HiERO", "segmentation features", "contiguous"),
    ("HiERO, spectral", "deep level", "spectral"),
    ("HiERO nodes, spectral", "nodes", "spectral"),
    ("HiERO nodes, K-Means", "nodes", "k-means-cosine"),
    ("HiERO nodes, TW-FINCH", "nodes", "tw-finch"),
    ("raw, spectral", "features", "spectral"),
    ("raw, K-Means (L2)", "features", "k-means"),
    ("raw, K-Means (cosine)", "features", "k-means-cosine"),
    ("raw, TW-FINCH", "features", "tw-finch"),
    ("raw, contiguous", "features", "contiguous"),
    ("equal parts", "features", "equal-parts"),
    ("random", "features", "random"),
)
KAPPA = 0.5  # temperature of the spectral cut
BACKGROUNDS = ("removed", "kept")


def procedure_task(
    cases: Sequence[Case], options: EvalOptions, num_clusters: int | None = None
) -> CaseTask[np.ndarray]:
    """Scores of each clustering, with the background removed and kept."""
    is_raw = cases[0].video.engine.folder is None
    methods = PROCEDURE_METHODS if options.baselines or is_raw else PROCEDURE_METHODS[:2]
    methods = tuple(method for method in methods if not is_raw or method[1] == "features")
    count = "true number of steps" if num_clusters is None else f"K = {num_clusters}"
    note = "Per key-step, mean over videos; F1 is that of a video's mean precision and recall. All frames: "
    note += "pooled accuracy."

    def tabulate(scores: list[np.ndarray]) -> list[Table]:
        tables = []
        for i, background in enumerate(BACKGROUNDS):
            rows = []
            for j, (name, _, _) in enumerate(methods):
                values = weighted_means(np.array([score[i, j] for score in scores]), np.arange(len(scores)), MEASURES)
                rows.append(bootstrap_row(name, values, len(scores), options.num_draws))
            tables.append(Table(f"Procedure learning, {count}, background {background}", rows, [note]))
        return tables

    return CaseTask(partial(_score_procedure, methods=methods, num_clusters=num_clusters, options=options), tabulate)


def _score_procedure(
    case: Case, methods: Sequence[tuple[str, str, str]], num_clusters: int | None, options: EvalOptions
) -> np.ndarray:
    """The measures of one video, (backgrounds, methods, measures)."""
    return np.array(
        [
            [_score(case, *method[1:], background == "removed", num_clusters, options) for method in methods]
            for background in BACKGROUNDS
        ]
    )


def _score(
    case: Case, source: str, algorithm: str, remove_background: bool, num_clusters: int | None, options: EvalOptions
) -> list[float]:
    truth = case.labels()
    used = truth > 0 if remove_background else np.ones(len(truth), dtype=bool)
    truth = truth[used]
    num = num_clusters or len(set(truth[truth > 0].tolist()))
    if source == "segmentation features":
        labels = contiguous(case.vectors(source)[used], num, length_prior=case.video.sight.length_prior)
    elif remove_background:
        labels = cluster(case.vectors(source)[used], num, algorithm, kappa=KAPPA, random_state=options.random_state)
    else:
        labels = case.cluster(source, num, algorithm, KAPPA, options.random_state)
    scores = procedure_scores(labels, truth)
    return [scores.f1, scores.iou, scores.precision, scores.recall, matched_accuracy(labels, truth)]


# Step localization: where are the steps of a taxonomy? Scored by mAP as ActivityNet defines it.

MAX_DRAWS = 100  # bootstrap draws: mAP is slow to compute


def localization_task(
    cases: Sequence[Case], taxonomy: Sequence[str], embeddings: TextEmbeddings, options: EvalOptions
) -> CaseTask[list[Detections | None]]:
    """mAP at each threshold, for each grounding method."""
    numbers = {text: i for i, text in enumerate(taxonomy)}
    truth = [
        Detections(case.spans_s, np.array([numbers[text] for text in case.texts]), np.zeros(len(case.truth)))
        for case in cases
    ]
    note = f"{len(taxonomy)} labels; the score of a span is its label's share of probability. HiERO may give a "
    note += "span several labels."

    def tabulate(detected: list[list[Detections | None]]) -> list[Table]:
        rows = []
        for method, detections in by_method(chosen_methods(options), detected):
            rows.append(localization_row(method.name, truth, detections, options.num_draws))
        return [Table("Step localization", rows, [note, *unnamed_classes_note(cases, options)])]

    return CaseTask(partial(_detect, taxonomy=taxonomy, embeddings=embeddings, options=options), tabulate)


def _detect(
    case: Case, taxonomy: Sequence[str], embeddings: TextEmbeddings, options: EvalOptions
) -> list[Detections | None]:
    """The spans that each method labels; None if it cannot compare these features with text."""
    by_method: list[Detections | None] = []
    for method, similarity in compare_texts(case, chosen_methods(options), taxonomy, embeddings, options):
        if similarity is None:
            by_method.append(None)
            continue
        if method in RUN_METHODS and options.protocol is not None:
            spans, scores = score_runs(case, taxonomy, embeddings, options, method.candidates)
            shares = softmax(scores.T / LABEL_TEMPERATURE)
            by_method.append(Detections(case.to_seconds(spans), shares.argmax(1), shares.max(1)))
            continue
        if method.candidates == "spans":
            spans, labels, scores = detect_labels(similarity, case.video.sight.spans, case.video.clock.spacing_s)
            by_method.append(Detections(case.to_seconds(spans), labels, scores))
            continue
        if method.candidates == "windows":
            spans = label_runs(similarity.argmax(0), options.min_nodes)
        else:
            spans = find_candidates(case, method, options)
        probabilities = label_probabilities(similarity, spans)
        by_method.append(Detections(case.to_seconds(spans), probabilities.argmax(1), probabilities.max(1)))
    return by_method


def localization_row(name: str, truth: Sequence[Detections], detections: Sequence[Detections], num_draws: int) -> Row:
    """mAP at each threshold and their mean, in percent, from the detections of each video."""
    matched = match_detections(truth, detections)

    def values(weights: np.ndarray) -> dict[str, np.ndarray]:
        scores = 100 * mean_average_precision(matched, weights)
        return {**{f"mAP@{t}": scores[:, i] for i, t in enumerate(THRESHOLDS)}, "mean": scores.mean(1)}

    return bootstrap_row(name, values, len(truth), min(MAX_DRAWS, num_draws))


# Multiple choice: which of five segments does a text describe? The wrong ones come from other
# videos (inter) or from the same video (intra).

CHOICE_METHODS = (Method("HiERO", "spans", "all"), Method("HiERO, the model alone", "spans", "model"))
NUM_CHOICES = 5


class ChoiceQuestion(NamedTuple):
    """A text and its choices as (case, step) pairs. The wrong choices have other texts."""

    text: str
    choices: list[tuple[int, int]]
    answer: int
    case: int


def choice_task(
    cases: Sequence[Case], embeddings: TextEmbeddings, options: EvalOptions
) -> CaseTask[list[np.ndarray | None]]:
    """Accuracy on both kinds of question, for each method."""
    questions = {kind: make_questions(cases, kind, options.random_state) for kind in ("inter", "intra")}
    texts = list(dict.fromkeys(text for case in cases for text in case.texts))
    index = {text: i for i, text in enumerate(texts)}
    methods = CHOICE_METHODS + (GROUNDING_METHODS[-2:] if options.baselines else ())

    def tabulate(compared: list[list[np.ndarray | None]]) -> list[Table]:
        rows = []
        for method, means in by_method(methods, compared):
            answers = {}
            for kind, group in questions.items():
                if group:
                    scores = [[means[case][index[q.text], step] for case, step in q.choices] for q in group]
                    correct = choice_accuracy(np.array(scores), np.array([q.answer for q in group]))
                    answers[kind] = correct, np.array([q.case for q in group])
            rows.append(bootstrap_row(method.name, accuracy_by_kind(answers), len(cases), options.num_draws))
        counts = ", ".join(f"{len(group)} {kind}" for kind, group in questions.items())
        return [Table("Multiple choice of five", rows, [f"Questions: {counts}."])]

    return CaseTask(partial(_compare, texts=texts, methods=methods, embeddings=embeddings, options=options), tabulate)


def _compare(
    case: Case, texts: Sequence[str], methods: Sequence[Method], embeddings: TextEmbeddings, options: EvalOptions
) -> list[np.ndarray | None]:
    """Similarity of all texts with the steps of a case by each method, (Q, S) or None."""
    spans = np.array([case.to_nodes(span) for span in case.spans_s])
    compared = compare_texts(case, methods, texts, embeddings, options)
    return [None if similarity is None else span_means(similarity, spans) for _, similarity in compared]


def make_questions(cases: Sequence[Case], kind: str, seed: int) -> list[ChoiceQuestion]:
    """A question for each step that has enough others to choose from; kind is `inter` or `intra`."""
    rng = np.random.default_rng(seed)
    steps = [(c, s) for c, case in enumerate(cases) for s in range(len(case.truth))]
    texts = [cases[c].truth[s].text for c, s in steps]
    text_of = np.unique(texts, return_inverse=True)[1]
    case_of = np.array([c for c, _ in steps])
    out: list[ChoiceQuestion] = []
    for i, (c, s) in enumerate(steps):
        others = np.flatnonzero(((case_of == c) == (kind == "intra")) & (text_of != text_of[i]))
        if len(others) < NUM_CHOICES - 1:
            continue
        wrong = [steps[others[j]] for j in rng.choice(len(others), NUM_CHOICES - 1, replace=False)]
        answer = int(rng.integers(NUM_CHOICES))
        out.append(ChoiceQuestion(texts[i], [*wrong[:answer], (c, s), *wrong[answer:]], answer, c))
    return out
