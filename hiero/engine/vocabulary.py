"""The bundled vocabulary; pictures and classes compared with texts; and stretches of video as few vectors,
which a corpus stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from hiero.steps.similarity import ClassEvidence, PictureEvidence, background_similarity
from hiero.storage.files import ASSETS
from hiero.text.joint_text import JOINT_SIZE, encode_joint_texts, pooling_temperature
from hiero.text.minilm import encode_minilm

# Of class names: their weight beside the model's cosines, and beside pictures; and how near a name must be to count.
CLASS_WEIGHT, CLASS_WEIGHT_WITH_PICTURES, CLASS_TEMPERATURE = 0.03, 0.06, 0.15


@cache
def default_labels() -> list[str]:
    """The bundled vocabulary of everyday steps."""
    return [
        line
        for line in (ASSETS / "steps.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]


@cache
def rich_labels() -> list[str]:
    """The bundled vocabulary of verbs and things, beyond `default_labels`: texts for pictures, which
    tell more things apart.
    """
    lines = (ASSETS / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line and not line.startswith("#")]
    pairs = [(verb, thing) for verbs, things in rows for verb in verbs.split(",") for thing in things.split(",")]
    everyday = set(default_labels())
    return [
        label
        for label in dict.fromkeys(f"{verb.strip()} {thing.strip()}" for verb, thing in pairs)
        if label not in everyday
    ]


@cache
def class_names() -> list[str]:
    """Names of the 400 classes of Kinetics, in order."""
    return (ASSETS / "kinetics400.txt").read_text(encoding="utf-8").splitlines()


@cache
def class_name_vectors() -> np.ndarray:
    """MiniLM's unit vectors of `class_names`, (400, 384)."""
    return encode_minilm(class_names())


def class_evidence(probabilities: np.ndarray, weight: float) -> ClassEvidence:
    """What I3D's classifier sees, (N, 400), to be compared with texts."""
    return ClassEvidence(probabilities, class_name_vectors(), weight, CLASS_TEMPERATURE)


def picture_similarity(pictures: PictureEvidence, classes: ClassEvidence | None, texts: Sequence[str]) -> np.ndarray:
    """Similarity of each text with each picture, and with the classes that are seen in it, (Q, N)."""
    similarity = pictures.similarity(encode_joint_texts(texts))
    if classes is not None:
        vectors = encode_minilm(texts)
        similarity = similarity + classes.similarity(vectors, vectors)
    return similarity


@dataclass(frozen=True)
class SpanSummaries:
    """Stretches of video as few vectors each, that texts are compared with as they are with nodes. A
    corpus stores them.
    """

    pictures: np.ndarray
    patches: np.ndarray
    probabilities: np.ndarray
    background: np.ndarray = field(default_factory=lambda: np.zeros(1))

    def without_background(self) -> SpanSummaries:
        """The same, where what they have in common with any text is known, and will be subtracted."""
        return replace(self, background=background_similarity(self.similarity(default_labels())))

    def similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Of each text with each stretch, (Q, N)."""
        pictures = PictureEvidence(self.pictures, self.patches, pooling_temperature())
        return (
            picture_similarity(pictures, class_evidence(self.probabilities, CLASS_WEIGHT_WITH_PICTURES), texts)
            - self.background
        )

    def to_bytes(self) -> list[bytes]:
        """Each stretch in half precision."""
        parts = (
            self.pictures,
            self.patches.reshape(len(self.patches), -1),
            self.probabilities,
            self.background[:, None],
        )
        return [row.tobytes() for row in np.concatenate(parts, axis=1).astype(np.float16)]

    @classmethod
    def from_bytes(cls, rows: Sequence[bytes]) -> SpanSummaries:
        """The reverse of `to_bytes`."""
        values = np.stack([np.frombuffer(row, np.float16) for row in rows]).astype(np.float32)
        num_classes = len(class_names())
        vectors = values[:, : -num_classes - 1].reshape(len(values), -1, JOINT_SIZE)
        return cls(vectors[:, 0], vectors[:, 1:], values[:, -num_classes - 1 : -1], values[:, -1])
