"""Video: the steps, answers and labels of one video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hiero.engine.answers import find_answers
from hiero.engine.embedder import NO_TEXT
from hiero.engine.video_nodes import VideoNodes
from hiero.errors import InputError
from hiero.sources.source import VideoSource
from hiero.speech.evidence import name_by_speech
from hiero.steps import calibration
from hiero.steps.grounding import span_means
from hiero.steps.hierarchy import build_hierarchy
from hiero.steps.prototypes import StepPrototypes
from hiero.steps.segmentation import similarity_matrix
from hiero.steps.similarity import label_probabilities
from hiero.types import (
    Answer,
    Hierarchy,
    Step,
    VideoFile,
    locate_time,
)

MIN_LABEL_PROBABILITY = 0.7  # of a bundled label, below which a step gets none


@dataclass(eq=False, repr=False)
class Video(VideoNodes):
    """A video that was read by `Engine.read`.

    Attributes:
        engine: The engine that read it.
        path: The file.
        clock: The clock of its nodes.
        duration_s: Its length.
        nodes: Unit vectors in the model's space, (T, E), in time order.
        source: Features of the backbones, and thumbnails.
        files: Its file or files, with their start times and lengths.
        transcript: The transcript, or None. Set it before you call `ask` or `steps`.
        edits: The steps as people corrected them, or None. `steps` and `ask` use them.
        edits_name: Where the corrections come from, for messages.
    """

    _last_similarity: tuple[tuple[str, ...], StepPrototypes | None, np.ndarray] | None = None
    files: tuple[VideoFile, ...] = ()
    origin: VideoSource | None = None  # None for features in memory

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
        """The path of the file, or the address of a remote one, as results show it."""
        return str(self.path) if self.origin is None else self.origin.name

    @property
    def shown_files(self) -> tuple[VideoFile, ...]:
        """`files` with the addresses of remote files."""
        if self.origin is None:
            return self.files
        return tuple(replace(f, path=origin.name) for f, origin in zip(self.files, self.origin.files, strict=True))

    def locate(self, time_s: float) -> tuple[Path, float]:
        """The file that contains a time, and the time in that file.

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
            num_steps: Number of steps of each level, such as [4, 8, 16], or of a single level. Defaults
                to three levels chosen by the length.
            method: `pieces` for contiguous steps, `spectral` for the paper's threads, which may recur, or
                another clustering of `hiero.steps.clustering`.
            labels: Each step gets the best of these labels, with [] none. Defaults to bundled everyday
                phrases, of which only probable ones are used.

        Raises:
            InputError: The method is unknown, a number is below 1, or the model has no text encoder for labels.

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
        if labels and not self.engine.has_text:
            raise InputError(NO_TEXT)
        if self.engine.has_text:
            levels = [self._name(level, labels) for level in levels]
        files = self.shown_files if self.is_joined else ()
        nested = tuple(tuple(level) for level in levels)
        utterances = () if self.transcript is None else self.transcript.utterances
        return Hierarchy(self.address, self.engine.name, self.duration_s, nested, files, utterances)

    def _name(self, level: Sequence[Step], labels: Sequence[str] | None) -> list[Step]:
        """Label steps, by default with the vocabulary and the transcript."""
        vocabulary = self.vocabulary if labels is None else list(labels)
        if not vocabulary:
            return list(level)
        least = MIN_LABEL_PROBABILITY if labels is None and self.pictures is not None else 0.0
        named = [
            replace(step, label=best[0][0], probability=best[0][1]) if best[0][1] >= least else step
            for step, best in zip(level, self.likely_labels(level, vocabulary, num=1), strict=True)
        ]
        if labels is not None or not self.transcript:
            return named
        spans = self.level_spans(level)
        others = None if self.pictures is not None else span_means(self.cached_similarity(vocabulary), spans)
        return name_by_speech(named, spans, self.transcript, self.similarity, others)

    def ask(self, queries: str | Sequence[str], *, num: int = 5, in_order: bool = False) -> list[Answer]:
        """Find when each query happens. With a transcript, speech is searched too: see `Match.rests_on`.

        Args:
            queries: One text or several, such as "cut the onion".
            num: Maximum number of matches of each query.
            in_order: Whether the queries are steps that follow each other; each gets one match.

        Returns:
            An answer for each query, its matches best first.

        Raises:
            InputError: A query is empty, `num` is below 1, or the model has no text encoder.

        Examples:
            >>> answer, = text_video.ask("cut the onion")
            >>> 0 <= answer.probability <= 1 and answer.matches[0].start_s < answer.matches[0].end_s
            True
        """
        queries = [queries] if isinstance(queries, str) else list(queries)
        if not queries or not all(query.strip() for query in queries):
            raise InputError("queries must not be empty")
        if num < 1:
            raise InputError(f"num must be at least 1, got {num}")
        if in_order and len(queries) > len(self.nodes):
            raise InputError(f"{len(queries)} steps in order do not fit into {len(self.nodes)} segments of {self.path}")
        return find_answers(self, queries, num, in_order)

    def label(self, labels: str | Sequence[str], *, num_steps: int | Sequence[int] | None = None) -> list[Step]:
        """Step localization: the finest steps, each with the best label; neighbours with equal labels are joined.

        Args:
            labels: The labels to choose from.
            num_steps: Number of steps before neighbours are joined.

        Raises:
            InputError: There are no labels, or the model has no text encoder.

        Examples:
            >>> labels = {"cut the onion", "boil water"}
            >>> {step.label for step in text_video.label(sorted(labels))} <= labels
            True
        """
        labels = [labels] if isinstance(labels, str) else labels
        labels = list(dict.fromkeys(label.strip() for label in labels if label.strip()))
        if not labels:
            raise InputError("give at least one label")
        finest = self.steps(num_steps, labels=labels).levels[-1]
        out: list[Step] = []
        for step in finest:
            if out and out[-1].label == step.label:
                lengths = out[-1].end_s - out[-1].start_s, step.end_s - step.start_s
                probability = np.average([out[-1].probability or 0.0, step.probability or 0.0], weights=lengths)
                out[-1] = replace(out[-1], end_s=step.end_s, probability=float(probability))
            else:
                out.append(replace(step, parent=None, children=()))
        return [replace(step, id=f"{i}") for i, step in enumerate(out)]

    def similarity_matrix(self, size: int = 256) -> np.ndarray:
        """Cosine similarity of the centred nodes, (n, n) with n ≤ size; steps are squares in it."""
        return similarity_matrix(self.segmentation_features, size)

    def likely_labels(
        self, level: Sequence[Step], labels: Sequence[str] | None = None, num: int = 5
    ) -> list[list[tuple[str, float]]]:
        """The best labels for each step of a level, with their probabilities.

        Args:
            level: Steps in time order that cover the video.
            labels: The labels, by default the bundled everyday phrases.
            num: Maximum number of labels of each step.
        """
        labels = list(labels) if labels is not None else self.vocabulary
        if not labels or not self.engine.has_text:
            return [[(step.label, step.probability or 0.0)] if step.label else [] for step in level]
        similarity, spans = self.cached_similarity(labels), self.level_spans(level)
        if self.pictures is None:
            probabilities = label_probabilities(similarity, spans)
        else:
            probabilities = calibration.match(span_means(similarity, spans).T)
        best_first = np.argsort(-probabilities, axis=1, kind="stable")[:, :num]
        return [[(labels[i], float(probabilities[row, i])) for i in best] for row, best in enumerate(best_first)]

    def cached_similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Similarity of each text with each node (Q, T). The last one is cached, since all levels need it."""
        key, prototypes = tuple(texts), self.engine.prototypes
        last = self._last_similarity
        if last is None or last[0] != key or last[1] is not prototypes:
            last = self._last_similarity = key, prototypes, self.similarity(texts)
        return last[2]
