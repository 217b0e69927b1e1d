"""The cache of text vectors: each text once, kept as it goes, whole or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.text import vector_cache
from hiero.text.vector_cache import TextCache


def toy_vectors(texts):
    return np.array([[len(text), sum(text.encode()) % 100] for text in texts], dtype=np.float32)


@given(st.lists(st.lists(st.text(max_size=8), max_size=12), max_size=4))
def test_it_gives_what_the_encoder_gives(tmp_path_factory, calls):
    folder = tmp_path_factory.mktemp("cache")
    encoded: list[str] = []

    def encode(texts):
        encoded.extend(texts)
        return toy_vectors(texts)

    for texts in calls:
        vectors = TextCache("key", folder).encode(texts, encode)
        if texts:
            assert np.array_equal(vectors, toy_vectors(texts).astype(np.float16))
    assert len(encoded) == len(set(encoded)) == len({text for texts in calls for text in texts})


def test_an_interruption_keeps_what_was_encoded(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_cache, "CHUNK", 2)
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]

    def interrupt(part):
        if "ccc" in part:
            raise KeyboardInterrupt
        return toy_vectors(part)

    with pytest.raises(KeyboardInterrupt):
        TextCache("key", tmp_path).encode(texts, interrupt)
    encoded: list[str] = []
    TextCache("key", tmp_path).encode(texts, lambda part: encoded.extend(part) or toy_vectors(part))
    assert encoded == ["ccc", "dddd", "eeeee"]


def test_a_damaged_file_is_encoded_again(tmp_path):
    TextCache("key", tmp_path).encode(["a", "b"], toy_vectors)
    (file,) = (tmp_path / "key").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    assert np.array_equal(TextCache("key", tmp_path).encode(["b"], toy_vectors), toy_vectors(["b"]).astype(np.float16))


def test_encoders_do_not_share(tmp_path):
    TextCache("one", tmp_path).encode(["a"], toy_vectors)
    assert len(TextCache("two", tmp_path)) == 0
    assert len(TextCache("one", tmp_path)) == 1
