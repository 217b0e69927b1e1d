"""EgoProceL: procedure learning on six data sets, 16 tasks. Do clusters of a video find the key-steps of its task?

Every second frame of a video is compared, as the official code does. Papers differ in what they report under the same name, so
every protocol is computed and named: see PROTOCOLS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hiero.data.features import read_feature_array
from hiero.engine import Engine
from hiero.evaluation.egoprocel_data import DATA_SETS, TASKS, EgoProceLVideo, Task
from hiero.evaluation.egoprocel_data import find_egoprocel_videos as find_egoprocel_videos
from hiero.evaluation.egoprocel_data import probe_rates as probe_rates
from hiero.evaluation.egoprocel_data import read_rates as read_rates
from hiero.evaluation.egoprocel_data import video_name as video_name
from hiero.evaluation.metrics import harmonic_mean, key_step_scores, matched_accuracy, procedure_scores
from hiero.evaluation.results import Row, Scores, Table, bootstrap_row
from hiero.steps.clustering import cluster
from hiero.types import Clock

NUM_CLUSTERS = 7  # the paper's K, for all tasks
KAPPA = 0.5
NUM_DRAWS = 500  # of the bootstrap

Predictions = dict[tuple[str, EgoProceLVideo, int], np.ndarray]
"""Cluster of every second frame, by method, video and number of clusters."""


@dataclass(frozen=True)
class Protocol:
    """What is averaged over what.

    Attributes:
        name: In results.
        per_step: Means over key-steps; otherwise their frames are pooled.
        background: Is matched like a key-step.
        mean_f1: F1 is the mean of the key-steps' F1; otherwise that of a video's mean precision and recall.
        all_frames: Accuracy of all frames; the other settings do not apply.
    """

    name: str
    per_step: bool = True
    background: bool = True
    mean_f1: bool = False
    all_frames: bool = False


PROTOCOLS = (
    Protocol("per key-step, with background (the paper's)"),
    Protocol("per key-step, without background", background=False),
    Protocol("per key-step, with background, mean of F1", mean_f1=True),
    Protocol("frames pooled, with background", per_step=False),
    Protocol("frames pooled, without background", per_step=False, background=False),
    Protocol("all frames pooled, accuracy of the matching", all_frames=True),
)
PAPER = PROTOCOLS[0]


@dataclass(frozen=True)
class ClusteringMethod:
    """A clustering, of raw features or of the model's."""

    name: str
    raw: bool
    algorithm: str


CLUSTERING_METHODS = (
    ClusteringMethod("HiERO, spectral", False, "spectral"),
    ClusteringMethod("HiERO, K-Means", False, "k-means"),
    ClusteringMethod("raw, spectral", True, "spectral"),
    ClusteringMethod("raw, K-Means (L2)", True, "k-means"),
    ClusteringMethod("raw, K-Means (cosine)", True, "k-means-cosine"),
    ClusteringMethod("raw, TW-FINCH", True, "tw-finch"),
    ClusteringMethod("equal parts", True, "equal-parts"),
    ClusteringMethod("random", True, "random"),
)


def evaluate_egoprocel(
    engine: Engine,
    videos: Sequence[EgoProceLVideo],
    *,
    stride: int = 16,
    baselines: bool = True,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Table]:
    """Score each clustering by each protocol.

    Args:
        engine: The model, or raw features, which have baselines only.
        videos: Of `find_egoprocel_videos`.
        stride: Frames from one feature to the next.
        baselines: Whether other methods than the first are scored too.
        seed: Of clusterings.
        progress: Called with the name of each video when it is done.

    Returns:
        The main table (F1 and IoU of each data set and their mean), all protocols, and for the first method the scores of each
        data set, task, video and key-step.
    """
    chosen = CLUSTERING_METHODS if baselines else CLUSTERING_METHODS[:1]
    methods = [method for method in chosen if method.raw or engine.folder is not None]
    predictions: Predictions = {}
    for video in videos:
        for method in methods:
            for num in dict.fromkeys((NUM_CLUSTERS, video.task.num_steps)):
                predictions[method.name, video, num] = predict(engine, video, num, method.algorithm, method.raw, stride, seed)
        progress(video.name)
    note = "A data set is the mean of its tasks, a task of its videos; the mean is over data sets."
    rows = _score_methods(methods, videos, predictions, PAPER, true_number=False)
    tables = [Table(f"EgoProceL, K = {NUM_CLUSTERS}, {PAPER.name}", rows, [note])]
    for protocol in PROTOCOLS:
        for true_number in (False, True):
            if (protocol, true_number) == (PAPER, False):
                continue  # the main table
            count = "the true number" if true_number else f"{NUM_CLUSTERS}"
            rows = _score_methods(methods, videos, predictions, protocol, true_number)
            for row in rows:
                row.scores = {name: value for name, value in row.scores.items() if name.startswith("mean")}
                row.intervals = {name: value for name, value in row.intervals.items() if name.startswith("mean")}
            tables.append(Table(f"EgoProceL, K = {count}, {protocol.name}", rows))
    return [*tables, *_detail_tables(videos, predictions, methods[0].name)]


def predict(
    engine: Engine, video: EgoProceLVideo, num_clusters: int, algorithm: str, raw: bool, stride: int, seed: int
) -> np.ndarray:
    """Cluster of every second frame, (num_frames // 2,).

    HiERO's are clusters of level 2 before h_v; each node stands for stride · 2² frames.

    Args:
        engine: The model.
        video: Whose features are read.
        num_clusters: K.
        algorithm: One of `clustering_names()`.
        raw: Cluster the features as they are.
        stride: Frames from one feature to the next.
        seed: Of the clustering.
    """
    features = read_feature_array(video.features, None if engine.folder is None else engine.folder.config.input_size)
    level = 0 if raw else engine.deep_level
    nodes = features if level == 0 else engine.enrich(features, Clock(video.fps, stride), level)
    labels = cluster(nodes, num_clusters, algorithm, kappa=KAPPA, random_state=seed)
    frames = np.arange(video.num_frames // 2) * 2
    return labels[np.minimum(frames // (stride * 2**level), len(labels) - 1)]


def score(predicted: np.ndarray, video: EgoProceLVideo, protocol: Protocol, num_clusters: int) -> dict[str, float]:
    """precision, recall, F1 and IoU of a video, in 0 … 1; all frames pooled have no IoU.

    Args:
        predicted: Cluster of every second frame.
        video: The truth.
        protocol: Which means are taken.
        num_clusters: K.
    """
    truth = video.labels()
    if protocol.all_frames:
        accuracy = matched_accuracy(predicted, truth)
        return {"precision": accuracy, "recall": accuracy, "F1": accuracy}
    scores = procedure_scores(
        predicted,
        truth,
        per_step=protocol.per_step,
        skip_background=not protocol.background,
        num_steps=_num_labels(video.task, truth),
        num_clusters=num_clusters,
    )
    f1 = scores.mean_f1 if protocol.mean_f1 else scores.f1
    return {"precision": scores.precision, "recall": scores.recall, "F1": f1, "IoU": scores.iou}


def _num_labels(task: Task, truth: np.ndarray) -> int:
    """Key-steps and background; annotations may have more key-steps than the task should."""
    return max(task.num_steps, int(truth.max())) + 1


def _score_methods(
    methods: Sequence[ClusteringMethod],
    videos: Sequence[EgoProceLVideo],
    predictions: Predictions,
    protocol: Protocol,
    true_number: bool,
) -> list[Row]:
    """A row for each method; true_number: as many clusters as the task has key-steps."""
    rows = []
    for method in methods:
        scores = []
        for video in videos:
            num = video.task.num_steps if true_number else NUM_CLUSTERS
            scores.append(score(predictions[method.name, video, num], video, protocol, num))
        rows.append(bootstrap_row(method.name, _data_set_means(videos, scores), len(videos), NUM_DRAWS))
    return rows


def _data_set_means(videos: Sequence[EgoProceLVideo], video_scores: Sequence[dict[str, float]]) -> Callable[[np.ndarray], Scores]:
    """F1 and IoU in percent: mean over videos of a task, tasks of a data set, data sets; a function for `bootstrap_row`."""
    measures = [name for name in ("F1", "IoU") if name in video_scores[0]]
    values = np.array([[scores[name] for name in measures] for scores in video_scores])
    tasks = sorted({video.task for video in videos}, key=TASKS.index)
    membership = np.array([[video.task == task for video in videos] for task in tasks], dtype=float)

    def compute_scores(weights: np.ndarray) -> Scores:
        task_weights = membership * weights
        total = task_weights.sum(1, keepdims=True)
        # A draw may hold no video of a task, or of a data set: NaN.
        task_means = np.divide(task_weights @ values, total, out=np.full((len(tasks), len(measures)), np.nan), where=total > 0)
        means = {}
        for name in DATA_SETS:
            of_set = task_means[[i for i, task in enumerate(tasks) if task.data_set == name]]
            if len(of_set) and not np.isnan(of_set).all():
                means[name] = np.nanmean(of_set, axis=0)
        overall = np.mean(list(means.values()), axis=0)
        out = {f"mean {measure}": float(100 * overall[j]) for j, measure in enumerate(measures)}
        for name in DATA_SETS:
            for j, measure in enumerate(measures):
                if any(task.data_set == name for task in tasks):
                    out[f"{name} {measure}"] = float(100 * means[name][j]) if name in means else float("nan")
        return out

    return compute_scores


def _detail_tables(videos: Sequence[EgoProceLVideo], predictions: Predictions, method: str) -> list[Table]:
    """For one method, by the paper's protocol: each data set, task, video and key-step."""
    video_rows, task_rows, step_rows = [], [], []
    for task in dict.fromkeys(video.task for video in videos):
        of_task = [video for video in videos if video.task == task]
        task_scores: list[dict[str, float]] = []
        step_scores: dict[int, list[dict[str, float]]] = {}
        for video in of_task:
            predicted = predictions[method, video, NUM_CLUSTERS]
            task_scores.append(score(predicted, video, PAPER, NUM_CLUSTERS))
            video_rows.append(Row(f"{task.name}: {video.name}", {name: 100 * value for name, value in task_scores[-1].items()}))
            truth = video.labels()
            steps = key_step_scores(predicted, truth, num_steps=_num_labels(task, truth), num_clusters=NUM_CLUSTERS)
            for step, scores in steps.items():
                step_scores.setdefault(step, []).append(scores)
        means = _percent_means(task_scores, task_scores[0])
        means["F1 of means"] = 100 * harmonic_mean(means["precision"] / 100, means["recall"] / 100)
        task_rows.append(Row(f"{task.data_set}: {task.name} ({len(of_task)} of {task.num_videos} videos)", means))
        for step, step_videos in sorted(step_scores.items()):
            name = "background" if step == 0 else f"key-step {step}"
            measures = ("precision", "recall", "f1", "iou")
            step_rows.append(Row(f"{task.name}: {name}", _percent_means(step_videos, measures)))
    tables = {"data sets": _data_set_rows(task_rows), "tasks": task_rows, "videos": video_rows, "key-steps": step_rows}
    return [Table(f"{method}: {name}", rows) for name, rows in tables.items()]


def _percent_means(rows: Sequence[dict[str, float]], names: Iterable[str]) -> Scores:
    return {name: float(100 * np.mean([row[name] for row in rows])) for name in names}


def _data_set_rows(task_rows: Sequence[Row]) -> list[Row]:
    """Data sets as means of their tasks."""
    rows = []
    for name in DATA_SETS:
        of_set = [row.scores for row in task_rows if row.method.startswith(f"{name}: ")]
        if of_set:
            rows.append(Row(name, {measure: float(np.mean([scores[measure] for scores in of_set])) for measure in of_set[0]}))
    return rows
