"""Multiple choice: which of five segments does a text describe? The others are of other videos (inter)
or the same (intra).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hiero.evaluation.cases import Case, CaseTask, EvalOptions, TextEmbeddings
from hiero.evaluation.grounding import GROUNDING_METHODS, Method, SimilarityCache, method_similarity
from hiero.evaluation.metrics import choice_accuracy
from hiero.evaluation.results import Table, bootstrap_row, weighted_means
from hiero.steps.grounding import span_means

CHOICE_METHODS = (Method("HiERO", "spans", "all"), Method("HiERO, the model alone", "spans", "model"))


class ChoiceQuestion(NamedTuple):
    """A text and its choices, (case, step) each. The wrong ones have other texts."""

    text: str
    choices: list[tuple[int, int]]
    answer: int
    case: int


def choice_task(
    cases: Sequence[Case], embeddings: TextEmbeddings, options: EvalOptions, num_choices: int = 5
) -> CaseTask[list[np.ndarray | None]]:
    """Accuracy of both kinds of question, for each method."""
    questions = {kind: make_questions(cases, kind, num_choices, options.random_state) for kind in ("inter", "intra")}
    texts = list(dict.fromkeys(text for case in cases for text in dict.fromkeys(case.texts)))
    index = {text: i for i, text in enumerate(texts)}
    methods = CHOICE_METHODS + (GROUNDING_METHODS[-2:] if options.baselines else ())

    def tabulate(compared: list[list[np.ndarray | None]]) -> list[Table]:
        rows = []
        for i, method in enumerate(methods):
            means = [case_means for by_method in compared if (case_means := by_method[i]) is not None]
            if len(means) == len(cases):
                parts: dict[str, tuple[np.ndarray, np.ndarray]] = {}
                for kind, group in questions.items():
                    if group:
                        scores = np.array(
                            [[means[case][index[q.text], step] for case, step in q.choices] for q in group]
                        )
                        correct = choice_accuracy(scores, np.array([q.answer for q in group]))
                        parts[kind] = correct, np.array([q.case for q in group])

                def values(
                    weights: np.ndarray, parts: dict[str, tuple[np.ndarray, np.ndarray]] = parts
                ) -> dict[str, np.ndarray]:
                    return {
                        kind: weighted_means(c[:, None], owner, [kind])(weights)[kind]
                        for kind, (c, owner) in parts.items()
                    }

                rows.append(bootstrap_row(method.name, values, len(cases), options.num_draws))
        counts = ", ".join(f"{len(group)} {kind}" for kind, group in questions.items())
        return [Table("Multiple choice of five", rows, [f"Questions: {counts}."])]

    return CaseTask(partial(_compare, texts=texts, methods=methods, embeddings=embeddings, options=options), tabulate)


def _compare(
    case: Case, texts: Sequence[str], methods: Sequence[Method], embeddings: TextEmbeddings, options: EvalOptions
) -> list[np.ndarray | None]:
    """Similarity of all texts with the steps of a case (Q, S) by each method; None where it has no words."""
    cache: SimilarityCache = {}
    spans = np.array([case.to_nodes(span) for span in case.spans_s])
    rows = [method_similarity(case, method, texts, embeddings, options, cache) for method in methods]
    return [None if similarity is None else span_means(similarity, spans) for similarity in rows]


def make_questions(cases: Sequence[Case], kind: str, num_choices: int, seed: int) -> list[ChoiceQuestion]:
    """A question for each step that has enough others to choose from; kind: `inter` or `intra`."""
    rng = np.random.default_rng(seed)
    steps = [(c, s) for c, case in enumerate(cases) for s in range(len(case.truth))]
    texts = [cases[c].truth[s].text for c, s in steps]
    numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    text_of, case_of = np.array([numbers[text] for text in texts]), np.array([c for c, _ in steps])
    out: list[ChoiceQuestion] = []
    for i, (c, s) in enumerate(steps):
        others = np.flatnonzero(((case_of == c) == (kind == "intra")) & (text_of != text_of[i]))
        if len(others) < num_choices - 1:
            continue
        wrong = [steps[others[j]] for j in rng.choice(len(others), num_choices - 1, replace=False)]
        answer = int(rng.integers(num_choices))
        out.append(ChoiceQuestion(texts[i], [*wrong[:answer], (c, s), *wrong[answer:]], answer, c))
    return out
