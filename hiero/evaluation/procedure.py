"""Procedure learning: do clusters of a video find its key-steps?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hiero.evaluation.cases import Case, EvalOptions, map_cases
from hiero.evaluation.metrics import matched_accuracy, procedure_scores
from hiero.evaluation.results import Table, bootstrap_row, weighted_means
from hiero.steps.clustering import cluster, pieces

MEASURES = ("F1", "IoU", "precision", "recall", "all frames")
# Name, what is clustered, and how.
PROCEDURE_METHODS = (
    ("HiERO", "segmentation features", "pieces"),
    ("HiERO, spectral", "deep level", "spectral"),
    ("HiERO nodes, spectral", "nodes", "spectral"),
    ("HiERO nodes, K-Means", "nodes", "k-means-cosine"),
    ("HiERO nodes, TW-FINCH", "nodes", "tw-finch"),
    ("raw, spectral", "features", "spectral"),
    ("raw, K-Means (L2)", "features", "k-means"),
    ("raw, K-Means (cosine)", "features", "k-means-cosine"),
    ("raw, TW-FINCH", "features", "tw-finch"),
    ("raw, pieces", "features", "pieces"),
    ("equal parts", "features", "equal-parts"),
    ("random", "features", "random"),
)


BACKGROUNDS = ("removed", "kept")


def evaluate_procedure_learning(
    cases: Sequence[Case],
    options: EvalOptions,
    num_clusters: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Table]:
    """Scores of each clustering, with background removed and kept.

    Args:
        cases: The videos.
        options: Settings.
        num_clusters: For all videos; by default the true number of each.
        progress: Called with the name of each video when it is done.
    """
    count = "true number of steps" if num_clusters is None else f"K = {num_clusters}"
    is_raw = cases[0].video.engine.folder is None
    methods: tuple[tuple[str, str, str], ...] = PROCEDURE_METHODS if options.baselines or is_raw else PROCEDURE_METHODS[:2]
    methods = tuple(method for method in methods if not is_raw or method[1] == "features")

    def score_methods(case: Case) -> list[list[list[float]]]:
        return [
            [_score(case, source, algorithm, background == "removed", num_clusters, options) for _, source, algorithm in methods]
            for background in BACKGROUNDS
        ]

    scores = np.array(map_cases(score_methods, cases, progress))  # (V, backgrounds, methods, measures)
    tables = []
    for i, background in enumerate(BACKGROUNDS):
        rows = []
        for j, (name, _, _) in enumerate(methods):
            values = weighted_means(scores[:, i, j], np.arange(len(cases)), MEASURES)
            rows.append(bootstrap_row(name, values, len(cases), options.num_draws))
        notes = ["Per key-step, mean over videos; F1 is that of a video's mean precision and recall. All frames: pooled accuracy."]
        tables.append(Table(f"Procedure learning, {count}, background {background}", rows, notes))
    return tables


def _score(
    case: Case, source: str, algorithm: str, remove_background: bool, num_clusters: int | None, options: EvalOptions
) -> list[float]:
    """The measures of one video."""
    truth = case.labels()
    used = truth > 0 if remove_background else np.ones(len(truth), dtype=bool)
    truth = truth[used]
    num = num_clusters or len(set(truth[truth > 0].tolist()))
    nodes = _nodes_of(case, source)[used]
    if source == "segmentation features":
        labels = pieces(nodes, num, length_prior=case.video.length_prior)
    else:
        labels = cluster(nodes, num, algorithm, random_state=options.random_state)
    scores = procedure_scores(labels, truth)
    return [scores.f1, scores.iou, scores.precision, scores.recall, matched_accuracy(labels, truth)]


def _nodes_of(case: Case, source: str) -> np.ndarray:
    if source == "deep level":
        return case.deep_nodes
    if source == "segmentation features":
        return case.video.segmentation_features
    return {"nodes": case.video.nodes, "features": case.features}[source]
