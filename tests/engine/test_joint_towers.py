"""A video is asked in words through EgoVLP's and LaViLa's own text towers, and through graph models
made for towers.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hiero.cli import app
from hiero.engine import load
from hiero.errors import InputError
from hiero.networks.spacetime import SpaceTimeTransformer
from hiero.networks.text_encoders import _joint, encode_joint
from hiero.storage import weights
from hiero.types import Clock
from tests.evaluation.simulated import save_random_model
from tests.films import write_video
from tests.networks.released import egovlp_with_words
from tests.networks.test_towers import randomise
from tests.optional import skip_without, weights_or_skip
from tests.oracle.clip import text_tower

skip_without("transformers", "needs transformers: pip install 'hiero-video[text]'")


def tower(width, clip=False):
    return randomise(SpaceTimeTransformer(width, 1, 14 if clip else 16, 256 if clip else 196, 4, clip=clip))


def new_home(tmp_path, monkeypatch, name):
    """A home of its own, with weights that the real one has or fetches."""
    result = weights_or_skip(name)
    (tmp_path / "home" / "weights").mkdir(parents=True)
    (tmp_path / "home" / "weights" / name).symlink_to(result)
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """egovlp.pth as released, small: visual tower, DistilBERT, both projections."""
    new_home(tmp_path, monkeypatch, "minilm")  # carries the words of DistilBERT
    return egovlp_with_words(tmp_path / "egovlp.pth")


@pytest.fixture
def video(tmp_path):
    return write_video(tmp_path / "v.mp4", [30] * 75 + [220] * 75, fps=30)


def test_words_are_projected_as_released(checkpoint):
    path, state, text = checkpoint
    result = encode_joint(path, ["#C C cuts the onion"])
    ids, mask = _joint(path, path.stat().st_mtime_ns)[0].tokenize(["#C C cuts the onion"])
    with torch.no_grad():
        first = text(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
        expected = torch.relu(first) @ state["module.txt_proj.1.weight"].T + state["module.txt_proj.1.bias"]
    torch.testing.assert_close(result, torch.nn.functional.normalize(expected, dim=-1), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_egovlp_answers_without_a_graph(checkpoint, video, tmp_path):
    with pytest.raises(InputError, match="hiero models get egovlp"):
        load("egovlp").read(video)
    weights.get("egovlp", source=checkpoint[0])
    engine = load("egovlp", device="cpu")
    assert engine.has_text
    read = engine.read(video)
    assert read.nodes.shape == (9, 256)
    assert read.clock.spacing_s == pytest.approx(16 / 30)
    assert len(read.source.thumbnails) > 4
    (level,) = read.steps([2]).levels
    assert [step.start_s for step in level] == [0, pytest.approx(2.5, abs=0.3)]
    assert len(read.likely_labels(level)[0]) == 5
    (answer,) = read.ask("cut onion")
    assert answer.matches
    options = ["-o", str(tmp_path / "f"), "--backbone", "egovlp", "--dtype", "float32"]
    app(["extract", str(video), *options], result_action="return_value")
    same = load("egovlp", device="cpu").read(tmp_path / "f" / "v.safetensors")
    np.testing.assert_allclose(same.nodes, read.nodes, atol=2e-3)
    assert same.ask("cut onion")[0].matches[0].start_s == answer.matches[0].start_s


def test_each_backbone_has_a_space_of_its_own():
    """EgoVLP's and LaViLa's vectors are as wide and mean different things: what one made is not
    taken for the other's.
    """
    keys = [load(name).key for name in ("egovlp", "lavila-l", "clip-vit-b32", "raw")]
    assert len(set(keys)) == 4


def test_without_the_projection_there_are_no_words(checkpoint, video):
    weights.get("egovlp", source=checkpoint[0])
    engine = load("egovlp-768")
    assert not engine.has_text
    with pytest.raises(InputError, match="text encoder"):
        engine.encode(["cut onion"])


def test_a_graph_model_reads_videos_with_the_tower_it_was_made_for(checkpoint, video, tmp_path):
    weights.get("egovlp", source=checkpoint[0])
    sizes = {"input_size": 256, "hidden_size": 32, "embedding_size": 16, "num_layers": 1}
    save_random_model(tmp_path / "model", backbone="egovlp", clock=Clock(30, 16), **sizes)
    engine = load(tmp_path / "model", device="cpu")
    assert engine.backbones == ("egovlp",)
    read = engine.read(video)
    assert read.nodes.shape == (9, 16)
    assert len(read.steps([3]).levels[0]) == 3


@pytest.mark.slow
def test_lavila_words(tmp_path, monkeypatch):
    new_home(tmp_path, monkeypatch, "clip-bpe")
    torch.manual_seed(0)
    width, vocabulary = 64, 49408
    block = {"attn.in_proj": (3 * width, width), "attn.out_proj": (width, width)}
    block |= {"mlp.c_fc": (4 * width, width), "mlp.c_proj": (width, 4 * width), "ln_1": (width,), "ln_2": (width,)}
    layers = {f"transformer.resblocks.0.{name}": shape for name, shape in block.items()} | {"ln_final": (width,)}
    shapes = {"token_embedding.weight": (vocabulary, width), "positional_embedding": (77, width)}
    for name, shape in layers.items():
        separator = "_" if name.endswith("in_proj") else "."
        shapes |= {f"{name}{separator}weight": shape, f"{name}{separator}bias": shape[:1]}
    shapes |= {"text_projection": (width, 256), "image_projection": (64, 256)}
    plain = {name: torch.randn(shape) * 0.2 for name, shape in shapes.items()}
    visual = {f"visual.{name}": value for name, value in tower(64, clip=True).items()}
    checkpoint = tmp_path / "lavila.pth"
    state = {f"module.{name}": value for name, value in (plain | visual).items()}
    torch.save({"state_dict": state, "args": None}, checkpoint)
    result = encode_joint(checkpoint, ["cuts the onion"])
    encoder, weight, _ = _joint(checkpoint, checkpoint.stat().st_mtime_ns)
    ids, _ = encoder.tokenize(["cuts the onion"])
    words = {name: value for name, value in plain.items() if "projection" not in name}
    expected = text_tower(words, ids, 1) @ plain["text_projection"]
    torch.testing.assert_close(result, torch.nn.functional.normalize(expected, dim=-1), rtol=1e-3, atol=1e-4)
    assert weight.shape == (256, 64)
    with pytest.raises(InputError, match="md5"):
        weights.get("lavila-l", source=checkpoint)  # not the file that the release names


def test_the_shipped_omnivore_model(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    engine = load("hiero-omnivore-b", device="cpu")
    assert engine.backbones == ("omnivore-b",)
    assert engine.spacing_s == 1.0
    rng = np.random.default_rng(0)
    scenes = rng.normal(size=(4, 1024)).astype(np.float32)
    features = np.concatenate([scene + 0.3 * rng.normal(size=(60, 1024)).astype(np.float32) for scene in scenes])
    result = engine.read_array(features).steps([4], labels=[]).levels[0]
    assert [round(step.start_s / 60) for step in result] == [0, 1, 2, 3]
    assert (load("hiero-omnivore-b").folder.path / "model.safetensors").stat().st_size < 12_000_000
