"""Model folders, on disk and on a hub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import huggingface_hub
import pytest
import torch

from hiero.config import Behaviour, ModelConfig
from hiero.errors import InputError
from hiero.model.ensemble import HieroEnsemble, load_model
from hiero.model.hiero import HiERO
from hiero.types import Clock
from tests.conftest import FIXTURES

CONFIG = ModelConfig(
    input_size=6,
    hidden_size=8,
    embedding_size=5,
    text_size=4,
    gate_size=7,
    sample_points=None,
    backbone="omnivore",
    clock=Clock(fps=24.0, stride=8.0),
    behaviour=Behaviour(truncated_labels=True),
)


@pytest.fixture
def model():
    return HiERO(CONFIG).eval()


def test_round_trip(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert {"config.json", "model.safetensors"} <= {p.name for p in tmp_path.iterdir()}
    other = HiERO.from_pretrained(tmp_path)
    assert type(load_model(tmp_path)) is HiERO
    with pytest.raises(InputError, match="is a single network, not an ensemble"):
        HieroEnsemble.from_pretrained(tmp_path)
    assert other.config == CONFIG
    assert not other.training
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert a.equal(b)
    x = torch.randn(1, 9, 6)
    assert model(x)[0].features.equal(other(x)[0].features)


def test_what_came_with_a_model_is_saved_with_it(tmp_path):
    from hiero.model.released import read_released

    read_released(FIXTURES / "official_small.pth").save(tmp_path / "first")
    HiERO.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    first, second = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("first", "second"))
    assert first == second
    assert (tmp_path / "first/text_encoder.safetensors").read_bytes() == (
        tmp_path / "second/text_encoder.safetensors"
    ).read_bytes()
    HiERO.from_pretrained(tmp_path / "second").save_pretrained(tmp_path / "second")
    assert (tmp_path / "second/text_encoder.safetensors").stat().st_size > 0


def test_a_typo_is_not_looked_for_on_a_hub(tmp_path):
    for name in ("typo", str(tmp_path / "typo"), "tests/typo"):
        with pytest.raises(InputError, match="no such model"):
            HiERO.from_pretrained(name)


def test_push_to_hub_uploads_a_loadable_folder(model, tmp_path, monkeypatch):
    uploaded = tmp_path / "uploaded"

    class Api:
        """The hub's client, without a network."""

        def __init__(self, token):
            assert token == "secret"

        def create_repo(self, repo_id, private, exist_ok):
            assert private
            assert exist_ok
            return huggingface_hub.RepoUrl(f"https://huggingface.co/{repo_id}")

        def upload_folder(self, repo_id, folder_path):
            shutil.copytree(folder_path, uploaded)
            return f"https://huggingface.co/{repo_id}/commit/1"

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    address = model.push_to_hub("someone/hiero-small", private=True, token="secret")
    assert address == "https://huggingface.co/someone/hiero-small/commit/1"
    assert HiERO.from_pretrained(uploaded).config == CONFIG


def test_a_hub_id_is_downloaded_with_the_options_of_the_hub(model, tmp_path, monkeypatch):
    model.save_pretrained(tmp_path)
    requests = []

    def snapshot_download(repo_id, *, allow_patterns, revision):
        requests.append((repo_id, revision))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert HiERO.from_pretrained("someone/hiero-small", revision="v1").config == CONFIG
    assert requests == [("someone/hiero-small", "v1")]


@pytest.mark.slow
def test_models_load_without_the_hubs_client():
    """It takes half a second to import, which `hiero steps` should not wait for."""
    program = "import sys, hiero; hiero.load_model('hiero-k400'); print('huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


TEXT_ENCODERS = (5, ["minilm"], {"name": 5}, {"heads": -1}, {"heads": "12"})


@pytest.mark.parametrize(
    ("file", "content", "fact"),
    [
        ("model.safetensors", None, "model.safetensors is missing"),
        ("config.json", None, "config.json is missing"),
        ("config.json", "{", "config.json: not a hiero configuration"),
        ("config.json", "[" * 100_000, "config.json: not a hiero configuration"),
        ("config.json", '{"model": {"input_size": 6, "wings": 2}}', "wings"),
        *(
            ("config.json", json.dumps({"model": CONFIG.to_dict(), "text_encoder": entry}), "config.json: text_encoder")
            for entry in TEXT_ENCODERS
        ),
    ],
)
def test_a_damaged_folder_says_what_is_wrong(model, tmp_path, file, content, fact):
    model.save_pretrained(tmp_path)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=fact):
        HiERO.from_pretrained(tmp_path)


def test_weights_that_were_cut_short(model, tmp_path):
    model.save_pretrained(tmp_path)
    os.truncate(tmp_path / "model.safetensors", 900)
    with pytest.raises(InputError, match=r"model\.safetensors: damaged"):
        HiERO.from_pretrained(tmp_path)


@pytest.mark.parametrize("change", [{"depth": 2}, {"hidden_size": 16}, {"depth": 5}])
def test_weights_of_another_configuration_are_described_in_a_line(model, tmp_path, change):
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model": {**CONFIG.to_dict(), **change}}))
    with pytest.raises(InputError, match="does not fit") as error:
        HiERO.from_pretrained(tmp_path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": -1}, "depth must be at least 0"),
        ({"depth": 1000}, "depth must be at most 16"),
        ({"hidden_size": 10**9}, "hidden_size must be at most 65536"),
        ({"num_layers": 10**6}, "num_layers must be at most 64"),
        ({"hidden_size": 2**15}, "at most 1 billion parameters"),
        ({"num_threads": 10**9, "sample_points": None}, "num_threads must be at most"),
        ({"kappa": 0.0}, "kappa must be positive"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"sample_points": 2}, "sample_points must be at least"),
    ],
)
def test_impossible_settings(change, message):
    with pytest.raises(InputError, match=message):
        CONFIG.replace(**change)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_settings_are_finite(value):
    with pytest.raises(InputError, match=r"ModelConfig\.radius_s cannot be"):
        ModelConfig.from_dict({"input_size": 6, "radius_s": value})


def test_the_number_of_parameters_is_known_before_they_are_allocated(model):
    num_matrix_values = sum(p.numel() for p in model.parameters() if p.ndim == 2 and 1 not in p.shape)
    assert CONFIG.num_parameters == pytest.approx(num_matrix_values, rel=0.1)
