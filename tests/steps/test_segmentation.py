"""Contiguous steps: the best there are, nested, and bounded in time and memory."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.steps.segmentation import cut_at_granularities, cut_steps, merge_steps
from tests.oracle.segmentation import segmentation_cost


def stretches(seed=0, lengths=(30, 12, 25, 8, 40), noise=0.4, width=16):
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((len(lengths), width))
    x = np.repeat(means, lengths, axis=0)
    return x + noise * rng.standard_normal(x.shape), [0, *np.cumsum(lengths).tolist()]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 5), st.integers(0, 10_000), st.sampled_from([0.0, 0.1, 1.0]), st.integers(1, 3)
)
def test_no_cut_is_better(num_nodes, num, seed, prior, shortest):
    """Against every way to cut a short video."""
    x = np.random.default_rng(seed).standard_normal((num_nodes, 3))
    result = cut_steps(x, num, length_prior=prior, min_nodes=shortest)
    assert result[0] == 0
    assert result[-1] == num_nodes
    num = min(num, max(1, num_nodes // shortest))
    assert len(result) - 1 == num
    every = [[0, *inner, num_nodes] for inner in combinations(range(1, num_nodes), num - 1)]
    every = [bounds for bounds in every if num == 1 or min(np.diff(bounds)) >= shortest]
    best = min(segmentation_cost(x, bounds, prior) for bounds in every)
    assert segmentation_cost(x, result, prior) == pytest.approx(best, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 80),
    st.lists(st.integers(1, 90), min_size=1, max_size=5),
    st.integers(0, 100),
    st.integers(1, 3),
    st.sampled_from([12, 30, 1024]),
)
def test_several_cuts_at_once_are_each_by_itself(num_nodes, nums, seed, shortest, max_nodes):
    x = np.random.default_rng(seed).normal(size=(num_nodes, 4))
    together = cut_at_granularities(x, nums, min_nodes=shortest, max_nodes=max_nodes)
    assert together == [cut_steps(x, num, min_nodes=shortest, max_nodes=max_nodes) for num in nums]


def test_one_node_and_constant_videos():
    assert cut_steps(np.ones((1, 4)), 5) == [0, 1]
    bounds = cut_steps(np.ones((12, 4)), 3)
    assert bounds == [0, 4, 8, 12]  # nothing to tell apart: equal parts


@pytest.mark.slow
def test_memory_is_bounded():
    """Ten hours at 1 Hz, in a process of its own."""
    program = (
        "import numpy, resource; from hiero.steps.segmentation import cut_steps\n"
        "x = numpy.random.default_rng(0).standard_normal((36000, 256), dtype=numpy.float32)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "cut_steps(x, 40)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    grown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 600_000  # KiB


def test_bad_input():
    with pytest.raises(InputError, match="at least one node"):
        cut_steps(np.zeros((0, 3)), 2)
    with pytest.raises(InputError, match="at least 1"):
        cut_steps(np.zeros((3, 3)), 0)
    with pytest.raises(InputError, match="finite"):
        cut_steps(np.full((3, 3), np.nan), 2)


def slow_joins(x, bounds, nums):
    """Computes the cost of every join again each time."""
    x = x - x.mean(0)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    bounds, out = list(bounds), []
    for num in nums:
        while len(bounds) - 1 > max(1, num):
            prices = []
            for a, b, c in zip(bounds, bounds[1:], bounds[2:], strict=False):
                prices.append((b - a) * (c - b) / (c - a) * ((x[a:b].mean(0) - x[b:c].mean(0)) ** 2).sum())
            bounds.pop(int(np.argmin(prices)) + 1)
        out.append(list(bounds))
    return out


@given(st.integers(2, 30), st.integers(0, 1000))
def test_joins_one_by_one(num_nodes, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_nodes, 4))
    inner = np.unique(rng.integers(1, num_nodes, 10)).tolist()
    nums = sorted({len(inner) + 1, max(1, len(inner) // 2), 1}, reverse=True)
    assert merge_steps(x, [0, *inner, num_nodes], nums) == slow_joins(x, [0, *inner, num_nodes], nums)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 400), st.integers(1, 200), st.integers(0, 100), st.integers(1, 3))
def test_parts_of_a_long_video_add_up(num_nodes, num, seed, shortest):
    x = np.random.default_rng(seed).standard_normal((num_nodes, 3))
    bounds = cut_steps(x, num, max_nodes=50, min_nodes=shortest)
    if shortest > 1:
        assert len(bounds) == 2 or min(np.diff(bounds)) >= shortest
        assert len(bounds) - 1 <= num
        return
    assert bounds[0] == 0
    assert bounds[-1] == num_nodes
    assert all(a < b for a, b in pairwise(bounds))
    assert len(bounds) - 1 == min(num, num_nodes)


def test_steps_of_a_long_video_are_found():
    lengths = tuple(np.random.default_rng(1).integers(20, 90, 80).tolist())
    x, bounds = stretches(2, lengths=lengths, noise=0.3)
    result = cut_steps(x, 80)
    assert len(x) > 3 * 1024
    near = [min(abs(b - f) for f in result) <= 2 for b in bounds]
    assert np.mean(near) > 0.9


def test_very_many_steps_are_merged_from_nodes():
    """Not as good as the best, but near it, and in no time; as many as were asked for, none too short."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(150, 8)), 4, axis=0) + 0.3 * rng.normal(size=(600, 8))
    merged, best = cut_steps(x, 150, max_nodes=300), cut_steps(x, 150, max_nodes=600)
    assert len(merged) == len(best) == 151
    assert segmentation_cost(x, best) <= segmentation_cost(x, merged) < 1.3 * segmentation_cost(x, best)
    assert len(set(merged) & set(range(0, 601, 4))) > 120
    assert cut_steps(x, 99_999, max_nodes=300) == list(range(601))
    assert np.diff(cut_steps(x, 210, min_nodes=2, max_nodes=300)).min() >= 2
