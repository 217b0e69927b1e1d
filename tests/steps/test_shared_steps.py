"""Steps that several recordings of one task share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.steps.shared_steps import PLACE_WEIGHT, share_steps
from tests.oracle import shared_steps as oracle

SCENES = np.random.default_rng(0).normal(size=(6, 24))


def make_recordings(orders, noise=0.5):
    rng = np.random.default_rng(1)
    vectors = [SCENES[order] + noise * rng.normal(size=(len(order), 24)) for order in orders]
    return vectors, [(np.arange(len(order)) + 0.5) / len(order) for order in orders]


def test_the_same_step_has_the_same_number_also_out_of_order():
    orders = [[0, 1, 2, 3, 4, 5], [0, 2, 1, 3, 4, 5], [0, 1, 2, 4, 5], [0, 1, 2, 3, 5, 4]]
    for order, labels in zip(orders, share_steps(*make_recordings(orders)), strict=True):
        assert labels.tolist() == order


def test_a_recording_has_a_step_once():
    same = [np.ones((4, 3)), np.ones((3, 3))]
    labels = share_steps(same, [np.arange(4) / 4, np.arange(3) / 3])
    assert [len(set(row.tolist())) for row in labels] == [4, 3]
    assert labels[0].tolist() == [0, 1, 2, 3]  # only positions tell them apart


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="two or more recordings"):
        share_steps([np.ones((2, 3))], [np.zeros(2)])
    with pytest.raises(InputError, match="at least 2 shared steps"):
        share_steps([np.ones((2, 3))] * 2, [np.zeros(2)] * 2, 1)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=3), st.integers(0, 2), st.integers(0, 999))
def test_assignments_are_the_best_of_all(counts, more, seed):
    rng = np.random.default_rng(seed)
    vectors, places = [rng.normal(size=(n, 5)) for n in counts], [np.sort(rng.random(n)) for n in counts]
    num = max(counts) + more
    found = share_steps(vectors, places, num)
    assert [row.tolist() for row in found] == oracle.share_steps(vectors, places, num, PLACE_WEIGHT)
