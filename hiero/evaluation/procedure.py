"""Procedure learning: do clusters of a video find its key-steps?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from hiero.evaluation.cases import Case, CaseTask, EvalOptions
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

KAPPA = 0.5  # temperature of the spectral cut
BACKGROUNDS = ("removed", "kept")


def procedure_task(
    cases: Sequence[Case], options: EvalOptions, num_clusters: int | None = None
) -> CaseTask[np.ndarray]:
    """Scores of each clustering, with background removed and kept."""
    is_raw = cases[0].video.engine.folder is None
    methods: tuple[tuple[str, str, str], ...] = (
        PROCEDURE_METHODS if options.baselines or is_raw else PROCEDURE_METHODS[:2]
    )
    methods = tuple(method for method in methods if not is_raw or method[1] == "features")

    def tabulate(scores: list[np.ndarray]) -> list[Table]:
        count = "true number of steps" if num_clusters is None else f"K = {num_clusters}"
        tables = []
        for i, background in enumerate(BACKGROUNDS):
            rows = []
            for j, (name, _, _) in enumerate(methods):
                values = weighted_means(np.array([score[i, j] for score in scores]), np.arange(len(scores)), MEASURES)
                rows.append(bootstrap_row(name, values, len(scores), options.num_draws))
            notes = [
                "Per key-step, mean over videos; F1 is that of a video's mean precision and recall. All frames: "
                "pooled accuracy."
            ]
            tables.append(Table(f"Procedure learning, {count}, background {background}", rows, notes))
        return tables

    return CaseTask(partial(_score_methods, methods=methods, num_clusters=num_clusters, options=options), tabulate)


def _score_methods(
    case: Case, methods: Sequence[tuple[str, str, str]], num_clusters: int | None, options: EvalOptions
) -> np.ndarray:
    """The measures of one video by each method, (backgrounds, methods, measures)."""
    return np.array(
        [
            [
                _score(case, source, algorithm, background == "removed", num_clusters, options)
                for _, source, algorithm in methods
            ]
            for background in BACKGROUNDS
        ]
    )


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
    elif remove_background:
        labels = cluster(nodes, num, algorithm, kappa=KAPPA, random_state=options.random_state)
    else:
        labels = case.cluster(nodes, source, num, algorithm, KAPPA, options.random_state)
    scores = procedure_scores(labels, truth)
    return [scores.f1, scores.iou, scores.precision, scores.recall, matched_accuracy(labels, truth)]


def _nodes_of(case: Case, source: str) -> np.ndarray:
    if source == "deep level":
        return case.deep_nodes
    if source == "segmentation features":
        return case.video.segmentation_features
    return {"nodes": case.video.nodes, "features": case.features}[source]
