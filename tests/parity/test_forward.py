"""The imported checkpoint computes what the release computes."""

from __future__ import annotations

import pytest
import torch

from hiero.model.batches import node_times
from hiero.model.ensemble import embed_features
from hiero.model.unet import Level
from hiero.types import Clock
from tests.conftest import close, load, pad

CASES = ["batch", "offset", "seven", "two", "one"]


@pytest.fixture(scope="module")
def cases():
    return load("forward")


@pytest.mark.parametrize("case", CASES)
def test_levels_match_the_release(case, cases, released):
    model = released.model()
    video = cases[f"{case}/batch"]
    x, mask = pad(cases[f"{case}/x"], video)
    times, _ = pad(cases[f"{case}/pos"], video)
    with torch.no_grad():
        for depth, level in enumerate(model(x, mask, times, threads=False)):
            features = level.features[level.mask]
            close(features, cases[f"{case}/out_depth{depth}"])
            close(model.video_head(features), cases[f"{case}/proj_depth{depth}"])
            close(level.times[level.mask], cases[f"{case}/pos_depth{depth}"])
            owner = torch.arange(len(mask))[:, None].expand_as(level.mask)[level.mask]
            assert owner.equal(cases[f"{case}/video_depth{depth}"])


@pytest.mark.parametrize("case", CASES)
def test_encoder_levels_match_the_release(case, cases, released):
    model = released.model()
    video = cases[f"{case}/batch"]
    x, mask = pad(cases[f"{case}/x"], video)
    times, _ = pad(cases[f"{case}/pos"], video)
    with torch.no_grad():
        for depth, level in enumerate(model.encoder(Level(model.project(x), mask, times, None))):
            close(level.features[level.mask], cases[f"{case}/enc_depth{depth}"])


@pytest.mark.parametrize("case", ["seven", "two", "one"])
def test_corrected_clock_differs_only_by_rounding(case, cases, released):
    """On short videos the exact clock and the release's rounded times agree to the tolerance."""
    model = released.model()
    model.config = released.config.replace(behaviour=released.config.behaviour.replace(rounded_times=False))
    x, times = cases[f"{case}/x"][None], cases[f"{case}/pos"][None]
    with torch.no_grad():
        for depth, level in enumerate(model(x, times=times, threads=False)):
            close(level.features[0], cases[f"{case}/out_depth{depth}"])


def test_rounded_times_is_the_difference_at_an_offset(cases, released):
    """300 s into a video, float32 rounding moves the release by about 1e-4; the option reproduces it,
    the default does not.
    """
    model = released.model()
    x, times, expected = cases["offset/x"][None], cases["offset/pos"][None], cases["offset/out_depth0"]
    with torch.no_grad():
        rounded = model(x, times=times, threads=False)[0].features[0]
        model.config = released.config.replace(behaviour=released.config.behaviour.replace(rounded_times=False))
        exact = model(x, times=times, threads=False)[0].features[0]
    close(rounded, expected)
    close(exact, expected, atol=3e-4)
    assert (exact - expected).abs().max() > 1e-5


def test_our_clock_gives_the_release_times_bit_for_bit(cases):
    assert node_times(50, Clock()).equal(cases["batch/pos"][:50])
    assert node_times(41, Clock(start_s=562 * 16 / 30)).equal(cases["offset/pos"])


def test_embedding_of_the_offset_case(cases, released):
    out = embed_features(released.model(), cases["offset/x"], Clock(start_s=562 * 16 / 30), threads=False)
    close(out["level0"], cases["offset/out_depth0"])
    close(out["projected2"], cases["offset/proj_depth2"])
    assert "threads1" not in out


def test_text_head(cases, released):
    with torch.no_grad():
        close(released.model().text_head(cases["text/cls"]), cases["text/embedding"])


def test_text_encoder_weights_are_kept(cases, released):
    """The kept DistilBERT weights, in transformers' own layout, give the release's first token."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra: text)")
    config = transformers.DistilBertConfig(
        vocab_size=200, max_position_embeddings=64, dim=32, n_layers=2, n_heads=2, hidden_dim=64, activation="gelu"
    )
    encoder = transformers.DistilBertModel(config).eval()
    encoder.load_state_dict(released.text_encoder)
    with torch.no_grad():
        tokens = encoder(cases["text/input_ids"], cases["text/attention_mask"]).last_hidden_state[:, 0]
    close(tokens, cases["text/cls"])
