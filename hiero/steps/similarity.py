"""Similarity of texts with the nodes of a video, from all available evidence.

Three kinds of evidence are added. The model gives cosines in the space that it shares with text.
Pictures give cosines with the whole picture and with the patches that the text selects. Classifiers
give the classes whose names are similar to the text,

    similarity = log Σ_c k_c p_c − log 1/C
    k = softmax over classes of (name_c · text) / T,   p = softmax(scores) of a node

so that 0 is chance; they know words that the model never saw. docs/results.md measures what each
adds.

Some pictures are similar to any text (a sink in the middle of the frame). `background_similarity`
estimates by how much, and it is subtracted.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass

import numpy as np

from hiero.steps.grounding import TEMPERATURE, mean_rows, nms, score_spans, span_means

LABEL_TEMPERATURE = 0.05
SHARE_WEIGHT = 2.0  # of a span's share of the probability of a label; see benchmarks.cross_validation labels
NUM_DETECTIONS = 5  # spans of each label
MIN_SCORE = 1e-4  # of a detected span
MIN_PROBABILITY = 1e-3  # class probabilities below this are noise
BACKGROUND_TEMPERATURE = 0.1
MANY_TEXTS = 512  # texts compared with all nodes at a time
CHUNK = 2048  # nodes whose patches are compared with texts at a time


@dataclass(frozen=True)
class NodeEvidence:
    """Nodes of the model as unit vectors in the space shared with text, (T, E)."""

    nodes: np.ndarray
    weight: float

    def similarity(self, texts: np.ndarray, projected: np.ndarray) -> np.ndarray:
        return self.weight * (projected @ self.nodes.T)


@dataclass(frozen=True)
class ClassEvidence:
    """Class probabilities of each node (T, C), and the unit vectors (C, S) of the class names."""

    probabilities: np.ndarray
    names: np.ndarray
    weight: float
    temperature: float

    def similarity(self, texts: np.ndarray, projected: np.ndarray) -> np.ndarray:
        mass = softmax(texts @ self.names.T / self.temperature) @ self.probabilities.T
        return self.weight * np.log((mass + MIN_PROBABILITY) / (1 / len(self.names) + MIN_PROBABILITY))

    def embed_spans(self, spans: np.ndarray) -> np.ndarray:
        """Vectors (N, S) of spans for cosines with texts: Σ p_c (name_c − mean of names)."""
        return np.asarray(mean_rows(self.probabilities, spans) @ (self.names - self.names.mean(0)))


Evidence = NodeEvidence | ClassEvidence


@dataclass(frozen=True)
class PictureEvidence:
    """Pictures of the nodes and their patches in the space that they share with text."""

    pictures: np.ndarray
    patches: np.ndarray
    temperature: float

    @classmethod
    def from_rows(cls, rows: np.ndarray, size: int, temperature: float) -> PictureEvidence:
        """Split rows of a backbone into the vectors of a picture and of its M patches, (T, (1 + M) · size)."""
        vectors = rows.astype(np.float32).reshape(len(rows), -1, size)
        return cls(vectors[:, 0], vectors[:, 1:], temperature)

    def similarity(self, texts: np.ndarray) -> np.ndarray:
        """Similarity (Q, T) of texts (Q, 2, D), each with a vector for pictures and one for patches."""
        out = texts[:, 0] @ self.pictures.T
        for start in range(0, len(self.patches), CHUNK):
            patches = self.patches[start : start + CHUNK]
            cosines = np.einsum("qd,tmd->qtm", texts[:, 1], patches, optimize=True)
            weights = np.exp(self.temperature * cosines)
            out[:, start : start + CHUNK] += (weights * cosines).sum(2) / weights.sum(2)
        return np.asarray(out)

    def embed_spans(self, spans: np.ndarray) -> np.ndarray:
        """Vectors (N, 2 D) of spans: the means of their pictures and of their patches."""
        return np.concatenate([mean_rows(self.pictures, spans), mean_rows(self.patches.mean(1), spans)], axis=1)


def background_similarity(similarity: np.ndarray) -> np.ndarray:
    """Similarity of each node with any text, (T,): a soft maximum over many unrelated texts (Q, T)."""
    return soft_maximum(similarity, BACKGROUND_TEMPERATURE) - BACKGROUND_TEMPERATURE * np.log(len(similarity))


def soft_maximum(similarity: np.ndarray, temperature: float) -> np.ndarray:
    """A smooth maximum over the rows of (Q, T), (T,)."""
    scaled = similarity / temperature
    top = scaled.max(0)
    return np.asarray(temperature * (top + np.log(np.exp(scaled - top).sum(0))))


def text_similarity(evidence: list[Evidence], texts: np.ndarray, projected: np.ndarray) -> np.ndarray:
    """Similarity of each text with each node, (Q, T), from text vectors and their projections by h_t."""
    if len(texts) <= MANY_TEXTS:
        return functools.reduce(operator.add, [part.similarity(texts, projected) for part in evidence])
    # A large vocabulary is processed in parts, which limits the memory beside the result.
    first = text_similarity(evidence, texts[:MANY_TEXTS], projected[:MANY_TEXTS])
    out = np.empty((len(texts), first.shape[1]), first.dtype)
    out[:MANY_TEXTS] = first
    for start in range(MANY_TEXTS, len(texts), MANY_TEXTS):
        part = slice(start, start + MANY_TEXTS)
        out[part] = text_similarity(evidence, texts[part], projected[part])
    return out


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax of each row."""
    weight = np.exp(logits - logits.max(1, keepdims=True))
    return weight / weight.sum(1, keepdims=True)


def label_probabilities(
    similarity: np.ndarray, spans: np.ndarray, temperature: float = LABEL_TEMPERATURE
) -> np.ndarray:
    """Probability of each text for each span, (N, Q)."""
    return softmax(span_means(similarity, spans).T / temperature)


def detect_labels(
    similarity: np.ndarray, spans: np.ndarray, spacing_s: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Step localization: spans [start, end), their labels and their scores, the best few of each label.

    A label should be probable for the span, and much of its probability over time should lie in the span, compared
    with the label's best span.
    """
    probability = label_probabilities(similarity, spans, TEMPERATURE).T
    share = score_spans(similarity, spans, spacing_s)
    scores = probability * (share / share.max(1, keepdims=True)) ** SHARE_WEIGHT
    chosen = [nms(spans, row, NUM_DETECTIONS) for row in scores]
    labels = np.repeat(np.arange(len(scores)), [len(indices) for indices, _ in chosen])
    indices, values = (np.concatenate(part) for part in zip(*chosen, strict=True))
    kept = values >= MIN_SCORE
    return spans[indices[kept]], labels[kept], values[kept]
