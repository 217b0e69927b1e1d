"""TDGC on shifts against TDGC on edges."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import hiero_in_150_lines as plain
from hiero.config import ModelConfig
from hiero.model.tdgc import TDGC, timed_neighbours, uniform_neighbours
from hiero.model.unet import Stage
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


@given(
    st.lists(st.integers(1, 14), min_size=1, max_size=4), st.sampled_from([0.5, 1.5, 2.5, 7.0]), st.integers(0, 2**31)
)
def test_the_uniform_path_is_the_timed_one(lengths, radius, seed):
    torch.manual_seed(seed)
    layer = TDGC(ModelConfig(1, 5, gate_size=7)).double()
    group = padded_group(lengths, max(lengths) + 1)
    times = torch.arange(group.shape[1], dtype=torch.float64).expand(group.shape)
    x = torch.randn(*group.shape, 5, dtype=torch.float64)
    uniform = layer(x, uniform_neighbours(group, 1.0, radius, torch.float64))
    timed = layer(x, timed_neighbours(group, times, radius))
    close(uniform[group >= 0], timed[group >= 0], rtol=1e-9, atol=1e-9)


def test_the_radius_is_strict():
    group = torch.zeros(1, 4, dtype=torch.long)
    assert not uniform_neighbours(group, 1.0, 1.0).linked
    assert len(uniform_neighbours(group, 1.0, 1.0 + 1e-9).linked) == 1
    assert not timed_neighbours(group, torch.arange(4.0)[None], 1.0).linked


def test_a_node_without_neighbours_keeps_only_itself():
    layer = TDGC(ModelConfig(1, 3))
    x = torch.randn(1, 1, 3)
    alone = layer(x, timed_neighbours(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1), 1.0))
    close(alone, torch.nn.functional.linear(x, layer.mix.weight[:3], layer.mix.bias[:3]))


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("radius", [1.5, 2.5])
def test_gradients(timed, radius):
    layer = TDGC(ModelConfig(1, 3, gate_size=4)).double()
    group = padded_group([5, 3], 6)
    times = torch.arange(6, dtype=torch.float64).expand(2, 6)
    if timed:
        times = times + 0.3 * torch.rand(2, 6, dtype=torch.float64)
        neighbours = timed_neighbours(group, times, radius)
    else:
        neighbours = uniform_neighbours(group, 1.0, radius, torch.float64)
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x, neighbours))

    assert torch.autograd.gradcheck(run, (x, *(v.detach().requires_grad_() for v in values)))


def test_a_stage_without_dropout_is_its_layers():
    stage = Stage(ModelConfig(1, 4, num_layers=2, gate_size=5, dropout=0.5)).eval()
    group = torch.zeros(1, 6, dtype=torch.long)
    x = torch.randn(1, 6, 4)
    rank = torch.arange(6.0)
    expected = plain.stage(stage.state_dict(), "", 2, x[0], plain.radius_edges(rank, group[0], 1.5), rank)
    close(stage(x, uniform_neighbours(group, 1.0, 1.5))[0], expected)
