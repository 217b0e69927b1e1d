"""Joint towers from a folder in transformers' layout: small random ones."""

from __future__ import annotations

import json

import pytest
import torch

from hiero.engine import load
from hiero.errors import InputError
from hiero.networks import clip
from hiero.storage import weights
from tests.optional import skip_without

skip_without("transformers", "needs transformers: pip install 'hiero-video[text]'")
tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    import transformers

    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": 30, "max_position_embeddings": 12, "bos_token_id": 1, "eos_token_id": 2},
        vision_config={**sizes, "image_size": 32, "patch_size": 16},
        projection_dim=16,
    )
    model = transformers.CLIPModel(config).eval()
    model.save_pretrained(tmp_path / "clip")
    words = {"[UNK]": 0, "<s>": 1, "</s>": 2, "cut": 3, "onion": 4, "wash": 5}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    tokenizer.save(str(tmp_path / "clip" / "tokenizer.json"))
    (tmp_path / "clip" / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.5] * 3, "image_std": [0.25] * 3})
    )
    return tmp_path / "clip", model


def test_the_towers_equal_transformers(folder):
    path, model = folder
    pictures = torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        expected = clip._pooled(model.get_image_features(pixel_values=(pictures - 0.5) / 0.25))
        torch.testing.assert_close(clip.load(path)(pictures), torch.nn.functional.normalize(expected, dim=-1))
        words = clip._pooled(model.get_text_features(input_ids=torch.tensor([[1, 3, 4, 2]])))
    torch.testing.assert_close(
        clip.encode_clip_texts(path, ["cut onion"]), torch.nn.functional.normalize(words, dim=-1), rtol=1e-4, atol=1e-5
    )
    alone, together = clip.encode_clip_texts(path, ["wash"]), clip.encode_clip_texts(path, ["cut onion", "wash"])
    torch.testing.assert_close(alone[0], together[1], rtol=1e-4, atol=1e-5)


def test_clip_answers_questions_without_a_model(folder, tmp_path, monkeypatch, make):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="hiero models get clip-vit-b32"):
        load("clip-vit-b32").read(make("v.mp4", [10] * 40))
    weights.get("clip-vit-b32", source=folder[0])
    engine = load("clip-vit-b32")
    assert engine.backbones == ("clip-vit-b32",)
    assert engine.model is None
    video = engine.read(make("v.mp4", [20] * 40 + [220] * 40))
    assert video.nodes.shape == (8, 16)
    (level,) = video.steps([2]).levels
    assert [(step.start_s, step.end_s) for step in level] == [(0, 4), (4, pytest.approx(8.0, abs=0.2))]
    assert len(video.likely_labels(level)[0]) == 5
    (answer,) = video.ask("cut onion")
    assert 1 <= len(answer.matches) <= 5


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a CLIP"):
        clip.load(tmp_path)


def test_replaced_weights_are_used(folder, tmp_path, monkeypatch, make):
    """Brought by hand, they replace what is there, and what the old ones computed is not used any more."""
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    path, model = folder
    weights.get("clip-vit-b32", source=path)
    video = make("v.mp4", [20] * 40 + [220] * 40)
    before = load("clip-vit-b32").read(video).nodes
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    model.save_pretrained(path)
    weights.get("clip-vit-b32", source=path)
    assert not torch.allclose(
        torch.from_numpy(before), torch.from_numpy(load("clip-vit-b32").read(video).nodes), atol=1e-3
    )
