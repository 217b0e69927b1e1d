"""The method on edges gives the output of the release and of the package."""

from __future__ import annotations

import pytest
import torch

from examples.hiero_in_150_lines import Level, decode, encode, index_in_group, project, radius_edges, stage
from hiero.config import Behaviour
from hiero.model.unet import cut_threads
from tests.conftest import close, load, pad

CASES = ["batch", "offset", "seven", "two", "one"]


def embed(released, nodes, **options):
    return decode(released.state, released.config, encode(released.state, released.config, nodes), **options)


@pytest.mark.parametrize("case", CASES)
def test_without_threads_it_gives_the_output_of_the_release(case, released):
    data = load("forward")
    nodes = Level(data[f"{case}/x"], data[f"{case}/pos"], data[f"{case}/batch"])
    for depth, level in enumerate(embed(released, nodes, cut=None)):
        close(level.x, data[f"{case}/out_depth{depth}"])
        close(project(released.state, level.x), data[f"{case}/proj_depth{depth}"])
        close(level.time_s, data[f"{case}/pos_depth{depth}"])


@pytest.mark.parametrize("case", ["case0", "case1", "case2"])
def test_a_stage_inside_threads_gives_the_output_of_the_release(case, released):
    data = {name.split("/")[1]: value for name, value in load("threads").items() if name.startswith(f"{case}/")}
    rank = index_in_group(data["thread"]).float()
    edges = radius_edges(rank, data["thread"], released.config.thread_radius)
    name = f"decoder.stages.{int(data['stage'])}."
    close(stage(released.state, name, released.config.num_layers, data["x"], edges, rank), data["out"])


def with_threads(released, nodes):
    """The levels of the package, without the release's quirks."""
    model = released.model()
    model.configure(released.config.replace(behaviour=Behaviour(rounded_times=True)))
    (x, mask), (times, _) = (pad(each, nodes.video) for each in (nodes.x, nodes.time_s))
    with torch.no_grad():
        return model(x, mask, times, threads=True)


@pytest.mark.parametrize("case", CASES)
def test_inside_the_same_threads_it_gives_the_output_of_the_package(case, released):
    """The features are random, so that two runs of K-Means would not find the same threads."""
    data = load("forward")
    nodes = Level(data[f"{case}/x"], data[f"{case}/pos"], data[f"{case}/batch"])
    config = released.config.replace(behaviour=Behaviour())

    def cut_as_the_package(x, _):
        return cut_threads(x[None], torch.ones(1, len(x), dtype=torch.bool), config)[0]

    levels = embed(released, nodes, cut=cut_as_the_package)
    for level, other in zip(levels, with_threads(released, nodes), strict=True):
        close(level.x, other.features[other.mask])


def test_it_finds_the_threads_of_the_package_where_they_are_clear(released):
    kinds = 8 * torch.eye(released.config.num_threads, released.config.input_size)
    x = kinds[torch.arange(192) // 16 % len(kinds)] + 0.05 * torch.randn(192, released.config.input_size)
    nodes = Level(x, (torch.arange(192) + 0.5) * 16 / 30, torch.zeros(192, dtype=torch.long))
    for level, other in zip(embed(released, nodes), with_threads(released, nodes), strict=True):
        close(level.x, other.features[0])
        if other.threads is not None:
            assert torch.equal(level.thread[:, None] == level.thread, other.threads[0][:, None] == other.threads[0])
