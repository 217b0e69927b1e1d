"""Texts in one space with pictures: numpy against torch, and what real words are near to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hiero.engine.vocabulary import class_names, default_labels, rich_labels
from hiero.networks import joint_text
from hiero.networks.dinov2 import TwoLayers
from hiero.networks.joint_text import (
    HEAD_FILES,
    JOINT_SIZE,
    PROMPTS,
    encode_joint_texts,
    encode_new_texts,
    joint_key,
    shipped_labels,
)
from hiero.networks.minilm import compute_minilm, load_minilm, shipped_vectors
from hiero.networks.vector_cache import text_digest
from hiero.storage.files import load_arrays
from tests.optional import weights_or_skip
from tests.oracle.joint_text import encode_texts


def test_numpy_equals_the_network_that_was_trained():
    """The text network of training with its additions, and two layers, against what a question uses."""
    weights_or_skip("minilm")
    pytest.importorskip("transformers")
    head = TwoLayers(384, 1024, 2 * JOINT_SIZE).eval()
    additions = load_arrays(HEAD_FILES["research"], "minilm.")
    additions = {name.removeprefix("minilm."): torch.from_numpy(v).float() for name, v in additions.items()}
    arrays = load_arrays(HEAD_FILES["research"], "text.")
    head.load_state_dict({name.removeprefix("text."): torch.from_numpy(v).float() for name, v in arrays.items()})
    texts = ["pour the milk", "a drawer", "she is opening the fridge door"]
    with torch.inference_mode():
        vectors = encode_texts([prompt.format(text) for prompt in PROMPTS for text in texts], additions)
        both = torch.nn.functional.normalize(head.raw(vectors).unflatten(1, (2, -1)), dim=-1)
    both = both.unflatten(0, (2, 3)).mean(0)  # of two prompts
    expected = torch.nn.functional.normalize(both, dim=-1).numpy()
    result = encode_joint_texts(texts, "research")
    assert result.shape == (3, 2, JOINT_SIZE)
    np.testing.assert_allclose(result, expected, atol=2e-3)  # cached in half precision
    on_device = load_minilm("cpu").tuned({name: v.numpy() for name, v in additions.items()})
    np.testing.assert_allclose(
        on_device.encode(texts), joint_text._load_network(None, "research").encode(texts), atol=1e-5
    )


def test_vectors_of_bundled_labels_come_with_the_package():
    """So that the first run does not encode thousands of texts; they are those that MiniLM gives."""
    labels = [*default_labels(), *rich_labels()]
    shipped = shipped_vectors()
    texts = [*class_names(), *labels]
    assert all(text_digest(text) in shipped for text in texts)
    for name in HEAD_FILES:
        assert [label for label in labels if text_digest(label) not in shipped_labels(name)] == []
    weights_or_skip("minilm")
    some = texts[::400]
    vectors = np.stack([shipped[text_digest(text)] for text in some])
    np.testing.assert_allclose(vectors, compute_minilm(some), atol=2e-3)
    for name in HEAD_FILES:
        np.testing.assert_allclose(
            encode_joint_texts(labels[:2], name).reshape(2, -1), encode_new_texts(labels[:2], name), atol=2e-3
        )


def test_each_head_has_its_own_key_and_vectors():
    research, permissive = (encode_joint_texts(default_labels()[:1], name) for name in HEAD_FILES)
    assert not np.allclose(research, permissive, atol=1e-2)
    assert len({joint_key(name) for name in HEAD_FILES}) == len(HEAD_FILES)
