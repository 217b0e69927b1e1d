"""VideoNodes: the nodes of a video, and what steps are cut by and texts are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from hiero.engine.embedder import CLIP, PICTURES, Embedder
from hiero.extraction.video_features import VideoFeatures
from hiero.steps.grounding import TEMPERATURE, span_sums
from hiero.steps.prototypes import StepPrototypes
from hiero.steps.segmentation import LENGTH_PRIOR, MIN_NORM, NODE_LENGTH_PRIOR, centre_and_normalise
from hiero.steps.similarity import (
    PICTURE_PRESENCE,
    PRESENCE,
    ClassEvidence,
    Evidence,
    NodeEvidence,
    PictureEvidence,
    background_similarity,
    softmax,
    text_similarity,
)
from hiero.storage.files import ASSETS
from hiero.text.joint_text import JOINT_SIZE, encode_joint_texts, pooling_temperature
from hiero.text.minilm import MINILM_SIZE, encode_minilm
from hiero.types import Clock, Step
from hiero.vectors import unit_vectors

CLASSES = "i3d-k400"  # the backbone whose scores are of classes with names
PICTURE_TEMPERATURE = 0.2  # with which a text spreads its belief over pictures; see `rank_spans`
# Weights where steps are cut: of pictures, of their patches and of actions each; and of the model's nodes beside them.
PICTURE_WEIGHT, NODE_WEIGHT = 0.7, 0.5
TRUSTED_S = 120.0  # the model learned from recordings of minutes: in a shorter video it counts less, in proportion
SUMMARY_PATCHES = 16  # vectors that the patches of a stretch of video become, for a corpus
# Weight of class names beside the model's cosines and beside pictures, and their softmax temperature.
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


@dataclass(eq=False, repr=False)
class VideoNodes:
    """What was read of a video, in the forms that steps, questions and other videos need."""

    engine: Embedder
    path: Path
    clock: Clock
    duration_s: float
    nodes: np.ndarray
    source: VideoFeatures

    @cached_property
    def segmentation_features(self) -> np.ndarray:
        """What steps are cut by, (T, D), centred: the nodes; where pictures were read, also what these
        show and what is done.
        """
        nodes = self._model_weight * centre_and_normalise(self.nodes, MIN_NORM)
        if self.pictures is None:
            return nodes
        actions = self.source.features[CLASSES].astype(np.float32)
        seen = [self.pictures.pictures, self.pictures.patches.mean(1), actions]
        return np.concatenate(
            [NODE_WEIGHT * nodes, *(PICTURE_WEIGHT * centre_and_normalise(rows, MIN_NORM) for rows in seen)], axis=1
        )

    @property
    def length_prior(self) -> float:
        """λ of `cut_steps` for `segmentation_features`."""
        return LENGTH_PRIOR if self.engine.folder is None or self.pictures is not None else NODE_LENGTH_PRIOR

    @property
    def _model_weight(self) -> float:
        """How much the model's word counts: all of it where nothing else is known."""
        alone = self.engine.folder is None or not self.source.features
        return 1.0 if alone else min(1.0, self.duration_s / TRUSTED_S)

    def level_spans(self, level: Sequence[Step]) -> np.ndarray:
        """The nodes [start, end) of each step of a level, (N, 2)."""
        return np.array([self.clock.span(step.start_s, step.end_s, len(self.nodes)) for step in level])

    # Texts

    def similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Similarity of each text with each node, (Q, T), from all that is known about the nodes, and
        what corrections taught.
        """
        if self.pictures is None:
            similarity = text_similarity(self.evidence, *self.engine.encode(texts))
        else:
            similarity = picture_similarity(self.pictures, self._classes, texts) - self._background
        prototypes = self.engine.prototypes
        return similarity if prototypes is None else similarity + self._learned_similarity(texts, prototypes)

    def _learned_similarity(self, texts: Sequence[str], prototypes: StepPrototypes) -> np.ndarray:
        """What prototypes add to the similarity of texts that name a step that was corrected in
        some video, (Q, T).
        """
        matched = self.engine.match_learned(texts, prototypes)
        out = np.zeros((len(texts), len(self.nodes)), np.float32)
        known = [(row, *match) for row, match in enumerate(matched) if match is not None]
        if known:
            rows, numbers, certainty = zip(*known, strict=True)
            out[list(rows)] = np.array(certainty)[:, None] * prototypes.similarity(numbers, self.views)
        return out

    @cached_property
    def views(self) -> dict[str, np.ndarray]:
        """Unit vectors of the nodes, (T, D) each, in which steps are learned and found again: see
        `StepPrototypes`.
        """
        views = {"nodes": unit_vectors(self.nodes)}
        if CLASSES in self.source.features:
            views["classes"] = centre_and_normalise(self.source.features[CLASSES].astype(np.float32))
        if self.pictures is not None:
            views["pictures"] = centre_and_normalise(self.pictures.pictures)
        return views

    @property
    def vocabulary(self) -> list[str]:
        """What steps are named with where no labels are given: learned names, and bundled ones, more of
        them where there are pictures.
        """
        learned = () if self.engine.prototypes is None else self.engine.prototypes.labels
        bundled = default_labels() if self.pictures is None else [*default_labels(), *rich_labels()]
        return list(dict.fromkeys([*learned, *bundled])) if learned else bundled

    @cached_property
    def _background(self) -> np.ndarray:
        """How alike each node is to any text, (T,)."""
        assert self.pictures is not None
        return background_similarity(picture_similarity(self.pictures, self._classes, default_labels()))

    @cached_property
    def pictures(self) -> PictureEvidence | None:
        """What pictures of the video show, where they were read in a space with words."""
        if PICTURES not in self.source.features or not self.engine.uses_minilm:
            return None
        return PictureEvidence.from_rows(self.source.features[PICTURES], JOINT_SIZE, pooling_temperature())

    @cached_property
    def evidence(self) -> list[Evidence]:
        """What texts can be compared with, but for pictures: the model's nodes, and the names of
        classes that a classifier sees.
        """
        nodes = self.nodes - self.nodes.mean(0) if self.engine.folder is None else self.nodes
        own = NodeEvidence(nodes, self._model_weight)
        return [own] if self._classes is None else [own, self._classes]

    @cached_property
    def _classes(self) -> ClassEvidence | None:
        if CLASSES not in self.source.features or not self.engine.uses_minilm:
            return None
        weight = CLASS_WEIGHT if self.pictures is None else CLASS_WEIGHT_WITH_PICTURES
        return class_evidence(softmax(self.source.features[CLASSES].astype(np.float32)), weight)

    @property
    def presence(self) -> tuple[float, ...]:
        """Weights with which similarity says how likely a text is in the video at all: see `presence_probability`."""
        return PRESENCE if self.pictures is None else PICTURE_PRESENCE

    @property
    def temperature(self) -> float:
        """The temperature with which a text spreads its belief over the nodes."""
        return TEMPERATURE if self.pictures is None else PICTURE_TEMPERATURE

    # Other videos

    def embed_spans(self, spans: np.ndarray) -> np.ndarray:
        """Vectors (N, D) of stretches of nodes [start, end), (N, 2), that `Engine.embed_queries` and each
        other can be compared with by cosine.

        The model's nodes, and beside them, where texts come from the sentence encoder, what the
        names of the classes say that classifiers see: Σ p_c (name_c − mean of names).
        """
        centred = self.engine.folder is None and self.engine.backbones == (CLIP,)
        nodes = self.nodes - self.nodes.mean(0) if centred else self.nodes
        parts = [self._model_weight * unit_vectors(_means(nodes, spans))]
        if self.engine.uses_minilm:
            by_name = np.zeros((len(spans), MINILM_SIZE))
            if self._classes is not None:
                names = class_name_vectors()
                by_name = _means(self._classes.probabilities, spans) @ (names - names.mean(0))
            parts.append(by_name)
        if self.engine.has_pictures and self.pictures is None:
            parts.append(np.zeros((len(spans), 2 * JOINT_SIZE)))
        elif self.engine.has_pictures and self.pictures is not None:
            parts += [_means(self.pictures.pictures, spans), _means(self.pictures.patches.mean(1), spans)]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def summarise_spans(self, spans: np.ndarray) -> SpanSummaries | None:
        """What texts are compared with, of stretches of nodes [start, end), (N, 2); None without pictures."""
        if self.pictures is None:
            return None
        import torch

        from hiero.backbones.dinov2 import group_patches

        patches = [
            group_patches(
                torch.from_numpy(self.pictures.patches[start:end]).reshape(1, -1, JOINT_SIZE), SUMMARY_PATCHES
            )[0].numpy()
            for start, end in spans
        ]
        assert self._classes is not None  # read together with the pictures
        probabilities = _means(self._classes.probabilities, spans)
        summaries = SpanSummaries(_means(self.pictures.pictures, spans), np.stack(patches), probabilities)
        return summaries.without_background()


def _means(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Mean of (T, D) over each span [start, end), (N, D)."""
    return span_sums(rows.T, spans).T / (spans[:, 1] - spans[:, 0])[:, None]
