"""The paper's grounding: runs of threads, ranked by a text."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hiero.steps.grounding import span_means, thread_runs
from hiero.steps.segmentation import label_runs
from tests.conftest import load_json


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 4))
def test_runs_one_by_one(labels, min_nodes):
    expected, start = [], 0
    for i in range(1, len(labels) + 1):
        if i == len(labels) or labels[i] != labels[start]:
            expected.append([start, i])
            start = i
    long = [run for run in expected if run[1] - run[0] >= min_nodes] or expected
    assert label_runs(np.array(labels), min_nodes).tolist() == long


def test_runs_of_the_release_without_its_mistake():
    """The release begins the last run one node early; `correct` does not."""
    for case in load_json("metrics")["compress"]:
        runs = label_runs(np.array(case["labels"]))
        assert [[start, end - start] for start, end in runs.tolist()] == case["correct"]


@given(st.integers(1, 20), st.integers(0, 100))
def test_the_score_of_a_run_is_its_mean_node_times_the_query(num, seed):
    rng = np.random.default_rng(seed)
    nodes, queries = rng.standard_normal((num, 5)), rng.standard_normal((3, 5))
    runs = label_runs(rng.integers(0, 3, num))
    expected = queries @ np.stack([nodes[a:b].mean(0) for a, b in runs]).T
    np.testing.assert_allclose(span_means(queries @ nodes.T, runs), expected, rtol=1e-9, atol=1e-12)


def test_the_right_moment_ranks_first():
    rng = np.random.default_rng(0)
    steps = rng.standard_normal((4, 16)).astype(np.float32)
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    truth = np.array([0] * 20 + [1] * 15 + [2] * 25 + [1] * 10 + [3] * 30)
    nodes = steps[truth] + 0.1 * rng.standard_normal((100, 16)).astype(np.float32)
    nodes /= np.linalg.norm(nodes, axis=1, keepdims=True)
    runs = thread_runs(nodes, 4)
    scores = span_means(steps @ nodes.T, runs)
    best = scores.argmax(1)
    assert [tuple(runs[i]) for i in best[[0, 2, 3]]] == [(0, 20), (35, 60), (70, 100)]
    assert {tuple(runs[i]) for i in np.argsort(-scores[1])[:2]} == {(20, 35), (60, 70)}


def test_one_node():
    assert thread_runs(np.ones((1, 3), dtype=np.float32), 8).tolist() == [[0, 1]]
