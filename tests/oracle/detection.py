"""Average precision of one set of videos at a time, one class, video and prediction after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hiero.evaluation.metrics import Detections


def plain_average_precision(
    truth: Sequence[Detections], predicted: Sequence[Detections], label: int, threshold: float
) -> float | None:
    """All-point interpolated AP of a class; None where it does not occur."""
    rows = []  # score, whether a true span was found
    num_true = 0
    for true, candidates in zip(truth, predicted, strict=True):
        spans = [span for span, other in zip(true.spans, true.labels, strict=True) if other == label]
        num_true += len(spans)
        found: set[int] = set()
        mine = [i for i in range(len(candidates.labels)) if candidates.labels[i] == label]
        for i in sorted(mine, key=lambda i: -candidates.scores[i]):
            start, end = candidates.spans[i]
            ious = []
            for j, (a, b) in enumerate(spans):
                overlap = max(0.0, min(end, b) - max(start, a))
                ious.append(-1.0 if j in found else overlap / max((end - start) + (b - a) - overlap, 1e-12))
            best = int(np.argmax(ious)) if ious else -1
            hit = best >= 0 and best not in found and ious[best] >= threshold
            found |= {best} if hit else set()
            rows.append((candidates.scores[i], hit))
    if not num_true:
        return None
    hits = [hit for _, hit in sorted(rows, key=lambda row: -row[0])]
    precision = [sum(hits[: i + 1]) / (i + 1) for i in range(len(hits))]
    return sum(max(precision[i:]) for i, hit in enumerate(hits) if hit) / num_true


def plain_mean_average_precision(
    truth: Sequence[Detections], predicted: Sequence[Detections], thresholds: Sequence[float]
) -> np.ndarray:
    """Mean over the classes that occur, at each threshold."""
    labels = sorted({int(label) for detections in truth for label in detections.labels})
    return np.array(
        [np.mean([plain_average_precision(truth, predicted, label, t) for label in labels]) for t in thresholds]
    )
