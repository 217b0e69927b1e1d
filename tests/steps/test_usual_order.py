"""The usual order of activities, compared with slow versions."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.steps.usual_order import precedence, usual_order
from tests.oracle import usual_order as oracle

nan = float("nan")


@st.composite
def tables(draw):
    """When each activity comes in each video, NaN where it does not."""
    num_videos, num_activities = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    cell = st.one_of(st.just(nan), st.integers(0, 6).map(float))
    return np.array(
        draw(
            st.lists(
                st.lists(cell, min_size=num_activities, max_size=num_activities),
                min_size=num_videos,
                max_size=num_videos,
            )
        )
    )


@settings(deadline=None, max_examples=60)
@given(tables())
def test_counts_equal_those_of_the_slow_version(times):
    assert precedence(times).tolist() == oracle.precedence(times.tolist())


@settings(deadline=None, max_examples=60)
@given(tables())
def test_the_usual_order_cannot_be_bettered_by_moving_one_activity(times):
    order, rows = usual_order(times), times.tolist()
    assert sorted(order) == list(range(times.shape[1]))
    num_inversions = oracle.num_inversions(rows, order)
    assert num_inversions >= oracle.best_inversions(rows)
    for activity in order:
        rest = [other for other in order if other != activity]
        assert all(
            oracle.num_inversions(rows, [*rest[:i], activity, *rest[i:]]) >= num_inversions for i in range(len(order))
        )


def test_an_order_that_all_share_is_found():
    rng = np.random.default_rng(0)
    truth = rng.permutation(12)
    times = np.tile(np.argsort(truth).astype(float), (7, 1))
    times[rng.random(times.shape) < 0.3] = nan
    present = [activity for activity in truth if np.isfinite(times[:, activity]).any()]
    order = [activity for activity in usual_order(times) if activity in present]
    assert oracle.num_inversions(times.tolist(), order) == 0
