"""Video: what was read of one video; its steps, answers to questions, labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hiero.engine.embedder import CLIP, NO_TEXT, Embedder
from hiero.errors import InputError
from hiero.extraction.video_features import VideoFeatures
from hiero.model.model_folder import ASSETS
from hiero.steps.grounding import rank_spans, span_sums
from hiero.steps.hierarchy import build_hierarchy
from hiero.steps.ordering import align_in_order
from hiero.steps.segmentation import MIN_NORM, centre_and_normalise, similarity_matrix
from hiero.steps.similarity import (
    ClassEvidence,
    Evidence,
    NodeEvidence,
    label_probabilities,
    moving_average,
    presence_probability,
    softmax,
    text_similarity,
)
from hiero.text.minilm import MINILM_SIZE, encode_minilm
from hiero.types import Answer, Clock, Hierarchy, Match, Step

CLASS_NAMES = {"i3d-k400": "kinetics400", "lite2-imagenet": "imagenet"}
# Of class names beside cosines: their weight, and the temperature that says how near a name must be to count.
CLASS_EVIDENCE_WEIGHTS = {"i3d-k400": (0.03, 0.15), "lite2-imagenet": (0.15, 0.07)}
OBJECT_WEIGHT = 0.7  # of what objects a video shows, beside the model's nodes, where steps are cut
SMOOTHING_S = 5.0  # objects are looked for in stretches of this length
TRUSTED_S = 120.0  # the model learned from recordings of minutes; in a shorter video its word counts less, in proportion
CLASS_NAME_WEIGHT = 1.0  # of class names beside the model's own space, where steps of many videos are compared


@dataclass(eq=False, repr=False)
class Video:
    """A video that was read. Made by `Engine.read`.

    Attributes:
        engine: The model that read it.
        path: The file.
        clock: When its nodes are.
        duration_s: How long it is.
        nodes: Unit vectors in the model's space, (T, E), in time order.
        source: Features of the backbones, and thumbnails.
        spans: Stretches of nodes [start, end) that could be answers, (N, 2).
    """

    engine: Embedder
    path: Path
    clock: Clock
    duration_s: float
    nodes: np.ndarray
    source: VideoFeatures
    spans: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=int))
    _similarity_cache: tuple[tuple[str, ...], np.ndarray] | None = None

    def __repr__(self) -> str:
        return f"<Video {self.path.name}: {self.duration_s:.1f} s, {len(self.nodes)} nodes, {self.engine.name}>"

    def steps(
        self, num_steps: int | Sequence[int] | None = None, *, method: str = "pieces", labels: str | Sequence[str] | None = None
    ) -> Hierarchy:
        """The hierarchy of steps, coarse to fine.

        Args:
            num_steps: Number of steps of each level, such as [4, 8, 16], or of the only one; by default three levels that follow
                from the length.
            method: `pieces`, contiguous steps; `spectral`, the paper's threads, which may come back; or the name of any other
                clustering (`hiero.steps.clustering`).
            labels: Each step gets the best of them; by default bundled everyday phrases, with [] none.

        Raises:
            InputError: Unknown method, a number below 1, or labels where the model has no text encoder.

        Examples:
            >>> hierarchy = video.steps([2, 4])
            >>> [len(level) for level in hierarchy.levels]
            [2, 4]
            >>> hierarchy.levels[0][0].start_s
            0.0
        """
        if isinstance(num_steps, int):
            num_steps = [num_steps]
        labels = [labels] if isinstance(labels, str) else labels
        levels = build_hierarchy(self.segmentation_features, self.clock, list(num_steps) if num_steps else None, method=method)
        # The last step ends with the video, not with the clock.
        levels = [[*level[:-1], replace(level[-1], end_s=self.duration_s)] for level in levels]
        vocabulary = list(labels) if labels is not None else default_labels()
        if labels and not self.engine.has_text:
            raise InputError(NO_TEXT)
        if vocabulary and self.engine.has_text:
            named = [self.likely_labels(level, vocabulary, num=1) for level in levels]
            levels = [
                [replace(step, label=best[0][0], score=best[0][1]) for step, best in zip(level, ranked, strict=True)]
                for level, ranked in zip(levels, named, strict=True)
            ]
        return Hierarchy(str(self.path), self.engine.name, self.duration_s, tuple(tuple(level) for level in levels))

    def ask(self, queries: str | Sequence[str], *, num: int = 5, in_order: bool = False) -> list[Answer]:
        """When does each query happen?

        Args:
            queries: One text or several, such as "cut the onion".
            num: How many spans at most for each query.
            in_order: The queries are steps that follow each other; each gets one span.

        Returns:
            An answer for each query, its matches best first.

        Raises:
            InputError: A query is empty, `num` is below 1, or the model has no text encoder.

        Examples:
            >>> answer, = text_video.ask("cut the onion")
            >>> 0 <= answer.present <= 1 and answer.matches[0].start_s < answer.matches[0].end_s
            True
        """
        queries = [queries] if isinstance(queries, str) else list(queries)
        if not queries or not all(query.strip() for query in queries):
            raise InputError("ask for something: a query is empty")
        if num < 1:
            raise InputError(f"at least one match must be wanted, got {num}")
        similarity = text_similarity(self.evidence, *self.engine.encode(queries))
        ranked = rank_spans(similarity, self.spans, self.clock.spacing_s, num=num)
        present = presence_probability(similarity, self.spans, [indices[0] for indices, _ in ranked])
        if in_order:
            if len(queries) > len(self.nodes):
                raise InputError(f"{len(queries)} steps in order do not fit into {len(self.nodes)} segments of {self.path}")
            ordered = align_in_order(similarity)
            return [Answer(query, p, (self._match(span, p),)) for query, span, p in zip(queries, ordered, present, strict=True)]
        return [
            Answer(query, p, tuple(self._match(self.spans[i], p * s / scores[0]) for i, s in zip(indices, scores, strict=True)))
            for query, (indices, scores), p in zip(queries, ranked, present, strict=True)
        ]

    def label(self, labels: str | Sequence[str], *, num_steps: int | Sequence[int] | None = None) -> list[Step]:
        """Step localization: the finest steps, each with the label of a taxonomy that fits best; equal neighbours are joined.

        Args:
            labels: The taxonomy.
            num_steps: Number of steps to begin with.

        Raises:
            InputError: There are no labels, or the model has no text encoder.

        Examples:
            >>> {step.label for step in text_video.label(["cut the onion", "boil water"])} <= {"cut the onion", "boil water"}
            True
        """
        labels = [labels] if isinstance(labels, str) else labels
        labels = list(dict.fromkeys(label.strip() for label in labels if label.strip()))
        if not labels:
            raise InputError("no labels were given")
        finest = self.steps(num_steps, labels=labels).levels[-1]
        out: list[Step] = []
        for step in finest:
            if out and out[-1].label == step.label:
                lengths = out[-1].end_s - out[-1].start_s, step.end_s - step.start_s
                score = np.average([out[-1].score or 0.0, step.score or 0.0], weights=lengths)
                out[-1] = replace(out[-1], end_s=step.end_s, score=float(score))
            else:
                out.append(replace(step, parent=None, children=()))
        return [replace(step, id=f"{i}") for i, step in enumerate(out)]

    def similarity_matrix(self, size: int = 256) -> np.ndarray:
        """Cosines of the centred nodes with each other, (n, n) with n ≤ size: the picture in which steps are squares."""
        return similarity_matrix(self.segmentation_features, size)

    @cached_property
    def segmentation_features(self) -> np.ndarray:
        """What steps are cut by: the nodes, beside them the objects in view where a video was read. (T, D), centred."""
        parts = [self._model_weight * centre_and_normalise(self.nodes, MIN_NORM)]
        if self.engine.folder is not None and "lite2-imagenet" in self.source.features:
            objects = self.source.features["lite2-imagenet"].astype(np.float32)
            parts.append(OBJECT_WEIGHT * centre_and_normalise(objects, MIN_NORM))
        return np.concatenate(parts, axis=1)

    @cached_property
    def evidence(self) -> list[Evidence]:
        """All that texts can be compared with: the model's nodes, and the names of classes that classifiers see."""
        nodes = self.nodes - self.nodes.mean(0) if self.engine.folder is None else self.nodes
        out: list[Evidence] = [NodeEvidence(nodes, self._model_weight)]
        for name, scores in self.source.features.items():
            if name in CLASS_NAMES and self.engine.uses_minilm:
                probabilities = softmax(scores.astype(np.float32))
                if name == "lite2-imagenet":
                    probabilities = moving_average(probabilities, round(SMOOTHING_S / self.clock.spacing_s))
                names = encode_minilm(class_names(CLASS_NAMES[name]))
                out.append(ClassEvidence(probabilities, names, *CLASS_EVIDENCE_WEIGHTS[name]))
        return out

    @property
    def _model_weight(self) -> float:
        """How much the model's word counts: all of it where nothing else is known."""
        alone = self.engine.folder is None or not self.source.features
        return 1.0 if alone else min(1.0, self.duration_s / TRUSTED_S)

    def embed_spans(self, spans: np.ndarray) -> np.ndarray:
        """Vectors of stretches of nodes, that `Engine.embed_queries` and each other can be compared with by cosine.

        The model's nodes, and beside them, where texts come from the sentence encoder, what the names of the classes say that
        classifiers see: Σ p_c (name_c − mean of names).

        Args:
            spans: Nodes [start, end), (N, 2).

        Returns:
            (N, D).
        """
        centred = self.engine.folder is None and self.engine.backbones == (CLIP,)
        parts = [self._model_weight * _unit_means(self.nodes - self.nodes.mean(0) if centred else self.nodes, spans)]
        if self.engine.uses_minilm:
            by_name = np.zeros((len(spans), MINILM_SIZE))
            for name, scores in self.source.features.items():
                if name in CLASS_NAMES:
                    names = encode_minilm(class_names(CLASS_NAMES[name])).astype(np.float32)
                    by_name += _means(softmax(scores.astype(np.float32)) @ (names - names.mean(0)), spans)
            parts.append(CLASS_NAME_WEIGHT * by_name)
        return np.concatenate(parts, axis=1).astype(np.float32)

    def likely_labels(
        self, level: Sequence[Step], labels: Sequence[str] | None = None, num: int = 5
    ) -> list[list[tuple[str, float]]]:
        """For each step of a level the labels that fit it best, with their probabilities.

        Args:
            level: Steps in time order that cover the video.
            labels: By default the bundled everyday phrases.
            num: How many for each step.
        """
        labels = list(labels) if labels is not None else default_labels()
        if not labels or not self.engine.has_text:
            return [[(step.label, step.score or 0.0)] if step.label else [] for step in level]
        probabilities = label_probabilities(self._cached_similarity(labels), self.level_spans(level))
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :num]
        return [[(labels[i], float(probabilities[row, i])) for i in best] for row, best in enumerate(order)]

    def level_spans(self, level: Sequence[Step]) -> np.ndarray:
        """The nodes [start, end) of each step of a level, (N, 2)."""
        index = [max(0, round((step.start_s - self.clock.start_s) / self.clock.spacing_s)) for step in level]
        return np.array(list(zip(index, [*index[1:], len(self.nodes)], strict=True)))

    def _cached_similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Similarity of each text with each node (Q, T); that of the last vocabulary is kept, since every level asks for it."""
        key = tuple(texts)
        if self._similarity_cache is None or self._similarity_cache[0] != key:
            self._similarity_cache = key, text_similarity(self.evidence, *self.engine.encode(texts))
        return self._similarity_cache[1]

    def _match(self, span: Sequence[int] | np.ndarray, score: float) -> Match:
        start, end = (int(i) for i in span)
        start_s = self.clock.start_s + start * self.clock.spacing_s
        end_s = self.duration_s if end == len(self.nodes) else self.clock.start_s + end * self.clock.spacing_s
        return Match(start_s, max(end_s, start_s), float(score))


def _means(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Mean of (T, D) over each span [start, end), (N, D)."""
    return span_sums(rows.T, spans).T / (spans[:, 1] - spans[:, 0])[:, None]


def _unit_means(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    means = _means(rows, spans)
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)


def default_labels() -> list[str]:
    """The bundled vocabulary of everyday steps."""
    return [line for line in (ASSETS / "steps.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def class_names(name: str) -> list[str]:
    """Names of a classifier's classes, in order."""
    return (ASSETS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
