"""Hierarchies: no gap, no overlap, nested, and true to what happens."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.steps.hierarchy import (
    build_hierarchy,
    default_step_counts,
    join_by_average_linkage,
    match_threads,
    merge_short_steps,
)
from hiero.types import Clock
from tests.oracle.linkage import plain_average_linkage

SECONDS = Clock(1.0, 1.0)


@settings(max_examples=30, deadline=None)
@given(
    num=st.integers(1, 80),
    numbers=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    method=st.sampled_from(["contiguous", "spectral"]),
    stride=st.sampled_from([1.0, 16.0]),
    seed=st.integers(0, 1000),
)
def test_every_level_covers_the_video_and_nests(num, numbers, method, stride, seed):
    nodes = torch.randn(num, 6, generator=torch.Generator().manual_seed(seed))
    clock = Clock(30.0 if stride == 16 else 1.0, stride, start_s=5.0)
    levels = build_hierarchy(nodes, clock, numbers, method=method)
    assert 1 <= len(levels) <= len(set(numbers))
    for level in levels:
        assert level[0].start_s == 5.0
        assert level[-1].end_s == pytest.approx(5.0 + num * clock.spacing_s)
        assert all(a.end_s == b.start_s for a, b in pairwise(level))
        assert all(step.end_s > step.start_s for step in level)
    for coarse, fine in pairwise(levels):
        assert len(coarse) <= len(fine)
        by_id = {step.id: step for step in coarse}
        for step in fine:
            parent = by_id[step.parent]
            assert parent.start_s <= step.start_s < step.end_s <= parent.end_s
            assert step.id in parent.children
        assert [child for step in coarse for child in step.children] == [step.id for step in fine]
    ids = [step.id for level in levels for step in level]
    assert len(ids) == len(set(ids))


def scene(lengths, which, noise=0.2, seed=0):
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((max(which) + 1, 12))
    x = np.concatenate([np.repeat(means[[k]], n, 0) for k, n in zip(which, lengths, strict=True)])
    return torch.from_numpy(x + noise * rng.standard_normal(x.shape)).float()


def test_steps_and_threads_of_a_known_scene():
    """a b a c: four steps, three threads; the first and third are one."""
    nodes = scene([30, 20, 25, 40], [0, 1, 0, 2])
    for method, number in (("contiguous", 4), ("spectral", 3)):
        (level,) = build_hierarchy(nodes, SECONDS, [number], method=method)
        assert [(round(step.start_s), round(step.end_s)) for step in level] == [
            (0, 30),
            (30, 50),
            (50, 75),
            (75, 115),
        ], method
        assert [step.thread for step in level] == [0, 1, 0, 2]


def test_default_numbers_grow_with_the_video():
    assert default_step_counts(1, 1) == [1]
    assert default_step_counts(16, 16) == [2, 4, 8]
    assert default_step_counts(16 * 60, 960) == [4, 8, 16]
    assert default_step_counts(3600, 3600) == [15, 30, 60]
    assert len(build_hierarchy(torch.randn(900, 4), SECONDS)) == 3


def test_more_steps_than_fit():
    """One node is the shortest, and no two levels are the same. Where few are asked for, none is
    under two seconds.
    """
    nodes = torch.randn(50, 4)
    assert [len(level) for level in build_hierarchy(nodes, SECONDS, [5, 25, 40, 900])] == [5, 25, 40, 50]
    assert [len(level) for level in build_hierarchy(nodes[:7], SECONDS, [4, 8, 16])] == [4, 7]
    assert [len(level) for level in build_hierarchy(nodes[:1], SECONDS, [4])] == [1]
    for seed in range(5):
        (level,) = build_hierarchy(torch.randn(50, 4, generator=torch.Generator().manual_seed(seed)), SECONDS, [12])
        assert min(step.end_s - step.start_s for step in level) >= 2


@given(st.integers(1, 14), st.integers(2, 6), st.sampled_from([0.1, 0.4, 0.9, 2.0]), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_linkage_is_that_of_the_textbook(num, width, max_distance, seed):
    """Unit vectors at random, as the means of steps are: no two distances are equal."""
    means = np.random.default_rng(seed).normal(size=(num, width))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    distances = np.clip(1 - means @ means.T, 0, None)
    assert join_by_average_linkage(distances, max_distance) == plain_average_linkage(distances, max_distance)


def test_linkage_of_equal_items_and_of_no_numbers():
    assert join_by_average_linkage(np.zeros((5, 5)), 0.4) == [0] * 5
    assert join_by_average_linkage(np.full((3, 3), np.nan), 0.4) == [0, 1, 2]


def test_bad_input():
    with pytest.raises(InputError, match="at least one node"):
        build_hierarchy(torch.zeros(0, 3), SECONDS)
    with pytest.raises(InputError, match="at least one step"):
        build_hierarchy(torch.zeros(5, 3), SECONDS, [0, 3])
    with pytest.raises(InputError, match="method must be one of"):
        build_hierarchy(torch.zeros(5, 3), SECONDS, method="magic")


def test_short_runs_go_to_the_neighbour_they_are_like():
    x = scene([20, 2, 20], [0, 0, 1], noise=0.05).numpy()
    assert merge_short_steps(x, [0, 20, 22, 42], 5) == [0, 22, 42]
    assert merge_short_steps(x, [0, 22, 24, 42], 5) == [0, 22, 42]
    assert merge_short_steps(x, [0, 1, 42], 5) == [0, 42]
    assert merge_short_steps(x, [0, 42], 100) == [0, 42]


def test_a_thread_has_the_same_number_on_every_level():
    """A coarser thread is numbered as the fine one that fills most of it; no two threads of a level share a number."""
    fine, coarse = [0, 1, 2, 0], [0, 1, 2]  # the last fine step is done as the first one is
    boundaries = [[0, 10, 30, 40], [0, 4, 10, 30, 40]]
    assert match_threads([coarse, fine], boundaries) == [[1, 2, 0], fine]
    assert match_threads([[0, 1, 2], [0, 0, 0]], [[0, 2, 9, 10], [0, 2, 9, 10]]) == [[1, 0, 2], [0, 0, 0]]
