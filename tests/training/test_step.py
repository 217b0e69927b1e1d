"""The learning rate, presets and overrides."""

from __future__ import annotations

import pytest

from hiero.config import ModelConfig, TextConfig, TrainConfig, override, read_preset
from hiero.errors import InputError
from hiero.training.loop import apply_settings
from hiero.training.step import learning_rate

PAPER = TrainConfig(ModelConfig(256))


def test_the_papers_schedule():
    """15 epochs of 100 steps: 5 epochs up from 1e-8, then down a cosine to 1e-8."""
    rates = [learning_rate(step, 1500, PAPER) for step in range(1500)]
    assert rates[0] == pytest.approx(1e-8)
    assert rates[250] == pytest.approx(1e-5 * (0.001 + 0.999 / 2))
    assert rates[500] == pytest.approx(1e-5)
    assert rates[1000] == pytest.approx((1e-5 + 1e-8) / 2)
    assert rates[1499] == pytest.approx(1e-8, rel=0.01)
    assert rates[:501] == sorted(rates[:501])
    assert rates[500:] == sorted(rates[500:], reverse=True)


def test_no_warm_up_begins_at_the_rate():
    assert learning_rate(0, 10, PAPER.replace(warmup_epochs=0.0)) == pytest.approx(1e-5)


def test_a_warm_up_that_is_longer_than_the_run_keeps_its_share_and_says_so():
    messages = []
    values = apply_settings({}, ["epochs=3"], TrainConfig, messages.append)
    rates = [learning_rate(step, 300, PAPER.replace(**values)) for step in range(300)]
    assert rates.index(max(rates)) == 100
    assert max(rates) == pytest.approx(PAPER.lr)
    assert len(messages) == 1
    assert apply_settings({}, ["epochs=6"], TrainConfig, messages.append) == {"epochs": 6}
    with pytest.raises(InputError, match="warmup_epochs"):
        PAPER.replace(**apply_settings({}, ["epochs=3", "warmup_epochs=5"], TrainConfig, messages.append))


@pytest.mark.parametrize(
    ("name", "mode", "encoder"),
    [
        ("omnivore", "full", "distilbert"),
        ("egovlp", "frozen", ""),
        ("lavila-l", "frozen", ""),
        ("k400-minilm", "frozen", "minilm"),
    ],
)
def test_presets(name, mode, encoder):
    values = read_preset(name)
    config = TrainConfig.from_dict({**values, "model": {"input_size": 8, **values.get("model", {})}})
    assert (config.text.mode, config.text.encoder) == (mode, encoder)
    if name != "k400-minilm":  # the paper's
        paper = TrainConfig(ModelConfig(8), text=config.text)
        assert config == paper
        assert (paper.epochs, paper.batch_size, paper.lr, paper.weight_decay, paper.clip) == (15, 8, 1e-5, 1e-5, 1.0)


def test_overrides():
    values = override(
        {"lr": 1.0, "model": {"depth": 3}}, ["lr=1e-4", "model.hidden_size=64", "text.encoder=some/folder", "seed=3"]
    )
    assert values == {
        "lr": 1e-4,
        "model": {"depth": 3, "hidden_size": 64},
        "text": {"encoder": "some/folder"},
        "seed": 3,
    }
    for bad, message in (
        ("lr", "takes key=value"),
        ("=3", "takes key=value"),
        ("lr.x=3", "not a group of settings"),
    ):
        with pytest.raises(InputError, match=message):
            override({"lr": 1.0}, [bad])


def test_settings_of_the_wrong_kind(tmp_path):
    def build(**values):
        return TrainConfig.from_dict({"model": {"input_size": 8}, **values})

    assert build(lr=1).lr == 1
    for values, message in (
        ({"lr": "fast"}, "TrainConfig.lr cannot be 'fast'"),
        ({"epochs": 1.5}, "epochs cannot be 1.5"),
        ({"seed": True}, "seed cannot be"),
        ({"nonsense": 1}, "has no setting nonsense"),
        ({"model": {"input_size": 8, "hiden": 1}}, "has no setting hiden"),
        ({"precision": "int8"}, "precision must be one of auto"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"seed": 2**40}, "seed must be between"),
        ({"model": {"input_size": 8, "clock": {"foo": 1}}}, "unexpected keyword"),
        ({"text": {"mode": "loose"}}, "mode must be one of frozen"),
        ({"clip": 0.0}, "clip must be positive"),
    ):
        with pytest.raises(InputError, match=message):
            build(**values)
    with pytest.raises(InputError, match="unknown preset nothing; choose from egovlp, k400-minilm, lavila-l, omnivore"):
        read_preset("nothing")
    (tmp_path / "own.toml").write_text("lr = = 3")
    with pytest.raises(InputError, match="not TOML"):
        read_preset(str(tmp_path / "own.toml"))
    assert TextConfig.from_dict({}) == TextConfig()
