"""The same step in another video: by content and order."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.steps.correspondence import FEATURE_WEIGHT, centre_steps, correspondence, join_features, match_posterior
from tests.oracle import correspondence as oracle

SCENES = np.random.default_rng(0).normal(size=(12, 24))


def make_steps(order, noise=0.3, seed=0):
    return SCENES[order] + noise * np.random.default_rng(seed).normal(size=(len(order), 24))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 99))
def test_posteriors_are_sums_over_all_alignments(num, lengths, seed):
    rng = np.random.default_rng(seed)
    gain = np.full((len(lengths), num, max(lengths)), -np.inf)
    for i, length in enumerate(lengths):
        gain[i, :, :length] = rng.normal(scale=3, size=(num, length))
    posterior, log_sum = match_posterior(gain, np.array(lengths))
    for i, length in enumerate(lengths):
        expected, total = oracle.match_posterior(gain[i, :, :length])
        np.testing.assert_allclose(np.exp(posterior[i, :, :length]), expected, atol=1e-12)
        np.testing.assert_allclose(log_sum[i], math.log(total))
        assert (posterior[i, :, length:] == -np.inf).all()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 99))
def test_scores_are_those_of_the_equations(num, lengths, seed):
    rng = np.random.default_rng(seed)
    steps, others = rng.normal(size=(num, 5)), [rng.normal(size=(length, 5)) for length in lengths]
    for scores, other in zip(correspondence(steps, others), others, strict=True):
        np.testing.assert_allclose(scores, oracle.correspondence(steps, other), atol=1e-9)


def test_order_tells_apart_what_looks_alike():
    """Scene 3 comes twice: the first time is the first time of the other, and the second the second."""
    steps, other = make_steps([0, 3, 1, 2, 3, 4], seed=1), make_steps([5, 0, 3, 1, 3, 4], seed=2)
    scores = correspondence(steps, [other])[0]
    assert scores[1].argmax() == 2
    assert scores[4].argmax() == 4
    assert scores[1, 2] > scores[1, 4] + 1


def test_a_step_out_of_order_is_still_found():
    steps, other = make_steps([0, 1, 2, 3, 4], noise=0.1, seed=1), make_steps([4, 0, 1, 2, 3], noise=0.1, seed=2)
    assert correspondence(steps, [other])[0].argmax(1).tolist() == [1, 2, 3, 4, 0]


def test_extreme_videos():
    """A single step, all steps alike, and nothing to compare with."""
    single, alike = SCENES[:1], np.repeat(SCENES[:1], 3, axis=0)
    scores = correspondence(single, [single, alike, np.zeros((2, 24))])
    assert [score.shape for score in scores] == [(1, 1), (1, 3), (1, 2)]
    assert all(np.isfinite(score).all() for score in scores)
    assert scores[0][0, 0] > scores[1].max() > scores[2].max()
    assert correspondence(single, []) == []
    np.testing.assert_allclose(centre_steps(single)[0], SCENES[0] / np.linalg.norm(SCENES[0]))


def test_joined_cosines_are_weighted_means():
    rng = np.random.default_rng(0)
    (own, features), (other, other_features) = ([rng.normal(size=(n, d)) for d in (24, 7)] for n in (4, 5))
    joined = join_features(own, features) @ join_features(other, 1000 * other_features).T
    by_model, by_backbone = (centre_steps(a) @ centre_steps(b).T for a, b in ((own, other), (features, other_features)))
    np.testing.assert_allclose(joined, (1 - FEATURE_WEIGHT) * by_model + FEATURE_WEIGHT * by_backbone)
