"""TDGC on shifts against TDGC on edges."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import hiero_in_150_lines as plain
from hiero.config import ModelConfig
from hiero.model.tdgc import TDGC, timed_neighbours, uniform_neighbours
from tests.conftest import close


def padded_group(lengths: list[int], length: int) -> torch.Tensor:
    """(B, T): 0 on each video's nodes, −1 on padding."""
    return torch.stack([torch.where(torch.arange(length) < n, 0, -1) for n in lengths])


def on_edges(layer: TDGC, x: torch.Tensor, group: torch.Tensor, position: torch.Tensor, radius: float) -> torch.Tensor:
    out = torch.zeros_like(x)
    for video in range(len(x)):
        valid = group[video] >= 0
        edges = plain.radius_edges(position[video][valid], group[video][valid], radius)
        out[video, valid] = plain.tdgc(layer.state_dict(), "", x[video][valid], edges, position[video][valid])
    return out


@given(st.lists(st.integers(1, 14), min_size=1, max_size=4), st.floats(0.05, 6), st.booleans(), st.integers(0, 2**31))
def test_any_times_and_any_radius(lengths, radius, duplicates, seed):
    torch.manual_seed(seed)
    layer = TDGC(ModelConfig(1, 5, gate_size=7)).double()
    group = padded_group(lengths, max(lengths) + 2)
    gaps = torch.rand(group.shape, dtype=torch.float64) * 2
    if duplicates:
        gaps = gaps.round()  # many nodes at the very same time
    times = gaps.cumsum(1)
    x = torch.randn(*group.shape, 5, dtype=torch.float64)
    result = layer(x, timed_neighbours(group, times, radius))
    close(result[group >= 0], on_edges(layer, x, group, times, radius)[group >= 0], rtol=1e-9, atol=1e-9)


def test_the_radius_is_strict():
    group = torch.zeros(1, 4, dtype=torch.long)
    assert not uniform_neighbours(group, 1.0, 1.0).linked
    assert len(uniform_neighbours(group, 1.0, 1.0 + 1e-9).linked) == 1
    assert not timed_neighbours(group, torch.arange(4.0)[None], 1.0).linked
