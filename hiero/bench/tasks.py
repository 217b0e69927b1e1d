"""The tasks, on any videos: procedure learning, step grounding, step localization, multiple choice. Each with its baselines.

A way to answer in words is made of three choices: which spans could be the answer, what words are compared with, and how spans are
ranked. The paper's: runs of threads, the model's nodes, the mean over the run. Baselines change one or two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from hiero.bench.clusters import Algorithm, cluster
from hiero.bench.metrics import (
    THRESHOLDS,
    Detections,
    choice_accuracy,
    grounding_recall,
    match_detections,
    matched_accuracy,
    mean_average_precision,
    procedure_scores,
)
from hiero.bench.results import Row, Table, row, weighted_means
from hiero.engine import Engine, Video
from hiero.steps.order import align_in_order
from hiero.steps.pieces import runs
from hiero.steps.spans import LENGTHS_S, apart, rank_spans
from hiero.steps.words import Evidence, OwnEvidence, fit, mean_over, name_spans

RECALLS = ("R1@.3", "R5@.3", "R1@.5", "R5@.5")
PART_S = 60.0  # usual length of a step, for baselines that must choose a number of parts
RANDOM = np.random.default_rng


@dataclass(frozen=True)
class Truth:
    start_s: float
    end_s: float
    text: str


@dataclass
class Case:
    """A video, features as they came, and what is known about it."""

    video: Video
    features: np.ndarray
    truth: list[Truth]
    task: str = ""
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    """Candidates by the name of the way that found them."""

    @property
    def spans_s(self) -> np.ndarray:
        return np.array([[t.start_s, t.end_s] for t in self.truth], dtype=float).reshape(-1, 2)

    def nodes_of(self, span_s: Sequence[float]) -> tuple[int, int]:
        """Nodes [a, b) of a span in seconds, at least one."""
        clock, num = self.video.clock, len(self.video.nodes)
        a = min(num - 1, max(0, int((span_s[0] - clock.start_s) / clock.spacing_s + 1e-9)))
        b = int(np.ceil((span_s[1] - clock.start_s) / clock.spacing_s - 1e-9))
        return a, min(num, max(a + 1, b))

    def seconds(self, spans: np.ndarray) -> np.ndarray:
        return self.video.clock.start_s + np.asarray(spans, dtype=float) * self.video.clock.spacing_s

    @cached_property
    def names(self) -> list[Evidence]:
        """What classifiers see, by name: words without the graph."""
        return [part for part in self.video.evidence if not isinstance(part, OwnEvidence)]

    @cached_property
    def own(self) -> list[Evidence]:
        return [part for part in self.video.evidence if isinstance(part, OwnEvidence)]

    def labels(self) -> np.ndarray:
        """Key-step of each node, 0 for none; steps with the same text are one key-step, of two at once the later one counts."""
        numbers = {text: i for i, text in enumerate(dict.fromkeys(t.text for t in self.truth), start=1)}
        out = np.zeros(len(self.video.nodes), dtype=int)
        for one in self.truth:
            a, b = self.nodes_of((one.start_s, one.end_s))
            out[a:b] = numbers[one.text]
        return out


# Ways to answer in words

Said = Literal["all", "model", "names", "nothing"]


@dataclass(frozen=True)
class Way:
    """candidates: spans of the engine, runs of a cluster algorithm, or windows. said: what words are compared with."""

    name: str
    candidates: Literal["spans", "windows"] | Algorithm
    said: Said
    on: Literal["nodes", "features"] = "nodes"
    belief: bool = False
    """Rank by shares of belief, as `hiero ask` does, instead of means."""


WAYS = (
    Way("HiERO", "spans", "all", belief=True),
    Way("HiERO, runs of threads (the paper)", "spectral", "model"),
    Way("HiERO, K-Means", "K-Means (cosine)", "model"),
    Way("HiERO, TW-FINCH", "TW-FINCH", "model"),
    Way("raw, spectral", "spectral", "names", "features"),
    Way("raw, K-Means (L2)", "K-Means (L2)", "names", "features"),
    Way("raw, K-Means (cosine)", "K-Means (cosine)", "names", "features"),
    Way("raw, TW-FINCH", "TW-FINCH", "names", "features"),
    Way("equal parts", "equal parts", "names"),
    Way("text of each second, no graph", "windows", "names"),
    Way("random", "random", "nothing"),
)


@dataclass(frozen=True)
class Options:
    num_threads: int = 16
    kappa: float = 0.05
    min_nodes: int = 3
    baselines: bool = True
    random_state: int = 0
    num_draws: int = 1000

    @property
    def ways(self) -> tuple[Way, ...]:
        return WAYS if self.baselines else WAYS[:2]


class Words:
    """Texts of a benchmark, encoded once. say: how a label is put into words."""

    def __init__(self, engine: Engine, texts: Sequence[str], say: Callable[[str], str] = str) -> None:
        self.places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        self.vectors = engine.encode([say(text) for text in self.places])

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        at = [self.places[text] for text in texts]
        return self.vectors[0][at], self.vectors[1][at]


def candidates(case: Case, way: Way, options: Options) -> np.ndarray:
    """Spans [a, b) of nodes that could be the answer."""
    if way.name not in case.kept:
        case.kept[way.name] = _find_candidates(case, way, options)
    return case.kept[way.name]


def _find_candidates(case: Case, way: Way, options: Options) -> np.ndarray:
    num, spacing_s = len(case.video.nodes), case.video.clock.spacing_s
    if way.candidates == "spans":
        return case.video.spans
    if way.candidates == "windows":
        found = set()
        for length_s in LENGTHS_S:
            length = min(num, max(1, round(length_s / spacing_s)))
            found |= {(a, a + length) for a in range(0, num - length + 1, max(1, length // 4))}
        return np.array(sorted(found))
    parts = max(1, round(num * spacing_s / PART_S))
    if way.candidates == "random":
        edges = np.sort(RANDOM(options.random_state).choice(np.arange(1, num), min(parts - 1, num - 1), replace=False))
        return np.stack([[0, *edges], [*edges, num]], axis=1)
    x = case.video.nodes if way.on == "nodes" else case.features
    count = parts if way.candidates == "equal parts" else options.num_threads
    labels = cluster(x, count, way.candidates, kappa=options.kappa, random_state=options.random_state)
    return runs(labels, 1 if way.candidates == "equal parts" else options.min_nodes)


def similarity(case: Case, way: Way, texts: Sequence[str], words: Words, options: Options) -> np.ndarray | None:
    """How each node fits each text (Q, T), or None where this way has no words for these features."""
    if way.said == "nothing":
        return RANDOM(options.random_state).normal(size=(len(texts), len(case.video.nodes)))
    evidence = {"all": case.video.evidence, "model": case.own, "names": case.names}[way.said]
    if way.said == "names" and not evidence and way.candidates != "windows":
        evidence = case.own  # features whose classes have no names: other spans, the model's words
    return fit(evidence, *words(texts)) if evidence else None


# Tasks


def ground(cases: Sequence[Case], words: Words, options: Options, order_aware: bool = True) -> Table:
    """Step grounding: where is the step that a text describes? Recall of the best and the best five spans."""
    truth, owner = np.concatenate([case.spans_s for case in cases]), _owners(cases)
    out: list[Row] = []
    for way in options.ways:
        predicted: list[np.ndarray] = []
        for case in cases:
            fits = similarity(case, way, [t.text for t in case.truth], words, options)
            if fits is None:
                break
            predicted += [case.seconds(spans) for spans in best_spans(case, way, fits, options)]
        else:
            out.append(_recall_row(way.name, predicted, truth, owner, options))
    table = Table("Step grounding", out, _nameless(cases, options))
    if order_aware:
        predicted = [span for case in cases for span in in_order(case, words, options)]
        found = _recall_row("HiERO, all queries in their order", predicted, truth, owner, options)
        found.scores = {name: value for name, value in found.scores.items() if name.startswith("R1")}
        found.intervals = {name: found.intervals[name] for name in found.scores if name in found.intervals}
        table.rows.append(found)
        table.notes.append("In their order: all texts of a video at once, sorted by when they happen; one span for each.")
    return table


def best_spans(case: Case, way: Way, fits: np.ndarray, options: Options, num: int = 5) -> Iterator[np.ndarray]:
    spans = candidates(case, way, options)
    if way.belief:
        yield from (spans[places] for places, _ in rank_spans(fits, spans, case.video.clock.spacing_s, num=num))
    elif way.candidates == "windows":  # they overlap: take those that do not
        scores = mean_over(fits, spans)
        yield from (spans[apart(spans, row, num, overlap=0.0)[0]] for row in scores)
    else:
        order = np.argsort(-mean_over(fits, spans), axis=1, kind="stable")[:, :num]
        yield from (spans[places] for places in order)


def in_order(case: Case, words: Words, options: Options) -> list[np.ndarray]:
    """One span in seconds for each text of the truth, all of them placed in the order in which they happen."""
    when = np.argsort(case.spans_s[:, 0], kind="stable")
    fits = similarity(case, WAYS[0], [case.truth[i].text for i in when], words, options)
    if fits is None or len(when) > fits.shape[1]:
        return [np.zeros((0, 2))] * len(when)
    out = dict(zip(when.tolist(), align_in_order(fits), strict=True))
    return [case.seconds(np.array([out[i]])) for i in range(len(when))]


def localize(cases: Sequence[Case], taxonomy: Sequence[str], words: Words, options: Options) -> Table:
    """Step localization: which steps of a taxonomy are where? mAP, with ActivityNet's definition."""
    numbers = {text: i for i, text in enumerate(taxonomy)}
    true = [Detections(c.spans_s, np.array([numbers[t.text] for t in c.truth]), np.zeros(len(c.truth))) for c in cases]
    out = []
    for way in options.ways:
        found = []
        for case in cases:
            fits = similarity(case, way, taxonomy, words, options)
            if fits is None:
                break
            spans = candidates(case, way, options)
            if way.candidates in ("spans", "windows"):  # they overlap, and a video has one label at a time
                spans = _level(case) if way.candidates == "spans" else runs(fits.argmax(0), options.min_nodes)
            share = name_spans(fits, spans)
            found.append(Detections(case.seconds(spans), share.argmax(1), share.max(1)))
        else:
            out.append(localization_row(way.name, true, found, options.num_draws))
    notes = [f"{len(taxonomy)} labels; the score of a span is its label's share of belief.", *_nameless(cases, options)]
    return Table("Step localization", out, notes)


def localization_row(name: str, truth: Sequence[Detections], found: Sequence[Detections], num_draws: int) -> Row:
    """mAP at each threshold and their mean, in percent."""
    matched = match_detections(truth, found)

    def values(weights: np.ndarray) -> dict[str, float]:
        scores = 100 * mean_average_precision(matched, weights)
        return {**{f"mAP@{t}": float(s) for t, s in zip(THRESHOLDS, scores, strict=True)}, "mean": float(scores.mean())}

    return row(name, values, len(truth), min(100, num_draws))


def choose(cases: Sequence[Case], words: Words, options: Options, num_choices: int = 5) -> Table:
    """Multiple choice: which of five segments does a text describe? Others from other videos (inter) or the same (intra)."""
    questions = {kind: _questions(cases, kind, num_choices, options.random_state) for kind in ("inter", "intra")}
    texts = [list(dict.fromkeys(case.truth[i].text for i in range(len(case.truth)))) for case in cases]
    asked = list(dict.fromkeys(text for own in texts for text in own))
    place = {text: i for i, text in enumerate(asked)}
    out = []
    ways = (Way("HiERO", "spans", "all"), Way("HiERO, the model alone", "spans", "model"))
    for way in ways + (WAYS[-2:] if options.baselines else ()):
        means = []
        for case in cases:
            fits = similarity(case, way, asked, words, options)
            if fits is None:
                break
            means.append(mean_over(fits, np.array([case.nodes_of(span) for span in case.spans_s])))
        else:
            parts: dict[str, tuple[np.ndarray, np.ndarray]] = {}
            for kind, rows in questions.items():
                if rows:
                    scores = np.array([[means[v][place[text], s] for v, s in choices] for text, choices, _, _ in rows])
                    right = choice_accuracy(scores, np.array([answer for _, _, answer, _ in rows]))
                    parts[kind] = right, np.array([video for _, _, _, video in rows])

            def values(weights: np.ndarray, parts: dict = parts) -> dict[str, float]:  # type: ignore[type-arg]
                return {k: weighted_means(right[:, None], videos, [k])(weights)[k] for k, (right, videos) in parts.items()}

            out.append(row(way.name, values, len(cases), options.num_draws))
    counts = ", ".join(f"{len(rows)} {kind}" for kind, rows in questions.items())
    return Table("Multiple choice of five", out, [f"Questions: {counts}."])


PROCEDURE: tuple[tuple[str, Literal["nodes", "features", "level 2", "looks"], Algorithm], ...] = (
    ("HiERO", "looks", "pieces"),
    ("HiERO, spectral (the paper)", "level 2", "spectral"),
    ("HiERO nodes, spectral", "nodes", "spectral"),
    ("HiERO nodes, K-Means", "nodes", "K-Means (cosine)"),
    ("HiERO nodes, TW-FINCH", "nodes", "TW-FINCH"),
    ("raw, spectral", "features", "spectral"),
    ("raw, K-Means (L2)", "features", "K-Means (L2)"),
    ("raw, K-Means (cosine)", "features", "K-Means (cosine)"),
    ("raw, TW-FINCH", "features", "TW-FINCH"),
    ("raw, pieces", "features", "pieces"),
    ("equal parts", "features", "equal parts"),
    ("random", "features", "random"),
)


def procedure(cases: Sequence[Case], options: Options, num_clusters: int | None = None) -> list[Table]:
    """Procedure learning: do clusters find the key-steps? num_clusters: for all videos; by default the true number of each."""
    count = "true number of steps" if num_clusters is None else f"K = {num_clusters}"
    tables = []
    for background in ("removed", "kept"):
        out = []
        raw = cases[0].video.engine.folder is None
        ways = [way for way in (PROCEDURE if options.baselines or raw else PROCEDURE[:2]) if way[1] == "features" or not raw]
        for name, on, algorithm in ways:
            rows = []
            for case in cases:
                truth = case.labels()
                busy = truth > 0 if background == "removed" else np.ones(len(truth), dtype=bool)
                truth = truth[busy]
                num = num_clusters or len(set(truth[truth > 0].tolist()))
                labels = cluster(_inputs(case, on)[busy], num, algorithm, random_state=options.random_state)
                found = procedure_scores(labels, truth)
                rows.append([found.f1, found.iou, found.precision, found.recall, matched_accuracy(labels, truth)])
            values = weighted_means(np.array(rows), np.arange(len(cases)), ("F1", "IoU", "precision", "recall", "all frames"))
            out.append(row(name, values, len(cases), options.num_draws))
        notes = ["Per key-step, mean over videos; F1 is that of a video's mean precision and recall. All frames: pooled accuracy."]
        tables.append(Table(f"Procedure learning, {count}, background {background}", out, notes))
    return tables


def _inputs(case: Case, on: str) -> np.ndarray:
    if on == "level 2":
        level = case.video.engine.deep_level
        deep = case.video.engine.enrich(case.features, case.video.clock, level)
        return deep[np.minimum(np.arange(len(case.features)) // 2**level, len(deep) - 1)]
    return {"nodes": case.video.nodes, "features": case.features, "looks": case.video.looks}[on]


def _level(case: Case) -> np.ndarray:
    """The finest steps that `hiero steps` finds, as nodes."""
    return case.video.level_spans(case.video.steps(labels=[]).levels[-1])


def _nameless(cases: Sequence[Case], options: Options) -> list[str]:
    if cases[0].names or not options.baselines:
        return []
    return [
        "These features are no classes with names: spans of raw features and equal parts are ranked by the model's words, and "
        "there is no row for the text of each second."
    ]


def _owners(cases: Sequence[Case]) -> np.ndarray:
    return np.repeat(np.arange(len(cases)), [len(case.truth) for case in cases])


def recall_hits(predicted: Sequence[np.ndarray], truth: np.ndarray) -> np.ndarray:
    """Whether each query is found, in the order of RECALLS: (Q, 4) of 0 and 1."""
    return np.array([grounding_recall([spans], true[None]).flatten() for spans, true in zip(predicted, truth, strict=True)])


def _recall_row(name: str, predicted: Sequence[np.ndarray], truth: np.ndarray, owner: np.ndarray, options: Options) -> Row:
    hits = recall_hits(predicted, truth)
    return row(name, weighted_means(hits, owner, RECALLS), int(owner.max()) + 1, options.num_draws)


Question = tuple[str, list[tuple[int, int]], int, int]


def _questions(cases: Sequence[Case], kind: str, num: int, seed: int) -> list[Question]:
    """Text, choices as (video, step), place of the answer, video of the question. The wrong ones have other texts."""
    rng = RANDOM(seed)
    steps = [(v, s) for v, case in enumerate(cases) for s in range(len(case.truth))]

    def text(at: tuple[int, int]) -> str:
        return cases[at[0]].truth[at[1]].text

    out: list[Question] = []
    for v, s in steps:
        others = [at for at in steps if (at[0] == v) == (kind == "intra") and text(at) != text((v, s))]
        if len(others) < num - 1:
            continue
        wrong = [others[i] for i in rng.choice(len(others), num - 1, replace=False)]
        answer = int(rng.integers(num))
        out.append((text((v, s)), [*wrong[:answer], (v, s), *wrong[answer:]], answer, v))
    return out
