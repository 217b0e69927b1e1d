"""Scores, as the official evaluators compute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment


def interval_iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of intervals (…, 2) and (…, 2), as Ego4D computes it: the union is the hull of both."""
    overlap = np.minimum(a[..., 1], b[..., 1]) - np.maximum(a[..., 0], b[..., 0])
    hull = np.maximum(a[..., 1], b[..., 1]) - np.minimum(a[..., 0], b[..., 0])
    return np.maximum(0.0, overlap) / np.where(hull > 0, hull, 1.0)


def grounding_recall(
    predicted: Sequence[np.ndarray],
    truth: np.ndarray,
    thresholds: Sequence[float] = (0.3, 0.5),
    top: Sequence[int] = (1, 5),
) -> np.ndarray:
    """Share of queries with one of their first k spans above the IoU threshold (strictly, as Ego4D counts), (thresholds, top).

    predicted: for each query its ranked spans (n, 2); truth (Q, 2).
    """
    hits = np.zeros((len(thresholds), len(top)))
    for spans, true in zip(predicted, truth, strict=True):
        overlap = interval_iou(np.asarray(spans, dtype=float).reshape(-1, 2), np.asarray(true, dtype=float))
        for j, k in enumerate(top):
            best = overlap[:k].max(initial=0.0)
            hits[:, j] += [best > threshold for threshold in thresholds]
    return hits / max(1, len(truth))


def mean_first_iou(predicted: Sequence[np.ndarray], truth: np.ndarray) -> float:
    """Ego4D's mIoU: the mean over queries of the IoU of their first span."""
    first = np.array([np.asarray(spans, dtype=float).reshape(-1, 2)[:1].sum(0) for spans in predicted])  # zeros where there is none
    return float(interval_iou(first, np.asarray(truth, dtype=float)).mean())


@dataclass(frozen=True)
class ProcedureScores:
    """How well clusters find key-steps. `coverage` is the share of the truth that found a partner."""

    precision: float
    recall: float
    iou: float
    f1: float
    """Of the two means above."""
    mean_f1: float
    """The mean of the key-steps' own F1."""
    coverage: float


def procedure_scores(
    predicted: np.ndarray,
    truth: np.ndarray,
    *,
    per_step: bool = True,
    skip_background: bool = False,
    num_steps: int | None = None,
    num_clusters: int | None = None,
) -> ProcedureScores:
    """EgoProceL's scores of a video: clusters are matched one to one with key-steps by their overlap (Hungarian), then compared.

    predicted, truth (T,): cluster and key-step of each frame; truth 0 is background. `per_step` averages over matched key-steps
    that occur, otherwise their frames are pooled. `skip_background` leaves background out of the matching (its frames still
    count against precision). num_steps and num_clusters, where more exist than occur, decide between equally good matchings only.
    """
    scores, coverage = _compare(predicted, truth, per_step, skip_background, num_steps, num_clusters)
    if not len(scores):
        return ProcedureScores(0.0, 0.0, 0.0, 0.0, 0.0, coverage)
    precision, recall, iou = scores[:, :3].mean(0).tolist()
    return ProcedureScores(precision, recall, iou, harmonic_mean(precision, recall), float(scores[:, 3].mean()), coverage)


def key_step_scores(predicted: np.ndarray, truth: np.ndarray, **options: int | None) -> dict[int, dict[str, float]]:
    """precision, recall, iou and f1 of each key-step that occurs and found a partner."""
    scores, _ = _compare(predicted, truth, True, False, options.get("num_steps"), options.get("num_clusters"))
    return {int(row[4]): dict(zip(("precision", "recall", "iou", "f1"), row[:4].tolist(), strict=True)) for row in scores}


def harmonic_mean(precision: float, recall: float) -> float:
    return 2 * precision * recall / max(precision + recall, 1e-12)


def _compare(
    predicted: np.ndarray, truth: np.ndarray, per_step: bool, skip_background: bool, num_steps: int | None, num_clusters: int | None
) -> tuple[np.ndarray, float]:
    """precision, recall, IoU, F1 and number of each matched key-step that occurs (n, 5), or of all together; and the coverage."""
    num = max(num_steps or 0, int(truth.max()) + 1)
    overlap = np.zeros((num, max(num_clusters or 0, int(predicted.max()) + 1)))
    np.add.at(overlap, (truth, predicted), 1)
    size = overlap.sum(0)  # of each cluster
    if skip_background:
        overlap = overlap[1:]
    # In single precision, as the official code has it: rounding decides between matchings that are equally good.
    steps, clusters = linear_sum_assignment(np.float32(1) - overlap.astype(np.float32) / np.float32(len(truth)))
    both, true, found = overlap[steps, clusters], overlap.sum(1)[steps], size[clusters]
    coverage = float(true.sum() / len(truth))
    if not per_step:
        both, true, found, steps = (np.array([part.sum()]) for part in (both, true, found, steps))
    here = true > 0
    both, true, found, steps = both[here], true[here], found[here], steps[here] + skip_background
    precision, recall = np.where(found > 0, both / np.maximum(found, 1), 0), both / true
    f1 = 2 * both / (true + found)
    return np.stack([precision, recall, both / (true + found - both), f1, steps], axis=1), coverage


def matched_accuracy(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Share of all frames whose cluster is the partner of their key-step; with all frames pooled, precision = recall = F1."""
    overlap = np.zeros((int(predicted.max()) + 1, int(truth.max()) + 1))
    np.add.at(overlap, (predicted, truth), 1)
    return float(overlap[linear_sum_assignment(-overlap)].sum() / len(truth))


def choice_accuracy(similarity: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Whether the choice that is most like its query is the answer: similarity (Q, C), answers (Q,) → (Q,) of 0 and 1."""
    return (similarity.argmax(1) == answers).astype(float)


THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)  # tIoU


@dataclass(frozen=True)
class Detections:
    """Spans of one video with labels; predictions have scores too. start_s, end_s, label, score (N,)."""

    spans: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


def top_hits(scores: np.ndarray, truth: np.ndarray, tops: Sequence[int]) -> np.ndarray:
    """Whether the true class is among the best k: scores (N, C), truth (N,) → (N, tops) of 0 and 1."""
    better = (scores > scores[np.arange(len(truth)), truth][:, None]).sum(1)
    return np.stack([better < k for k in tops], axis=1).astype(float)


@dataclass(frozen=True)
class Matched:
    """Predictions of one class, best first: whether each found a true span at each threshold (P, thresholds), and its video."""

    hits: np.ndarray
    videos: np.ndarray
    truths: np.ndarray
    """Number of true spans in each video (V,)."""


def match_detections(
    truth: Sequence[Detections], predicted: Sequence[Detections], thresholds: Sequence[float] = THRESHOLDS
) -> dict[int, Matched]:
    """For each class that occurs in the truth: its predictions over all videos, compared as ActivityNet does.

    truth, predicted: one for each video. A true span is found once, by the best prediction that overlaps it enough (tIoU ≥
    threshold). Repeated true spans, and those shorter than a millisecond, count once or not at all.
    """
    truth = [_without_repetitions(one) for one in truth]
    out = {}
    for label in sorted({int(label) for one in truth for label in one.labels}):
        hits, videos, scores = [], [], []
        for video, (true, found) in enumerate(zip(truth, predicted, strict=True)):
            mine = np.flatnonzero(found.labels == label)
            mine = mine[np.argsort(-found.scores[mine], kind="stable")]
            hits.append(_match(true.spans[true.labels == label], found.spans[mine], thresholds))
            videos.append(np.full(len(mine), video))
            scores.append(found.scores[mine])
        order = np.argsort(-np.concatenate(scores), kind="stable")
        truths = np.array([(one.labels == label).sum() for one in truth])
        out[label] = Matched(np.concatenate(hits)[order], np.concatenate(videos)[order], truths)
    return out


def average_precision(matched: Matched, weights: np.ndarray | None = None) -> np.ndarray:
    """All-point interpolated AP at each threshold. weights (V,): how often each video counts."""
    weights = np.ones(len(matched.truths)) if weights is None else weights
    num = float(matched.truths @ weights)
    if not num or not len(matched.hits):
        return np.zeros(matched.hits.shape[1])
    weight = weights[matched.videos][:, None]
    right, tried = np.cumsum(matched.hits * weight, axis=0), np.cumsum(np.broadcast_to(weight, matched.hits.shape), axis=0)
    precision = np.divide(right, tried, out=np.zeros_like(right), where=tried > 0)
    precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    return (np.diff(right / num, axis=0, prepend=0) * precision).sum(0)


def mean_average_precision(matched: Mapping[int, Matched], weights: np.ndarray | None = None) -> np.ndarray:
    """Mean over the classes that occur, at each threshold."""
    here = [one for one in matched.values() if weights is None or one.truths @ weights > 0]
    if not here:
        return np.full(next((one.hits.shape[1] for one in matched.values()), len(THRESHOLDS)), np.nan)
    return np.mean([average_precision(one, weights) for one in here], axis=0)


def _match(true: np.ndarray, found: np.ndarray, thresholds: Sequence[float]) -> np.ndarray:
    hits = np.zeros((len(found), len(thresholds)))
    if not len(true) or not len(found):
        return hits
    overlap = np.minimum(found[:, None, 1], true[None, :, 1]) - np.maximum(found[:, None, 0], true[None, :, 0])
    overlap = np.maximum(overlap, 0)
    sizes = (found[:, 1] - found[:, 0])[:, None] + (true[:, 1] - true[:, 0])[None]
    tiou = overlap / np.maximum(sizes - overlap, 1e-12)
    for j, threshold in enumerate(thresholds):
        free = np.ones(len(true), dtype=bool)
        for i in range(len(found)):
            best = int(np.where(free, tiou[i], -1.0).argmax())
            if free[best] and tiou[i, best] >= threshold:
                hits[i, j], free[best] = 1.0, False
    return hits


def _without_repetitions(truth: Detections, tolerance_s: float = 1e-3) -> Detections:
    keep: list[int] = []
    for i, (start, end) in enumerate(truth.spans):
        again = any(
            truth.labels[i] == truth.labels[j] and np.abs(truth.spans[j] - truth.spans[i]).max() <= tolerance_s for j in keep
        )
        if end - start >= tolerance_s and not again:
            keep.append(i)
    return Detections(truth.spans[keep].reshape(-1, 2), truth.labels[keep], truth.scores[keep])
