"""hiero models: list, get and import; earlier spellings say what replaces them."""

from __future__ import annotations

import json

import pytest

from hiero import cli
from hiero.cli import MOVED, app
from hiero.storage import weights


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home: nothing is downloaded."""
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def listed(capsys):
    app(["models", "--json"], result_action="return_value")
    return {model["name"]: model for model in json.loads(capsys.readouterr().out)["models"]}


def test_the_list_says_what_each_model_is_and_needs(home, capsys):
    models = listed(capsys)
    assert models["hiero-k400"]["kind"] == models["hiero-k400-permissive"]["kind"] == "HiERO model"
    assert models["hiero-k400"]["state"] == "downloaded on first use (216 MB)"
    assert models["egovlp"]["kind"] == "backbone"
    assert "egovlp.pth" in models["egovlp"]["state"]  # a person has to download it
    assert models["hiero-lavila-l"]["state"].startswith("downloaded on first use")
    assert "CC-BY-NC" in models["hiero-omnivore-b"]["licence"]
    assert all(model["description"] for model in models.values())


def test_weights_from_a_file_make_a_backbone_ready(home, tmp_path, capsys):
    (tmp_path / "mine.pth").write_bytes(b"weights")
    app(["models", "get", "egovlp-768", "--source", str(tmp_path / "mine.pth")], result_action="return_value")
    assert capsys.readouterr().out.strip() == str(weights.find("egovlp"))
    models = listed(capsys)
    assert models["egovlp"]["state"] == models["egovlp-768"]["state"] == "ready"


@pytest.mark.parametrize("spelling", MOVED, ids=" ".join)
def test_earlier_spellings_exit_with_2_and_name_the_new_one(spelling, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["hiero", spelling[0], "video.mp4", *(f"{option}=x" for option in spelling[1:])])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert MOVED[spelling] in capsys.readouterr().err
