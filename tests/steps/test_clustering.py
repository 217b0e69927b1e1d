"""Clusterings by name, and runs of their labels."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hiero.steps.clustering import cluster, clustering_names
from hiero.steps.segmentation import label_runs


@given(st.sampled_from(clustering_names()), st.integers(1, 30), st.integers(1, 9), st.integers(0, 99))
def test_any_algorithm_labels_every_node(algorithm, length, num, seed):
    x = np.random.default_rng(seed).normal(size=(length, 5)).astype(np.float32)
    labels = cluster(x, num, algorithm, random_state=seed)
    assert labels.shape == (length,)
    assert labels.min() >= 0
    assert labels.max() < num


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 5))
def test_runs_are_runs(labels, min_nodes):
    labels = np.array(labels)
    runs = label_runs(labels)
    assert [labels[a] for a, b in runs for _ in range(b - a)] == labels.tolist()
    assert all(labels[a - 1] != labels[a] for a, _ in runs[1:])
    long = label_runs(labels, min_nodes)
    assert len(long) == len(runs) or (long[:, 1] - long[:, 0]).min() >= min_nodes
