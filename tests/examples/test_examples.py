"""The examples for researchers run, and what they train gets better."""

from __future__ import annotations

import json

import pytest

from examples import custom_operator, train_loop
from hiero.config import ModelConfig


@pytest.mark.slow
def test_a_training_loop_of_your_own():
    config = ModelConfig(**train_loop.SIZES, clock=train_loop.WORLD.config.clock)
    _, losses = train_loop.train(config, num_steps=20)
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


@pytest.mark.slow
def test_another_operator(tmp_path):
    _, losses = custom_operator.main(tmp_path, num_steps=20)
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert json.loads((tmp_path / "config.json").read_text())["model"]["operator"] == "mean-neighbours"
