"""Steps in order: the best assignment there is, against all of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.steps import grounding
from hiero.steps.grounding import LENGTH_WEIGHT, align_in_order, best_ordered_spans, log_lift


def every_assignment(num, length):
    """All ways to lay `num` stretches in order, each at least one node: 2·num bounds, ends may
    touch the next start.
    """
    for starts in combinations(range(length), num):
        ends = [[]]
        for i, start in enumerate(starts):
            last = starts[i + 1] if i + 1 < num else length
            ends = [[*done, end] for done in ends for end in range(start + 1, last + 1)]
        for chosen in ends:
            yield list(zip(starts, chosen, strict=True))


@given(st.integers(1, 3), st.integers(1, 7), st.integers(0, 10_000))
def test_no_assignment_is_better(num, length, seed):
    if num > length:
        return
    gain = np.random.default_rng(seed).normal(0, 1, (num, length))

    def value(stretches):
        usual = length / num
        prior = sum(np.log((b - a) / usual) ** 2 for a, b in stretches)
        return sum(gain[q, a:b].sum() for q, (a, b) in enumerate(stretches)) - LENGTH_WEIGHT / 2 * prior

    result = best_ordered_spans(gain)
    assert all(a < b for a, b in result)
    assert all(result[i][1] <= result[i + 1][0] for i in range(num - 1))
    assert value(result) == pytest.approx(max(value(s) for s in every_assignment(num, length)))


def test_order_settles_what_looks_alone_cannot():
    """The same action twice: the first mention gets the first, the second the second."""
    similarity = np.zeros((3, 90))
    similarity[0, :20] = similarity[0, 60:80] = 0.5
    similarity[1, 25:50] = 0.5
    similarity[2] = similarity[0]
    assert align_in_order(similarity) == [(0, 20), (25, 50), (60, 80)]


def test_a_text_that_says_nothing_gets_a_usual_span():
    """Without evidence for the middle step, it fills what the others leave instead of a single node."""
    similarity = np.zeros((3, 90))
    similarity[0, :30] = similarity[2, 60:] = 0.5
    assert align_in_order(similarity) == [(0, 30), (30, 60), (60, 90)]


def test_steps_of_a_long_video_are_short():
    """Two questions about an hour: a step is minutes long, not half of the hour."""
    similarity = np.zeros((2, 3600))
    similarity[0, 600:660] = similarity[1, 3000:3060] = 0.3
    (start, end), (later, last) = align_in_order(similarity)
    assert 590 <= start < end <= 670
    assert 2990 <= later < last <= 3070


def test_long_videos_have_fewer_edges(monkeypatch):
    """A coarser grid moves boundaries by at most its spacing."""
    gain = np.repeat(np.random.default_rng(0).normal(0.2, 1, (3, 12)), 20, axis=1)
    exact = best_ordered_spans(gain)
    monkeypatch.setattr(grounding, "MAX_EDGES", 60)
    np.testing.assert_allclose(best_ordered_spans(gain), exact, atol=4)
    assert len(best_ordered_spans(np.zeros((50, 60)))) == 50


def test_lift_is_chance_at_zero():
    np.testing.assert_allclose(log_lift(np.full((2, 9), 0.3), 0.1), 0, atol=1e-12)
    lift = log_lift(np.random.default_rng(0).normal(0, 0.2, (2, 50)), 0.1)
    np.testing.assert_allclose(np.exp(lift).mean(1), 1)


def test_too_many_steps():
    with pytest.raises(ValueError, match="do not fit"):
        best_ordered_spans(np.zeros((3, 2)))
