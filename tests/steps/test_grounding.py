"""Spans and their ranking, against loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hiero.steps.grounding import (
    MAX_IOU,
    MAX_OVERLAP,
    candidate_spans,
    distinct_spans,
    rank_spans,
    same_moments,
    span_peaks,
)
from hiero.steps.segmentation import label_runs
from tests.oracle import speech as oracle


def slow_rank(similarity, spans, spacing_s, num, temperature):
    """One text, one span, one node at a time."""
    length = similarity.shape[1]
    small = min(30 / spacing_s, 0.04 * length)
    out = []
    for row in similarity:
        weights = [float(np.exp((s - max(row)) / temperature)) for s in row]
        scores = [sum(weights[a:b]) / sum(weights) / (b - a + small) for a, b in spans]
        chosen = []
        for i in sorted(range(len(spans)), key=lambda i: (-scores[i], i)):
            (a, b) = spans[i]
            if len(chosen) == num:
                break
            shares = []
            for j in chosen:
                c, d = spans[j]
                both = len(set(range(a, b)) & set(range(c, d)))
                shares.append(both / len(set(range(a, b)) | set(range(c, d))))
            if all(share <= MAX_IOU for share in shares):
                chosen.append(i)
        out.append((chosen, [scores[i] for i in chosen]))
    return out


@given(st.integers(1, 30), st.integers(1, 3), st.integers(1, 5), st.integers(0, 10_000))
def test_ranking(length, num_texts, num, seed):
    rng = np.random.default_rng(seed)
    similarity = rng.normal(0, 0.2, (num_texts, length))
    bounds = rng.integers(0, length + 1, (12, 2))
    spans = np.unique(np.sort(bounds, axis=1)[np.ptp(bounds, axis=1) > 0], axis=0)
    if not len(spans):
        spans = np.array([[0, length]])
    expected = slow_rank(similarity, spans.tolist(), 1.0, num, 0.1)
    result = rank_spans(similarity, spans, 1.0, num=num, temperature=0.1)
    for (places, scores), (slow_places, slow_scores) in zip(result, expected, strict=True):
        np.testing.assert_allclose(scores, slow_scores, rtol=1e-9)
        assert places.tolist() == slow_places


@given(st.integers(1, 200), st.sampled_from([0.5, 1.0, 16 / 30]), st.integers(0, 100))
def test_candidates_lie_in_the_video_and_come_in_all_sizes(length, spacing_s, seed):
    nodes = np.random.default_rng(seed).standard_normal((length, 4))
    spans = candidate_spans(nodes, spacing_s)
    assert (spans[:, 0] < spans[:, 1]).all()
    assert spans.min() == 0
    assert spans.max() == length
    assert [0, length] in spans.tolist()
    assert len(np.unique(spans, axis=0)) == len(spans)


def test_the_right_stretch_comes_first():
    rng = np.random.default_rng(0)
    steps = rng.standard_normal((5, 32))
    truth = np.repeat(np.arange(5), [80, 40, 120, 60, 100])
    nodes = steps[truth] + 0.5 * rng.standard_normal((400, 32))
    nodes /= np.linalg.norm(nodes, axis=1, keepdims=True)
    queries = steps / np.linalg.norm(steps, axis=1, keepdims=True)
    spans = candidate_spans(nodes, 1.0)
    edges = [0, 80, 120, 240, 300, 400]
    for i, (places, _) in enumerate(rank_spans(queries @ nodes.T, spans, 1.0)):
        start, end = spans[places[0]]
        both = min(end, edges[i + 1]) - max(start, edges[i])
        assert both / (max(end, edges[i + 1]) - min(start, edges[i])) > 0.5


@given(
    st.lists(st.tuples(st.integers(0, 19), st.integers(1, 8)), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(0, 2**31),
)
def test_distinct_spans_as_one_by_one(rows, num, seed):
    spans = np.array([(start, min(20, start + length)) for start, length in rows])
    scores = np.random.default_rng(seed).permutation(len(spans)).astype(float)
    assert distinct_spans(spans, scores, num) == oracle.distinct_spans(spans, scores, num, MAX_OVERLAP)


@given(
    st.tuples(st.integers(0, 19), st.integers(1, 12)),
    st.lists(st.tuples(st.integers(0, 19), st.integers(1, 20)), min_size=1, max_size=12),
)
def test_steps_at_the_same_moment_as_node_by_node(span, rows):
    steps = [(start, start + length) for start, length in rows]
    span = span[0], sum(span)
    (is_same,) = same_moments(np.array([span]), np.array(steps))
    assert is_same.tolist() == oracle.same_moments(span, steps)


def test_a_long_step_says_nothing_about_each_of_its_moments():
    steps = np.array([[0, 100], [0, 50], [50, 100], [0, 10], [10, 50], [50, 60], [60, 100]])
    moments = same_moments(np.array([[0, 10], [12, 18], [45, 55], [40, 100]]), steps)
    assert [np.flatnonzero(row).tolist() for row in moments] == [[3], [4], [5], [2, 5, 6]]


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_peaks_as_one_by_one(length, num, num_texts, seed):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(num_texts, length))
    spans = np.array([(start, end) for start in range(length) for end in range(start + 1, length + 1)])
    slow = [
        [
            max(row[i : i + num][: end - i].mean() for i in range(start, max(start + 1, end - num + 1)))
            for start, end in spans
        ]
        for row in rows[:: max(1, num_texts // 3)]
    ]
    np.testing.assert_allclose(span_peaks(rows, spans, num)[:: max(1, num_texts // 3)], slow, atol=1e-12)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 4))
def test_runs_one_by_one(labels, min_nodes):
    expected, start = [], 0
    for i in range(1, len(labels) + 1):
        if i == len(labels) or labels[i] != labels[start]:
            expected.append([start, i])
            start = i
    long = [run for run in expected if run[1] - run[0] >= min_nodes] or expected
    assert label_runs(np.array(labels), min_nodes).tolist() == long
