"""HiERO-StepG: paths in order, peaks and windows, on small matrices."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

import hiero
from hiero.evaluation.cases import Case
from hiero.evaluation.stepg import find_peaks, ground_all_in_order, grow_window, monotone_path
from hiero.types import AnnotatedStep, Clock


@pytest.mark.parametrize("slack", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_the_path_is_the_best_of_all_paths_in_order(seed, slack):
    similarity = np.random.default_rng(seed).normal(size=(4, 5))
    paths = [path for path in product(range(5), repeat=4) if all(a <= b + slack for a, b in pairwise(path))]
    best = max(paths, key=lambda path: similarity[range(4), path].sum())
    assert monotone_path(similarity, slack) == list(best)


def test_peaks_are_apart_and_those_between_neighbours_come_first():
    row = np.zeros(100)
    row[[10, 40, 44, 70]] = 0.5, 0.6, 0.9, 1.0
    peaks = find_peaks(row, 10, (0, 50))
    assert peaks[:2] == [10, 44]
    assert peaks.index(44) < peaks.index(70)
    assert min(abs(a - b) for a in peaks for b in peaks if a != b) > 5


def test_a_window_ends_where_too_many_nodes_in_a_row_are_dissimilar():
    row = np.array([0.9, 0, 0, 0, 0, 0.9, 0, 0, 0.9, 1.0, 0.3, 0.9])
    assert grow_window(row, 9, 0.5) == (5.0, 12.0)


def test_repeated_steps_are_found_in_their_order():
    """Two texts alternate; without the order, the same place would answer both times."""
    rng = np.random.default_rng(0)
    kinds = np.eye(8)[:2]
    nodes = np.repeat(kinds[[0, 1, 0, 1]], 30, axis=0) + 0.05 * rng.normal(size=(120, 8))
    truth = [AnnotatedStep(30.0 * i, 30.0 * (i + 1), f"step {i % 2}") for i in range(4)]
    engine = hiero.load("raw")
    case = Case(engine.read_array(nodes.astype(np.float32), Clock(1.0, 1.0)), nodes.astype(np.float32), truth)

    def embed(texts):
        return None, kinds[[int(text[-1]) for text in texts]]

    answers = ground_all_in_order(case, embed)
    for step, spans in zip(truth, answers, strict=True):
        start_s, end_s = spans[0]
        common_s = min(end_s, step.end_s) - max(start_s, step.start_s)
        assert common_s / (max(end_s, step.end_s) - min(start_s, step.start_s)) > 0.8
        assert len(spans) <= 5
