"""Scores that several benchmarks share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hiero.evaluation.metrics import interval_iou
from hiero.types import AnnotatedStep

MIN_IOU = 0.3
NUM_BINS = 10
NUM_RESAMPLES = 2000


def segmental_f1(named: Sequence[tuple[float, float, str]], steps: Sequence[AnnotatedStep]) -> float:
    """F1 of named spans: one is right if an unused true step of its name has an IoU above MIN_IOU with it."""
    used: set[int] = set()
    for start_s, end_s, text in named:
        ious = [
            (float(interval_iou(np.array([[start_s, end_s]]), np.array([step.start_s, step.end_s]))[0]), i)
            for i, step in enumerate(steps)
            if step.text == text and i not in used
        ]
        if ious and max(ious)[0] > MIN_IOU:
            used.add(max(ious)[1])
    return 2 * len(used) / (len(named) + len(steps))


def share_of_time(spans: np.ndarray, truth: np.ndarray) -> float:
    """Share of the true time that has the right step, for one span of seconds of each step."""
    common = np.minimum(spans[:, 1], truth[:, 1]) - np.maximum(spans[:, 0], truth[:, 0])
    return float(np.maximum(common, 0).sum() / (truth[:, 1] - truth[:, 0]).sum())


def bootstrap(values: np.ndarray, owners: Sequence[object] | None = None) -> tuple[float, float, float]:
    """Mean of (N,) values and its 95 % interval over their owners, by default over the values themselves."""
    values = np.asarray(values, dtype=float)
    names, index = np.unique(np.arange(len(values)) if owners is None else np.array(owners), return_inverse=True)
    sums, counts = np.bincount(index, values), np.bincount(index)
    drawn = np.random.default_rng(0).integers(len(names), size=(NUM_RESAMPLES, len(names)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(values.mean()), float(low), float(high)


def percent(values: np.ndarray | Sequence[float], owners: Sequence[object] | None = None, digits: int = 1) -> str:
    """Mean in percent with its 95 % interval."""
    mean, low, high = (100 * value for value in bootstrap(np.asarray(values), owners))
    return f"{mean:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def fit_logistic(x: np.ndarray, y: np.ndarray, weights: np.ndarray, penalty: float = 0.1) -> np.ndarray:
    """Slopes and offset of a logistic regression, by Newton's method."""
    ones = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    beta = np.zeros(ones.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-ones @ beta))
        gradient = ones.T @ (weights * (p - y)) + penalty * np.append(beta[:-1], 0)
        hessian = (ones * (weights * p * (1 - p))[:, None]).T @ ones + penalty * np.diag([*[1.0] * x.shape[1], 1e-6])
        beta -= np.linalg.solve(hessian, gradient)
    return beta


def auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """Share of the pairs of a positive and a negative example that are in the right order."""
    positive, negative = scores[truth == 1][:, None], scores[truth == 0][None]
    return float((positive > negative).mean() + 0.5 * (positive == negative).mean())


def bins(probability: np.ndarray) -> Iterator[tuple[float, float, np.ndarray]]:
    """Bounds in percent and members of the bins of equal width that are not empty."""
    index = np.minimum((probability * NUM_BINS).astype(int), NUM_BINS - 1)
    for i in range(NUM_BINS):
        if (index == i).any():
            yield 100 * i / NUM_BINS, 100 * (i + 1) / NUM_BINS, index == i


def calibration_error(probability: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
    """Expected calibration error: difference of probability and frequency, over bins."""
    gaps = weights * (probability - truth)
    return float(sum(abs(gaps[inside].sum()) for *_, inside in bins(probability)) / weights.sum())
