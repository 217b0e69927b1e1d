"""Several networks as one model: their mean cosine, one folder, weights in 8 bits, and training on from the first."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.model.ensemble import HieroEnsemble, embed_features, load_model
from hiero.model.hiero import HiERO, write_model_folder
from hiero.model.model_folder import open_model_folder
from hiero.storage.checkpoints import quantise
from hiero.types import Clock

CLOCK = Clock(1.0, 1.0)
CONFIGS = (
    ModelConfig(input_size=6, hidden_size=64, embedding_size=12, text_size=10, gate_size=8, radius_s=2.5, clock=CLOCK),
    ModelConfig(input_size=6, hidden_size=80, embedding_size=8, text_size=10, gate_size=8, radius_s=5.0, clock=CLOCK),
)


@pytest.fixture
def ensemble():
    torch.manual_seed(0)
    return HieroEnsemble(CONFIGS, 20).eval()


@torch.no_grad()
def test_similarity_is_the_mean_of_the_networks(ensemble):
    features, texts = torch.randn(40, 6), torch.randn(5, 10)
    nodes = F.normalize(embed_features(ensemble, features, CLOCK, [0])["projected0"], dim=-1)
    each = [
        network.embed_text(texts) @ F.normalize(embed_features(network, features, CLOCK, [0])["projected0"], dim=-1).mT
        for network in ensemble.members
    ]
    torch.testing.assert_close(ensemble.embed_text(texts) @ nodes.mT, sum(each) / 2)


@torch.no_grad()
def test_a_projection_keeps_the_directions_that_vary(ensemble):
    basis = torch.linalg.qr(torch.randn(20, 3)).Q
    vectors = F.normalize(torch.randn(50, 3) @ basis.mT, dim=1)
    small = HieroEnsemble(CONFIGS, 3)
    small.fit_projection(vectors)
    torch.testing.assert_close((vectors @ small.projection) @ (vectors @ small.projection).mT, vectors @ vectors.mT)


def test_a_folder_gives_it_back(ensemble, tmp_path):
    ensemble.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, HieroEnsemble)
    with pytest.raises(InputError, match=r"ensemble of 2 networks; load it with hiero\.load_model"):
        HiERO.from_pretrained(tmp_path)
    assert [network.config for network in loaded.members] == list(CONFIGS)
    features, texts = torch.randn(1, 30, 6), torch.randn(4, 10)
    for a, b in zip(ensemble(features, spacing_s=1.0), loaded(features, spacing_s=1.0), strict=True):
        assert a.features.equal(b.features)
    with torch.no_grad():
        expected = ensemble.embed_text(texts).numpy()
    np.testing.assert_allclose(open_model_folder(tmp_path).embed_text(texts.numpy()), expected, atol=1e-5)
    loaded.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text()) == json.loads(
        (tmp_path / "config.json").read_text()
    )


@torch.no_grad()
def test_weights_in_8_bits_say_nearly_the_same(ensemble, tmp_path):
    networks = {"networks": [config.to_dict() for config in CONFIGS]}
    write_model_folder(tmp_path, ensemble.config, quantise(ensemble.state_dict()), networks)
    loaded = load_model(tmp_path)
    features, texts = torch.randn(40, 6), torch.randn(5, 10)
    a, b = (embed_features(model, features, CLOCK, [0])["projected0"] for model in (ensemble, loaded))
    assert F.cosine_similarity(a, b).min() > 0.99
    assert F.cosine_similarity(ensemble.embed_text(texts), loaded.embed_text(texts)).min() > 0.999
    np.testing.assert_allclose(
        open_model_folder(tmp_path).embed_text(texts.numpy()), loaded.embed_text(texts).numpy(), atol=1e-5
    )


def test_settings_of_a_run_reach_all_networks_and_leave_theirs(ensemble):
    ensemble.configure(ensemble.config.replace(num_threads=2, threads_at_inference=False))
    assert [network.config.radius_s for network in ensemble.members] == [2.5, 5.0]
    assert {network.config.num_threads for network in ensemble.members} == {2}
    assert ensemble(torch.randn(1, 30, 6), spacing_s=1.0)[1].threads is None


def test_networks_that_do_not_fit_are_refused(tmp_path, ensemble):
    with pytest.raises(InputError, match="the same input_size"):
        HieroEnsemble([CONFIGS[0], CONFIGS[1].replace(input_size=7)], 20)
    with pytest.raises(InputError, match="21 dimensions"):
        HieroEnsemble(CONFIGS, 21)
    ensemble.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["networks"].pop()
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError):
        load_model(tmp_path)
    settings["networks"] = 3
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match="not a hiero configuration"):
        load_model(tmp_path)
