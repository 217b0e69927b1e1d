"""Text encoders: found wherever their weights are, the right vectors read off, trained as asked."""

from __future__ import annotations

import json
import pickle

import pytest
import torch

from hiero.config import TextConfig
from hiero.errors import InputError
from hiero.model.released import read_released
from hiero.networks import text_encoders as encoders
from hiero.networks.text_encoders import TextEncoder, load_text_encoder, locate_encoder
from hiero.storage.files import save_tensors
from tests.conftest import FIXTURES, close
from tests.optional import weights_or_skip


@pytest.fixture(scope="module")
def minilm():
    return weights_or_skip("minilm")


def word_tokenizer():
    """A tokenizer for towers of few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokens = ["[PAD]", "[CLS]", "[UNK]", "#C", "C", "cuts", "the", "onion"]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    tokenizer.enable_padding()
    return tokenizer


@pytest.fixture
def words(monkeypatch):
    monkeypatch.setattr(encoders, "_tokenizer", lambda _: word_tokenizer())


def tower_of(state):
    from transformers import DistilBertConfig, DistilBertModel  # takes seconds

    tower = DistilBertModel(
        DistilBertConfig(vocab_size=200, dim=32, hidden_dim=64, n_layers=2, n_heads=1, max_position_embeddings=64)
    )
    tower.load_state_dict(state)
    return tower.eval()


def test_minilm_finds_similar_texts(minilm):
    vectors = load_text_encoder(TextConfig()).encode(
        ["slice the tomato", "cut a tomato into pieces", "tighten the bolt"]
    )
    assert vectors.shape == (3, 384)
    close(vectors.norm(dim=1), torch.ones(3))
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > 0.7
    assert similarity[0, 2] < 0.3


class ConfigParser:
    """Training scripts pickle such objects beside their weights."""


def write_tower(kind, folder):
    """Write the small tower to one of the places where a text encoder may be."""
    released = read_released(FIXTURES / "official_small.pth")
    if kind == "model folder":
        released.save(folder / "model")
        return str(folder / "model")
    if kind == "transformers":
        tower_of(released.text_encoder).save_pretrained(folder / "distilbert")
        return str(folder / "distilbert")
    content = {kind + name: value for name, value in released.text_encoder.items()}
    if kind:
        content["module.video_model.cls_token"] = torch.zeros(3)
        content = {"epoch": 3, "state_dict": content, "config": ConfigParser()}
    torch.save(content, folder / "egovlp.pth")
    return str(folder / "egovlp.pth")


@pytest.fixture
def imported(tmp_path):
    return write_tower("model folder", tmp_path)


@pytest.mark.parametrize("kind", ["model folder", "transformers", "", "text_model.", "module.text_model."])
def test_a_tower_gives_its_first_token_wherever_it_is(tmp_path, words, kind):
    source = write_tower(kind, tmp_path)
    assert locate_encoder(source).kind == "distilbert"
    encoder = load_text_encoder(TextConfig(source))
    assert encoder.size == 32
    ids = torch.tensor([word_tokenizer().encode_batch(["cuts the onion"])[0].ids])
    tower = tower_of(read_released(FIXTURES / "official_small.pth").text_encoder)
    expected = tower(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    close(encoder.encode(["cuts the onion"]), expected)


def test_nothing_in_a_checkpoint_is_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    torch.save({"state_dict": {"a": torch.zeros(1)}, "config": Evil()}, tmp_path / "evil.pth", pickle_module=pickle)
    with pytest.raises(InputError, match="holds no DistilBERT and no CLIP"):
        locate_encoder(str(tmp_path / "evil.pth"))
    assert not (tmp_path / "executed").exists()


def test_a_tower_with_a_missing_layer_is_refused(tmp_path, words):
    state = read_released(FIXTURES / "official_small.pth").text_encoder
    state = {name: value for name, value in state.items() if "layer.0.ffn.lin2" not in name}
    save_tensors(tmp_path / "tower.safetensors", state)
    with pytest.raises(InputError, match=r"layer\.0\.ffn\.lin2\.weight"):
        load_text_encoder(TextConfig(str(tmp_path / "tower.safetensors")))


def test_unknown_encoders_are_refused(tmp_path):
    with pytest.raises(InputError, match="not minilm or distilbert"):
        locate_encoder("nonsense")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    save_tensors(tmp_path / "model.safetensors", {"a": torch.zeros(1)})
    with pytest.raises(InputError, match="unsupported text encoder gpt2"):
        locate_encoder(str(tmp_path))


def trainable_names(encoder: TextEncoder) -> set[str]:
    return {name for name, p in encoder.named_parameters() if p.requires_grad}


def test_the_mode_decides_which_parameters_are_trained(imported, words):
    frozen = load_text_encoder(TextConfig(str(imported), "frozen"))
    assert not trainable_names(frozen)
    assert not frozen.training  # dropout off
    full = load_text_encoder(TextConfig(str(imported), "full"))
    assert len(trainable_names(full)) == len(list(full.parameters()))
    lora = load_text_encoder(TextConfig(str(imported), "lora", lora_rank=2))
    assert trainable_names(lora)
    assert all("lora_" in name for name in trainable_names(lora))
    # layers, q k v, rank, both sides
    assert sum(p.numel() for p in lora.parameters() if p.requires_grad) == 2 * 3 * 2 * (32 + 32)


def test_lora_is_trained_and_saved_merged(imported, words, tmp_path):
    torch.manual_seed(0)
    encoder = load_text_encoder(TextConfig(str(imported), "lora", lora_rank=2)).eval()
    before = encoder.encode(["cuts the onion"])
    optimizer = torch.optim.SGD([p for p in encoder.parameters() if p.requires_grad], lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        ids, mask = encoder.tokenize(["cuts the onion"])
        encoder(ids, mask)[:, 0].sum().backward()
        optimizer.step()
    after = encoder.encode(["cuts the onion"])
    assert not torch.allclose(before, after, atol=1e-3)
    close(tower_of(encoder.plain_state())(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0], after, rtol=1e-4)


def test_a_saved_tower_keeps_its_own_tokenizer(tmp_path):
    """That of a transformers folder may be any."""
    tower = tower_of(read_released(FIXTURES / "official_small.pth").text_encoder)
    tower.save_pretrained(tmp_path / "tower")
    word_tokenizer().save(str(tmp_path / "tower" / "tokenizer.json"))
    encoder = load_text_encoder(TextConfig(str(tmp_path / "tower")))
    (tmp_path / "config.json").write_text(json.dumps({"text_encoder": encoder.save(tmp_path)}))
    texts = ["#C C cuts the onion", "cuts"]
    assert torch.equal(load_text_encoder(TextConfig(str(tmp_path))).encode(texts), encoder.encode(texts))


def test_a_tower_with_unusual_settings_is_refused(tmp_path, words):
    tower = tower_of(read_released(FIXTURES / "official_small.pth").text_encoder)
    tower.config.activation = "relu"
    tower.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"config\.json has unusual settings"):
        load_text_encoder(TextConfig(str(tmp_path)))
