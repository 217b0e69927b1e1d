"""EgoProceL: procedure learning on six data sets, 16 tasks. Do the clusters of a video find its key-steps?

Every second frame is compared, as in the official code. Papers average differently under the same
name, so every averaging is computed and named (AVERAGINGS). `hiero.evaluation.protocols` has the
other differences from the released scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hiero.engine import Engine
from hiero.evaluation.cases import LENGTH_TOLERANCE, check_warnings, read_input_features
from hiero.evaluation.egoprocel_data import DATA_SETS, RELEASE_NAMES, TASKS, EgoProceLVideo
from hiero.evaluation.metrics import ProcedureScores, harmonic_mean, matched_accuracy, procedure_scores
from hiero.evaluation.protocols import CORRECTED, Protocol
from hiero.evaluation.results import DrawnScores, Row, Scores, Table, bootstrap_row
from hiero.steps.clustering import cluster
from hiero.types import Clock

NUM_CLUSTERS = 7  # K of the paper, for all tasks
KAPPA = 0.5
NUM_DRAWS = 500  # bootstrap draws

Predictions = dict[tuple[str, EgoProceLVideo, int], np.ndarray]
"""Cluster of every second frame, by method, video and number of clusters."""


@dataclass(frozen=True)
class Averaging:
    """One way to average scores."""

    name: str
    per_step: bool = True
    background: bool = True
    mean_f1: bool = False
    all_frames: bool = False


AVERAGINGS = (
    Averaging("per key-step, with background"),
    Averaging("per key-step, without background", background=False),
    Averaging("per key-step, with background, mean of F1", mean_f1=True),
    Averaging("frames pooled, with background", per_step=False),
    Averaging("frames pooled, without background", per_step=False, background=False),
    Averaging("all frames pooled, accuracy of the matching", all_frames=True),
)
MAIN = AVERAGINGS[0]  # the averaging of the release


@dataclass(frozen=True)
class ClusteringMethod:
    """A clustering of raw features or of the features of the model."""

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
PAPER_METHODS = ("HiERO, spectral", "HiERO, K-Means", "raw, spectral", "raw, K-Means (L2)", "random")
SUMMARY = {"HiERO, spectral": "HiERO", "raw, spectral": "raw"}  # names that the released scripts report


def evaluate_egoprocel(
    engine: Engine,
    videos: Sequence[EgoProceLVideo],
    *,
    stride: int = 16,
    baselines: bool = True,
    protocol: Protocol = CORRECTED,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Table]:
    """Score each clustering with each averaging."""
    engine = protocol.configure(engine)
    methods = [method for method in CLUSTERING_METHODS if method.raw or engine.folder is not None]
    if protocol != CORRECTED:
        methods = [method for method in methods if method.name in PAPER_METHODS]
    methods = methods if baselines else methods[:1]
    predictions: Predictions = {}
    for video in videos:
        for method in methods:
            for num in dict.fromkeys((NUM_CLUSTERS, video.task.num_steps)):
                predictions[method.name, video, num] = predict(engine, video, num, method, stride, seed, protocol)
        progress(video.name)
    note = "A data set is the mean of its tasks, a task of its videos; the mean is over data sets."
    if protocol.f1_of_means:
        note += " F1 of a data set is that of its mean precision and recall."
    rows = _score_methods(methods, videos, predictions, MAIN, False, protocol)
    tables = [Table(f"EgoProceL, protocol: {protocol.name}, K = {NUM_CLUSTERS}, {MAIN.name}", rows, [note])]
    for averaging in AVERAGINGS if protocol == CORRECTED else ():
        for true_number in (False, True):
            if (averaging, true_number) == (MAIN, False):
                continue  # the main table
            count = "the true number" if true_number else f"{NUM_CLUSTERS}"
            rows = _score_methods(methods, videos, predictions, averaging, true_number, protocol)
            means = [row.select("mean") for row in rows]
            tables.append(Table(f"EgoProceL, protocol: {protocol.name}, K = {count}, {averaging.name}", means))
    return [*tables, *_detail_tables(videos, predictions, methods[0].name, protocol)]


def check_lengths(engine: Engine, videos: Sequence[EgoProceLVideo], stride: int) -> Sequence[str]:
    """Warnings about features and key-steps that do not fit the length of their video."""
    warnings = []
    for video in videos:
        duration_s = video.num_frames / video.fps
        covered_s = len(read_input_features(engine, video.features)) * stride / video.fps
        end_s = max(end_s for _, end_s, _ in video.key_steps)
        if not 1 / LENGTH_TOLERANCE < covered_s / duration_s < LENGTH_TOLERANCE:
            warnings.append(f"{video.name}: features cover {covered_s:.0f} s, the video has {duration_s:.0f} s")
        elif end_s > LENGTH_TOLERANCE * duration_s:
            warnings.append(f"{video.name}: key-steps end at {end_s:.0f} s, the video at {duration_s:.0f} s")
    return check_warnings(warnings, len(videos), "--stride and the frame rates")


def summarise(table: Table) -> dict[str, dict[str, Scores]]:
    """F1 and IoU of HiERO and of raw features on each data set, named as in the release, and overall."""
    out = {}
    for row in table.rows:
        if row.method in SUMMARY:
            columns = {RELEASE_NAMES.get(name, name): name for name in DATA_SETS if f"{name} F1" in row.scores}
            out[SUMMARY[row.method]] = {
                name: {measure: row.scores[f"{column} {measure}"] for measure in ("F1", "IoU")}
                for name, column in {**columns, "Overall": "mean"}.items()
            }
    return out


def predict(
    engine: Engine,
    video: EgoProceLVideo,
    num_clusters: int,
    method: ClusteringMethod,
    stride: int,
    seed: int,
    protocol: Protocol = CORRECTED,
) -> np.ndarray:
    """Cluster of every second frame, (num_frames // 2,). HiERO clusters level 2, before h_v."""
    features = read_input_features(engine, video.features)
    nodes, num_segments = nodes_to_cluster(engine, features, video.fps, method.raw, stride, protocol)
    labels = cluster(nodes, num_clusters, method.algorithm, kappa=KAPPA, random_state=seed)
    node = np.arange(video.num_frames // 2) * 2 // (stride * num_segments)
    predicted = labels[np.minimum(node, len(labels) - 1)]
    return np.where(node < len(labels), predicted, 0) if protocol.zero_filled else predicted


def nodes_to_cluster(
    engine: Engine, features: np.ndarray, fps: float, raw: bool, stride: int, protocol: Protocol = CORRECTED
) -> tuple[np.ndarray, int]:
    """The vectors to cluster, (N, D), and the number of segments that each stands for."""
    if raw or engine.folder is None or engine.deep_level == 0:
        return (features[2::4], 4) if protocol.sparse_segments else (features, 1)
    num_segments = 2**engine.deep_level
    clock = Clock(fps, stride * num_segments if protocol.stretched_times else stride)
    return engine.enrich(features, clock, engine.deep_level), num_segments


def score(
    predicted: np.ndarray,
    video: EgoProceLVideo,
    averaging: Averaging,
    num_clusters: int,
    protocol: Protocol = CORRECTED,
) -> dict[str, float]:
    """precision, recall, F1 and IoU of a video in 0 … 1; there is no IoU with all frames pooled."""
    if averaging.all_frames:
        accuracy = matched_accuracy(predicted, video.labels(protocol.truncated_rates))
        return {"precision": accuracy, "recall": accuracy, "F1": accuracy}
    scores = _match_key_steps(predicted, video, averaging, num_clusters, protocol)
    f1 = scores.mean_f1 if averaging.mean_f1 else scores.f1
    return {"precision": scores.precision, "recall": scores.recall, "F1": f1, "IoU": scores.iou}


def _match_key_steps(
    predicted: np.ndarray, video: EgoProceLVideo, averaging: Averaging, num_clusters: int, protocol: Protocol
) -> ProcedureScores:
    return procedure_scores(
        predicted,
        video.labels(protocol.truncated_rates),
        per_step=averaging.per_step,
        skip_background=not averaging.background,
        num_steps=video.task.num_steps + 1,  # with background
        num_clusters=num_clusters,
    )


def _score_methods(
    methods: Sequence[ClusteringMethod],
    videos: Sequence[EgoProceLVideo],
    predictions: Predictions,
    averaging: Averaging,
    true_number: bool,
    protocol: Protocol,
) -> list[Row]:
    """A row for each method. `true_number` uses as many clusters as the task has key-steps."""
    rows = []
    for method in methods:
        scores = []
        for video in videos:
            num = video.task.num_steps if true_number else NUM_CLUSTERS
            scores.append(score(predictions[method.name, video, num], video, averaging, num, protocol))
        means = _data_set_means(videos, scores, protocol.f1_of_means)
        rows.append(bootstrap_row(method.name, means, len(videos), NUM_DRAWS))
    return rows


def _data_set_means(
    videos: Sequence[EgoProceLVideo], video_scores: Sequence[dict[str, float]], f1_of_means: bool
) -> DrawnScores:
    """Mean F1 and IoU in percent over videos of a task, tasks of a data set, and data sets.

    With `f1_of_means`, F1 of a data set is that of its mean precision and recall.
    """
    measures = [name for name in ("F1", "IoU") if name in video_scores[0]]
    averaged = [*measures, "precision", "recall"]
    values = np.array([[scores[name] for name in averaged] for scores in video_scores])
    tasks = sorted({video.task for video in videos}, key=TASKS.index)
    membership = np.array([[video.task == task for video in videos] for task in tasks], dtype=float)
    data_sets = [name for name in DATA_SETS if any(task.data_set == name for task in tasks)]

    def compute_scores(weights: np.ndarray) -> dict[str, np.ndarray]:
        task_weights = membership * weights[:, None]  # (D, tasks, V)
        # A draw may hold no video of a task or of a data set: its mean is NaN.
        task_means = _mean_or_nan(task_weights @ values, task_weights.sum(2, keepdims=True))
        set_means = []
        for name in data_sets:
            of_set = task_means[:, [task.data_set == name for task in tasks]]
            set_means.append(_mean_or_nan(np.nansum(of_set, axis=1), (~np.isnan(of_set)).sum(1)))
        means = np.stack(set_means, axis=1)
        if f1_of_means:
            means[..., 0] = harmonic_mean(means[..., -2], means[..., -1])
        is_drawn = ~np.isnan(means).all(2, keepdims=True)
        overall = _mean_or_nan(np.where(is_drawn, means, 0.0).sum(1), is_drawn.sum(1))
        out = {f"mean {measure}": 100 * overall[:, j] for j, measure in enumerate(measures)}
        for i, name in enumerate(data_sets):
            out |= {f"{name} {measure}": 100 * means[:, i, j] for j, measure in enumerate(measures)}
        return out

    return compute_scores


def _mean_or_nan(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def _detail_tables(
    videos: Sequence[EgoProceLVideo], predictions: Predictions, method: str, protocol: Protocol
) -> list[Table]:
    """Scores of one method with the main averaging for each data set, task, video and key-step."""
    video_rows, task_rows, step_rows = [], [], []
    set_scores: dict[str, list[Scores]] = {name: [] for name in DATA_SETS}
    for task in dict.fromkeys(video.task for video in videos):
        task_scores: list[Scores] = []
        step_scores: dict[int, list[Scores]] = {}
        for video in (video for video in videos if video.task == task):
            predicted = predictions[method, video, NUM_CLUSTERS]
            scores = score(predicted, video, MAIN, NUM_CLUSTERS, protocol)
            task_scores.append({name: 100 * value for name, value in scores.items()})
            video_rows.append(Row(f"{task.name}: {video.name}", task_scores[-1]))
            for step, scores in _match_key_steps(predicted, video, MAIN, NUM_CLUSTERS, protocol).key_steps.items():
                step_scores.setdefault(step, []).append({name: 100 * value for name, value in scores.items()})
        means = _means(task_scores)
        means["F1 of means"] = 100 * harmonic_mean(means["precision"] / 100, means["recall"] / 100)
        set_scores[task.data_set].append(means)
        task_rows.append(Row(f"{task.data_set}: {task.name} ({len(task_scores)} of {task.num_videos} videos)", means))
        for step, each_video in sorted(step_scores.items()):
            name = "background" if step == 0 else f"key-step {step}"
            step_rows.append(Row(f"{task.name}: {name}", _means(each_video)))
    set_rows = [Row(name, _means(each_task)) for name, each_task in set_scores.items() if each_task]
    tables = {"data sets": set_rows, "tasks": task_rows, "videos": video_rows, "key-steps": step_rows}
    return [Table(f"{method}: {name}", rows) for name, rows in tables.items()]


def _means(rows: Sequence[Scores]) -> Scores:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
