"""The cache of text vectors: each text once, kept as it goes, whole or not at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.networks import vector_cache
from hiero.networks.vector_cache import TextCache
from tests.processes import start_python


def toy_vectors(texts):
    return np.array([[len(text), sum(text.encode()) % 100] for text in texts], dtype=np.float32)


@given(st.lists(st.lists(st.text(max_size=8), max_size=12), max_size=4))
def test_cached_vectors_are_those_of_the_encoder(tmp_path_factory, calls):
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


def test_an_interruption_keeps_finished_chunks(tmp_path, monkeypatch):
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


DAMAGE = {
    "cut short": lambda file: file.write_bytes(file.read_bytes()[:-3000]),
    "empty": lambda file: file.write_bytes(b""),
    "half zero": lambda file: file.write_bytes(file.read_bytes()[:4096] + bytes(file.stat().st_size - 4096)),
    "no table": lambda file: execute(file, "DROP TABLE vectors"),
    "a schema that is no text": lambda file: file.write_bytes(file.read_bytes().replace(b"ROWID", b"ROWI\xd0")),
    "another table": lambda file: execute(file, "DROP TABLE vectors", "CREATE TABLE vectors (a, b)"),
    "text for numbers": lambda file: execute(file, "UPDATE vectors SET vector = 'some text'"),
    "other vectors": lambda file: execute(file, "UPDATE vectors SET vector = x'00000000'"),
    "shorter vectors": lambda file: execute(file, "UPDATE vectors SET vector = substr(vector, 1, 2)"),
    "rows exchanged": lambda file: execute(
        file, "UPDATE vectors SET (vector, checksum) = (SELECT max(vector), checksum FROM vectors)"
    ),
}


def execute(file, *statements):
    with closing(sqlite3.connect(file)) as database, database:
        for statement in statements:
            database.execute(statement)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_encoded_again(tmp_path, damage):
    """And is whole after that."""
    texts = [f"text {i}" for i in range(200)]
    expected = toy_vectors(texts).astype(np.float16)
    TextCache("key", tmp_path).encode(texts, toy_vectors)
    (file,) = (tmp_path / "key").iterdir()
    DAMAGE[damage](file)
    for _ in range(2):  # where only a part of it is damaged, that may be noticed by the second
        assert np.array_equal(TextCache("key", tmp_path).encode(texts, toy_vectors), expected)
    assert np.array_equal(TextCache("key", tmp_path).encode(texts, lambda _: pytest.fail("encoded again")), expected)


def test_encoders_have_separate_caches(tmp_path):
    TextCache("one", tmp_path).encode(["a"], toy_vectors)
    encoded = []
    for name in ("one", "two"):
        TextCache(name, tmp_path).encode(["a"], lambda part, name=name: encoded.append(name) or toy_vectors(part))
    assert encoded == ["two"]


def test_the_default_folder_can_be_replaced_for_a_while(tmp_path):
    """A server stores vectors in its state, and nothing of that is left after it."""
    before = TextCache("key").file.parent
    with TextCache.stored_in(tmp_path):
        assert TextCache("key").file.parent == tmp_path / "key"
        assert TextCache("key", tmp_path / "other").file.parent == tmp_path / "other" / "key"
        with TextCache.stored_in(None):
            assert TextCache("key").file.parent == tmp_path / "key"
    assert TextCache("key").file.parent == before


def test_vectors_are_computed_if_the_database_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_cache, "WAIT_S", 0.01)
    cache = TextCache("key", tmp_path)
    cache.encode(["a"], toy_vectors)
    with closing(sqlite3.connect(cache.file)) as database:
        database.execute("BEGIN EXCLUSIVE")
        assert cache.encode(["a", "b"], toy_vectors).tolist() == toy_vectors(["a", "b"]).tolist()
    assert cache.encode(["a"], lambda _: pytest.fail("encoded again")).tolist() == toy_vectors(["a"]).tolist()


def test_vectors_are_computed_if_they_cannot_be_stored(tmp_path):
    (tmp_path / "file").write_text("")
    assert TextCache("key", tmp_path / "file").encode(["a"], toy_vectors).tolist() == toy_vectors(["a"]).tolist()


def test_processes_share_a_cache_and_may_be_killed(tmp_path):
    """Some of them killed: what is there is right, and the others have written all of theirs."""
    code = """
import os, sys
import numpy as np
from pathlib import Path
from hiero.networks.vector_cache import TextCache
begin, ends = map(int, sys.argv[2:])
def encode(part):
    return np.array([[float(text), 1] for text in part])
for i in range(begin, begin + 40):
    TextCache("key", Path(sys.argv[1])).encode([f"{i}", f"{i + 1}"], encode)
    if ends and i == begin + 20:
        os.kill(os.getpid(), 9)
"""
    processes = [start_python(code, tmp_path, begin, int(begin == 20)) for begin in (0, 20, 50)]
    assert [process.wait() for process in processes] == [0, -9, 0]
    texts = [f"{i}" for i in (*range(41), *range(50, 91))]
    vectors = TextCache("key", tmp_path).encode(texts, lambda _: pytest.fail("encoded again"))
    assert vectors[:, 0].tolist() == [float(text) for text in texts]
