"""Similarity of texts with the nodes of a video, from all that is known about them.

Two kinds of evidence, added. The model's own: cosines in the space that it shares with text. And classifiers': a text reads the
classes whose names are near to it,

    similarity = log Σ_c k_c p_c − log 1/C,      k = softmax over classes of (name_c · text) / T,   p = softmax(scores) of a node

so 0 is chance. It knows nothing about steps but knows words that the model never saw. What each adds is measured in
docs/results.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hiero.steps.grounding import span_means

LABEL_TEMPERATURE = 0.05
PRESENCE = (10.9, -6.8, -3.0)  # fitted by `python -m benchmarks.captaincook4d words` on its development part
MIN_PROBABILITY = 1e-3  # of what a classifier says: below it is noise


@dataclass(frozen=True)
class NodeEvidence:
    """The model's own: nodes as unit vectors of its space, (T, E); texts come through its h_t."""

    nodes: np.ndarray
    weight: float

    def similarity(self, texts: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """(Q, T), see `text_similarity`."""
        return self.weight * (projected @ self.nodes.T)


@dataclass(frozen=True)
class ClassEvidence:
    """What a classifier sees in each node, probabilities (T, C), and the unit vectors (C, S) of its classes' names."""

    probabilities: np.ndarray
    names: np.ndarray
    weight: float
    temperature: float

    def similarity(self, texts: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """(Q, T), see `text_similarity`."""
        mass = softmax(texts @ self.names.T / self.temperature) @ self.probabilities.T
        return self.weight * np.log((mass + MIN_PROBABILITY) / (1 / len(self.names) + MIN_PROBABILITY))


Evidence = NodeEvidence | ClassEvidence


def text_similarity(evidence: list[Evidence], texts: np.ndarray, projected: np.ndarray) -> np.ndarray:
    """Similarity of each text with each node.

    Args:
        evidence: What is known about the nodes; at least one.
        texts: Vectors of the sentence encoder, (Q, S).
        projected: The same after h_t, (Q, E).

    Returns:
        (Q, T).
    """
    first, *others = evidence
    return sum((part.similarity(texts, projected) for part in others), first.similarity(texts, projected))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Of each row."""
    weight = np.exp(logits - logits.max(1, keepdims=True))
    return weight / weight.sum(1, keepdims=True)


def moving_average(rows: np.ndarray, num: int) -> np.ndarray:
    """Mean of (T, C) over `num` neighbouring nodes: what a classifier sees in single frames flickers."""
    total = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0, dtype=np.float64)])
    index = np.arange(len(rows))
    low, high = np.maximum(index - num // 2, 0), np.minimum(index + num // 2 + 1, len(rows))
    return (total[high] - total[low]) / (high - low)[:, None]


def label_probabilities(similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """How belief about each span is shared among texts.

    Args:
        similarity: Of each text with each node, (Q, T).
        spans: [start, end), (N, 2).

    Returns:
        (N, Q); rows sum to 1.
    """
    return softmax(span_means(similarity, spans).T / LABEL_TEMPERATURE)


def presence_probability(similarity: np.ndarray, spans: np.ndarray, best: list[int]) -> list[float]:
    """How likely each text is in the video at all.

    Args:
        similarity: Of each text with each node, (Q, T).
        spans: Candidates [start, end), (N, 2).
        best: Index of the best span for each text.
    """
    *slopes, offset = PRESENCE
    return (1 / (1 + np.exp(-presence_statistics(similarity, spans, best) @ np.array(slopes) - offset))).tolist()


def presence_statistics(similarity: np.ndarray, spans: np.ndarray, best: list[int]) -> np.ndarray:
    """(Q, 2): the similarity of the best span, and how far that stands out of the video's mean."""
    each = np.arange(len(best))
    peak = span_means(similarity, spans[best])[each, each]
    return np.stack([peak, peak - similarity.mean(1)], axis=1)
