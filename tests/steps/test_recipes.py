"""The steps of a recipe in its order, against every assignment tried."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.steps.recipes import RecipeLine, align_in_order, log_lift
from hiero.vectors import unit_vectors
from tests.oracle import recipes as oracle


@given(st.integers(1, 3), st.integers(1, 7), st.booleans(), st.sampled_from([0.5, 1.0, 3.0]), st.integers(0, 9999))
def test_no_other_assignment_is_better(num, length, is_optional, spacing_s, seed):
    if num > length:
        return
    rng = np.random.default_rng(seed)
    gain, nodes = rng.normal(0, 4, (num, length)), unit_vectors(rng.normal(size=(length, 3)))
    lengths_s = [float(x) if rng.random() < 0.3 else None for x in rng.uniform(0.5, 4, num)]
    spans = align_in_order(gain, nodes, spacing_s, lengths_s=lengths_s, is_optional=is_optional)
    kept = [span for span in spans if span is not None]
    assert is_optional or len(kept) == num
    edges = [edge for span in kept for edge in span]
    assert edges == sorted(edges)
    assert all(start < end for start, end in kept)
    given_s = sum(filter(None, lengths_s))
    share_s = max(length * spacing_s - given_s, 0.1 * length * spacing_s) / max(1, lengths_s.count(None))
    usual_s = [each or share_s for each in lengths_s]
    found = oracle.score(gain, nodes, spacing_s, spans, usual_s)
    assert found == pytest.approx(oracle.best_score(gain, nodes, spacing_s, usual_s, is_optional))


def scene(*lengths):
    """Nodes of scenes that have nothing in common, and the similarity of a text of each with them."""
    nodes = np.repeat(np.eye(len(lengths)), lengths, axis=0)
    return nodes, 0.5 * nodes.T


def test_each_line_gets_the_scene_that_it_describes():
    nodes, similarity = scene(20, 40, 30)
    np.testing.assert_allclose(np.exp(log_lift(similarity)).mean(1), 1)  # 0 is chance
    assert align_in_order(log_lift(similarity), nodes, 1.0) == [(0, 20), (20, 60), (60, 90)]


def test_a_scene_of_no_line_is_a_gap():
    nodes, similarity = scene(30, 60, 30)
    assert align_in_order(log_lift(similarity[[0, 2]]), nodes, 1.0) == [(0, 30), (90, 120)]


def test_a_line_of_no_scene_may_be_left_out():
    nodes, similarity = scene(30, 30)
    gain = log_lift(similarity)
    gain = np.stack([gain[0], gain.min(0) - 5, gain[1]])
    assert align_in_order(gain, nodes, 1.0, is_optional=True) == [(0, 30), None, (30, 60)]
    assert None not in align_in_order(gain, nodes, 1.0)


def test_a_line_that_says_how_long_it_takes_gets_that_time():
    nodes, gain = np.ones((100, 1)), np.zeros((2, 100))
    (_, first_end), _ = align_in_order(gain, nodes, 1.0, lengths_s=[80.0, None])
    assert 75 <= first_end <= 85


def test_more_lines_than_nodes_are_refused():
    with pytest.raises(ValueError, match="3 steps"):
        align_in_order(np.zeros((3, 2)), np.ones((2, 1)), 1.0)


@pytest.mark.parametrize(
    ("line", "text", "duration_s"),
    [
        ("boil the pasta 8 min", "boil the pasta", 480),
        ("Stir (30 seconds)", "Stir", 30),
        ("bake, 1.5 h", "bake", 5400),
        ("crack 2 eggs", "crack 2 eggs", None),
        ("cut 200 g", "cut 200 g", None),
        ("8 min", "8 min", None),
    ],
)
def test_durations_of_lines(line, text, duration_s):
    assert RecipeLine.parse(line) == RecipeLine(text, duration_s)
