"""Metrics, as the official evaluators compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.optimize import linear_sum_assignment

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)  # tIoU of step localization
MIN_DENOMINATOR = 1e-12
MIN_DEVIATION = 1e-6
PROBE_WEIGHT_DECAY = 1e-3
FloatOrArray = TypeVar("FloatOrArray", float, np.ndarray)
SAME_SPAN_S = 1e-3  # true spans closer than this are duplicates, and shorter ones are ignored


# Step grounding


def interval_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of intervals (…, 2), with the hull as union, as Ego4D computes it."""
    overlap = np.minimum(a[..., 1], b[..., 1]) - np.maximum(a[..., 0], b[..., 0])
    hull = np.maximum(a[..., 1], b[..., 1]) - np.minimum(a[..., 0], b[..., 0])
    return np.maximum(0.0, overlap) / np.where(hull > 0, hull, 1.0)


def grounding_recall(predicted: Sequence[np.ndarray], truth: np.ndarray) -> np.ndarray:
    """Share of queries with one of their first 1 or 5 spans above an IoU of 0.3 or 0.5 (strictly, as in Ego4D)."""
    return query_hits(predicted, truth).sum(0) / max(1, len(truth))


def query_hits(
    predicted: Sequence[np.ndarray],
    truth: np.ndarray,
    thresholds: Sequence[float] = (0.3, 0.5),
    top: Sequence[int] = (1, 5),
) -> np.ndarray:
    """Whether each query has one of its first k spans above an IoU threshold, (Q, thresholds, top)."""
    depth = max(top)
    spans = np.full((len(predicted), depth, 2), np.nan)
    for row, query_spans in zip(spans, predicted, strict=True):
        first = np.asarray(query_spans, dtype=float).reshape(-1, 2)[:depth]
        row[: len(first)] = first
    truth = np.asarray(truth, dtype=float).reshape(-1, 1, 2)
    if len(truth) != len(spans):
        raise ValueError(f"predicted and truth must have equal length, got {len(spans)} and {len(truth)}")
    # Best IoU among the first k, (Q, depth)
    best = np.maximum.accumulate(np.nan_to_num(interval_iou(spans, truth), nan=0.0), axis=1)
    return np.stack([best[:, [k - 1 for k in top]] > threshold for threshold in thresholds], axis=1)


def first_iou(predicted: Sequence[np.ndarray], truth: np.ndarray) -> np.ndarray:
    """IoU of the first span of each query, (Q,). The mean is Ego4D's mIoU."""
    # Summing at most one span gives zeros for a query without spans.
    first = np.array([np.asarray(spans, dtype=float).reshape(-1, 2)[:1].sum(0) for spans in predicted])
    return interval_iou(first, np.asarray(truth, dtype=float))


# Procedure learning


@dataclass(frozen=True)
class ProcedureScores:
    """How well clusters find key-steps: means over the matched key-steps, or scores of their pooled frames.

    `key_steps` holds precision, recall, iou and f1 of each matched key-step that occurs.
    """

    precision: float
    recall: float
    iou: float
    f1: float
    mean_f1: float
    coverage: float
    key_steps: dict[int, dict[str, float]]


def procedure_scores(
    predicted: np.ndarray,
    truth: np.ndarray,
    *,
    per_step: bool = True,
    skip_background: bool = False,
    num_steps: int | None = None,
    num_clusters: int | None = None,
) -> ProcedureScores:
    """EgoProceL's scores of a video. Clusters are matched with key-steps by overlap (Hungarian)."""
    # Number of frames that each key-step shares with each cluster
    overlap = np.zeros((max(num_steps or 0, int(truth.max()) + 1), max(num_clusters or 0, int(predicted.max()) + 1)))
    np.add.at(overlap, (truth, predicted), 1)
    cluster_sizes = overlap.sum(0)
    if skip_background:
        overlap = overlap[1:]
    # Single precision, as in the official code: rounding decides between equally good matchings.
    steps, clusters = linear_sum_assignment(np.float32(1) - overlap.astype(np.float32) / np.float32(len(truth)))
    shared, step_size, cluster_size = overlap[steps, clusters], overlap.sum(1)[steps], cluster_sizes[clusters]
    coverage = float(step_size.sum() / len(truth))
    if not per_step:
        shared, step_size, cluster_size, steps = (np.array([x.sum()]) for x in (shared, step_size, cluster_size, steps))
    occurs = step_size > 0
    shared, step_size, cluster_size, steps = shared[occurs], step_size[occurs], cluster_size[occurs], steps[occurs]
    if not len(steps):
        return ProcedureScores(0.0, 0.0, 0.0, 0.0, 0.0, coverage, {})
    precisions = np.where(cluster_size > 0, shared / np.maximum(cluster_size, 1), 0)
    ious, f1s = shared / (step_size + cluster_size - shared), 2 * shared / (step_size + cluster_size)
    scores = np.stack([precisions, shared / step_size, ious, f1s], axis=1)
    precision, recall, iou = scores[:, :3].mean(0).tolist()
    f1, mean_f1 = harmonic_mean(precision, recall), float(scores[:, 3].mean())
    names = ("precision", "recall", "iou", "f1")
    key_steps = {
        int(step): dict(zip(names, row, strict=True))
        for step, row in zip(steps + skip_background, scores.tolist(), strict=True)
    }
    return ProcedureScores(precision, recall, iou, f1, mean_f1, coverage, key_steps)


def harmonic_mean(precision: FloatOrArray, recall: FloatOrArray) -> FloatOrArray:
    """F1 of numbers or arrays."""
    return 2 * precision * recall / np.maximum(precision + recall, MIN_DENOMINATOR)


def matched_accuracy(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Share of frames whose cluster is matched with their key-step (precision = recall = F1)."""
    overlap = np.zeros((int(predicted.max()) + 1, int(truth.max()) + 1))
    np.add.at(overlap, (predicted, truth), 1)
    return float(overlap[linear_sum_assignment(-overlap)].sum() / len(truth))


# Multiple choice and classification


def choice_accuracy(similarity: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Whether the most similar choice is the answer: similarity (Q, C), answers (Q,) → (Q,) of 0 and 1."""
    return (similarity.argmax(1) == answers).astype(float)


def top_hits(scores: np.ndarray, truth: np.ndarray, tops: Sequence[int]) -> np.ndarray:
    """Whether the true class is among the best k: scores (N, C), truth (N,) → (N, tops) of 0 and 1."""
    num_better = (scores > scores[np.arange(len(truth)), truth][:, None]).sum(1)
    return np.stack([num_better < k for k in tops], axis=1).astype(float)


# Step localization


@dataclass(frozen=True)
class Detections:
    """Labelled spans of one video, true or predicted."""

    spans: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class ClassMatches:
    """Predictions of one class in all V videos, best first, matched with the true spans."""

    hits: np.ndarray
    videos: np.ndarray
    num_true: np.ndarray


def match_detections(
    truth: Sequence[Detections], predicted: Sequence[Detections], thresholds: Sequence[float] = THRESHOLDS
) -> dict[int, ClassMatches]:
    """Match predictions with true spans as ActivityNet does.

    A true span is found once, by the best prediction with tIoU ≥ threshold. Duplicate true spans
    count once, and those shorter than a millisecond are ignored.
    """
    truth = [_drop_repeated(detections) for detections in truth]
    # All predictions, sorted by class, then video, then score
    labels = np.concatenate([candidates.labels for candidates in predicted])
    videos = np.repeat(np.arange(len(predicted)), [len(candidates.labels) for candidates in predicted])
    scores = np.concatenate([candidates.scores for candidates in predicted])
    spans = np.concatenate([candidates.spans.reshape(-1, 2) for candidates in predicted])
    order = np.lexsort((-scores, videos, labels))
    labels, videos, scores, spans = labels[order], videos[order], scores[order], spans[order]
    true_spans: dict[int, dict[int, list[np.ndarray]]] = {}
    for video, detections in enumerate(truth):
        for label, span in zip(detections.labels.tolist(), detections.spans, strict=True):
            true_spans.setdefault(label, {}).setdefault(video, []).append(span)
    out = {}
    for label in sorted(true_spans):
        of_class = slice(*np.searchsorted(labels, [label, label + 1]))
        hits, num_true = np.zeros((of_class.stop - of_class.start, len(thresholds))), np.zeros(len(truth), dtype=int)
        for video, true in true_spans[label].items():
            of_video = slice(*np.searchsorted(videos[of_class], [video, video + 1]))
            hits[of_video] = _match_spans(np.array(true), spans[of_class][of_video], thresholds)
            num_true[video] = len(true)
        best = np.argsort(-scores[of_class], kind="stable")
        out[label] = ClassMatches(hits[best], videos[of_class][best], num_true)
    return out


def average_precision(matches: ClassMatches, weights: np.ndarray | None = None) -> np.ndarray:
    """All-point interpolated AP of one class."""
    weights = np.ones(len(matches.num_true)) if weights is None else weights
    num_true = np.asarray(weights @ matches.num_true, dtype=float)
    out = np.zeros((*num_true.shape, matches.hits.shape[1]))
    has_hits = matches.hits.any(0)  # AP is 0 at the other thresholds
    if not has_hits.any():
        return out
    weight = weights[..., matches.videos, None]  # (…, P, 1)
    true_positives = np.cumsum(matches.hits[:, has_hits] * weight, axis=-2)
    num_predicted = np.cumsum(weight, axis=-2)
    precision = np.divide(true_positives, num_predicted, out=np.zeros_like(true_positives), where=num_predicted > 0)
    # Interpolated: the best precision at this or a higher recall
    precision = np.maximum.accumulate(precision[..., ::-1, :], axis=-2)[..., ::-1, :]
    area = (np.diff(true_positives, axis=-2, prepend=0) * precision).sum(-2)
    out[..., has_hits] = np.divide(area, num_true[..., None], out=np.zeros_like(area), where=num_true[..., None] > 0)
    return out


def mean_average_precision(matched: Mapping[int, ClassMatches], weights: np.ndarray | None = None) -> np.ndarray:
    """Mean AP over the classes that occur, at each threshold; NaN if none occurs."""
    if not matched:
        return np.full((*([] if weights is None else weights.shape[:-1]), len(THRESHOLDS)), np.nan)
    weights = np.ones(len(next(iter(matched.values())).num_true)) if weights is None else weights
    occurs = np.stack([weights @ matches.num_true > 0 for matches in matched.values()])  # (classes, …)
    total = sum(average_precision(matches, weights) for matches in matched.values())
    count = occurs.sum(0)[..., None]
    return np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)


def _match_spans(true: np.ndarray, predicted: np.ndarray, thresholds: Sequence[float]) -> np.ndarray:
    """Which predicted spans (P, 2), best first, find a true span (N, 2): (P, thresholds)."""
    hits = np.zeros((len(predicted), len(thresholds)))
    overlap = np.minimum(predicted[:, None, 1], true[None, :, 1]) - np.maximum(predicted[:, None, 0], true[None, :, 0])
    overlap = np.maximum(overlap, 0)
    lengths = (predicted[:, 1] - predicted[:, 0])[:, None] + (true[:, 1] - true[:, 0])[None]
    tiou = overlap / np.maximum(lengths - overlap, MIN_DENOMINATOR)
    for j, threshold in enumerate(thresholds):
        free = np.ones(len(true), dtype=bool)  # not yet found by a better prediction
        for i in range(len(predicted)):
            best = int(np.where(free, tiou[i], -1.0).argmax())
            if free[best] and tiou[i, best] >= threshold:
                hits[i, j], free[best] = 1.0, False
    return hits


def _drop_repeated(truth: Detections) -> Detections:
    same = np.abs(truth.spans[:, None] - truth.spans[None]).max(-1, initial=0.0) <= SAME_SPAN_S
    same &= truth.labels[:, None] == truth.labels[None]
    indices: list[int] = []
    for i, (start_s, end_s) in enumerate(truth.spans):
        if end_s - start_s >= SAME_SPAN_S and not same[i, indices].any():
            indices.append(i)
    return Detections(truth.spans[indices].reshape(-1, 2), truth.labels[indices], truth.scores[indices])


# Linear probe


def fit_probe(x: np.ndarray, labels: np.ndarray, num_classes: int) -> Callable[[np.ndarray], np.ndarray]:
    """Fit multinomial logistic regression on standardised features, by L-BFGS."""
    import torch
    from torch.nn import functional as F

    mean, deviation = x.mean(0), x.std(0) + MIN_DEVIATION
    inputs = torch.from_numpy((x - mean) / deviation).float()
    targets = torch.from_numpy(labels).long()
    weight = torch.zeros(num_classes, x.shape[1], requires_grad=True)
    bias = torch.zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(inputs @ weight.mT + bias, targets) + PROBE_WEIGHT_DECAY * weight.square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    fitted_weight, fitted_bias = weight.detach().numpy(), bias.detach().numpy()
    return lambda features: ((features - mean) / deviation) @ fitted_weight.T + fitted_bias
