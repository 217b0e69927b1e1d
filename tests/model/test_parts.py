"""Parts that are not the paper's: trained, saved and loaded; and what goes wrong is said clearly."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from examples.train_loop import SIZES, WORLD, train
from hiero import plugins
from hiero.config import ModelConfig, TrainConfig
from hiero.errors import InputError
from hiero.model.ensemble import load_model
from hiero.model.hiero import HiERO
from hiero.plugins import register


class OwnOnly(nn.Module):
    """A layer that has nothing in common with TDGC."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x, neighbours):
        return self.linear(x) * neighbours.mask[..., None]


class EverySecond(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(config.hidden_size))

    def forward(self, x, mask):
        return self.scale * x[:, ::2]


def halves(x, config):
    """The first half of a video is one thread, the second another."""
    return (torch.arange(x.shape[1]) >= x.shape[1] // 2).long().expand(len(x), -1)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    parts = {"hiero.operators": OwnOnly, "hiero.poolings": EverySecond, "hiero.thread_clusterings": halves}
    for group, part in parts.items():
        monkeypatch.setitem(plugins.SCRIPT_PLUGINS[group], "other", part)


CHOICES = [
    {"operator": "other"},
    {"pooling": "other"},
    {"clustering": "other"},
    {"clustering": "other", "sample_points": None},
    {"operator": "other", "pooling": "other", "clustering": "other"},
]


@pytest.mark.parametrize("choices", CHOICES)
def test_parts_are_trained_saved_and_loaded(choices, tmp_path):
    model, _ = train(ModelConfig(**SIZES, clock=WORLD.config.clock, **choices), num_steps=2, batch_size=2)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["model"]
    assert choices.items() <= saved.items()
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    features = WORLD.session(0).features[None]
    for a, b in zip(model(features, threads=True), loaded(features, threads=True), strict=True):
        assert torch.equal(a.features, b.features)
        assert a.threads is b.threads is None or torch.equal(a.threads, b.threads)
    if "clustering" in choices:
        level = loaded(features, threads=True)[1]
        assert level.threads.unique_consecutive().tolist() == [0, 1]


def test_their_parameters_learn():
    choices = {"operator": "other", "pooling": "other", "clustering": "other"}
    config = ModelConfig(**SIZES, clock=WORLD.config.clock, **choices)
    torch.manual_seed(0)
    before = HiERO(config).state_dict()
    model, _ = train(config, num_steps=1, batch_size=2)
    for name in ("encoder.stages.0.layers.0.linear.weight", "encoder.poolings.0.scale"):
        assert not torch.equal(before[name], model.state_dict()[name])


def test_the_papers_parts_are_not_recorded():
    """Fingerprints, resumable runs and model folders of the paper's network are those of earlier versions."""
    config = ModelConfig(input_size=4)
    assert not {"operator", "pooling", "clustering"} & set(config.to_dict())
    assert ModelConfig.from_dict(config.to_dict()) == config
    run = TrainConfig(config.replace(pooling="other"))
    assert run.to_dict()["model"]["pooling"] == "other"
    assert TrainConfig.from_dict(run.to_dict()) == run


@pytest.mark.parametrize("kind", ["operator", "pooling", "clustering"])
def test_a_saved_model_whose_part_is_not_registered(kind, tmp_path, monkeypatch):
    HiERO(ModelConfig(input_size=4, hidden_size=8, **{kind: "other"})).save_pretrained(tmp_path)
    for group in ("hiero.operators", "hiero.poolings", "hiero.thread_clusterings"):
        monkeypatch.delitem(plugins.SCRIPT_PLUGINS[group], "other")
    with pytest.raises(InputError, match=rf"{tmp_path}: unknown .*{kind} other; choose from .*register it"):
        load_model(tmp_path)


def test_an_unrelated_layer_in_a_network_of_the_paper():
    """Assigned by hand, without the registry."""
    config = ModelConfig(input_size=4, hidden_size=8, num_layers=2)
    model = HiERO(config)
    model.encoder.stages[0].layers[1] = OwnOnly(config)
    assert model(torch.randn(1, 20, 4), spacing_s=0.5)[0].features.shape == (1, 20, 8)


class TooWide(OwnOnly):
    def forward(self, x, neighbours):
        return torch.cat([x, x], dim=-1)


class AllNodes(EverySecond):
    def forward(self, x, mask):
        return x


@pytest.mark.parametrize(
    ("group", "choice", "part", "message"),
    [
        ("hiero.operators", "operator", TooWide, r"operator TooWide must return shape \(1, 10, 8\), got \(1, 10, 16\)"),
        ("hiero.poolings", "pooling", AllNodes, r"pooling AllNodes must return shape \(1, 10, 8\), got \(1, 20, 8\)"),
        ("hiero.thread_clusterings", "clustering", lambda x, config: x[..., 0], "must return integers from 0 to 3"),
        ("hiero.thread_clusterings", "clustering", lambda x, config: x[0, :, 0].long(), "must return shape"),
        ("hiero.thread_clusterings", "clustering", lambda x, config: 9 + halves(x, config), "from 0 to 3"),
    ],
)
def test_a_part_that_returns_something_else(group, choice, part, message, monkeypatch):
    monkeypatch.setitem(plugins.SCRIPT_PLUGINS[group], "wrong", part)
    model = HiERO(ModelConfig(input_size=4, hidden_size=8, **{choice: "wrong"}))
    with pytest.raises(InputError, match=message):
        model(torch.randn(1, 20, 4), spacing_s=0.5)


def test_names_that_are_taken_and_groups_that_do_not_exist():
    with pytest.raises(InputError, match="tdgc is already used by hiero"):
        register("hiero.operators", "tdgc", OwnOnly)
    with pytest.raises(InputError, match=r"unknown plug-in group hiero\.wings"):
        register("hiero.wings", "left", OwnOnly)
    register("hiero.operators", "other", TooWide)  # a script may replace what it registered
    assert plugins.load_plugin("hiero.operators", "other") is TooWide
