"""Procedure learning over several recordings of a task: is a step the same cluster in all of them?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hiero.evaluation.cases import Case, CaseTask, EvalOptions
from hiero.evaluation.metrics import procedure_scores
from hiero.evaluation.results import Table, bootstrap_row, weighted_means
from hiero.steps.clustering import contiguous
from hiero.steps.correspondence import join_features
from hiero.steps.grounding import span_means
from hiero.steps.segmentation import label_runs
from hiero.steps.shared_steps import share_steps

MEASURES = ("F1", "IoU", "precision", "recall")


class CutRecording(NamedTuple):
    """A recording without its background, cut into its true number of steps."""

    texts: list[str]
    truth: np.ndarray  # index of the text of each node, from 1
    spans: np.ndarray
    vectors: np.ndarray

    @property
    def places(self) -> np.ndarray:
        return np.asarray(self.spans.mean(1) / len(self.truth))


def many_recordings_task(cases: Sequence[Case], options: EvalOptions) -> CaseTask[CutRecording]:
    """F1 with one matching of clusters and key-steps for all recordings of a task."""
    tasks = [case.task for case in cases]
    names = sorted({task for task in tasks if tasks.count(task) > 1})
    note = "Clusters are matched with key-steps once for all recordings of a task; a key-step without a cluster "
    note += f"counts zero. Intervals are over {len(names)} tasks with several recordings."

    def tabulate(recordings: list[CutRecording]) -> list[Table]:
        groups = [[r for r, task in zip(recordings, tasks, strict=True) if task == name] for name in names]
        title = "Procedure learning over several recordings, true number of steps, background removed"
        if not groups:
            return [Table(title, [], ["No task has several recordings; give each video its `task`."])]
        rows = []
        for method, is_shared in (("HiERO, together", True), ("HiERO per video, k-th step", False)):
            values = np.array([_score_task(group, is_shared) for group in groups])
            drawn = weighted_means(values, np.arange(len(groups)), MEASURES)
            rows.append(bootstrap_row(method, drawn, len(groups), options.num_draws))
        return [Table(title, rows, [note])]

    return CaseTask(_cut, tabulate)


def _cut(case: Case) -> CutRecording:
    truth = case.labels()
    used = truth > 0
    texts = list(dict.fromkeys(case.texts))
    num = len(set(truth[used].tolist()))
    spans = label_runs(
        contiguous(case.vectors("segmentation features")[used], num, length_prior=case.video.sight.length_prior)
    )
    means = [span_means(rows[used].T.astype(np.float64), spans).T for rows in (case.video.nodes, case.features)]
    return CutRecording(texts, truth[used], spans, join_features(*means))


def _score_task(recordings: Sequence[CutRecording], is_shared: bool) -> list[float]:
    """The measures of all recordings of a task."""
    texts = list(dict.fromkeys(text for recording in recordings for text in recording.texts))
    truth = np.concatenate([np.array([0, *(1 + texts.index(text) for text in r.texts)])[r.truth] for r in recordings])
    num = max(len(set(truth.tolist())), max(len(r.spans) for r in recordings))
    steps = [np.arange(len(r.spans)) for r in recordings]
    if is_shared:
        steps = share_steps([r.vectors for r in recordings], [r.places for r in recordings], num)
    labels = [np.repeat(numbers, np.diff(r.spans)[:, 0]) for numbers, r in zip(steps, recordings, strict=True)]
    scores = procedure_scores(np.concatenate(labels), truth, num_clusters=len(texts) + 1)
    return [scores.f1, scores.iou, scores.precision, scores.recall]
