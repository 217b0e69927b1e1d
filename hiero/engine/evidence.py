"""What a video shows, as evidence for texts: the model's nodes, or the pictures of an image-text network.

A video has one of two kinds. `Nodes` compares texts with the nodes of the model and with the names of
recognised classes. `Pictures` compares them with pictures and their patches, which tell more. Both know
named steps that were learned from corrected videos. What they compute belongs to the video and not to its
steps, so that it survives an edit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from hiero.engine.embedder import CLIP, PICTURES, Embedder
from hiero.engine.summaries import (
    CLASS_WEIGHT as CLASS_WEIGHT_WITH_PICTURES,
)
from hiero.engine.summaries import (
    SummaryCache,
    mean_rows,
    picture_similarity,
    summarise,
)
from hiero.engine.vocabulary import class_evidence, class_name_vectors, default_labels, rich_labels
from hiero.features.video_features import VideoFeatures
from hiero.networks.joint_text import JOINT_SIZE, pooling_temperature
from hiero.networks.minilm import MINILM_SIZE
from hiero.steps import calibration
from hiero.steps.grounding import TEMPERATURE, candidate_spans, score_spans, span_means, span_peaks
from hiero.steps.hierarchy import build_hierarchy
from hiero.steps.prototypes import NOTHING_LEARNED, StepPrototypes, rival_similarity
from hiero.steps.segmentation import LENGTH_PRIOR, MIN_NORM, NODE_LENGTH_PRIOR, centre_and_normalise
from hiero.steps.similarity import (
    ClassEvidence,
    Evidence,
    NodeEvidence,
    PictureEvidence,
    background_similarity,
    softmax,
    text_similarity,
)
from hiero.types import MIN_LABEL_PROBABILITY, Clock, Hierarchy, Match, Step
from hiero.vectors import unit_vectors

CLASSES = "i3d-k400"  # the backbone whose features are scores of named classes
PICTURE_TEMPERATURE = 0.25  # of the distribution of a text over pictures; see `rank_spans`
# Weights in the segmentation: of pictures, patches and actions each; and of the model's nodes.
PICTURE_WEIGHT, NODE_WEIGHT = 0.7, 0.5
FULL_WEIGHT_S = 120.0  # length below which the model, trained on recordings of minutes, gets less weight
CLASS_WEIGHT = 0.03  # weight of class names beside the model's cosines
MIN_LEARNED_PROBABILITY = 0.4  # of a name that was learned from people, below which it is not shown
PEAK_S = 2.0  # length of the moment that names a step
# A name must also stand out: its similarity with the moment exceeds that with the whole video, which counts
# as if it were this much longer and as similar as usual. Chosen by benchmarks.egtea names.
STANDOUT_WEIGHT, USUAL_S, USUAL_SIMILARITY = 2.0, 120.0, -0.25


class Sight(ABC):
    """What a video shows. Similarities are those of Q texts with T nodes, or with N spans of nodes [start, end)."""

    length_prior: float  # λ of `cut_steps` for `segmentation_features`
    temperature: float  # of the distribution of a text over the nodes
    answer_weights: tuple[float, float, float]  # for `calibration.answer`
    bundled: list[str]  # the vocabulary of bundled phrases

    def __init__(
        self, engine: Embedder, clock: Clock, nodes: np.ndarray, source: VideoFeatures, features: np.ndarray | None
    ) -> None:
        self.engine, self.clock, self.nodes, self.source, self.features = engine, clock, nodes, source, features
        self.store_spans: Callable[[np.ndarray], None] = lambda _: None  # called when `spans` are found
        self._last_similarity: tuple[tuple[str, ...], StepPrototypes, np.ndarray] | None = None

    @cached_property
    def segmentation_features(self) -> np.ndarray:
        """Centred features for the segmentation, (T, D)."""
        return self.model_weight * centre_and_normalise(self.nodes, MIN_NORM)

    @property
    def model_weight(self) -> float:
        """Weight of the model's nodes; 1 if there is no other evidence."""
        alone = self.engine.is_raw or not self.source.features
        return 1.0 if alone else min(1.0, self.source.duration_s / FULL_WEIGHT_S)

    @cached_property
    def views(self) -> dict[str, np.ndarray]:
        """Unit vectors of the nodes, (T, D) each, for `StepPrototypes`."""
        views = {"nodes": unit_vectors(self.nodes)}
        if CLASSES in self.source.features:
            views["classes"] = centre_and_normalise(self.source.features[CLASSES].astype(np.float32))
        return views

    @cached_property
    def spans(self) -> np.ndarray:
        """Candidate spans for answers, (N, 2)."""
        spans = candidate_spans(self.segmentation_features, self.clock.spacing_s, self.length_prior)
        self.store_spans(spans)
        return spans

    def level_spans(self, level: Sequence[Step]) -> np.ndarray:
        """The nodes [start, end) of each step of a level, (N, 2)."""
        spans = [self.clock.span(step.start_s, step.end_s, len(self.nodes)) for step in level]
        return np.array(spans, dtype=int).reshape(-1, 2)

    def make_match(self, span: np.ndarray, probability: float) -> Match:
        """Convert a span of nodes [start, end) to a match in seconds."""
        start, end = (int(i) for i in span)
        start_s = self.clock.edge_s(start)
        end_s = self.source.duration_s if end == len(self.nodes) else self.clock.edge_s(end)
        return Match(start_s, max(end_s, start_s), probability)

    @cached_property
    def _default_step_spans(self) -> np.ndarray:
        levels = build_hierarchy(self.segmentation_features, self.clock, length_prior=self.length_prior)
        return self.level_spans([step for level in levels for step in level])

    # Learned steps

    @property
    def prototypes(self) -> StepPrototypes:
        """The steps that the model learned from corrected videos. They may be replaced at any time."""
        return self.engine.prototypes or NOTHING_LEARNED

    @property
    def vocabulary(self) -> list[str]:
        """The default labels: learned names and bundled phrases. Empty if texts cannot be compared."""
        if not self.engine.has_text:
            return []
        return list(dict.fromkeys([*self.prototypes.labels, *self.bundled]))

    def _match_learned(self, texts: Sequence[str]) -> tuple[list[int], list[int], np.ndarray]:
        """Which texts mean which learned steps, and how certainly, (n, 1)."""
        prototypes = self.prototypes
        if not prototypes.labels:
            return [], [], np.zeros((0, 1))
        vectors, names = (unit_vectors(self.engine.encode(part)[0]) for part in (texts, prototypes.labels))
        matched = prototypes.match(texts, vectors, names)
        known = [(row, *match) for row, match in enumerate(matched) if match is not None]
        certainty = np.array([certainty for _, _, certainty in known]).reshape(-1, 1)
        return [row for row, _, _ in known], [number for _, number, _ in known], certainty

    def _learned_similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Additional similarity of texts that name a learned step, (Q, T)."""
        out = np.zeros((len(texts), len(self.nodes)), np.float32)
        rows, numbers, certainty = self._match_learned(texts)
        if rows:
            out[rows] = certainty * self.prototypes.similarity(numbers, self.views)
        return out

    @cached_property
    def parts(self) -> list[Evidence]:
        """Evidence other than pictures: the model's nodes, and the names of recognised classes if there are any."""
        nodes = self.nodes - self.nodes.mean(0) if self.engine.is_raw else self.nodes
        own = NodeEvidence(nodes, self.model_weight)
        probabilities = self.class_probabilities
        return [own] if probabilities is None else [own, class_evidence(probabilities, CLASS_WEIGHT)]

    # Moments

    @abstractmethod
    def shown_similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Similarity of each text with what each node shows, (Q, T)."""

    def similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Similarity of each text with each node, (Q, T), from what it shows and from learned steps."""
        shown = self.shown_similarity(texts)
        return shown + self._learned_similarity(texts) if self.prototypes.labels else shown

    def cached_similarity(self, texts: Sequence[str]) -> np.ndarray:
        """`similarity` of the last texts, since all levels need it."""
        key, prototypes = tuple(texts), self.prototypes
        last = self._last_similarity
        if last is None or last[0] != key or last[1] is not prototypes:
            last = self._last_similarity = key, prototypes, self.similarity(texts)
        return last[2]

    def rank_scores(self, texts: Sequence[str], similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """Scores (Q, N) that rank spans for each text, given its similarity with the nodes (Q, T)."""
        return score_spans(similarity, spans, self.clock.spacing_s, self.temperature)

    # Steps

    @abstractmethod
    def span_similarity(self, texts: Sequence[str], spans: np.ndarray) -> np.ndarray:
        """Similarity of texts with whole spans for `calibration.answer`, (Q, N), without learned steps."""

    def step_similarity(self, texts: Sequence[str], edits: Hierarchy | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Spans of the whole video and of all steps, (S, 2), and their similarity for `calibration.answer`, (Q, S)."""
        steps = self._default_step_spans if edits is None else self.level_spans(list(edits))
        spans = np.concatenate([[[0, len(self.nodes)]], steps])
        similarity = self.span_similarity(texts, spans)
        if self.prototypes.labels:
            similarity = similarity + span_means(self._learned_similarity(texts), spans)
        return spans, similarity

    def probable_steps(self, texts: Sequence[str], edits: Hierarchy | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The spans of the steps of all levels, (S, 2), and the probability that each shows each text, (Q, S).

        A corpus gives its steps the same probabilities.
        """
        spans, similarity = self.step_similarity(texts, edits)
        return spans[1:], calibration.answer(similarity[:, 1:], similarity[:, :1], self.answer_weights)

    def embed_spans(self, spans: np.ndarray) -> np.ndarray:
        """Vectors (N, D) of spans, (N, 2), for cosines with `Engine.embed_queries`.

        They contain the model's nodes and, if texts come from MiniLM, the names of the recognised
        classes: Σ p_c (name_c − mean of names).
        """
        centred = self.engine.is_raw and self.engine.backbones == (CLIP,)
        nodes = self.nodes - self.nodes.mean(0) if centred else self.nodes
        parts = [self.model_weight * unit_vectors(mean_rows(nodes, spans))]
        if self.engine.uses_minilm:
            parts.append(self._named_classes(spans))
        if self.engine.has_pictures:
            parts.append(self._seen(spans))
        return np.concatenate(parts, axis=1).astype(np.float32)

    @cached_property
    def class_probabilities(self) -> np.ndarray | None:
        """Probabilities of the classes of each node, (T, C), or None if texts cannot be compared with their names."""
        if CLASSES not in self.source.features or not self.engine.uses_minilm:
            return None
        return softmax(self.source.features[CLASSES].astype(np.float32))

    def _named_classes(self, spans: np.ndarray) -> np.ndarray:
        if self.class_probabilities is None:
            return np.zeros((len(spans), MINILM_SIZE))
        names = class_name_vectors()
        return np.asarray(mean_rows(self.class_probabilities, spans) @ (names - names.mean(0)))

    def _seen(self, spans: np.ndarray) -> np.ndarray:
        """Means of the pictures and their patches; zeros without pictures, so that all vectors have one length."""
        return np.zeros((len(spans), 2 * JOINT_SIZE))

    def average_features(self, spans: np.ndarray) -> np.ndarray | None:
        """Means of the backbone's features over spans, (N, F), which recognise what the model was never told about.

        None if they were not kept, or if `embed_spans` holds such features already.
        """
        return None if self.features is None else mean_rows(self.features, spans)

    def pack_summaries(self, spans: np.ndarray) -> list[bytes] | None:
        """Summaries of spans for a corpus, or None if their vectors say it all."""
        return None

    # Names

    @abstractmethod
    def name_similarity(self, similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """How well texts name spans, (Q, N), from their similarity with the nodes, (Q, T)."""

    @abstractmethod
    def label_probabilities(
        self, labels: Sequence[str], spans: np.ndarray, is_whole: bool, is_given: bool
    ) -> np.ndarray:
        """Probability that each label names each span, (N, Q).

        `is_whole`: the spans are steps as people see them. `is_given`: the labels are the user's.
        """

    def min_probability(self, label: str) -> float:
        """The probability from which a label names a step."""
        return MIN_LABEL_PROBABILITY

    def learned_once(self) -> frozenset[str]:
        """Learned names that a video has at most once, and that may move to where they fit best."""
        return frozenset()

    def common_names(self, levels: list[list[Step]]) -> list[list[Step]]:
        """The levels without names of coarse steps that their parts do not bear out."""
        return levels

    def rival_labels(self, spans: np.ndarray) -> np.ndarray | None:
        """Similarity of all bundled labels with spans, which spoken names compete with; None if they need not."""
        return self.name_similarity(self.cached_similarity(self.vocabulary), spans)


class Nodes(Sight):
    """The model's nodes, and the names of recognised classes."""

    temperature = TEMPERATURE
    answer_weights = calibration.ANSWER

    @property
    def length_prior(self) -> float:  # type: ignore[override]
        return LENGTH_PRIOR if self.engine.is_raw else NODE_LENGTH_PRIOR

    @property
    def bundled(self) -> list[str]:  # type: ignore[override]
        return default_labels()

    @cached_property
    def views(self) -> dict[str, np.ndarray]:
        views = super().views
        if self.features is not None and len(views) == 1:
            views["features"] = centre_and_normalise(self.features.astype(np.float32))
        return views

    def shown_similarity(self, texts: Sequence[str]) -> np.ndarray:
        return text_similarity(self.parts, *self.engine.encode(texts))

    def rank_scores(self, texts: Sequence[str], similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """Learned steps have a usual length, and nodes that fit several of them count less."""
        prototypes = self.prototypes
        rows, numbers, certainty = self._match_learned(texts)
        if not rows:
            return super().rank_scores(texts, similarity, spans)
        similarity = similarity.copy()
        similarity[rows] -= certainty * rival_similarity(self.similarity(prototypes.labels))
        scores = super().rank_scores(texts, similarity, spans)
        lengths = (spans[:, 1] - spans[:, 0]) / len(self.nodes)
        scores[rows] *= prototypes.length_weights(numbers, lengths) ** certainty
        return scores

    def span_similarity(self, texts: Sequence[str], spans: np.ndarray) -> np.ndarray:
        return np.asarray(self.engine.embed_queries(texts) @ unit_vectors(self.embed_spans(spans)).T)

    def name_similarity(self, similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
        return span_means(similarity, spans)

    def label_probabilities(
        self, labels: Sequence[str], spans: np.ndarray, is_whole: bool, is_given: bool
    ) -> np.ndarray:
        similarity = self.name_similarity(self.cached_similarity(labels), spans)
        if self.prototypes.labels and len(spans):
            lengths = (spans[:, 1] - spans[:, 0]) / len(self.nodes)
            similarity = self.prototypes.share_names(similarity, labels, lengths, is_whole)
        return calibration.label(similarity.T)

    def min_probability(self, label: str) -> float:
        return MIN_LEARNED_PROBABILITY if label in self.prototypes.labels else MIN_LABEL_PROBABILITY

    def learned_once(self) -> frozenset[str]:
        prototypes = self.prototypes
        return frozenset(np.array(prototypes.labels)[prototypes.max_repeats == 1].tolist())


class Pictures(Sight):
    """Pictures and their patches in a space with words, and the names of recognised classes."""

    length_prior = LENGTH_PRIOR
    temperature = PICTURE_TEMPERATURE
    answer_weights = calibration.PICTURE_ANSWER
    class_probabilities: np.ndarray  # always read together with pictures

    @property
    def bundled(self) -> list[str]:  # type: ignore[override]
        return [*default_labels(), *rich_labels()]

    @property
    def head(self) -> str:
        """Name of the head that compares pictures with texts."""
        return self.engine.image_text_head

    @cached_property
    def pictures(self) -> PictureEvidence:
        return PictureEvidence.from_rows(self.source.features[PICTURES], JOINT_SIZE, pooling_temperature(self.head))

    @cached_property
    def classes(self) -> ClassEvidence:
        return class_evidence(self.class_probabilities, CLASS_WEIGHT_WITH_PICTURES)

    @cached_property
    def segmentation_features(self) -> np.ndarray:
        actions = self.source.features[CLASSES].astype(np.float32)
        seen = [self.pictures.pictures, self.pictures.patches.mean(1), actions]
        weighted = [PICTURE_WEIGHT * centre_and_normalise(rows, MIN_NORM) for rows in seen]
        return np.concatenate([NODE_WEIGHT * super().segmentation_features, *weighted], axis=1)

    @cached_property
    def views(self) -> dict[str, np.ndarray]:
        return {**super().views, "pictures": centre_and_normalise(self.pictures.pictures)}

    @cached_property
    def _background(self) -> np.ndarray:
        """Similarity of each node with any text, (T,)."""
        return background_similarity(picture_similarity(self.pictures, self.classes, default_labels(), self.head))

    def shown_similarity(self, texts: Sequence[str]) -> np.ndarray:
        return np.asarray(picture_similarity(self.pictures, self.classes, texts, self.head) - self._background)

    @cached_property
    def summaries(self) -> SummaryCache:
        return SummaryCache(lambda spans: summarise(self.pictures, self.class_probabilities, spans, self.head))

    def span_similarity(self, texts: Sequence[str], spans: np.ndarray) -> np.ndarray:
        return self.summaries.find(spans).similarity(texts, self.head)

    def pack_summaries(self, spans: np.ndarray) -> list[bytes]:
        return self.summaries.find(spans).to_bytes()

    def _seen(self, spans: np.ndarray) -> np.ndarray:
        pictures, patches = self.pictures.pictures, self.pictures.patches.mean(1)
        return np.concatenate([mean_rows(pictures, spans), mean_rows(patches, spans)], axis=1)

    def average_features(self, spans: np.ndarray) -> None:
        return None

    def name_similarity(self, similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """The strongest moment of a span counts, since hands do one thing for seconds."""
        spacing_s = self.clock.spacing_s
        peaks = span_peaks(similarity, spans, max(1, round(PEAK_S / spacing_s)))
        total_s = similarity.sum(1, keepdims=True) * spacing_s
        usual = (total_s + USUAL_S * USUAL_SIMILARITY) / (similarity.shape[1] * spacing_s + USUAL_S)
        return np.asarray(peaks + STANDOUT_WEIGHT * (peaks - usual))

    def label_probabilities(
        self, labels: Sequence[str], spans: np.ndarray, is_whole: bool, is_given: bool
    ) -> np.ndarray:
        similarity = self.name_similarity(self.cached_similarity(labels), spans)
        probabilities = calibration.match(similarity.T)
        if not is_given:
            learned = set(self.prototypes.labels)
            bundled = [i for i, label in enumerate(labels) if label not in learned]
            probabilities[:, bundled] = calibration.match(similarity[bundled].T, weights=calibration.BUNDLED_MATCH)
        return probabilities

    def common_names(self, levels: list[list[Step]]) -> list[list[Step]]:
        """Without names of coarse steps that most of their parts do not share: they describe only a moment."""
        kept = levels[-1:]
        for level in reversed(levels[:-1]):
            parts = {step.id: step for step in kept[0]}
            kept.insert(0, [step if _is_shared(step, parts) else step.without_name() for step in level])
        return kept

    def rival_labels(self, spans: np.ndarray) -> None:
        return None


def _is_shared(step: Step, parts: dict[str, Step]) -> bool:
    """Whether a person named a step, or parts of at least half of its length have the same name."""
    lengths_s = {part: parts[part].end_s - parts[part].start_s for part in step.children if part in parts}
    shared_s = sum(length_s for part, length_s in lengths_s.items() if parts[part].label == step.label)
    return step.is_named_by_person or not lengths_s or 2 * shared_s > sum(lengths_s.values())


def open_sight(
    engine: Embedder, clock: Clock, nodes: np.ndarray, source: VideoFeatures, features: np.ndarray | None
) -> Sight:
    """What a video shows: its pictures if the engine can compare them with texts, or else its nodes."""
    has_pictures = PICTURES in source.features and engine.uses_minilm
    return (Pictures if has_pictures else Nodes)(engine, clock, nodes, source, features)
