"""Texts in one space with pictures: numpy against torch, and what real words are near to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.words import JointHead
from hiero.engine.video_nodes import class_names, default_labels, rich_labels
from hiero.errors import InputError
from hiero.storage.files import load_arrays
from hiero.text import joint_text
from hiero.text.joint_text import HEAD_FILES, JOINT_SIZE, PROMPTS, encode_joint_texts, joint_key, pooling_temperature
from hiero.text.minilm import MiniLMEncoder, shipped_vectors
from hiero.text.vector_cache import text_digest
from tests.optional import weights_or_skip


def test_two_layers_in_numpy_and_torch(monkeypatch):
    vectors = np.random.default_rng(0).normal(0, 0.05, (6, 384)).astype(np.float32)
    joint_text._encode_one.cache_clear()
    monkeypatch.setattr(joint_text, "encode_minilm", lambda texts: vectors[: len(texts)])
    head = JointHead()
    arrays = {
        name.removeprefix("text."): torch.from_numpy(v).float()
        for name, v in load_arrays(HEAD_FILES["general"], "text.").items()
    }
    head.text.load_state_dict(arrays)
    with torch.inference_mode():
        whole, patches = head.eval().embed_texts(torch.from_numpy(vectors))
    both = torch.stack([whole, patches], 1).unflatten(0, (2, 3)).mean(0)  # of two prompts
    expected = torch.nn.functional.normalize(both, dim=-1).numpy()
    result = encode_joint_texts(["a", "b", "c"])
    assert result.shape == (3, 2, JOINT_SIZE)
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_its_key_and_size():
    assert 5 < pooling_temperature() < 50
    assert joint_key().count("-") == 2
    assert sum(file.stat().st_size for file in HEAD_FILES.values()) < 13_000_000
    assert "## Limits" in (HEAD_FILES["general"].parent / "README.md").read_text()


def test_vectors_of_bundled_labels_come_with_the_package():
    """So that the first run does not encode thousands of texts; they are those that MiniLM gives."""
    labels = [*default_labels(), *rich_labels()]
    assert 1200 < len(labels) == len(set(labels))
    assert not {"fill the knife", "stir the sandwich", "mop the carpet"} & set(labels)
    assert "repair the bike" in labels
    shipped = shipped_vectors()
    texts = [*class_names(), *(prompt.format(label) for prompt in PROMPTS for label in labels)]
    assert all(text_digest(text) in shipped for text in texts)
    weights_or_skip("minilm")
    some = texts[::400]
    vectors = np.stack([shipped[text_digest(text)] for text in some])
    np.testing.assert_allclose(vectors, MiniLMEncoder().encode(some), atol=2e-3)


@pytest.fixture
def words(monkeypatch):
    """A function that chooses a head as a new process would."""

    def choose(name):
        monkeypatch.setenv("HIERO_WORDS", name)
        for cached in (joint_text.load_text_head, joint_text.joint_key, joint_text._encode_one):
            cached.cache_clear()

    yield choose
    choose("")


def test_a_head_is_chosen_by_its_name(words):
    keys, vectors = set(), []
    for name in HEAD_FILES:
        words(name)
        keys.add(joint_key())
        vectors.append(encode_joint_texts(default_labels()[:1]))
    assert len(keys) == len(HEAD_FILES)
    assert not np.allclose(*vectors, atol=1e-2)
    words("")
    np.testing.assert_array_equal(encode_joint_texts(default_labels()[:1]), vectors[0])


def test_an_unknown_head_is_refused(words):
    words("repair")
    with pytest.raises(InputError, match="HIERO_WORDS must be general or cooking, not repair"):
        joint_key()
