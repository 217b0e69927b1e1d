"""Video: the steps, answers and labels of one video."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from hiero.engine.embedder import NO_TEXT
from hiero.engine.speech_evidence import (
    SPEECH_TEMPERATURE,
    join_evidence,
    name_by_speech,
    speech_probability,
    strongest_evidence,
)
from hiero.engine.transcripts import Transcript
from hiero.engine.video_nodes import VideoNodes, probable_steps, rank_scores
from hiero.errors import InputError
from hiero.media.source import VideoSource
from hiero.networks.minilm import encode_minilm
from hiero.steps import calibration
from hiero.steps.grounding import (
    TEMPERATURE,
    best_ordered_spans,
    distinct_spans,
    log_lift,
    same_moments,
    span_means,
    span_peaks,
    span_sums,
)
from hiero.steps.hierarchy import build_hierarchy
from hiero.steps.prototypes import StepPrototypes, place_names
from hiero.steps.segmentation import label_runs
from hiero.steps.similarity import softmax
from hiero.types import (
    BOUNDARY_TOLERANCE_S,
    MIN_LABEL_PROBABILITY,
    Answer,
    Hierarchy,
    Match,
    Step,
    VideoFile,
    locate_time,
)

MIN_LEARNED_PROBABILITY = 0.4  # the same for names learned from people, without pictures; chosen, not fitted
PEAK_S = 2.0  # length of the moment that names a step
# A name must also stand out: its similarity with the moment exceeds that with the whole video, which counts
# as if it were this much longer and as similar as usual. Chosen by benchmarks.egtea names.
STANDOUT_WEIGHT, USUAL_S, USUAL_SIMILARITY = 2.0, 120.0, -0.25
MAX_ANSWER_SHARE = 0.8  # of the video; see `_is_short_enough`
MIN_BELIEF_SHARE = 0.5
MIN_NAME_PROBABILITY = 0.3  # of a name that is shown as the reason for an answer


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
        edits_name: The file that the corrections come from.
    """

    _last_similarity: tuple[tuple[str, ...], StepPrototypes | None, np.ndarray] | None = None
    files: tuple[VideoFile, ...] = ()
    origin: VideoSource | None = None  # None for features in memory
    state: tuple[object, ...] = ()  # of the files of `origin` before they were read

    def __post_init__(self) -> None:
        self.files = self.files or (VideoFile(str(self.path), 0.0, self.duration_s),)

    def __repr__(self) -> str:
        return f"<Video {self.path.name}: {self.duration_s:.1f} s, {len(self.nodes)} nodes, {self.engine.name}>"

    @property
    def is_joined(self) -> bool:
        """Whether several files were read as one video."""
        return len(self.files) > 1

    @property
    def has_changed(self) -> bool:
        """Whether a file was written to or replaced since it was read."""
        with suppress(OSError):  # a missing file has no other content
            return self.origin is not None and self.origin.state() != self.state
        return False

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

        If people corrected the steps of this video, these are the corrected ones, unless you give a
        number of steps or a method.

        Args:
            num_steps: Number of steps of each level, such as [4, 8, 16], or of a single level. Defaults
                to three levels chosen by the length.
            method: `pieces` for contiguous steps, `spectral` for the paper's threads, which may recur, or
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
        if labels and not self.engine.has_text:
            raise InputError(NO_TEXT)
        if self.edits is not None and counts is None and method == "pieces":
            return self._corrected_steps(self.edits, labels)
        levels = build_hierarchy(
            self.segmentation_features, self.clock, counts, method=method, length_prior=self.length_prior
        )
        # The last step ends with the video, not with the clock.
        levels = [[*level[:-1], replace(level[-1], end_s=self.duration_s)] for level in levels]
        levels = self._name(levels, labels)
        files = self.shown_files if self.is_joined else ()
        nested = tuple(tuple(level) for level in levels)
        utterances = () if self.transcript is None else self.transcript.utterances
        return Hierarchy(self.address, self.engine.name, self.duration_s, nested, files, utterances)

    def _corrected_steps(self, edits: Hierarchy, labels: Sequence[str] | None) -> Hierarchy:
        """The steps as people corrected them. Labels replace the names that the model gave."""
        levels = edits.levels
        if labels is not None:
            unnamed = [
                [s if s.is_named_by_person else replace(s, label=None, probability=None) for s in level]
                for level in levels
            ]
            levels = tuple(map(tuple, self._name(unnamed, labels)))
        speech = edits.speech if self.transcript is None else self.transcript.utterances
        files = self.shown_files if self.is_joined else ()
        return replace(edits, video=self.address, levels=levels, files=files, speech=speech)

    def _name(self, levels: Sequence[Sequence[Step]], labels: Sequence[str] | None) -> list[list[Step]]:
        """Label steps that people have not named, by default with the vocabulary and the transcript."""
        if not self.engine.has_text or not (self.vocabulary if labels is None else labels):
            return [list(level) for level in levels]
        named = [self._label(level, labels) for level in levels]
        if self.pictures is not None:
            named = _keep_common_names(named)
        if labels is not None or not self.transcript:
            return named
        return [self._name_by_speech(level, self.transcript) for level in named]

    def _label(self, level: Sequence[Step], labels: Sequence[str] | None) -> list[Step]:
        named = list(level)
        for i, ((label, probability),) in enumerate(self.likely_labels(level, labels, num=1)):
            is_free = not level[i].is_named_by_person and not level[i].background
            if is_free and is_probable_label(self, label, probability):
                named[i] = replace(level[i], label=label, probability=probability)
        return named

    def _name_by_speech(self, level: Sequence[Step], transcript: Transcript) -> list[Step]:
        spans = self.level_spans(level)

        def compare(texts: Sequence[str]) -> np.ndarray:
            return self.name_similarity(self.similarity(texts), spans)

        others = None
        if self.pictures is None:
            others = self.name_similarity(self.cached_similarity(self.vocabulary), spans)
        return name_by_speech(level, transcript, compare, others)

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
        return find_answers(self, self.edits, queries, num, in_order)

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
            finest = place_learned_names(self, labels, finest)
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
        is_given = labels is not None
        labels = list(labels) if labels is not None else self.vocabulary
        if not labels or not self.engine.has_text:
            return [[(step.label, step.probability or 0.0)] if step.label else [] for step in level]
        spans = self.level_spans(level)
        similarity = self.name_similarity(self.cached_similarity(labels), spans)
        prototypes = self.engine.prototypes
        if prototypes is not None and self.pictures is None and len(level):
            lengths = (spans[:, 1] - spans[:, 0]) / len(self.nodes)
            similarity = prototypes.share_names(similarity, labels, lengths, _are_whole(level))
        probabilities = (calibration.label if self.pictures is None else calibration.match)(similarity.T)
        if self.pictures is not None and not is_given:
            learned = () if prototypes is None else set(prototypes.labels)
            bundled = [i for i, label in enumerate(labels) if label not in learned]
            probabilities[:, bundled] = calibration.match(similarity[bundled].T, weights=calibration.BUNDLED_MATCH)
        best_first = np.argsort(-probabilities, axis=1, kind="stable")[:, :num]
        return [[(labels[i], float(probabilities[row, i])) for i in best] for row, best in enumerate(best_first)]

    def name_similarity(self, similarity: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """How well texts name spans of nodes, (Q, N), from their similarity with the nodes, (Q, T).

        With pictures, the strongest moment of a span counts, since hands do one thing for seconds.
        """
        if self.pictures is None:
            return span_means(similarity, spans)
        spacing_s = self.clock.spacing_s
        peaks = span_peaks(similarity, spans, max(1, round(PEAK_S / spacing_s)))
        total_s = similarity.sum(1, keepdims=True) * spacing_s
        usual = (total_s + USUAL_S * USUAL_SIMILARITY) / (similarity.shape[1] * spacing_s + USUAL_S)
        return np.asarray(peaks + STANDOUT_WEIGHT * (peaks - usual))

    def cached_similarity(self, texts: Sequence[str]) -> np.ndarray:
        """Similarity of each text with each node (Q, T). The last one is cached, since all levels need it."""
        key, prototypes = tuple(texts), self.engine.prototypes
        last = self._last_similarity
        if last is None or last[0] != key or last[1] is not prototypes:
            last = self._last_similarity = key, prototypes, self.similarity(texts)
        return last[2]


def _keep_common_names(levels: list[list[Step]]) -> list[list[Step]]:
    """Remove names of coarse steps that most of their parts do not share: they describe only a moment."""
    kept = levels[-1:]
    for level in reversed(levels[:-1]):
        parts = {step.id: step for step in kept[0]}
        named = []
        for step in level:
            lengths_s = {part: parts[part].end_s - parts[part].start_s for part in step.children if part in parts}
            shared_s = sum(length_s for part, length_s in lengths_s.items() if parts[part].label == step.label)
            is_common = not lengths_s or 2 * shared_s > sum(lengths_s.values())
            named.append(step if is_common or step.is_named_by_person else replace(step, label=None, probability=None))
        kept.insert(0, named)
    return kept


def is_probable_label(video: VideoNodes, label: str, probability: float) -> bool:
    """Whether a label is probable enough to name a step of a video."""
    prototypes = video.engine.prototypes if video.pictures is None else None
    is_learned = prototypes is not None and label in prototypes.labels
    return probability >= (MIN_LEARNED_PROBABILITY if is_learned else MIN_LABEL_PROBABILITY)


def place_learned_names(video: VideoNodes, labels: Sequence[str], level: Sequence[Step]) -> list[Step]:
    """Move learned names that occur once from the steps of a level to the spans that fit them best."""
    prototypes = video.engine.prototypes if video.pictures is None else None
    once = set() if prototypes is None else set(np.array(prototypes.labels)[prototypes.max_repeats == 1].tolist())
    names = [label for label in labels if label in once]
    if not names:
        return list(level)
    similarity = video.similarity(names)
    spans = video.spans[rank_scores(video, names, similarity, video.spans).argmax(1)]
    probability = calibration.label(span_means(similarity, spans).diagonal())
    owner = place_names(spans, np.where(probability < MIN_LEARNED_PROBABILITY, 0.0, probability), len(video.nodes))
    numbers = np.repeat(np.arange(len(level)), np.diff([*(span[0] for span in video.level_spans(level)), len(owner)]))
    placed = []
    for start, end in label_runs(np.where(owner < 0, numbers, len(level) + owner)):
        step = level[numbers[start]]
        if owner[start] >= 0:
            step = replace(step, label=names[owner[start]], probability=float(probability[owner[start]]))
        elif step.label in once:
            step = replace(step, label=None, probability=None)
        match = _make_match(video, np.array([start, end]), 0.0)
        placed.append(replace(step, start_s=match.start_s, end_s=match.end_s))
    return placed


def _are_whole(level: Sequence[Step]) -> bool:
    """Whether steps are not pieces that the model cut the whole video into: people corrected them or left gaps."""
    has_gaps = any(later.start_s - step.end_s > BOUNDARY_TOLERANCE_S for step, later in pairwise(level))
    return has_gaps or any(step.origin != "model" for step in level)


def find_answers(
    video: VideoNodes, edits: Hierarchy | None, queries: Sequence[str], num: int, in_order: bool = False
) -> list[Answer]:
    """`Video.ask` with the steps as people corrected them (`edits`).

    Pictures, speech, and the names that people gave, are independent evidence.
    """
    if not queries or not all(query.strip() for query in queries):
        raise InputError("queries must not be empty")
    if num < 1:
        raise InputError(f"num must be at least 1, got {num}")
    if in_order and len(queries) > len(video.nodes):
        raise InputError(f"{len(queries)} steps in order do not fit into {len(video.nodes)} segments of {video.path}")
    named = [step for step in edits or () if step.is_named_by_person]
    candidates, heard = [video.spans, video.level_spans(named)], None
    seen = video.similarity(queries) if video.engine.has_text or not video.transcript else None
    if video.transcript:
        heard = video.speech.similarity(queries)
        candidates.append(video.speech.spans)
    spans = np.unique(np.concatenate(candidates), axis=0)
    both = [(seen, TEMPERATURE), (heard, SPEECH_TEMPERATURE)]
    known = [(similarity, temperature) for similarity, temperature in both if similarity is not None]
    if in_order:
        lifts = [log_lift(similarity, temperature) for similarity, temperature in known]
        spans = np.concatenate([spans, best_ordered_spans(np.sum(lifts, axis=0), video.clock.spacing_s)])
    by_sight = by_step = np.zeros((len(queries), len(spans)))
    if seen is not None:
        by_sight, by_step = _sight_probability(video, edits, queries, seen, spans)
    probability, sure = by_sight, by_step
    if heard is not None:
        spoken = speech_probability(heard, spans, video.clock.spacing_s)
        probability, sure = join_evidence(probability, spoken), join_evidence(sure, spoken)
    names = _NamedSpans.find(video, named, queries, spans)
    if named:
        probability, sure = join_evidence(probability, names.probability), join_evidence(sure, names.probability)
    is_named = names.probability > MIN_NAME_PROBABILITY
    present = probability.max(1)
    belief = np.mean([softmax(similarity / temperature) for similarity, temperature in known], axis=0)
    probability = np.where(_is_short_enough(belief, spans, probability) | is_named, probability, 0.0)
    answers = []
    for i, query in enumerate(queries):
        chosen = [len(spans) - len(queries) + i]
        if not in_order:
            chosen = [j for j in distinct_spans(spans, probability[i], num) if probability[i, j] > 0]
        matches = []
        # The best match is as probable as the best step, and no match is more probable than a better one.
        for j, p in zip(chosen, np.minimum.accumulate([present[i], *sure[i, chosen[1:]]]), strict=True):
            match = _make_match(video, spans[j], p)
            if is_named[i, j] and names.probability[i, j] > by_step[i, j]:
                match = replace(match, rests_on="name", quote=names.quote(i, j))
            elif heard is not None:
                match = _add_speech(video, match, query, spans[j], by_sight[i, j], heard[i])
            matches.append(match)
        answers.append(Answer(query, float(present[i]), tuple(matches)))
    return answers


def _make_match(video: VideoNodes, span: np.ndarray, probability: float) -> Match:
    """Convert a span of nodes [start, end) to a match in seconds."""
    start, end = (int(i) for i in span)
    start_s = video.clock.edge_s(start)
    end_s = video.duration_s if end == len(video.nodes) else video.clock.edge_s(end)
    return Match(start_s, max(end_s, start_s), float(probability))


def _sight_probability(
    video: VideoNodes, edits: Hierarchy | None, queries: Sequence[str], similarity: np.ndarray, spans: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Probability that each span shows each text, (Q, N), given the similarity of texts and nodes, (Q, T).

    The first one is that of the most probable step, less where nodes are less similar, and ranks spans.
    The second one is that of the most probable step at the same moment.
    """
    steps, probability = probable_steps(video, queries, edits)
    num = len(video.spans)
    scores = rank_scores(video, queries, similarity, np.concatenate([video.spans, spans]))
    relative = np.minimum(scores[:, num:] / scores[:, :num].max(1, keepdims=True), 1.0)
    is_same = same_moments(spans, steps)
    by_step = np.stack([np.where(is_same, row, 0.0).max(1) for row in probability])
    return probability.max(1, keepdims=True) * relative, by_step


def _is_short_enough(belief: np.ndarray, spans: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Whether each span may answer each query, (Q, N), given the belief in each node, (Q, T).

    A span that covers nearly all of the video is no answer if a shorter one is more probable or holds
    half of its belief.
    """
    is_long = spans[:, 1] - spans[:, 0] > MAX_ANSWER_SHARE * belief.shape[1]
    inside = span_sums(belief, spans)
    shorter = np.where(is_long, 0.0, inside).max(1, keepdims=True)
    is_best = probability > np.where(is_long, 0.0, probability).max(1, keepdims=True)
    return ~is_long | (is_best & (shorter < MIN_BELIEF_SHARE * inside))


@dataclass(frozen=True)
class _NamedSpans:
    """Steps that people named, as evidence: the probability (Q, N) that the name at each span means each query."""

    probability: np.ndarray
    steps: Sequence[Step]
    cosines: np.ndarray  # of queries and names, (Q, K)
    positions: np.ndarray  # of the spans of the steps among all spans, (K,)

    @classmethod
    def find(cls, video: VideoNodes, steps: Sequence[Step], queries: Sequence[str], spans: np.ndarray) -> _NamedSpans:
        probability = np.zeros((len(queries), len(spans)))
        if not steps:
            return cls(probability, steps, np.zeros((len(queries), 0)), np.zeros(0, int))
        cosines = encode_minilm(list(queries)) @ encode_minilm([step.label or "" for step in steps]).T
        positions = (spans == video.level_spans(steps)[:, None]).all(2).argmax(1)
        for k, j in enumerate(positions):
            probability[:, j] = np.maximum(probability[:, j], calibration.spoken(cosines[:, k]))
        return cls(probability, steps, cosines, positions)

    def quote(self, query: int, span: int) -> str | None:
        """The name at a span that is most similar to a query."""
        here = np.flatnonzero(self.positions == span)
        return self.steps[here[self.cosines[query, here].argmax()]].label


def _add_speech(
    video: VideoNodes, match: Match, query: str, span: np.ndarray, by_sight: float, heard: np.ndarray
) -> Match:
    """Tell whether pictures or speech found a match, and quote the speech."""
    # `speech_probability` is lower for long spans, but words in a part of a span are evidence for all of it.
    spoken = calibration.spoken(heard[span[0] : span[1]].max())
    rests_on = strongest_evidence(float(by_sight), float(spoken))
    quote = None if rests_on == "pictures" else video.speech.quote(query, span)
    return replace(match, rests_on=rests_on, quote=quote)
