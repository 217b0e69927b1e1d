"""The authors' models by name: downloaded, checked, converted and used, from a server on this machine."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import hiero
from hiero.errors import InputError
from hiero.storage import weights
from tests.films import write_video
from tests.networks.released import egovlp_with_words, hiero_checkpoint, lavila_with_words
from tests.optional import skip_without, weights_or_skip
from tests.remote_server import file_server

skip_without("transformers", "needs transformers: pip install 'hiero-video[text]'")
FEATURES = {"hiero-egovlp": ("egovlp", 256), "hiero-lavila-l": ("LaViLa-L", 256)}
FEATURES["hiero-omnivore"] = ("omnivore_video_swinl", 1536)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files that the authors offer, small: by name of the weights."""
    folder = tmp_path_factory.mktemp("made")
    egovlp, _, tower = egovlp_with_words(folder / "egovlp.pth", patch=32)
    lavila, clip = lavila_with_words(folder / "lavila-l.pth")
    distilbert = tower.state_dict()
    files = {"egovlp": egovlp, "lavila-l": lavila}
    for name, (features, width) in FEATURES.items():
        text = clip if features == "LaViLa-L" else distilbert
        files[name] = hiero_checkpoint(folder / f"{name}.pth", features, width, text)
    return {name: file.read_bytes() for name, file in files.items()}


@pytest.fixture
def server(made, tmp_path, monkeypatch):
    """The authors' addresses, here, and an empty home with the tokenizers."""
    home = tmp_path / "home"
    (home / "weights").mkdir(parents=True)
    for name in ("minilm", "clip-bpe"):
        (home / "weights" / name).symlink_to(weights_or_skip(name))
    monkeypatch.setenv("HIERO_HOME", str(home))
    monkeypatch.delenv("HIERO_WEIGHTS", raising=False)
    with file_server() as server:
        for name in ("lavila-l", *FEATURES):
            entry, files = weights.REGISTRY[name], {f"{name}.pth": (f"{name}.pth", "")}
            url = server.put(f"/{name}.pth", made[name])
            monkeypatch.setitem(weights.REGISTRY, name, replace(entry, url=url, files=files))
        yield server


@pytest.fixture
def video(tmp_path):
    return write_video(tmp_path / "v.mp4", [30] * 75 + [220] * 75, fps=30)


def known(run):
    _, out, _ = run("models", "--json")
    return {model["name"]: model for model in json.loads(out)["models"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hiero-egovlp", "hiero-lavila-l"])
def test_a_released_model_finds_and_names_steps_of_a_video_by_its_name(server, made, tmp_path, video, run, name):
    if name == "hiero-egovlp":
        (tmp_path / "egovlp.pth").write_bytes(made["egovlp"])
        run("models", "get", "egovlp", "--source", tmp_path / "egovlp.pth")
    assert known(run)[name]["state"].startswith("downloaded on first use")
    (tmp_path / "labels.txt").write_text("cut an onion\npour water\n")
    arguments = ["-k", "2", "--labels", tmp_path / "labels.txt", "--json", "--device", "cpu"]
    code, out, err = run("steps", video, "--model", name, *arguments)
    assert code == 0
    assert "MIT" in err  # the licence
    document = json.loads(out)
    assert document["model"] == name
    assert len(document["levels"][0]["steps"]) == 2
    model = known(run)[name]
    assert (model["state"], len(next(iter(model["sha256"].values())))) == ("ready", 64)
    requests = len(server.requests)
    code, out, _ = run("ask", video, "pour water", "--model", name, "--device", "cpu", "--json", "--all")
    assert code == 0
    assert "pour water" in out
    assert len(server.requests) == requests
    engine = hiero.load(name, device="cpu")
    read = engine.read(video)
    cosine = engine.encode(["pour water"])[1] @ read.nodes.T  # texts and nodes share the model's space
    assert cosine.shape == (1, len(read.nodes))
    assert hiero.load_model(name).config.backbone == FEATURES[name][0]


@pytest.mark.parametrize("name", list(FEATURES))
def test_features_need_only_the_checkpoint(server, name):
    rows = np.random.default_rng(0).normal(size=(60, FEATURES[name][1])).astype(np.float32)
    engine = hiero.load(name, device="cpu")
    assert engine.backbones == (weights.look_up(name).backbone,)
    video = engine.read_array(rows)
    assert video.nodes.shape[0] == 60
    assert video.ask("cut an onion")[0].query == "cut an onion"
    assert [request[0] for request in server.requests] == [f"/{name}.pth"]


def test_what_must_be_downloaded_by_hand_is_said_before_anything_is_downloaded(server):
    from hiero.cli import app

    with pytest.raises(InputError, match=r"egovlp\.pth from https://drive\.google\.com"):
        app(["models", "get", "hiero-egovlp"], result_action="return_value")
    assert server.requests == []


def test_a_download_that_stops_half_way_goes_on(server, made):
    content = made["hiero-omnivore"]
    server.drops = [len(content) // 2]
    with pytest.raises(InputError, match="run the command again to resume"):
        hiero.load("hiero-omnivore")
    hiero.load("hiero-omnivore")
    assert "range" in {name.lower() for name in server.requests[-1][2]}
    assert server.num_sent == len(content)


@pytest.mark.parametrize("content", [b"<!DOCTYPE html><title>Sign in</title>", "half"], ids=["page", "half"])
def test_what_is_not_a_checkpoint_is_not_kept(server, made, content):
    server.says_size = False  # so that the end is not known to be missing
    content = made["hiero-omnivore"][:-1000] if content == "half" else content
    server.put("/hiero-omnivore.pth", content)
    with pytest.raises(InputError, match=r"hiero-omnivore\.pth"):
        hiero.load("hiero-omnivore")
    server.put("/hiero-omnivore.pth", made["hiero-omnivore"])
    assert hiero.load("hiero-omnivore").folder.config.input_size == 1536


def test_another_file_than_the_first_is_refused_until_it_is_accepted(server, made, tmp_path):
    first = weights.get("hiero-omnivore") / "hiero-omnivore.pth"
    first.unlink()
    server.put("/hiero-omnivore.pth", made["hiero-egovlp"])
    with pytest.raises(InputError, match="sha256 differs"):
        weights.get("hiero-omnivore")
    first.write_bytes(made["hiero-egovlp"])  # as if somebody had put another file there
    with pytest.raises(InputError, match="not the file that was used first"):
        hiero.load("hiero-omnivore")
    weights.get("hiero-omnivore", source=first.parent)
    assert hiero.load("hiero-omnivore").folder.config.input_size == 256


def test_a_checkpoint_of_another_network_is_named(server, tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pth")
    server.put("/hiero-omnivore.pth", (tmp_path / "other.pth").read_bytes())
    with pytest.raises(InputError, match=r"hiero-omnivore\.pth: not a HiERO checkpoint"):
        hiero.load("hiero-omnivore")


@pytest.mark.slow
def test_a_released_model_is_scored_by_its_name(server, tmp_path, run):
    rng, steps = np.random.default_rng(0), []
    (tmp_path / "features").mkdir()
    np.save(tmp_path / "features" / "tea.npy", rng.normal(size=(120, 1536)).astype(np.float32))
    for number, text in enumerate(["cut an onion", "pour water"]):
        steps.append({"start_s": 20.0 * number, "end_s": 20.0 * number + 15, "text": text})
    (tmp_path / "steps.json").write_text(json.dumps({"tea": {"steps": steps}}))
    data = ["--features", tmp_path / "features", "--annotations", tmp_path / "steps.json", "--no-baselines"]
    code, out, _ = run("eval", "own", *data, "--model", "hiero-omnivore", "--device", "cpu", "--json")
    assert code == 0
    assert json.loads(out)["tables"][-1]["title"] == "Multiple choice of five"
