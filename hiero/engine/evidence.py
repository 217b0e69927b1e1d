"""What a video shows, as evidence for texts: the model's nodes, or the pictures of an image-text network.

`Nodes` compares texts with the nodes of the model, `ClassNodes` also with the names of recognised classes.
`Pictures` compares them with pictures and their patches, which tell more. All know named steps that were
learned from corrected videos. What they compute belongs to the video and not to its steps, so that it
survives an edit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hiero.engine.answers import Compared, Timeline
from hiero.engine.embedder import CLASSES, PICTURES, Embedder
from hiero.engine.summaries import CLASS_WEIGHT as CLASS_WEIGHT_WITH_PICTURES
from hiero.engine.summaries import SpanSummaries, SummaryCache, picture_similarity
from hiero.engine.vocabulary import class_evidence, default_labels, rich_labels, word_texts, words
from hiero.features.video_features import VideoFeatures
from hiero.networks.joint_text import JOINT_SIZE, pooling_temperature
from hiero.steps import calibration
from hiero.steps.grounding import (
    TEMPERATURE,
    candidate_spans,
    mean_rows,
    same_moments,
    score_spans,
    span_means,
    span_peaks,
)
from hiero.steps.hierarchy import build_hierarchy
from hiero.steps.prototypes import NOTHING_LEARNED, StepPrototypes, rival_similarity
from hiero.steps.segmentation import LENGTH_PRIOR, MIN_NORM, centre_and_normalise
from hiero.steps.similarity import (
    LABEL_TEMPERATURE,
    ClassEvidence,
    NodeEvidence,
    PictureEvidence,
    background_similarity,
    softmax,
    text_similarity,
)
from hiero.types import BOUNDARY_TOLERANCE_S, MIN_LABEL_PROBABILITY, Clock, Hierarchy, Step
from hiero.vectors import unit_vectors

PICTURE_TEMPERATURE = 0.25  # of the distribution of a text over pictures; see `rank_spans`
# Weights in the segmentation: of pictures, patches and actions each; and of the model's nodes.
PICTURE_WEIGHT, NODE_WEIGHT = 0.7, 0.5
CLASS_WEIGHT = 0.03  # weight of class names beside the model's cosines
MIN_LEARNED_PROBABILITY = 0.4  # of a name that was learned from people, below which it is not shown
PEAK_S = 2.0  # length of the moment that names a step
# A name must also stand out: its similarity with the moment exceeds that with the whole video, which counts
# as if it were this much longer and as similar as usual. Chosen by benchmarks.egtea names.
STANDOUT_WEIGHT, USUAL_S, USUAL_SIMILARITY = 2.0, 120.0, -0.25

Rows = Sequence[np.ndarray]


class WordKind(NamedTuple):
    """Words of which the best `num` describe a step, as texts, with the weights of `calibration.word`."""

    names: list[str]
    texts: list[str]
    weights: tuple[float, float]
    num: int


class VideoVectors(Timeline):
    """The vectors of a video: of its nodes, for the segmentation, and of spans of nodes [start, end)."""

    length_prior: float  # λ of `cut_steps` for `segmentation_features`
    class_weight = CLASS_WEIGHT
    word_kinds: Sequence[WordKind] = ()  # none where words cannot be told

    def __init__(
        self, engine: Embedder, clock: Clock, nodes: np.ndarray, source: VideoFeatures, features: np.ndarray | None
    ) -> None:
        super().__init__(clock, len(nodes), source.duration_s)
        self.engine, self.nodes, self.source, self.features = engine, nodes, source, features
        self.node_settings = engine.node_settings
        self.node_weight = self.node_settings.weight(source)
        self.store_spans: Callable[[np.ndarray], None] = lambda _: None  # called when `spans` are found

    @cached_property
    def segmentation_features(self) -> np.ndarray:
        """Centred features for the segmentation, (T, D)."""
        return self.node_weight * centre_and_normalise(self.nodes, MIN_NORM)

    @cached_property
    def spans(self) -> np.ndarray:
        """Candidate spans for answers, (N, 2)."""
        spans = candidate_spans(self.segmentation_features, self.clock.spacing_s, self.length_prior)
        self.store_spans(spans)
        return spans

    @cached_property
    def default_step_spans(self) -> np.ndarray:
        levels = build_hierarchy(self.segmentation_features, self.clock, length_prior=self.length_prior)
        return self.level_spans([step for level in levels for step in level])

    @cached_property
    def views(self) -> dict[str, np.ndarray]:
        """Unit vectors of the nodes, (T, D) each, for `StepPrototypes`."""
        views = {"nodes": unit_vectors(self.nodes)}
        if CLASSES in self.source.features:
            views["classes"] = centre_and_normalise(self.source.features[CLASSES].astype(np.float32))
        return views

    @cached_property
    def classes(self) -> ClassEvidence:
        """The recognised classes of a video that has any."""
        return class_evidence(softmax(self.source.features[CLASSES].astype(np.float32)), self.class_weight)

    @property
    def shared(self) -> Mapping[str, ClassEvidence | PictureEvidence]:
        """Evidence in spaces that the video shares with texts beside the model's, by `Embedder.spaces`."""
        return {}

    def embed_spans(self, spans: np.ndarray) -> np.ndarray:
        """Vectors (N, D) of spans, (N, 2), for cosines with `Engine.embed_queries`.

        They contain the model's nodes and the evidence in the other spaces, or zeros where there is none.
        """
        nodes = self.nodes - self.nodes.mean(0) if self.node_settings.centre_for_spans else self.nodes
        parts = [self.node_weight * unit_vectors(mean_rows(nodes, spans))]
        shared = self.shared
        for name, space in self.engine.spaces.items():
            parts.append(shared[name].embed_spans(spans) if name in shared else np.zeros((len(spans), space.size)))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def average_features(self, spans: np.ndarray) -> np.ndarray | None:
        """Means of the backbone's features over spans, (N, F), which recognise what the model was never told about.

        None if `embed_spans` holds such features already.
        """
        return None if self.features is None else mean_rows(self.features, spans)

    def pack_summaries(self, spans: np.ndarray) -> list[bytes] | None:
        """Summaries of spans for a corpus, or None if their vectors say it all."""
        return None


class Sight(VideoVectors, ABC):
    """What a video shows. Similarities are those of Q texts with T nodes, or with N spans of nodes [start, end)."""

    temperature: float  # of the distribution of a text over the nodes
    answer_weights: tuple[float, float, float]  # for `calibration.answer`
    _last_similarity: tuple[tuple[str, ...], StepPrototypes, np.ndarray] | None = None

    # Learned steps

    @property
    def prototypes(self) -> StepPrototypes:
        """The steps that the model learned from corrected videos. They may be replaced at any time."""
        return self.engine.prototypes or NOTHING_LEARNED

    @property
    def bundled(self) -> list[str]:
        """The vocabulary of bundled phrases."""
        return default_labels()

    @property
    def vocabulary(self) -> list[str]:
        """The default labels: learned names and bundled phrases. Empty if texts cannot be compared."""
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

    # Moments

    def compare(self, queries: Sequence[str], edits: Hierarchy | None) -> Compared:
        """Compare the video with queries. Its steps are those that people corrected, if they did."""
        return ComparedSight(self, queries, edits)

    @cached_property
    def parts(self) -> list[NodeEvidence | ClassEvidence]:
        """Evidence other than pictures: the model's nodes, and the names of recognised classes if there are any."""
        nodes = self.nodes - self.nodes.mean(0) if self.node_settings.centre_for_texts else self.nodes
        return [NodeEvidence(nodes, self.node_weight)]

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
        steps = self.default_step_spans if edits is None else self.level_spans(list(edits))
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

    # Names

    @abstractmethod
    def name_similarity(self, similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """How well texts name spans, (Q, N), from their similarity with the nodes, (Q, T)."""

    @abstractmethod
    def label_probabilities(self, labels: Sequence[str], level: Sequence[Step], is_given: bool) -> np.ndarray:
        """Probability that each label names each step of a level, (N, Q). `is_given`: the labels are the user's."""

    @abstractmethod
    def rate_phrases(self, level: Sequence[Step], similarity: Rows, log_odds: Rows) -> list[tuple[np.ndarray, float]]:
        """For each step, the probabilities that spoken phrases name it, and the least with which one does.

        Given are the phrases' similarity with their step, and their prior log-odds.
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


class ComparedSight(Compared):
    """What a video shows, compared with queries."""

    def __init__(self, sight: Sight, queries: Sequence[str], edits: Hierarchy | None) -> None:
        super().__init__(queries, sight.spans)
        self.sight, self.edits = sight, edits
        self.similarity = sight.similarity(queries)
        self.similarities = ((self.similarity, TEMPERATURE),)

    def probability(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first one is that of the most probable step, less where nodes are less similar."""
        steps, probability = self.sight.probable_steps(self.queries, self.edits)
        num = len(self.spans)
        scores = self.sight.rank_scores(self.queries, self.similarity, np.concatenate([self.spans, spans]))
        relative = np.minimum(scores[:, num:] / scores[:, :num].max(1, keepdims=True), 1.0)
        is_same = same_moments(spans, steps)
        at_moment = np.stack([np.where(is_same, row, 0.0).max(1) for row in probability])
        return probability.max(1, keepdims=True) * relative, at_moment


class Nodes(Sight):
    """The model's nodes."""

    temperature = TEMPERATURE
    answer_weights = calibration.ANSWER

    @property
    def length_prior(self) -> float:  # type: ignore[override]
        return self.node_settings.length_prior

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

    def label_probabilities(self, labels: Sequence[str], level: Sequence[Step], is_given: bool) -> np.ndarray:
        spans = self.level_spans(level)
        similarity = self.name_similarity(self.cached_similarity(labels), spans)
        if self.prototypes.labels and len(spans):
            lengths = (spans[:, 1] - spans[:, 0]) / len(self.nodes)
            similarity = self.prototypes.share_names(similarity, labels, lengths, _are_whole(level))
        return calibration.probability(similarity.T, calibration.LABEL)

    def rate_phrases(self, level: Sequence[Step], similarity: Rows, log_odds: Rows) -> list[tuple[np.ndarray, float]]:
        """Phrases compete with the whole vocabulary."""
        others = self.name_similarity(self.cached_similarity(self.vocabulary), self.level_spans(level))
        rated = []
        for own, odds, rivals in zip(similarity, log_odds, others.T, strict=True):
            logits = [own / LABEL_TEMPERATURE + odds, rivals / LABEL_TEMPERATURE]
            shares = softmax(np.concatenate(logits)[None])[0]
            rated.append((shares[: len(own)], float(shares[len(own) :].max())))
        return rated

    def min_probability(self, label: str) -> float:
        return MIN_LEARNED_PROBABILITY if label in self.prototypes.labels else MIN_LABEL_PROBABILITY

    def learned_once(self) -> frozenset[str]:
        prototypes = self.prototypes
        return frozenset(np.array(prototypes.labels)[prototypes.max_repeats == 1].tolist())


class ClassNodes(Nodes):
    """The model's nodes, and the names of recognised classes."""

    @property
    def shared(self) -> Mapping[str, ClassEvidence]:
        return {CLASSES: self.classes}

    @cached_property
    def parts(self) -> list[NodeEvidence | ClassEvidence]:
        return [*super().parts, self.classes]


class WordlessNodes(Nodes):
    """Nodes that cannot be compared with texts: only what is spoken or named answers."""

    @property
    def bundled(self) -> list[str]:
        return []

    def compare(self, queries: Sequence[str], edits: Hierarchy | None) -> Compared:
        return Compared(queries, self.spans)


class Pictures(Sight):
    """Pictures and their patches in a space with words, and the names of recognised classes."""

    length_prior = LENGTH_PRIOR
    temperature = PICTURE_TEMPERATURE
    answer_weights = calibration.PICTURE_ANSWER
    class_weight = CLASS_WEIGHT_WITH_PICTURES

    @property
    def bundled(self) -> list[str]:
        return [*default_labels(), *rich_labels()]

    @cached_property
    def head(self) -> str:
        return self.engine.image_text_head

    @cached_property
    def pictures(self) -> PictureEvidence:
        return PictureEvidence.from_rows(self.source.features[PICTURES], JOINT_SIZE, pooling_temperature(self.head))

    @property
    def shared(self) -> Mapping[str, ClassEvidence | PictureEvidence]:
        return {CLASSES: self.classes, PICTURES: self.pictures}

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
        probabilities, head = self.classes.probabilities, self.head
        return SummaryCache(lambda spans: SpanSummaries.from_pictures(self.pictures, probabilities, spans, head))

    def span_similarity(self, texts: Sequence[str], spans: np.ndarray) -> np.ndarray:
        return self.summaries.find(spans).similarity(texts, self.head)

    def pack_summaries(self, spans: np.ndarray) -> list[bytes]:
        return self.summaries.find(spans).to_bytes()

    def average_features(self, spans: np.ndarray) -> None:
        return None

    def name_similarity(self, similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """The strongest moment of a span counts, since hands do one thing for seconds."""
        spacing_s = self.clock.spacing_s
        peaks = span_peaks(similarity, spans, max(1, round(PEAK_S / spacing_s)))
        total_s = similarity.sum(1, keepdims=True) * spacing_s
        usual = (total_s + USUAL_S * USUAL_SIMILARITY) / (similarity.shape[1] * spacing_s + USUAL_S)
        return np.asarray(peaks + STANDOUT_WEIGHT * (peaks - usual))

    def label_probabilities(self, labels: Sequence[str], level: Sequence[Step], is_given: bool) -> np.ndarray:
        similarity = self.name_similarity(self.cached_similarity(labels), self.level_spans(level))
        probabilities = calibration.probability(similarity.T, calibration.MATCH)
        if not is_given:
            learned = set(self.prototypes.labels)
            bundled = [i for i, label in enumerate(labels) if label not in learned]
            probabilities[:, bundled] = calibration.probability(similarity[bundled].T, calibration.BUNDLED_MATCH)
        return probabilities

    @cached_property
    def word_kinds(self) -> tuple[WordKind, ...]:  # type: ignore[override]
        """The best verb and the two best things: they are ranked apart, since pictures show things more clearly."""
        (verbs, things), (verb_texts, thing_texts) = words(), word_texts()
        return WordKind(verbs, verb_texts, calibration.VERB, 1), WordKind(things, thing_texts, calibration.THING, 2)

    def rate_phrases(self, level: Sequence[Step], similarity: Rows, log_odds: Rows) -> list[tuple[np.ndarray, float]]:
        return [
            (calibration.probability(own, calibration.MATCH, odds), max(MIN_LABEL_PROBABILITY, step.probability or 0.0))
            for step, own, odds in zip(level, similarity, log_odds, strict=True)
        ]

    def common_names(self, levels: list[list[Step]]) -> list[list[Step]]:
        """Without names of coarse steps that most of their parts do not share: they describe only a moment."""
        kept = levels[-1:]
        for level in reversed(levels[:-1]):
            parts = {step.id: step for step in kept[0]}
            kept.insert(0, [step if _is_shared(step, parts) else step.without_name() for step in level])
        return kept


def _are_whole(level: Sequence[Step]) -> bool:
    """Whether people corrected steps or left gaps, so that they are not parts that the model cut the video into."""
    has_gaps = any(later.start_s - step.end_s > BOUNDARY_TOLERANCE_S for step, later in pairwise(level))
    return has_gaps or any(step.origin != "model" for step in level)


def _is_shared(step: Step, parts: dict[str, Step]) -> bool:
    """Whether a person named a step, or parts of at least half of its length have the same name."""
    lengths_s = {part: parts[part].end_s - parts[part].start_s for part in step.children if part in parts}
    shared_s = sum(length_s for part, length_s in lengths_s.items() if parts[part].label == step.label)
    return step.is_named_by_person or not lengths_s or 2 * shared_s > sum(lengths_s.values())


def open_sight(
    engine: Embedder, clock: Clock, nodes: np.ndarray, source: VideoFeatures, features: np.ndarray | None
) -> Sight:
    """What a video shows: its pictures if the engine can compare them with texts, or else its nodes."""
    kinds: dict[tuple[str, ...], type[Sight]] = {(): Nodes, (CLASSES,): ClassNodes, (CLASSES, PICTURES): Pictures}
    kind = kinds[tuple(name for name in engine.spaces if name in source.features)] if engine.has_text else WordlessNodes
    return kind(engine, clock, nodes, source, features)
