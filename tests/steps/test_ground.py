"""Step grounding: runs of threads, ranked by a text."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from hiero.steps.ground import Runs, find_runs, ground, mean_of_runs
from tests.conftest import close, load_json


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 4))
def test_runs_one_by_one(labels, min_nodes):
    expected, start = [], 0
    for i in range(1, len(labels) + 1):
        if i == len(labels) or labels[i] != labels[start]:
            expected.append((start, i, labels[start]))
            start = i
    long = [run for run in expected if run[1] - run[0] >= min_nodes] or expected
    found = find_runs(torch.tensor(labels), min_nodes)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == long


def test_runs_of_the_release_without_its_mistake():
    """The release begins the last run one node early; `correct` does not."""
    for case in load_json("metrics")["compress"]:
        runs = find_runs(torch.tensor(case["labels"]))
        assert [[int(start), int(end - start)] for start, end in zip(runs.start, runs.end, strict=True)] == case["correct"]


@given(st.integers(1, 20), st.integers(0, 100))
def test_means(num, seed):
    nodes = torch.randn(num, 5, generator=torch.Generator().manual_seed(seed))
    labels = torch.randint(3, (num,), generator=torch.Generator().manual_seed(seed))
    runs = find_runs(labels)
    expected = torch.stack([nodes[a:b].mean(0) for a, b in zip(runs.start, runs.end, strict=True)])
    close(mean_of_runs(nodes, runs), expected)


def test_the_right_moment_ranks_first():
    torch.manual_seed(0)
    steps = F.normalize(torch.randn(4, 16), dim=1)
    truth = torch.tensor([0] * 20 + [1] * 15 + [2] * 25 + [1] * 10 + [3] * 30)
    nodes = F.normalize(steps[truth] + 0.1 * torch.randn(100, 16), dim=1)
    runs, scores = ground(nodes, steps, num_threads=4)
    best = scores.argmax(1)
    assert [(int(runs.start[i]), int(runs.end[i])) for i in best[[0, 2, 3]]] == [(0, 20), (35, 60), (70, 100)]
    assert {(int(runs.start[i]), int(runs.end[i])) for i in scores[1].topk(2).indices} == {(20, 35), (60, 70)}


def test_one_node():
    runs, scores = ground(torch.ones(1, 3), torch.ones(2, 3))
    assert runs == Runs(torch.tensor([0]), torch.tensor([1]), torch.tensor([0]))
    assert scores.shape == (2, 1)
