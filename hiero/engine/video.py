"""Video: the steps, answers and labels of one video."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hiero.engine.answers import Compared, find_answers, place_in_order
from hiero.engine.embedder import Embedder
from hiero.engine.evidence import Sight
from hiero.engine.names import ComparedNames
from hiero.engine.naming import likely_labels, make_recipe_steps, name_levels, place_learned_names
from hiero.engine.speech import ComparedSpeech, SpeechEvidence
from hiero.engine.transcripts import Transcript
from hiero.errors import InputError
from hiero.features.video_features import VideoFeatures
from hiero.media.source import VideoSource
from hiero.steps.hierarchy import build_hierarchy
from hiero.steps.recipes import RecipeLine
from hiero.types import (
    Answer,
    Clock,
    Hierarchy,
    ProgressCallback,
    ProgressEvent,
    Step,
    VideoFile,
    locate_time,
    no_progress,
)


@dataclass(eq=False, repr=False)
class Video:
    """A video that was read by `Engine.read`.

    Attributes:
        engine: The engine that read it.
        path: The file.
        clock: The clock of its nodes.
        sight: What it shows, as evidence for texts.
        origin: Where it was read from.
        files: Its file or files, with their start times and lengths.
        transcript: The transcript, or None. Set it before you call `ask` or `steps`.
        edits: The steps as people corrected them, or None. `steps` and `ask` use them.
        edits_name: The file that the corrections come from.
    """

    engine: Embedder
    path: Path
    clock: Clock
    sight: Sight
    origin: VideoSource
    files: tuple[VideoFile, ...] = ()
    state: tuple[object, ...] = ()  # of the files of `origin` before they were read; empty for features in memory
    transcript: Transcript | None = None
    edits: Hierarchy | None = None
    edits_name: str = ""
    _encoded_speech: tuple[Transcript, SpeechEvidence] | None = None

    def __post_init__(self) -> None:
        self.files = self.files or (VideoFile(str(self.path), 0.0, self.duration_s),)

    def __repr__(self) -> str:
        return f"<Video {self.path.name}: {self.duration_s:.1f} s, {len(self.nodes)} nodes, {self.engine.name}>"

    @property
    def nodes(self) -> np.ndarray:
        """Unit vectors in the model's space, (T, E), in time order."""
        return self.sight.nodes

    @property
    def source(self) -> VideoFeatures:
        """Features of the backbones, and thumbnails."""
        return self.sight.source

    @property
    def duration_s(self) -> float:
        """Its length in seconds."""
        return self.source.duration_s

    @property
    def is_joined(self) -> bool:
        """Whether several files were read as one video."""
        return len(self.files) > 1

    @property
    def has_changed(self) -> bool:
        """Whether a file was written to or replaced since it was read."""
        with suppress(OSError):  # a missing file has no other content
            return bool(self.state) and self.origin.state() != self.state
        return False

    @property
    def address(self) -> str:
        """The path of the file, or the address of a remote one, as results show it."""
        return self.origin.name

    @property
    def shown_files(self) -> tuple[VideoFile, ...]:
        """`files` with the addresses of remote files."""
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
        method: str = "contiguous",
        labels: str | Sequence[str] | None = None,
    ) -> Hierarchy:
        """The hierarchy of steps, coarse to fine.

        If people corrected the steps of this video, these are the corrected ones, unless you give a
        number of steps or a method.

        Args:
            num_steps: Number of steps of each level, such as [4, 8, 16], or of a single level. Defaults
                to three levels chosen by the length.
            method: `contiguous` for steps that happen once, `spectral` for the paper's threads, which may recur, or
                another clustering of `hiero.steps.clustering`.
            labels: Each step gets the best of these labels if it is probable, with [] none. Defaults to
                bundled everyday phrases. Names that people gave stay.

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
        if labels:
            self.engine.require_text()
        if self.edits is not None and counts is None and method == "contiguous":
            return self._corrected_steps(self.edits, labels)
        levels = build_hierarchy(
            self.sight.segmentation_features, self.clock, counts, method=method, length_prior=self.sight.length_prior
        )
        # The last step ends with the video, not with the clock.
        levels = [[*level[:-1], replace(level[-1], end_s=self.duration_s)] for level in levels]
        levels = name_levels(self.sight, levels, labels, self.transcript)
        return _hierarchy(self, [tuple(level) for level in levels])

    def _corrected_steps(self, edits: Hierarchy, labels: Sequence[str] | None) -> Hierarchy:
        """The steps as people corrected them. Labels replace the names that the model gave."""
        levels = edits.levels
        if labels is not None:
            unnamed = [[step if step.is_named_by_person else step.without_name() for step in level] for level in levels]
            levels = tuple(map(tuple, name_levels(self.sight, unnamed, labels, self.transcript)))
        corrected = _hierarchy(self, levels)
        return replace(
            corrected, model=edits.model, duration_s=edits.duration_s, speech=corrected.speech or edits.speech
        )

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
        return self.answer(self.edits, queries, num, in_order)

    def answer(self, edits: Hierarchy | None, queries: Sequence[str], num: int, in_order: bool = False) -> list[Answer]:
        """`ask` with other corrected steps than those of the video.

        Args:
            edits: The steps as people corrected them, or None.
            queries: The texts.
            num: Maximum number of matches of each query.
            in_order: Whether the queries are steps that follow each other.
        """
        if num < 1:
            raise InputError(f"num must be at least 1, got {num}")
        compared = self._compare(queries, edits)
        features, spacing_s = self.sight.segmentation_features, self.clock.spacing_s
        placed = place_in_order(compared, features, spacing_s) if in_order else []
        return find_answers(self.sight, compared, queries, num, placed)

    def _compare(self, queries: Sequence[str], edits: Hierarchy | None) -> list[Compared]:
        """All evidence for queries: what is shown, spoken, and named by people."""
        if not queries or not all(query.strip() for query in queries):
            raise InputError("queries must not be empty")
        compared = [self.sight.compare(queries, edits)]
        if self.transcript:
            compared.append(ComparedSpeech(self.speech, queries, self.clock.spacing_s))
        else:
            self.engine.require_text()
        if named := [step for step in edits or () if step.is_named_by_person]:
            compared.append(ComparedNames(named, self.sight.level_spans(named), queries))
        return compared

    def follow(self, lines: Sequence[str], *, is_optional: bool = False) -> Hierarchy:
        """The steps of a recipe in its order: a step for each line, and background where no line fits.

        Args:
            lines: What is done, in order. A line may end with its duration: "boil the pasta 8 min".
            is_optional: Whether lines that do not fit may be left out.

        Raises:
            InputError: A line is empty, there are more lines than segments, or the model has no text encoder.

        Examples:
            >>> recipe = text_video.follow(["cut the onion", "boil water"])
            >>> [step.label for step in recipe.levels[0] if not step.background]
            ['cut the onion', 'boil water']
        """
        recipe = [RecipeLine.parse(line) for line in lines]
        texts = [line.text for line in recipe]
        compared = self._compare(texts, None)
        features, lengths_s = self.sight.segmentation_features, [line.duration_s for line in recipe]
        spans = place_in_order(compared, features, self.clock.spacing_s, lengths_s, is_optional)
        return _hierarchy(self, [make_recipe_steps(self.sight, texts, spans)])

    def label(self, labels: str | Sequence[str], *, num_steps: int | Sequence[int] | None = None) -> list[Step]:
        """Step localization: the finest steps with the best label, if it is probable; equal neighbours are joined.

        Args:
            labels: The labels to choose from.
            num_steps: Number of steps before neighbours are joined.

        Raises:
            InputError: There are no labels, or the model has no text encoder.

        Examples:
            >>> labels = {"cut the onion", "boil water"}
            >>> {step.label for step in text_video.label(sorted(labels))} <= labels | {None}
            True
        """
        labels = [labels] if isinstance(labels, str) else labels
        labels = list(dict.fromkeys(label.strip() for label in labels if label.strip()))
        if not labels:
            raise InputError("give at least one label")
        finest: Sequence[Step] = self.steps(num_steps, labels=labels).levels[-1]
        if num_steps is None and self.edits is None:
            finest = place_learned_names(self.sight, labels, finest)
        out: list[Step] = []
        for step in finest:
            if out and out[-1].label == step.label:
                probability = None
                if out[-1].probability is not None and step.probability is not None:
                    lengths = out[-1].end_s - out[-1].start_s, step.end_s - step.start_s
                    probability = float(np.average([out[-1].probability, step.probability], weights=lengths))
                out[-1] = replace(out[-1], end_s=step.end_s, probability=probability)
            else:
                out.append(replace(step, parent=None, children=()))
        return [replace(step, id=f"{i}") for i, step in enumerate(out)]

    def likely_labels(
        self, level: Sequence[Step], labels: Sequence[str] | None = None, num: int = 5
    ) -> list[list[tuple[str, float]]]:
        """The best labels for each step of a level, with their probabilities.

        Args:
            level: Steps in time order that cover the video.
            labels: The labels, by default the bundled everyday phrases.
            num: Maximum number of labels of each step.
        """
        return likely_labels(self.sight, level, labels, num)

    @property
    def speech(self) -> SpeechEvidence:
        """The encoded transcript, which is compared with texts. Encoded on first use."""
        return self.encode_speech()

    def encode_speech(self, progress: ProgressCallback = no_progress) -> SpeechEvidence:
        """Encode the transcript, which takes a while for hours of speech."""
        if self.transcript is None:
            raise InputError(f"{self.path}: has no transcript")
        if self._encoded_speech is None or self._encoded_speech[0] is not self.transcript:

            def report(done_s: float) -> None:
                progress(ProgressEvent("read", f"words of {self.path.name}", done_s, self.duration_s))

            report(0.0)
            speech = SpeechEvidence.from_transcript(self.transcript, self.clock, len(self.nodes), report)
            self._encoded_speech = self.transcript, speech
        return self._encoded_speech[1]


def _hierarchy(video: Video, levels: Sequence[tuple[Step, ...]]) -> Hierarchy:
    files = video.shown_files if video.is_joined else ()
    speech = () if video.transcript is None else video.transcript.utterances
    return Hierarchy(video.address, video.engine.name, video.duration_s, tuple(levels), files, speech)
