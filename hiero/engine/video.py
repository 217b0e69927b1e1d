"""Video: what was read of one video; its steps, answers to questions, labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hiero.engine.embedder import CLIP, NO_TEXT, PICTURES, Embedder
from hiero.engine.span_summaries import (
    CLASS_WEIGHT,
    CLASS_WEIGHT_WITH_PICTURES,
    SpanSummaries,
    class_evidence,
    picture_similarity,
)
from hiero.engine.vocabulary import class_name_vectors, default_labels, rich_labels
from hiero.errors import InputError
from hiero.extraction.video_features import VideoFeatures
from hiero.formats.transcripts import Transcript
from hiero.sources.source import VideoSource
from hiero.speech.answers import ask_with_speech, name_by_speech
from hiero.speech.evidence import SpeechEvidence
from hiero.steps.grounding import TEMPERATURE, candidate_spans, rank_spans, span_means, span_sums
from hiero.steps.hierarchy import build_hierarchy
from hiero.steps.ordering import align_in_order
from hiero.steps.prototypes import StepPrototypes
from hiero.steps.segmentation import LENGTH_PRIOR, MIN_NORM, NODE_LENGTH_PRIOR, centre_and_normalise, similarity_matrix
from hiero.steps.similarity import (
    PICTURE_PRESENCE,
    PRESENCE,
    ClassEvidence,
    Evidence,
    NodeEvidence,
    PictureEvidence,
    background_similarity,
    label_probabilities,
    match_probability,
    presence_probability,
    softmax,
    text_similarity,
)
from hiero.text.joint_text import JOINT_SIZE, pooling_temperature
from hiero.text.minilm import MINILM_SIZE
from hiero.types import (
    Answer,
    Clock,
    Hierarchy,
    Match,
    ProgressCallback,
    ProgressEvent,
    Step,
    Utterance,
    VideoFile,
    locate_time,
    no_progress,
)
from hiero.vectors import unit_vectors

CLASSES = "i3d-k400"  # the backbone whose scores are of classes with names
PICTURE_TEMPERATURE = 0.2  # with which a text spreads its belief over pictures; see `rank_spans`
# Where steps are cut: of pictures, of their patches and of actions each; and of the model's nodes beside them.
PICTURE_WEIGHT, NODE_WEIGHT = 0.7, 0.5
# the model learned from recordings of minutes; in a shorter video its word counts less, in
# proportion
TRUSTED_S = 120.0
SUMMARY_PATCHES = 16  # vectors that the patches of a stretch of video become, for a corpus
MIN_LABEL_PROBABILITY = 0.7  # of a bundled label: nothing is said rather than something wrong
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
        files: The file, or those that were read as one video: when each begins, and how long it is.
        transcript: What is said in it; None where that is not known. `ask` and `steps` use it; set it before.
    """

    engine: Embedder
    path: Path
    clock: Clock
    duration_s: float
    nodes: np.ndarray
    source: VideoFeatures
    _known_spans: np.ndarray | None = None  # `spans`, where they were found before
    _store_spans: Callable[[np.ndarray], None] | None = None  # called when they are found
    _similarity_cache: tuple[tuple[str, ...], np.ndarray] | None = None
    _similarity_prototypes: StepPrototypes | None = None  # that the cached similarity knows
    files: tuple[VideoFile, ...] = ()
    transcript: Transcript | None = None
    origin: VideoSource | None = None  # where the files come from; None for features in memory
    _speech_cache: tuple[Transcript, SpeechEvidence] | None = None

    def __post_init__(self) -> None:
        self.files = self.files or (VideoFile(str(self.path), 0.0, self.duration_s),)

    def __repr__(self) -> str:
        return f"<Video {self.path.name}: {self.duration_s:.1f} s, {len(self.nodes)} nodes, {self.engine.name}>"

    @property
    def is_joined(self) -> bool:
        """Whether several files were read as one video."""
        return len(self.files) > 1

    @property
    def address(self) -> str:
        """What results call it: the path of the file, or the address of a remote one."""
        return str(self.path) if self.origin is None else self.origin.name

    @property
    def shown_files(self) -> tuple[VideoFile, ...]:
        """`files` as results name them: remote ones by their addresses."""
        if self.origin is None:
            return self.files
        return tuple(replace(f, path=origin.name) for f, origin in zip(self.files, self.origin.files, strict=True))

    def locate(self, time_s: float) -> tuple[Path, float]:
        """The file that a moment is in, and when it is in that file.

        Args:
            time_s: Seconds from the beginning of the video.

        Examples:
            >>> video.locate(12.5)[1]
            12.5
        """
        file, file_time_s = locate_time(self.files, time_s)
        return Path(file.path), file_time_s

    def steps(
        self,
        num_steps: int | Sequence[int] | None = None,
        *,
        method: str = "pieces",
        labels: str | Sequence[str] | None = None,
    ) -> Hierarchy:
        """The hierarchy of steps, coarse to fine.

        Args:
            num_steps: Number of steps of each level, such as [4, 8, 16], or of the only one; by
                default three levels that follow from the length.
            method: `pieces`, contiguous steps; `spectral`, the paper's threads, which may come
                back; or the name of any other clustering (`hiero.steps.clustering`).
            labels: Each step gets the best of them. By default bundled everyday phrases; of these a
                step of a video gets one only where it is probably right. With [] none.

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
        counts = list(num_steps) if num_steps else None
        levels = build_hierarchy(
            self.segmentation_features, self.clock, counts, method=method, length_prior=self.length_prior
        )
        # The last step ends with the video, not with the clock.
        levels = [[*level[:-1], replace(level[-1], end_s=self.duration_s)] for level in levels]
        vocabulary = list(labels) if labels is not None else self.vocabulary
        if labels and not self.engine.has_text:
            raise InputError(NO_TEXT)
        if vocabulary and self.engine.has_text:
            named = [self.likely_labels(level, vocabulary, num=1) for level in levels]
            least = MIN_LABEL_PROBABILITY if labels is None and self.pictures is not None else 0.0
            levels = [
                [
                    replace(step, label=best[0][0], score=best[0][1]) if best[0][1] >= least else step
                    for step, best in zip(level, ranked, strict=True)
                ]
                for level, ranked in zip(levels, named, strict=True)
            ]
            if labels is None and self.transcript:
                levels = [name_by_speech(self, level) for level in levels]
        files = self.shown_files if self.is_joined else ()
        nested = tuple(tuple(level) for level in levels)
        return Hierarchy(self.address, self.engine.name, self.duration_s, nested, files, self._utterances)

    def ask(self, queries: str | Sequence[str], *, num: int = 5, in_order: bool = False) -> list[Answer]:
        """When does each query happen? Where the video has a transcript, also what is said is
        searched: see `Match.rests_on`.

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
        if in_order and len(queries) > len(self.nodes):
            raise InputError(f"{len(queries)} steps in order do not fit into {len(self.nodes)} segments of {self.path}")
        if self.transcript:
            return ask_with_speech(self, queries, num, in_order)
        similarity = self.similarity(queries)
        ranked = self.rank(similarity, num)
        present = presence_probability(similarity, self.spans, [indices[0] for indices, _ in ranked], self.presence)
        if in_order:
            ordered = align_in_order(similarity)
            return [
                Answer(query, p, (self.make_match(span, p),))
                for query, span, p in zip(queries, ordered, present, strict=True)
            ]
        return [
            Answer(
                query,
                p,
                tuple(self.make_match(self.spans[i], p * s / scores[0]) for i, s in zip(indices, scores, strict=True)),
            )
            for query, (indices, scores), p in zip(queries, ranked, present, strict=True)
        ]

    @property
    def speech(self) -> SpeechEvidence:
        """What is said, to be compared with texts. Encoded when it is first needed."""
        return self.encode_speech()

    def encode_speech(self, progress: ProgressCallback = no_progress) -> SpeechEvidence:
        """`speech`, with a callback: the first question about hours of talk takes its time.

        Args:
            progress: Called with a `ProgressEvent` whenever there is something to show.
        """
        assert self.transcript is not None
        if self._speech_cache is None or self._speech_cache[0] is not self.transcript:
            name = f"words of {self.path.name}"
            progress(ProgressEvent("read", name, 0.0, self.duration_s))
            evidence = SpeechEvidence.from_transcript(
                self.transcript, lambda done_s: progress(ProgressEvent("read", name, done_s, self.duration_s))
            )
            self._speech_cache = self.transcript, evidence
        return self._speech_cache[1]

    @property
    def _utterances(self) -> tuple[Utterance, ...]:
        return () if self.transcript is None else self.transcript.utterances

    @cached_property
    def spans(self) -> np.ndarray:
        """Stretches of nodes [start, end) that could be answers, (N, 2)."""
        if self._known_spans is not None:
            return self._known_spans
        spans = candidate_spans(self.segmentation_features, self.clock.spacing_s, self.length_prior)
        if self._store_spans is not None:
            self._store_spans(spans)
        return spans

    def rank(self, similarity: np.ndarray, num: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The best of `spans` for each text.

        Args:
            similarity: Of each text with each node, (Q, T).
            num: How many for each text.

        Returns:
            For each text the indices of up to `num` spans, best first, and their scores.
        """
        return rank_spans(similarity, self.spans, self.clock.spacing_s, num=num, temperature=self.temperature)

    @property
    def temperature(self) -> float:
        """With which a text spreads its belief over the nodes."""
        return TEMPERATURE if self.pictures is None else PICTURE_TEMPERATURE

    def label(self, labels: str | Sequence[str], *, num_steps: int | Sequence[int] | None = None) -> list[Step]:
        """Step localization: the finest steps, each with the label of a taxonomy that fits best; equal
        neighbours are joined.

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
        """Cosines of the centred nodes with each other, (n, n) with n ≤ size: the picture in which
        steps are squares.
        """
        return similarity_matrix(self.segmentation_features, size)

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
        """What steps are named with where no labels are given: a large vocabulary where there are
        pictures; and learned names.
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
    def _model_weight(self) -> float:
        """How much the model's word counts: all of it where nothing else is known."""
        alone = self.engine.folder is None or not self.source.features
        return 1.0 if alone else min(1.0, self.duration_s / TRUSTED_S)

    def embed_spans(self, spans: np.ndarray) -> np.ndarray:
        """Vectors of stretches of nodes, that `Engine.embed_queries` and each other can be compared
        with by cosine.

        The model's nodes, and beside them, where texts come from the sentence encoder, what the
        names of the classes say that classifiers see: Σ p_c (name_c − mean of names).

        Args:
            spans: Nodes [start, end), (N, 2).

        Returns:
            (N, D).
        """
        centred = self.engine.folder is None and self.engine.backbones == (CLIP,)
        nodes = self.nodes - self.nodes.mean(0) if centred else self.nodes
        parts = [self._model_weight * unit_vectors(_means(nodes, spans))]
        if self.engine.uses_minilm:
            by_name = np.zeros((len(spans), MINILM_SIZE))
            if self._classes is not None:
                names = class_name_vectors()
                by_name = _means(self._classes.probabilities, spans) @ (names - names.mean(0))
            parts.append(CLASS_NAME_WEIGHT * by_name)
        if self.engine.has_pictures:
            seen = self.pictures
            parts += (
                [np.zeros((len(spans), JOINT_SIZE))] * 2
                if seen is None
                else [_means(seen.pictures, spans), _means(seen.patches.mean(1), spans)]
            )
        return np.concatenate(parts, axis=1).astype(np.float32)

    def summarise_spans(self, spans: np.ndarray) -> SpanSummaries | None:
        """What texts are compared with, of stretches of nodes: where pictures were read. See `SpanSummaries`.

        Args:
            spans: Nodes [start, end), (N, 2).
        """
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

    def likely_labels(
        self, level: Sequence[Step], labels: Sequence[str] | None = None, num: int = 5
    ) -> list[list[tuple[str, float]]]:
        """For each step of a level the labels that fit it best, with their probabilities.

        Args:
            level: Steps in time order that cover the video.
            labels: By default the bundled everyday phrases.
            num: How many for each step.
        """
        labels = list(labels) if labels is not None else self.vocabulary
        if not labels or not self.engine.has_text:
            return [[(step.label, step.score or 0.0)] if step.label else [] for step in level]
        similarity, spans = self.cached_similarity(labels), self.level_spans(level)
        if self.pictures is None:
            probabilities = label_probabilities(similarity, spans)
        else:
            probabilities = match_probability(span_means(similarity, spans).T)
        # The one best needs no sorting, which takes long in a large vocabulary.
        best_first = (
            probabilities.argmax(1)[:, None] if num == 1 else np.argsort(-probabilities, axis=1, kind="stable")[:, :num]
        )
        return [[(labels[i], float(probabilities[row, i])) for i in best] for row, best in enumerate(best_first)]

    def level_spans(self, level: Sequence[Step]) -> np.ndarray:
        """The nodes [start, end) of each step of a level, (N, 2)."""
        return np.array([self.clock.span(step.start_s, step.end_s, len(self.nodes)) for step in level])

    def cached_similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Similarity of each text with each node (Q, T); that of the last vocabulary is kept, since
        every level asks for it.
        """
        key, prototypes = tuple(texts), self.engine.prototypes
        if (
            self._similarity_cache is None
            or self._similarity_cache[0] != key
            or self._similarity_prototypes is not prototypes
        ):
            self._similarity_cache, self._similarity_prototypes = (key, self.similarity(texts)), prototypes
        return self._similarity_cache[1]

    def make_match(self, span: Sequence[int] | np.ndarray, score: float) -> Match:
        """A stretch of nodes [start, end) as a match, in seconds."""
        start, end = (int(i) for i in span)
        start_s = self.clock.edge_s(start)
        end_s = self.duration_s if end == len(self.nodes) else self.clock.edge_s(end)
        return Match(start_s, max(end_s, start_s), float(score))


def _means(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Mean of (T, D) over each span [start, end), (N, D)."""
    return span_sums(rows.T, spans).T / (spans[:, 1] - spans[:, 0])[:, None]
