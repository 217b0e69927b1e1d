"""Clusterings by name, and runs of their labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.steps.clustering import cluster, clustering_names, finch, merge_closest, natural_partitions
from tests.conftest import load_json
from tests.oracle import twfinch as oracle


@given(st.sampled_from(clustering_names()), st.integers(1, 30), st.integers(1, 9), st.integers(0, 99))
def test_any_algorithm_labels_every_node(algorithm, length, num, seed):
    x = np.random.default_rng(seed).normal(size=(length, 5)).astype(np.float32)
    labels = cluster(x, num, algorithm, random_state=seed)
    assert labels.shape == (length,)
    assert labels.min() >= 0
    assert labels.max() < num


CASES = load_json("twfinch")


def same(a, b):
    """Equal up to the names of clusters."""
    pairs = set(zip(np.asarray(a).tolist(), np.asarray(b).tolist(), strict=True))
    return len(pairs) == len({x for x, _ in pairs}) == len({y for _, y in pairs})


@pytest.mark.parametrize("case", CASES)
def test_partitions_are_the_authors(case):
    x = np.array(case["features"], dtype=np.float32)
    result = natural_partitions(x)
    assert [labels.max() + 1 for labels in result] == case["partition_sizes"]
    for labels, expected in zip(result, case["partitions"], strict=True):
        assert same(labels, expected)


@pytest.mark.parametrize(("case", "wanted"), [(case, wanted) for case in CASES for wanted in case["by_k"]])
def test_any_number_of_clusters(case, wanted):
    assert same(finch(np.array(case["features"], dtype=np.float32), wanted["K"]), wanted["labels"])


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 100))
def test_as_many_as_asked_for(length, num, seed):
    labels = finch(np.random.default_rng(seed).normal(size=(length, 4)).astype(np.float32), num)
    assert len(labels) == length
    assert set(labels.tolist()) == set(range(min(num, length)))


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 100))
def test_rounds_are_the_same_for_every_number(length, num, seed):
    x = np.random.default_rng(seed).normal(size=(length, 4)).astype(np.float32)
    assert (finch(x, num, rounds=natural_partitions(x)) == finch(x, num)).all()


def test_a_black_video_is_cut_into_equal_parts():
    assert finch(np.zeros((3000, 4), dtype=np.float32), 3).tolist() == [0] * 1000 + [1] * 1000 + [2] * 1000


@given(st.integers(2, 60), st.integers(1, 12), st.integers(0, 100))
def test_merges_as_with_means_computed_again(length, num, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(length, 5)).astype(np.float32)
    labels = np.sort(rng.integers(0, length, length))
    labels = np.unique(labels, return_inverse=True)[1]
    merged = merge_closest(x, labels, num)
    assert same(merged, oracle.merge_closest(x, labels, num))
    assert list(dict.fromkeys(merged.tolist())) == list(range(merged.max() + 1))  # numbered by first appearance
