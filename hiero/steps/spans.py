"""When? Spans of a video that could be a step, and how well each answers a text.

The paper ranks runs of threads by the mean of their similarity with the text (`ground`). Here candidates are contiguous pieces at
several granularities, and the text spreads one unit of belief over the nodes, as it does in training (t2v):

    p = softmax(similarity / τ) over the video,      score of [a, b) = Σ_{a ≤ i < b} pᵢ / (b − a + c)

A short span holds little belief, a long one pays for its length; c keeps very short ones from winning. On CaptainCook4D this finds
more than runs of threads do (docs/results.md).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hiero.steps.pieces import cut_pieces

LENGTHS_S = (25.0, 40.0, 60.0, 90.0, 140.0)  # usual lengths of a step, fine to coarse
SHORT_S = 600.0  # shorter videos have shorter steps, in proportion
TEMPERATURE = 0.1  # of cosines; twice the one that models are trained with
SMALL_S = 30.0  # c
OVERLAP = 0.3  # answers to one question overlap less than this


def candidate_spans(nodes: np.ndarray, spacing_s: float) -> np.ndarray:
    """Nodes (T, E) → spans [a, b) in nodes, (N, 2), ordered: pieces of the video at five granularities."""
    duration_s = len(nodes) * spacing_s
    shrink = min(1.0, duration_s / SHORT_S)
    found: set[tuple[int, int]] = {(0, len(nodes))}
    for length_s in LENGTHS_S:
        num = min(len(nodes), max(1, round(duration_s / (length_s * shrink))))
        found.update(pairwise(cut_pieces(nodes, num)))
    return np.array(sorted(found))


def rank_spans(
    similarity: np.ndarray, spans: np.ndarray, spacing_s: float, *, num: int = 5, temperature: float = TEMPERATURE
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The best spans for each text: similarity (Q, T) → for each text the places of up to `num` spans and their scores."""
    small = min(SMALL_S / spacing_s, 0.04 * similarity.shape[1])
    belief = np.exp((similarity - similarity.max(1, keepdims=True)) / temperature)
    scores = sum_over(belief / belief.sum(1, keepdims=True), spans) / (spans[:, 1] - spans[:, 0] + small)
    return [apart(spans, row, num) for row in scores]


def sum_over(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Sum of (Q, T) over the nodes of each span [a, b), (Q, N)."""
    total = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)], axis=1)
    return total[:, spans[:, 1]] - total[:, spans[:, 0]]


def apart(spans: np.ndarray, scores: np.ndarray, num: int, overlap: float = OVERLAP) -> tuple[np.ndarray, np.ndarray]:
    """Places and scores of the best spans whose IoU with each other is at most `overlap`: greedy, best first."""
    left = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    while len(left) and len(kept) < num:
        best = int(left[0])
        kept.append(best)
        left = left[_overlap(spans[best], spans[left]) <= overlap]
    places = np.array(kept)
    return places, scores[places]


def _overlap(span: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of one span with others."""
    inter = np.maximum(np.minimum(span[1], others[:, 1]) - np.maximum(span[0], others[:, 0]), 0)
    return inter / (span[1] - span[0] + others[:, 1] - others[:, 0] - inter)
