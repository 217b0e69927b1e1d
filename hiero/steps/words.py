"""What words say about nodes: how each node of a video fits each text, from all that is known about it.

Two kinds of evidence, added. The model's own: cosines in the space that it shares with text. And classifiers': a text reads the
classes whose names are near to it,

    fit = log Σ_c k_c p_c − log 1/C,      k = softmax over classes of (name_c · text) / T,   p = softmax(scores) of a node

so 0 is chance. It knows nothing about steps but knows words that the model never saw. What each adds is measured in
docs/results.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hiero.steps.spans import sum_over

LABEL_TEMPERATURE = 0.05
PRESENCE = (10.9, -6.8, -3.0)  # fitted by `python -m benchmarks.captaincook4d words` on its development part
FLOOR = 1e-3  # of what a classifier says: below it is noise


@dataclass(frozen=True)
class OwnEvidence:
    """Nodes (T, E), unit vectors of a model's space; texts come through its h_t."""

    nodes: np.ndarray
    weight: float

    def fit(self, texts: np.ndarray, own_texts: np.ndarray) -> np.ndarray:
        return self.weight * (own_texts @ self.nodes.T)


@dataclass(frozen=True)
class ClassEvidence:
    """What a classifier sees in each node, probabilities (T, C), and the unit vectors (C, S) of its classes' names."""

    seen: np.ndarray
    names: np.ndarray
    weight: float
    temperature: float

    def fit(self, texts: np.ndarray, own_texts: np.ndarray) -> np.ndarray:
        told = softmax(texts @ self.names.T / self.temperature) @ self.seen.T
        return self.weight * np.log((told + FLOOR) / (1 / len(self.names) + FLOOR))


Evidence = OwnEvidence | ClassEvidence


def softmax(logits: np.ndarray) -> np.ndarray:
    """Of each row."""
    share = np.exp(logits - logits.max(1, keepdims=True))
    return share / share.sum(1, keepdims=True)


def steady(seen: np.ndarray, num: int) -> np.ndarray:
    """Mean of (T, C) over `num` neighbouring nodes: what a classifier sees in single frames flickers."""
    total = np.concatenate([np.zeros((1, seen.shape[1])), np.cumsum(seen, axis=0, dtype=np.float64)])
    at = np.arange(len(seen))
    low, high = np.maximum(at - num // 2, 0), np.minimum(at + num // 2 + 1, len(seen))
    return (total[high] - total[low]) / (high - low)[:, None]


def fit(evidence: list[Evidence], texts: np.ndarray, own_texts: np.ndarray) -> np.ndarray:
    """How each node fits each text, (Q, T). texts (Q, S) of the sentence encoder, own_texts (Q, E) the same after h_t."""
    return sum((part.fit(texts, own_texts) for part in evidence[1:]), evidence[0].fit(texts, own_texts))


def mean_over(similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Mean of (Q, T) over the nodes of each span [a, b), (Q, N)."""
    return sum_over(similarity, spans) / (spans[:, 1] - spans[:, 0])


def name_spans(similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """How belief about each span is shared among texts: similarity (Q, T), spans (N, 2) → (N, Q), rows sum to 1."""
    return softmax(mean_over(similarity, spans).T / LABEL_TEMPERATURE)


def presence(similarity: np.ndarray, spans: np.ndarray, best: list[int]) -> list[float]:
    """How likely each text is in the video at all: similarity (Q, T), and the place of the best span for each text."""
    *slopes, offset = PRESENCE
    return (1 / (1 + np.exp(-presence_statistics(similarity, spans, best) @ np.array(slopes) - offset))).tolist()


def presence_statistics(similarity: np.ndarray, spans: np.ndarray, best: list[int]) -> np.ndarray:
    """(Q, 2): the fit of the best span, and how far that stands out of the video's mean."""
    each = np.arange(len(best))
    peak = mean_over(similarity, spans[best])[each, each]
    return np.stack([peak, peak - similarity.mean(1)], axis=1)
