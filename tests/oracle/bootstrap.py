"""The bootstrap of EgoProceL's means, one draw after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hiero.evaluation.egoprocel_data import DATA_SETS, TASKS, EgoProceLVideo
from hiero.evaluation.metrics import harmonic_mean
from hiero.evaluation.results import DrawnScores, Scores


def score_each_draw(compute_scores: Callable[[np.ndarray], Scores]) -> DrawnScores:
    """A function of one draw (V,) as one of many, (D, V): for scores that cannot be computed of all draws at once."""

    def compute_all(weights: np.ndarray) -> dict[str, np.ndarray]:
        draws = [compute_scores(draw) for draw in weights]
        return {name: np.array([draw[name] for draw in draws]) for name in draws[0]}

    return compute_all


def plain_data_set_means(
    videos: Sequence[EgoProceLVideo], video_scores: Sequence[dict[str, float]], f1_of_means: bool
) -> Callable[[np.ndarray], Scores]:
    """What `_data_set_means` gives, as a function of one draw (V,)."""
    measures = [name for name in ("F1", "IoU") if name in video_scores[0]]
    averaged = [*measures, "precision", "recall"]
    values = np.array([[scores[name] for name in averaged] for scores in video_scores])
    tasks = sorted({video.task for video in videos}, key=TASKS.index)
    membership = np.array([[video.task == task for video in videos] for task in tasks], dtype=float)

    def compute_scores(weights: np.ndarray) -> Scores:
        task_weights = membership * weights
        total = task_weights.sum(1, keepdims=True)
        # A draw may hold no video of a task, or of a data set: NaN.
        task_means = np.divide(
            task_weights @ values, total, out=np.full((len(tasks), len(averaged)), np.nan), where=total > 0
        )
        means = {}
        for name in DATA_SETS:
            of_set = task_means[[i for i, task in enumerate(tasks) if task.data_set == name]]
            if len(of_set) and not np.isnan(of_set).all():
                means[name] = np.nanmean(of_set, axis=0)
                if f1_of_means:
                    means[name][0] = harmonic_mean(means[name][-2], means[name][-1])
        overall = np.mean(list(means.values()), axis=0)
        out = {f"mean {measure}": float(100 * overall[j]) for j, measure in enumerate(measures)}
        for name in DATA_SETS:
            for j, measure in enumerate(measures):
                if any(task.data_set == name for task in tasks):
                    out[f"{name} {measure}"] = float(100 * means[name][j]) if name in means else float("nan")
        return out

    return compute_scores
