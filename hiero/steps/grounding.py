"""Step grounding: when does a video show what a text says?

The paper ranks runs of threads by the mean of their similarity with the text (`thread_runs`). We
use contiguous segments at several granularities (`candidate_spans`, `rank_spans`), and a text that
distributes one unit of probability over the nodes, as in training (t2v):

    p = softmax(similarity / τ) over the video,      score of [a, b) = Σ_{a ≤ i < b} pᵢ / (b − a + c)

A short span holds little probability and a long one pays for its length; c penalises very short spans.
On CaptainCook4D this finds more steps than runs of threads (docs/results.md).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hiero.steps.clustering import cluster
from hiero.steps.segmentation import LENGTH_PRIOR, cut_at_granularities, label_runs

LENGTHS_S = (25.0, 40.0, 60.0, 90.0, 140.0)  # usual lengths of a step, fine to coarse
SHORT_VIDEO_S = 600.0  # below this duration, the lengths of steps shrink in proportion
TEMPERATURE = 0.1  # temperature of cosines, twice that of training
LENGTH_OFFSET_S = 30.0  # c
LENGTH_OFFSET_SHARE = 0.04  # c is at most this share of the video
CHUNK_SIZE = 2**18  # entries of the cumulative sums that are computed at once
ROWS_AT_ONCE = 256  # texts whose moving means are in memory together
MAX_IOU = 0.3  # largest overlap between the answers to one question
MAX_OVERLAP = 0.5  # share of the shorter one above which two spans are the same moment


def thread_runs(
    nodes: np.ndarray,
    num_threads: int,
    *,
    kappa: float = 0.05,
    min_nodes: int = 5,
    random_state: int = 0,
    clustering: str = "spectral",
) -> np.ndarray:
    """Runs [start, end) of the threads of the nodes (T, E) in time order, (R, 2)."""
    labels = cluster(nodes, num_threads, clustering, kappa=kappa, random_state=random_state)
    return label_runs(labels, min_nodes)


def candidate_spans(nodes: np.ndarray, spacing_s: float, length_prior: float = LENGTH_PRIOR) -> np.ndarray:
    """Candidate spans of steps: contiguous segments at five granularities, (N, 2)."""
    duration_s = len(nodes) * spacing_s
    shrink = min(1.0, duration_s / SHORT_VIDEO_S)
    spans: set[tuple[int, int]] = {(0, len(nodes))}
    nums = [min(len(nodes), max(1, round(duration_s / (length_s * shrink)))) for length_s in LENGTHS_S]
    for boundaries in cut_at_granularities(nodes, nums, length_prior=length_prior):
        spans.update(pairwise(boundaries))
    return np.array(sorted(spans))


def rank_spans(
    similarity: np.ndarray, spans: np.ndarray, spacing_s: float, *, num: int = 5, temperature: float = TEMPERATURE
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices and scores of the best spans for each text."""
    return [nms(spans, row, num) for row in score_spans(similarity, spans, spacing_s, temperature)]


def score_spans(
    similarity: np.ndarray, spans: np.ndarray, spacing_s: float, temperature: float = TEMPERATURE
) -> np.ndarray:
    """Score of each span for each text, (Q, N)."""
    offset = min(LENGTH_OFFSET_S / spacing_s, LENGTH_OFFSET_SHARE * similarity.shape[1])
    weights = np.exp((similarity - similarity.max(1, keepdims=True)) / temperature)
    return np.asarray(span_sums(weights / weights.sum(1, keepdims=True), spans) / (spans[:, 1] - spans[:, 0] + offset))


def span_sums(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Sum of (Q, T) over the nodes of each span [start, end), (Q, N)."""
    out = np.empty((len(rows), len(spans)))
    num_rows = max(1, CHUNK_SIZE // max(1, rows.shape[1]))
    # A few texts at a time, so that their sums stay in the processor's cache
    for start in range(0, len(rows), num_rows):
        part = rows[start : start + num_rows]
        total = np.zeros((len(part), rows.shape[1] + 1))
        np.cumsum(part, axis=1, out=total[:, 1:])
        out[start : start + num_rows] = total[:, spans[:, 1]] - total[:, spans[:, 0]]
    return out


def span_means(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Mean of (Q, T) over the nodes of each span [start, end), (Q, N)."""
    return span_sums(rows, spans) / (spans[:, 1] - spans[:, 0])


def mean_rows(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Mean of (T, D) over each span [start, end), (N, D)."""
    return span_means(rows.T, spans).T


def span_peaks(rows: np.ndarray, spans: np.ndarray, num: int) -> np.ndarray:
    """Mean of (Q, T) over the best `num` neighbouring nodes inside each span, or all of a shorter one, (Q, N)."""
    starts = np.arange(max(0, rows.shape[1] - num) + 1)
    windows = np.stack([starts, np.minimum(starts + num, rows.shape[1])], axis=1)
    peaks = span_means(rows, spans)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        means = span_means(rows[part], windows)
        for i, (first, end) in enumerate(spans):
            if end - first > num:
                peaks[part, i] = means[:, first : end - num + 1].max(1)
    return peaks


def nms(spans: np.ndarray, scores: np.ndarray, num: int, max_iou: float = MAX_IOU) -> tuple[np.ndarray, np.ndarray]:
    """Non-maximum suppression: greedily choose the best spans whose IoU is at most `max_iou`."""
    remaining = np.argsort(-scores, kind="stable")
    chosen: list[int] = []
    while len(remaining) and len(chosen) < num:
        best = int(remaining[0])
        chosen.append(best)
        (start, end), others = spans[best], spans[remaining]
        intersection = np.maximum(np.minimum(end, others[:, 1]) - np.maximum(start, others[:, 0]), 0)
        iou = intersection / (end - start + others[:, 1] - others[:, 0] - intersection)
        remaining = remaining[iou <= max_iou]
    indices = np.array(chosen)
    return indices, scores[indices]


def distinct_spans(spans: np.ndarray, scores: np.ndarray, num: int) -> list[int]:
    """Choose the best spans greedily, without any that covers half of a better one or lies half inside it.

    This is stricter than `nms`, which keeps a short span inside a long one.
    """
    chosen: list[int] = []
    remaining = np.argsort(-scores, kind="stable")
    lengths = spans[:, 1] - spans[:, 0]
    while len(remaining) and len(chosen) < num:
        best = int(remaining[0])
        chosen.append(best)
        common = np.minimum(spans[best, 1], spans[remaining, 1]) - np.maximum(spans[best, 0], spans[remaining, 0])
        remaining = remaining[common < MAX_OVERLAP * np.minimum(lengths[best], lengths[remaining])]
    return chosen


def same_moments(spans: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Which steps [start, end), (S, 2), happen at each span, (N, 2), as (N, S).

    Steps that are not longer than the span happen at it if most of them lies inside. Of those that
    contain most of the span, only the shortest does: a longer one may show something elsewhere. The
    steps cover the video.
    """
    common = np.minimum(spans[:, None, 1], steps[:, 1]) - np.maximum(spans[:, None, 0], steps[:, 0])
    lengths = steps[:, 1] - steps[:, 0]
    span_lengths = spans[:, 1:] - spans[:, :1]
    is_inside = (lengths <= span_lengths) & (common >= MAX_OVERLAP * lengths)
    contains = common >= MAX_OVERLAP * span_lengths
    shortest = np.where(contains, lengths, np.inf).min(1, keepdims=True)
    return np.asarray(is_inside | (contains & (lengths == shortest)))
