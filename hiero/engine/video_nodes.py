"""VideoNodes: the nodes of a video as features for steps, and as evidence that texts are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from hiero.engine.embedder import CLIP, PICTURES, Embedder
from hiero.engine.speech_evidence import SpeechEvidence
from hiero.engine.transcripts import Transcript
from hiero.features.video_features import VideoFeatures
from hiero.networks.joint_text import JOINT_SIZE, encode_joint_texts, pooling_temperature
from hiero.networks.minilm import MINILM_SIZE, encode_minilm
from hiero.steps import calibration
from hiero.steps.grounding import TEMPERATURE, candidate_spans, score_spans, span_means, span_sums
from hiero.steps.hierarchy import build_hierarchy
from hiero.steps.prototypes import StepPrototypes, rival_similarity
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
from hiero.storage.files import ASSETS
from hiero.types import Clock, Hierarchy, ProgressCallback, ProgressEvent, Step, no_progress
from hiero.vectors import group_vectors, unit_vectors

CLASSES = "i3d-k400"  # the backbone whose features are scores of named classes
PICTURE_TEMPERATURE = 0.25  # of the distribution of a text over pictures; see `rank_spans`
# Weights in the segmentation: of pictures, patches and actions each; and of the model's nodes.
PICTURE_WEIGHT, NODE_WEIGHT = 0.7, 0.5
FULL_WEIGHT_S = 120.0  # length below which the model, trained on recordings of minutes, gets less weight
# Parts of a span in a corpus, and the vectors that summarise the patches of each. With 12 and 24 parts,
# `benchmarks.egtea score --part dev` finds no more.
NUM_PARTS, PART_PATCHES = 6, 8
# Weight of class names beside the model's cosines and beside pictures, and their softmax temperature.
CLASS_WEIGHT, CLASS_WEIGHT_WITH_PICTURES, CLASS_TEMPERATURE = 0.03, 0.06, 0.15


@cache
def default_labels() -> list[str]:
    """The bundled vocabulary of everyday steps."""
    return _read_asset("steps.txt")


@cache
def rich_labels() -> list[str]:
    """The bundled vocabulary of verbs and objects beyond `default_labels`, for videos with pictures."""
    rows = [line.split("|") for line in _read_asset("vocabulary.txt")]
    pairs = [(verb, thing) for verbs, things in rows for verb in verbs.split(",") for thing in things.split(",")]
    labels = dict.fromkeys(f"{verb.strip()} {thing.strip()}" for verb, thing in pairs)
    everyday = set(default_labels())
    return [label for label in labels if label not in everyday]


def _read_asset(name: str) -> list[str]:
    lines = (ASSETS / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@cache
def class_names() -> list[str]:
    """Names of the 400 Kinetics classes, in order."""
    return (ASSETS / "kinetics400.txt").read_text(encoding="utf-8").splitlines()


@cache
def class_name_vectors() -> np.ndarray:
    """Unit vectors of `class_names` by MiniLM, (400, 384)."""
    return encode_minilm(class_names())


def class_evidence(probabilities: np.ndarray, weight: float) -> ClassEvidence:
    """The class probabilities of I3D, (N, 400), as evidence for texts."""
    return ClassEvidence(probabilities, class_name_vectors(), weight, CLASS_TEMPERATURE)


def picture_similarity(
    pictures: PictureEvidence, classes: ClassEvidence | None, texts: Sequence[str], head: str
) -> np.ndarray:
    """Similarity of each text with each picture and its classes, (Q, N)."""
    similarity = pictures.similarity(encode_joint_texts(texts, head))
    if classes is not None:
        vectors = encode_minilm(texts)
        similarity = similarity + classes.similarity(vectors, vectors)
    return similarity


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

    def similarity(self, texts: Sequence[str], head: str) -> np.ndarray:
        """Similarity of each text with each span, (Q, N)."""
        return np.asarray((self.part_similarity(texts, head) - self.background).max(2))

    def part_similarity(self, texts: Sequence[str], head: str) -> np.ndarray:
        """Similarity of each text with each part, (Q, N, P), without the background."""
        num, num_parts = self.background.shape
        patches = self.patches.reshape(num * num_parts, -1, JOINT_SIZE)
        pictures = PictureEvidence(self.pictures.reshape(-1, JOINT_SIZE), patches, pooling_temperature(head))
        classes = class_evidence(np.repeat(self.probabilities, num_parts, axis=0), CLASS_WEIGHT_WITH_PICTURES)
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

    def __init__(self, summarise: Callable[[np.ndarray], SpanSummaries]) -> None:
        self._summarise = summarise
        self._last: tuple[list[tuple[int, int]], SpanSummaries] | None = None

    def find(self, spans: np.ndarray) -> SpanSummaries:
        """The summaries of spans (N, 2), of which only those that were not in the last call are computed."""
        wanted = [(int(start), int(end)) for start, end in spans]
        known, summaries = self._last or (wanted, self._summarise(spans))
        places = {span: row for row, span in enumerate(known)}
        if new := [span for span in dict.fromkeys(wanted) if span not in places]:
            places |= {span: row for row, span in enumerate(new, len(known))}
            summaries = summaries.join(self._summarise(np.array(new)))
        if wanted != known:
            summaries = summaries.select([places[span] for span in wanted])
        self._last = wanted, summaries
        return summaries


@dataclass(eq=False, repr=False)
class VideoNodes:
    """The features of a video in the forms that steps, questions and other videos need."""

    engine: Embedder
    path: Path
    clock: Clock
    duration_s: float
    nodes: np.ndarray
    source: VideoFeatures
    features: np.ndarray | None = None  # what the model read, (T, F); None without a model or if it was not kept
    _known_spans: np.ndarray | None = None  # `spans` from the cache
    _store_spans: Callable[[np.ndarray], None] | None = None  # called when `spans` are found
    transcript: Transcript | None = None
    edits: Hierarchy | None = None
    edits_name: str = ""
    _encoded_speech: tuple[Transcript, SpeechEvidence] | None = None

    @cached_property
    def segmentation_features(self) -> np.ndarray:
        """Centred features for the segmentation, (T, D): the nodes, and if available pictures and actions."""
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
        """The λ of `cut_steps` for `segmentation_features`."""
        return LENGTH_PRIOR if self.engine.folder is None or self.pictures is not None else NODE_LENGTH_PRIOR

    @property
    def _model_weight(self) -> float:
        """Weight of the model's nodes; 1 if there is no other evidence."""
        alone = self.engine.folder is None or not self.source.features
        return 1.0 if alone else min(1.0, self.duration_s / FULL_WEIGHT_S)

    def level_spans(self, level: Sequence[Step]) -> np.ndarray:
        """The nodes [start, end) of each step of a level, (N, 2)."""
        spans = [self.clock.span(step.start_s, step.end_s, len(self.nodes)) for step in level]
        return np.array(spans, dtype=int).reshape(-1, 2)

    # Texts

    def similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Similarity of each text with each node, (Q, T), from all evidence and learned steps."""
        if self.pictures is None:
            similarity = text_similarity(self.evidence, *self.engine.encode(texts))
        else:
            head = self.engine.image_text_head
            similarity = picture_similarity(self.pictures, self._classes, texts, head) - self._background
        prototypes = self.engine.prototypes
        return similarity if prototypes is None else similarity + self._learned_similarity(texts, prototypes)

    def _learned_similarity(self, texts: Sequence[str], prototypes: StepPrototypes) -> np.ndarray:
        """Additional similarity of texts that name a learned step, (Q, T)."""
        out = np.zeros((len(texts), len(self.nodes)), np.float32)
        rows, numbers, certainty = _match_learned(self, texts, prototypes)
        if rows:
            out[rows] = certainty * prototypes.similarity(numbers, self.views)
        return out

    @cached_property
    def views(self) -> dict[str, np.ndarray]:
        """Unit vectors of the nodes, (T, D) each, for `StepPrototypes`."""
        views = {"nodes": unit_vectors(self.nodes)}
        if CLASSES in self.source.features:
            views["classes"] = centre_and_normalise(self.source.features[CLASSES].astype(np.float32))
        if self.pictures is not None:
            views["pictures"] = centre_and_normalise(self.pictures.pictures)
        if self.features is not None and len(views) == 1:
            views["features"] = centre_and_normalise(self.features.astype(np.float32))
        return views

    @property
    def vocabulary(self) -> list[str]:
        """The default labels: learned names and bundled phrases, more of them with pictures."""
        learned = () if self.engine.prototypes is None else self.engine.prototypes.labels
        bundled = default_labels() if self.pictures is None else [*default_labels(), *rich_labels()]
        return list(dict.fromkeys([*learned, *bundled])) if learned else bundled

    @cached_property
    def _background(self) -> np.ndarray:
        """Similarity of each node with any text, (T,)."""
        assert self.pictures is not None
        head = self.engine.image_text_head
        return background_similarity(picture_similarity(self.pictures, self._classes, default_labels(), head))

    @cached_property
    def pictures(self) -> PictureEvidence | None:
        """The pictures of the video in a space with words, or None."""
        if PICTURES not in self.source.features or not self.engine.uses_minilm:
            return None
        temperature = pooling_temperature(self.engine.image_text_head)
        return PictureEvidence.from_rows(self.source.features[PICTURES], JOINT_SIZE, temperature)

    @cached_property
    def evidence(self) -> list[Evidence]:
        """Evidence for texts other than pictures: the model's nodes, and names of recognised classes."""
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
    def temperature(self) -> float:
        """Temperature of the distribution of a text over the nodes."""
        return TEMPERATURE if self.pictures is None else PICTURE_TEMPERATURE

    # Answers

    def step_similarity(self, texts: Sequence[str], edits: Hierarchy | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Spans of the whole video and of all steps, (S, 2), and their similarity for `calibration.answer`, (Q, S)."""
        steps = self._default_step_spans if edits is None else self.level_spans(list(edits))
        spans = np.concatenate([[[0, len(self.nodes)]], steps])
        if self.pictures is None:
            similarity = self.engine.embed_queries(texts) @ unit_vectors(self.embed_spans(spans)).T
        else:
            similarity = self.summarise_spans(spans).similarity(texts, self.engine.image_text_head)
        if self.engine.prototypes is not None:
            similarity = similarity + span_means(self._learned_similarity(texts, self.engine.prototypes), spans)
        return spans, similarity

    @cached_property
    def _default_step_spans(self) -> np.ndarray:
        levels = build_hierarchy(self.segmentation_features, self.clock, length_prior=self.length_prior)
        return self.level_spans([step for level in levels for step in level])

    @cached_property
    def spans(self) -> np.ndarray:
        """Candidate spans of nodes [start, end) for answers, (N, 2)."""
        if self._known_spans is not None:
            return self._known_spans
        spans = candidate_spans(self.segmentation_features, self.clock.spacing_s, self.length_prior)
        if self._store_spans is not None:
            self._store_spans(spans)
        return spans

    @property
    def speech(self) -> SpeechEvidence:
        """The encoded transcript, which is compared with texts. Encoded on first use."""
        return self.encode_speech()

    def encode_speech(self, progress: ProgressCallback = no_progress) -> SpeechEvidence:
        """Encode the transcript, which takes a while for hours of speech."""
        assert self.transcript is not None
        if self._encoded_speech is None or self._encoded_speech[0] is not self.transcript:

            def report(done_s: float) -> None:
                progress(ProgressEvent("read", f"words of {self.path.name}", done_s, self.duration_s))

            report(0.0)
            speech = SpeechEvidence.from_transcript(self.transcript, self.clock, len(self.nodes), report)
            self._encoded_speech = self.transcript, speech
        return self._encoded_speech[1]

    # Other videos

    def embed_spans(self, spans: np.ndarray) -> np.ndarray:
        """Vectors (N, D) of spans of nodes [start, end), (N, 2), for cosines with `Engine.embed_queries`.

        They contain the model's nodes and, if texts come from MiniLM, the names of the recognised
        classes: Σ p_c (name_c − mean of names).
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

    def summarise_spans(self, spans: np.ndarray) -> SpanSummaries:
        """Summaries of spans of nodes [start, end), (N, 2), for texts. Only with pictures."""
        return self._summaries.find(spans)

    @cached_property
    def _summaries(self) -> SummaryCache:
        return SummaryCache(self._summarise)

    def _summarise(self, spans: np.ndarray) -> SpanSummaries:
        assert self.pictures is not None
        parts = _parts(spans)
        patches = [
            group_vectors(self.pictures.patches[start:end].reshape(-1, JOINT_SIZE), PART_PATCHES)
            for start, end in parts
        ]
        assert self._classes is not None  # always read together with pictures
        summaries = SpanSummaries(
            _means(self.pictures.pictures, parts).reshape(len(spans), NUM_PARTS, -1),
            np.stack(patches).reshape(len(spans), NUM_PARTS, PART_PATCHES, -1),
            _means(self._classes.probabilities, spans),
            np.zeros((len(spans), NUM_PARTS)),
        )
        labels = [*default_labels(), *rich_labels()]
        similarity = summaries.part_similarity(labels, self.engine.image_text_head)
        background = background_similarity(similarity.reshape(len(similarity), -1))
        return replace(summaries, background=background.reshape(len(spans), NUM_PARTS))


def _parts(spans: np.ndarray) -> np.ndarray:
    """The nodes [start, end) of the parts of spans, in the order of the spans, (N · NUM_PARTS, 2).

    Parts of a span with fewer nodes overlap.
    """
    edges = spans[:, :1] + np.arange(NUM_PARTS + 1) * np.diff(spans) // NUM_PARTS
    starts, ends = edges[:, :-1], np.maximum(edges[:, 1:], edges[:, :-1] + 1)
    return np.stack([starts.ravel(), ends.ravel()], axis=1)


def _match_learned(
    video: VideoNodes, texts: Sequence[str], prototypes: StepPrototypes
) -> tuple[list[int], list[int], np.ndarray]:
    """Which texts mean which learned steps, and how certainly, (n, 1)."""
    vectors, names = (unit_vectors(video.engine.encode(part)[0]) for part in (texts, prototypes.labels))
    matched = prototypes.match(texts, vectors, names)
    known = [(row, *match) for row, match in enumerate(matched) if match is not None]
    certainty = np.array([certainty for _, _, certainty in known]).reshape(-1, 1)
    return [row for row, _, _ in known], [number for _, number, _ in known], certainty


def rank_scores(video: VideoNodes, texts: Sequence[str], similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Scores (Q, N) that rank spans for each text, given its similarity with the nodes (Q, T).

    Learned steps have a usual length, and nodes that fit several of them count less.
    """
    prototypes = video.engine.prototypes if video.pictures is None else None
    if prototypes is None:
        return score_spans(similarity, spans, video.clock.spacing_s, video.temperature)
    rows, numbers, certainty = _match_learned(video, texts, prototypes)
    similarity = similarity.copy()
    similarity[rows] -= certainty * rival_similarity(video.similarity(prototypes.labels))
    scores = score_spans(similarity, spans, video.clock.spacing_s, video.temperature)
    lengths = (spans[:, 1] - spans[:, 0]) / len(video.nodes)
    scores[rows] *= prototypes.length_weights(numbers, lengths) ** certainty
    return scores


def average_features(video: VideoNodes, spans: np.ndarray) -> np.ndarray | None:
    """Means of the backbone's features over spans of nodes, (N, F), or None.

    They recognise what the model was never told about. With pictures, `embed_spans` has such features.
    """
    return None if video.features is None or video.pictures is not None else _means(video.features, spans)


def probable_steps(
    video: VideoNodes, texts: Sequence[str], edits: Hierarchy | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The spans of the steps of all levels, (S, 2), and the probability that each shows each text, (Q, S).

    A corpus gives its steps the same probabilities.
    """
    spans, similarity = video.step_similarity(texts, edits)
    weights = calibration.ANSWER if video.pictures is None else calibration.PICTURE_ANSWER
    return spans[1:], calibration.answer(similarity[:, 1:], similarity[:, :1], weights)


def _means(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Mean of (T, D) over each span [start, end), (N, D)."""
    return span_sums(rows.T, spans).T / (spans[:, 1] - spans[:, 0])[:, None]
