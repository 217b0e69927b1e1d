"""Step grounding: where is the step that a text describes?

A method makes three choices: the candidate spans, the evidence that texts are compared with, and
the ranking of the spans. The paper uses runs of threads, the nodes of the model, and the mean over
each run. Baselines change one or two of these choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from hiero.evaluation.cases import Case, CaseTask, EvalOptions, TextEmbeddings, by_method, case_owners
from hiero.evaluation.metrics import first_iou, query_hits
from hiero.evaluation.results import Row, Scores, Table, bootstrap_row, weighted_means
from hiero.evaluation.stepg import ground_all_in_order
from hiero.steps.clustering import equal_parts
from hiero.steps.grounding import LENGTHS_S, nms, rank_spans, span_means, thread_runs
from hiero.steps.recipes import align_in_order, log_lift
from hiero.steps.segmentation import label_runs
from hiero.steps.similarity import text_similarity
from hiero.vectors import unit_vectors

STEP_GROUNDING = "Step grounding"
RECALLS = ("R1@.3", "R5@.3", "R1@.5", "R5@.5")  # in the order of `query_hits`
RELEASE_RANKS = (1, 3, 5)  # ranks that the released script prints
RELEASE_THRESHOLDS = (0.3, 0.5, 0.01)
NUM_SPANS = 5  # answers to each text
KAPPA = 0.05  # temperature of the cut into threads
PART_S = 60.0  # usual length of a step, for baselines that need a number of parts


@dataclass(frozen=True)
class Method:
    """One way to ground texts."""

    name: str
    candidates: str
    evidence: Literal["all", "model", "class names", "none"]
    on: Literal["nodes", "projected", "features"] = "nodes"


THREAD_RUNS = Method("HiERO, runs of threads", "spectral", "model")  # the method of the paper
RUN_METHODS = (  # the same with the other clusterings of its appendix
    THREAD_RUNS,
    Method("HiERO, K-Means", "k-means-cosine", "model"),
    Method("HiERO, K-Means (L2)", "k-means", "model", "projected"),
)
GROUNDING_METHODS = (
    Method("HiERO", "spans", "all"),
    *RUN_METHODS,
    Method("HiERO, TW-FINCH", "tw-finch", "model"),
    Method("raw, spectral", "spectral", "class names", "features"),
    Method("raw, K-Means (L2)", "k-means", "class names", "features"),
    Method("raw, K-Means (cosine)", "k-means-cosine", "class names", "features"),
    Method("raw, TW-FINCH", "tw-finch", "class names", "features"),
    Method("equal parts", "equal-parts", "class names"),
    Method("text of each second, no graph", "windows", "class names"),
    Method("random", "random", "none"),
)

IN_ORDER = ("HiERO, all queries in their order", "HiERO-StepG, all queries in their order")


def chosen_methods(options: EvalOptions) -> tuple[Method, ...]:
    """All methods, or only the first two without baselines."""
    return GROUNDING_METHODS if options.baselines else GROUNDING_METHODS[:2]


GroundedCase = list[list[np.ndarray] | None]
"""The best spans of each text in seconds: by each method, None without evidence, and last both in their order."""


def grounding_task(cases: Sequence[Case], embeddings: TextEmbeddings, options: EvalOptions) -> CaseTask[GroundedCase]:
    """Recall of the best span and of the best five spans, for each method."""
    truth, owner = np.concatenate([case.spans_s for case in cases]), case_owners(cases)
    names = [*(method.name for method in chosen_methods(options)), *IN_ORDER]

    def tabulate(grounded: list[GroundedCase]) -> list[Table]:
        rows: list[Row] = []
        for name, answers in by_method(names, grounded):
            hits = query_hits([spans for answer in answers for spans in answer], truth).reshape(len(truth), -1)
            rows.append(bootstrap_row(name, weighted_means(hits, owner, RECALLS), len(cases), options.num_draws))
        rows = [row.select("R1") if row.method == IN_ORDER[0] else row for row in rows]  # it has one span for each text
        note = "In their order: all texts of a video are placed together, sorted by time. HiERO-StepG also gives spans "
        note += "beside that of the order."
        return [Table(STEP_GROUNDING, rows, [*unnamed_classes_note(cases, options), note])]

    return CaseTask(partial(_ground_case, embeddings=embeddings, options=options), tabulate)


def _ground_case(case: Case, embeddings: TextEmbeddings, options: EvalOptions) -> GroundedCase:
    answers: GroundedCase = []
    for method, similarity in compare_texts(case, chosen_methods(options), case.texts, embeddings, options):
        if method in RUN_METHODS and options.protocol is not None:
            answers.append(ground_by_runs(case, embeddings, options, method.candidates).spans_s)
        elif similarity is None:
            answers.append(None)
        else:
            answers.append([case.to_seconds(spans) for spans in best_spans(case, method, similarity, options)])
    in_order = ground_in_order(case, embeddings, options)
    return [*answers, in_order, ground_all_in_order(case, embeddings, options.random_state)]


class RunAnswers(NamedTuple):
    """Answers of the paper's method to the texts of a case."""

    runs: np.ndarray
    scores: np.ndarray
    spans_s: list[np.ndarray]


def ground_by_runs(
    case: Case, embeddings: TextEmbeddings, options: EvalOptions, clustering: str = "spectral"
) -> RunAnswers:
    """Rank runs of threads for each text of a case."""
    runs, scores = score_runs(case, case.texts, embeddings, options, clustering)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :NUM_SPANS]
    return RunAnswers(runs, scores, [case.to_seconds(runs[best]) for best in order])


def score_runs(
    case: Case, texts: Sequence[str], embeddings: TextEmbeddings, options: EvalOptions, clustering: str
) -> tuple[np.ndarray, np.ndarray]:
    """Runs of threads (R, 2), and the cosine of each text with the mean of their features, (Q, R), as in the paper."""
    nodes, settings = case.projected, {"min_nodes": options.min_nodes, "random_state": options.random_state}
    runs = thread_runs(nodes, options.num_threads, kappa=KAPPA, clustering=clustering, **settings)
    if options.protocol is not None and options.protocol.early_last_run and len(runs) > 1 and runs[-1, 1] == len(nodes):
        runs[-1] -= 1
    means = np.stack([nodes[start:end].mean(0) for start, end in runs]) if len(runs) else np.zeros((0, nodes.shape[1]))
    return runs, embeddings(texts)[1] @ unit_vectors(means).T


def evaluate_runs(cases: Sequence[Case], embeddings: TextEmbeddings, options: EvalOptions) -> Table:
    """The methods of the paper alone, with all columns of the released script."""
    truth, owner = np.concatenate([case.spans_s for case in cases]), case_owners(cases)
    names = [f"R{k}@{str(threshold).removeprefix('0')}" for threshold in RELEASE_THRESHOLDS for k in RELEASE_RANKS]
    rows = []
    for method in RUN_METHODS if options.baselines else RUN_METHODS[:1]:
        answers = (ground_by_runs(case, embeddings, options, method.candidates) for case in cases)
        predicted = [spans for answer in answers for spans in answer.spans_s]
        hits = query_hits(predicted, truth, RELEASE_THRESHOLDS, RELEASE_RANKS).reshape(len(truth), -1)
        scores = weighted_means(np.column_stack([hits, first_iou(predicted, truth)]), owner, [*names, "mIoU"])
        rows.append(bootstrap_row(method.name, scores, len(cases), options.num_draws))
    return Table(STEP_GROUNDING, rows)


def summarise_grounding(table: Table) -> dict[str, Scores]:
    """Scores by method: `HiERO` is the method of the paper, `HiERO, spans` is that of `hiero ask`."""
    names = {THREAD_RUNS.name: "HiERO", GROUNDING_METHODS[0].name: "HiERO, spans", "raw, runs of threads": "raw"}
    return {
        names.get(row.method, row.method): {name.replace("@.", "@0."): value for name, value in row.scores.items()}
        for row in table.rows
    }


def name_raw_rows(table: Table) -> None:
    """Without a model, rename the rows from `HiERO` to `raw` and drop the duplicate `raw` rows."""
    table.rows = [row for row in table.rows if not row.method.startswith("raw")]
    for row in table.rows:
        row.method = row.method.replace("HiERO", "raw")


def find_candidates(case: Case, method: Method, options: EvalOptions) -> np.ndarray:
    """Candidate spans [start, end) in nodes, (N, 2), computed once for each case."""
    if method.name not in case.candidates:
        case.candidates[method.name] = _find_candidates(case, method, options)
    return case.candidates[method.name]


def _find_candidates(case: Case, method: Method, options: EvalOptions) -> np.ndarray:
    num_nodes, spacing_s = len(case.video.nodes), case.video.clock.spacing_s
    if method.candidates == "spans":
        return case.video.sight.spans
    if method.candidates == "windows":
        windows = set()
        for length_s in LENGTHS_S:
            length = min(num_nodes, max(1, round(length_s / spacing_s)))
            windows |= {(start, start + length) for start in range(0, num_nodes - length + 1, max(1, length // 4))}
        return np.array(sorted(windows))
    num_parts = max(1, round(num_nodes * spacing_s / PART_S))
    if method.candidates == "random":
        rng = np.random.default_rng(options.random_state)
        edges = np.sort(rng.choice(np.arange(1, num_nodes), min(num_parts - 1, num_nodes - 1), replace=False))
        return np.stack([[0, *edges], [*edges, num_nodes]], axis=1)
    if method.candidates == "equal-parts":
        return label_runs(equal_parts(case.video.nodes, num_parts))
    labels = case.cluster(method.on, options.num_threads, method.candidates, KAPPA, options.random_state)
    return label_runs(labels, options.min_nodes)


def compare_texts(
    case: Case, methods: Sequence[Method], texts: Sequence[str], embeddings: TextEmbeddings, options: EvalOptions
) -> Iterator[tuple[Method, np.ndarray | None]]:
    """For each method, the similarity of each text with each node (Q, T), or None without evidence."""
    parts = {"none": [], "all": case.video.sight.parts, "model": case.node_evidence, "class names": case.class_evidence}
    similarities: dict[tuple[int, ...], np.ndarray] = {}  # by the ids of the evidence, which methods share
    for method in methods:
        evidence = parts[method.evidence]
        if method.evidence == "class names" and not evidence and method.candidates != "windows":
            evidence = case.node_evidence  # classes without names: use the evidence of the model
        key = tuple(id(part) for part in evidence)
        if evidence and key not in similarities:
            similarities[key] = text_similarity(evidence, *embeddings(texts))
        if method.evidence == "none":
            rng = np.random.default_rng(options.random_state)
            yield method, rng.normal(size=(len(texts), len(case.video.nodes)))
        else:
            yield method, similarities.get(key)


def best_spans(case: Case, method: Method, similarity: np.ndarray, options: EvalOptions) -> list[np.ndarray]:
    """The best spans in nodes, (≤ 5, 2) for each text, by similarity (Q, T)."""
    spans = find_candidates(case, method, options)
    if method.candidates == "spans":
        ranked = rank_spans(similarity, spans, case.video.clock.spacing_s, num=NUM_SPANS)
        return [spans[indices] for indices, _ in ranked]
    scores = span_means(similarity, spans)
    if method.candidates == "windows":  # windows overlap
        return [spans[nms(spans, row, NUM_SPANS, max_iou=0.0)[0]] for row in scores]
    return list(spans[np.argsort(-scores, axis=1, kind="stable")[:, :NUM_SPANS]])


def ground_in_order(case: Case, embeddings: TextEmbeddings, options: EvalOptions) -> list[np.ndarray]:
    """One span in seconds for each annotated text, placed together in the order of the annotations."""
    order = np.argsort(case.spans_s[:, 0], kind="stable")
    texts = [case.texts[i] for i in order]
    ((_, similarity),) = compare_texts(case, GROUNDING_METHODS[:1], texts, embeddings, options)
    if similarity is None or len(order) > similarity.shape[1]:
        return [np.zeros((0, 2))] * len(order)
    found = align_in_order(log_lift(similarity), case.video.nodes, case.video.clock.spacing_s)
    spans = dict(zip(order.tolist(), found, strict=True))
    return [case.to_seconds(np.array([spans[i]])) for i in range(len(order))]


def unnamed_classes_note(cases: Sequence[Case], options: EvalOptions) -> list[str]:
    """A note for features without named classes."""
    if cases[0].class_evidence or not options.baselines:
        return []
    return [
        "The classes of these features have no names: spans of raw features and equal parts are ranked by the nodes "
        "of the model, and there is no row for the text of each second."
    ]
