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


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(plugins.SCRIPT_PLUGINS["hiero.operators"], "other", OwnOnly)


def test_an_operator_is_trained_saved_and_loaded(tmp_path):
    config = ModelConfig(**SIZES, clock=WORLD.config.clock, operator="other")
    torch.manual_seed(0)
    before = HiERO(config).state_dict()
    model, _ = train(config, num_steps=2, batch_size=2)
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model"]["operator"] == "other"
    assert loaded.config == model.config
    features = WORLD.session(0).features[None]
    for a, b in zip(model(features, threads=True), loaded(features, threads=True), strict=True):
        assert torch.equal(a.features, b.features)
        assert a.threads is b.threads is None or torch.equal(a.threads, b.threads)
    name = "encoder.stages.0.layers.0.linear.weight"
    assert not torch.equal(before[name], model.state_dict()[name])


def test_the_papers_operator_is_not_recorded():
    """Fingerprints, resumable runs and model folders of the paper's network are those of earlier versions."""
    config = ModelConfig(input_size=4)
    assert "operator" not in config.to_dict()
    assert ModelConfig.from_dict(config.to_dict()) == config
    run = TrainConfig(config.replace(operator="other"))
    assert run.to_dict()["model"]["operator"] == "other"
    assert TrainConfig.from_dict(run.to_dict()) == run


def test_a_saved_model_whose_operator_is_not_registered(tmp_path, monkeypatch):
    HiERO(ModelConfig(input_size=4, hidden_size=8, operator="other")).save_pretrained(tmp_path)
    monkeypatch.delitem(plugins.SCRIPT_PLUGINS["hiero.operators"], "other")
    with pytest.raises(InputError, match=rf"{tmp_path}: unknown operator other; choose from .*register it"):
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


def test_an_operator_that_returns_another_shape(monkeypatch):
    monkeypatch.setitem(plugins.SCRIPT_PLUGINS["hiero.operators"], "wrong", TooWide)
    model = HiERO(ModelConfig(input_size=4, hidden_size=8, operator="wrong"))
    with pytest.raises(InputError, match=r"operator TooWide must return shape \(1, 10, 8\), got \(1, 10, 16\)"):
        model(torch.randn(1, 20, 4), spacing_s=0.5)


def test_names_that_are_taken_and_groups_that_do_not_exist():
    with pytest.raises(InputError, match="tdgc is already used by hiero"):
        register("hiero.operators", "tdgc", OwnOnly)
    with pytest.raises(InputError, match=r"unknown plug-in group hiero\.wings"):
        register("hiero.wings", "left", OwnOnly)
    register("hiero.operators", "other", TooWide)  # a script may replace what it registered
    assert plugins.load_plugin("hiero.operators", "other") is TooWide
