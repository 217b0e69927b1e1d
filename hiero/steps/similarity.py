"""Similarity of texts with the nodes of a video, from all that is known about them.

Three kinds of evidence, added. The model's own: cosines in the space that it shares with text. That
of pictures: cosines with the whole picture, and with those of its patches that the text chooses.
And classifiers': a text reads the classes whose names are near to it,

    similarity = log Σ_c k_c p_c − log 1/C
    k = softmax over classes of (name_c · text) / T,   p = softmax(scores) of a node

so 0 is chance. It knows nothing about steps but knows words that the model never saw. What each adds is measured in
docs/results.md.

Some pictures are like any text (a sink in the middle of the frame). `background_similarity` says by
how much: it is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hiero.steps.grounding import span_means

LABEL_TEMPERATURE = 0.05
PRESENCE = (10.9, -6.8, -3.0)  # fitted by `python -m benchmarks.captaincook4d words` on its development part
PICTURE_PRESENCE = (7.2, -1.5, -0.3)  # of similarity with pictures: by `python -m benchmarks.words score`
MATCH = (15.0, -5.5)  # of the similarity of a stretch of video with one text of many; by eye on the same videos
MIN_PROBABILITY = 1e-3  # of what a classifier says: below it is noise
BACKGROUND_TEMPERATURE = 0.1
MANY_TEXTS = 512  # whose similarity with all nodes is computed at a time
CHUNK = 2048  # nodes whose patches are compared with texts at a time


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
    """What a classifier sees in each node, probabilities (T, C), and the unit vectors (C, S) of its
    classes' names.
    """

    probabilities: np.ndarray
    names: np.ndarray
    weight: float
    temperature: float

    def similarity(self, texts: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """(Q, T), see `text_similarity`."""
        mass = softmax(texts @ self.names.T / self.temperature) @ self.probabilities.T
        return self.weight * np.log((mass + MIN_PROBABILITY) / (1 / len(self.names) + MIN_PROBABILITY))


Evidence = NodeEvidence | ClassEvidence


@dataclass(frozen=True)
class PictureEvidence:
    """What pictures of the nodes show, in the space that they share with words."""

    pictures: np.ndarray
    patches: np.ndarray
    temperature: float

    @classmethod
    def from_rows(cls, rows: np.ndarray, size: int, temperature: float) -> PictureEvidence:
        """From rows of a backbone, the vectors of a picture and of its patches one after the other,
        (T, (1 + M) · size).
        """
        vectors = rows.astype(np.float32).reshape(len(rows), -1, size)
        return cls(vectors[:, 0], vectors[:, 1:], temperature)

    def similarity(self, texts: np.ndarray) -> np.ndarray:
        """Of texts (Q, 2, D), each as a vector for whole pictures and one for patches, (Q, T)."""
        out = texts[:, 0] @ self.pictures.T
        for start in range(0, len(self.patches), CHUNK):
            patches = self.patches[start : start + CHUNK]
            cosines = np.einsum("qd,tmd->qtm", texts[:, 1], patches, optimize=True)
            weights = np.exp(self.temperature * cosines)
            out[:, start : start + CHUNK] += (weights * cosines).sum(2) / weights.sum(2)
        return np.asarray(out)


def background_similarity(similarity: np.ndarray) -> np.ndarray:
    """How alike each node is to any text: a soft maximum over many texts (Q, T) that have nothing
    to do with it, (T,).
    """
    scaled = similarity / BACKGROUND_TEMPERATURE
    top = scaled.max(0)
    return np.asarray(BACKGROUND_TEMPERATURE * (top + np.log(np.exp(scaled - top).mean(0))))


def text_similarity(evidence: list[Evidence], texts: np.ndarray, projected: np.ndarray) -> np.ndarray:
    """Similarity of each text with each node."""
    first, *others = evidence
    if len(texts) <= MANY_TEXTS:
        return sum((part.similarity(texts, projected) for part in others), first.similarity(texts, projected))
    # A large vocabulary a part at a time: what is held beside the result stays small.
    chunks = [slice(start, start + MANY_TEXTS) for start in range(0, len(texts), MANY_TEXTS)]
    out: np.ndarray | None = None
    for chunk in chunks:
        rows = text_similarity(evidence, texts[chunk], projected[chunk])
        out = np.empty((len(texts), rows.shape[1]), rows.dtype) if out is None else out
        out[chunk] = rows
    assert out is not None
    return out


def softmax(logits: np.ndarray) -> np.ndarray:
    """Of each row."""
    weight = np.exp(logits - logits.max(1, keepdims=True))
    return weight / weight.sum(1, keepdims=True)


def label_probabilities(similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """How belief about each span is shared among texts."""
    return softmax(span_means(similarity, spans).T / LABEL_TEMPERATURE)


def presence_probability(
    similarity: np.ndarray, spans: np.ndarray, best: list[int], weights: tuple[float, ...] = PRESENCE
) -> list[float]:
    """How likely each text is in the video at all."""
    *slopes, offset = weights
    return (1 / (1 + np.exp(-presence_statistics(similarity, spans, best) @ np.array(slopes) - offset))).tolist()


def match_probability(similarity: np.ndarray) -> np.ndarray:
    """How likely a stretch of video shows what a text says, by their similarity with the background subtracted."""
    slope, offset = MATCH
    return np.asarray(1 / (1 + np.exp(-slope * similarity - offset)))


def presence_statistics(similarity: np.ndarray, spans: np.ndarray, best: list[int]) -> np.ndarray:
    """(Q, 2): the similarity of the best span, and how far that stands out of the video's mean."""
    each = np.arange(len(best))
    peak = span_means(similarity, spans[best])[each, each]
    return np.stack([peak, peak - similarity.mean(1)], axis=1)
