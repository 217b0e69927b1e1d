"""The cache of text vectors: each text once, kept as it goes, whole or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.text import vector_cache as module
from hiero.text.vector_cache import TextCache


def length_of(texts):
    return np.array([[len(text), sum(text.encode()) % 100] for text in texts], dtype=np.float32)


@given(st.lists(st.lists(st.text(max_size=8), max_size=12), max_size=4))
def test_it_gives_what_the_encoder_gives(tmp_path_factory, calls):
    folder = tmp_path_factory.mktemp("cache")
    seen: list[str] = []

    def encode(texts):
        seen.extend(texts)
        return length_of(texts)

    for texts in calls:
        found = TextCache("key", folder).encode(texts, encode)
        if texts:
            assert np.array_equal(found, length_of(texts).astype(np.float16))
    assert len(seen) == len(set(seen)) == len({text for texts in calls for text in texts})


def test_an_interruption_keeps_what_was_encoded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]

    def fail(part):
        if "ccc" in part:
            raise KeyboardInterrupt
        return length_of(part)

    with pytest.raises(KeyboardInterrupt):
        TextCache("key", tmp_path).encode(texts, fail)
    counted: list[str] = []
    TextCache("key", tmp_path).encode(texts, lambda part: counted.extend(part) or length_of(part))
    assert counted == ["ccc", "dddd", "eeeee"]


def test_a_damaged_file_is_encoded_again(tmp_path):
    TextCache("key", tmp_path).encode(["a", "b"], length_of)
    (file,) = (tmp_path / "key").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    assert np.array_equal(TextCache("key", tmp_path).encode(["b"], length_of), length_of(["b"]).astype(np.float16))


def test_encoders_do_not_share(tmp_path):
    TextCache("one", tmp_path).encode(["a"], length_of)
    assert len(TextCache("two", tmp_path)) == 0
    assert len(TextCache("one", tmp_path)) == 1
