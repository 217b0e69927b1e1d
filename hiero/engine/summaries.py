"""Summaries of spans of video: a few vectors for each, which a corpus stores and compares with texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hiero.engine.vocabulary import class_evidence, class_names, default_labels, rich_labels
from hiero.networks.joint_text import JOINT_SIZE, encode_joint_texts, pooling_temperature
from hiero.networks.minilm import encode_minilm
from hiero.steps.grounding import mean_rows
from hiero.steps.similarity import ClassEvidence, PictureEvidence, background_similarity
from hiero.vectors import group_vectors

# Parts of a span, and vectors for the patches of each. With 12 and 24 parts, `benchmarks.egtea score --part dev`
# finds no more.
NUM_PARTS, PART_PATCHES = 6, 8
CLASS_WEIGHT = 0.06  # weight of class names beside pictures


def picture_similarity(
    pictures: PictureEvidence, classes: ClassEvidence, texts: Sequence[str], head: str
) -> np.ndarray:
    """Similarity of each text with each picture and its classes, (Q, N)."""
    vectors = encode_minilm(texts)
    return pictures.similarity(encode_joint_texts(texts, head)) + classes.similarity(vectors, vectors)


@dataclass(frozen=True)
class SpanSummaries:
    """Spans of video as a few vectors each, which a corpus stores and compares with texts.

    Hands do one thing for seconds, and a step is longer. So a span has `NUM_PARTS` parts of equal length,
    and is as similar to a text as its best part: pictures (N, P, D), patches (N, P, M, D), class
    probabilities of the span (N, C), and the similarity of each part with any text (N, P).
    """

    pictures: np.ndarray
    patches: np.ndarray
    probabilities: np.ndarray
    background: np.ndarray

    @classmethod
    def from_pictures(
        cls, pictures: PictureEvidence, probabilities: np.ndarray, spans: np.ndarray, head: str
    ) -> SpanSummaries:
        """Summaries of spans of nodes [start, end), (N, 2), from the pictures and the class probabilities (T, C)."""
        parts = _parts(spans)
        patches = [
            group_vectors(pictures.patches[start:end].reshape(-1, JOINT_SIZE), PART_PATCHES) for start, end in parts
        ]
        summaries = cls(
            mean_rows(pictures.pictures, parts).reshape(len(spans), NUM_PARTS, -1),
            np.stack(patches).reshape(len(spans), NUM_PARTS, PART_PATCHES, -1),
            mean_rows(probabilities, spans),
            np.zeros((len(spans), NUM_PARTS)),
        )
        similarity = summaries.part_similarity([*default_labels(), *rich_labels()], head)
        background = background_similarity(similarity.reshape(len(similarity), -1))
        return replace(summaries, background=background.reshape(len(spans), NUM_PARTS))

    def similarity(self, texts: Sequence[str], head: str) -> np.ndarray:
        """Similarity of each text with each span, (Q, N)."""
        return np.asarray((self.part_similarity(texts, head) - self.background).max(2))

    def part_similarity(self, texts: Sequence[str], head: str) -> np.ndarray:
        """Similarity of each text with each part, (Q, N, P), without the background."""
        num, num_parts = self.background.shape
        patches = self.patches.reshape(num * num_parts, -1, JOINT_SIZE)
        pictures = PictureEvidence(self.pictures.reshape(-1, JOINT_SIZE), patches, pooling_temperature(head))
        classes = class_evidence(np.repeat(self.probabilities, num_parts, axis=0), CLASS_WEIGHT)
        return picture_similarity(pictures, classes, texts, head).reshape(-1, num, num_parts)

    def to_bytes(self) -> list[bytes]:
        """Each span in half precision."""
        parts = [part.reshape(len(part), -1) for part in (self.pictures, self.patches, self.probabilities)]
        return [row.tobytes() for row in np.concatenate([*parts, self.background], axis=1).astype(np.float16)]

    @classmethod
    def from_bytes(cls, rows: Sequence[bytes]) -> SpanSummaries:
        """Read what `to_bytes` wrote."""
        values = np.stack([np.frombuffer(row, np.float16) for row in rows]).astype(np.float32)
        vectors, rest = np.split(values, [-len(class_names()) - NUM_PARTS], axis=1)
        pictures, patches = np.split(vectors, [NUM_PARTS * JOINT_SIZE], axis=1)
        patches = patches.reshape(len(rows), NUM_PARTS, -1, JOINT_SIZE)
        return cls(pictures.reshape(len(rows), NUM_PARTS, -1), patches, rest[:, :-NUM_PARTS], rest[:, -NUM_PARTS:])

    def join(self, other: SpanSummaries) -> SpanSummaries:
        """These spans and then the others."""
        return SpanSummaries(*map(np.concatenate, zip(vars(self).values(), vars(other).values(), strict=True)))

    def select(self, rows: Sequence[int]) -> SpanSummaries:
        return SpanSummaries(*(values[rows] for values in vars(self).values()))


class SummaryCache:
    """The summaries of the last spans. They take seconds, and an edit changes only few spans."""

    def __init__(self, compute: Callable[[np.ndarray], SpanSummaries]) -> None:
        self._compute = compute
        self._last: tuple[list[tuple[int, int]], SpanSummaries] | None = None

    def find(self, spans: np.ndarray) -> SpanSummaries:
        """The summaries of spans (N, 2), of which only those that were not in the last call are computed."""
        wanted = [(int(start), int(end)) for start, end in spans]
        known, summaries = self._last or (wanted, self._compute(spans))
        places = {span: row for row, span in enumerate(known)}
        if new := [span for span in dict.fromkeys(wanted) if span not in places]:
            places |= {span: row for row, span in enumerate(new, len(known))}
            summaries = summaries.join(self._compute(np.array(new)))
        if wanted != known:
            summaries = summaries.select([places[span] for span in wanted])
        self._last = wanted, summaries
        return summaries


def _parts(spans: np.ndarray) -> np.ndarray:
    """The nodes [start, end) of the parts of spans, in the order of the spans, (N · NUM_PARTS, 2).

    Parts of a span with fewer nodes overlap.
    """
    edges = spans[:, :1] + np.arange(NUM_PARTS + 1) * np.diff(spans) // NUM_PARTS
    starts, ends = edges[:, :-1], np.maximum(edges[:, 1:], edges[:, :-1] + 1)
    return np.stack([starts.ravel(), ends.ravel()], axis=1)
