"""Activities of several videos, on made steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import normalized_mutual_info_score, silhouette_score

from hiero.errors import InputError
from hiero.steps.shared_activities import place_agreement, shared_activities, silhouette, step_distances, usual_order
from tests.oracle import usual_order as oracle


def make_steps(num_videos=8, num_activities=7, noise=0.6, in_order=True, seed=0):
    """Steps of videos that show each activity once: vectors, places, videos, truth."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((num_activities, 24))
    orders = [np.arange(num_activities) if in_order else rng.permutation(num_activities) for _ in range(num_videos)]
    truth = np.concatenate(orders)
    places = np.tile((np.arange(num_activities) + 0.5) / num_activities, num_videos)
    vectors = means[truth] + noise * rng.standard_normal((len(truth), 24))
    return vectors, places, np.repeat(np.arange(num_videos), num_activities), truth


@pytest.mark.parametrize("in_order", [True, False])
def test_activities_are_found_with_their_number(in_order):
    vectors, places, videos, truth = make_steps(in_order=in_order)
    activities = shared_activities(vectors, places, videos)
    assert normalized_mutual_info_score(truth, activities) > 0.95
    assert activities.max() + 1 == 7
    if in_order:
        assert activities.tolist() == truth.tolist()  # numbered by their usual place


def test_places_help_where_videos_agree_on_them():
    vectors, places, videos, truth = make_steps(noise=2.5)
    with_places = normalized_mutual_info_score(truth, shared_activities(vectors, places, videos, 7))
    without = normalized_mutual_info_score(truth, shared_activities(vectors, np.full(len(places), 0.5), videos, 7))
    assert with_places > without
    vectors, places, videos, _ = make_steps()
    assert place_agreement(vectors, places, videos) > 0.8
    vectors, places, videos, _ = make_steps(in_order=False)
    assert place_agreement(vectors, places, videos) < 0.15


def test_a_step_at_another_place_is_still_that_activity():
    vectors, places, videos, truth = make_steps(noise=0.4)
    moved = (videos == 3) & (truth == 1)
    places[moved] = 0.95  # the second thing of the others is the last here
    activities = shared_activities(vectors, places, videos)
    assert set(activities[moved]) == set(activities[truth == 1])
    assert normalized_mutual_info_score(truth, activities) > 0.99


def test_silhouette_is_that_of_scikit_learn():
    vectors, places, _, truth = make_steps(noise=1.5)
    distances = step_distances(vectors, places, 0.5)
    labels = np.where(np.arange(len(truth)) == 3, 99, truth)  # one alone
    assert silhouette(distances, labels) == pytest.approx(silhouette_score(distances, labels, metric="precomputed"))


def test_borders():
    assert shared_activities(np.ones((1, 3)), np.array([0.5]), np.array([0])).tolist() == [0]
    assert len(shared_activities(np.ones((4, 3)), np.linspace(0, 1, 4), np.array([0, 0, 1, 1]), 99)) == 4
    with pytest.raises(InputError, match="no steps"):
        shared_activities(np.ones((0, 3)), np.ones(0), np.ones(0))
    with pytest.raises(InputError, match="coarser"):
        shared_activities(np.ones((5000, 1)), np.ones(5000), np.ones(5000))


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
