"""The cache: keys by content; whatever lies in its folder never costs the answer."""

from __future__ import annotations

import hashlib
import os
import shutil
import time

import pytest

from hiero.storage import cache
from hiero.storage.cache import cache_folder, content_key, read_cached


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "MIN_CACHED_BYTES", 0)


@pytest.fixture
def old_file(tmp_path):
    """A file that nobody has written to for a while."""
    path = tmp_path / "video.mp4"
    path.write_bytes(b"some content")
    os.utime(path, (1e9, 1e9))
    time.sleep(2 * cache.MIN_AGE_S)
    return path


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def test_a_known_key_is_not_computed_again(old_file, monkeypatch):
    key = content_key(old_file)
    assert key == sha256(old_file)
    monkeypatch.setattr(cache.hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert content_key(old_file) == key


def test_a_small_file_is_hashed_sooner_than_a_key_is_written(old_file, monkeypatch):
    monkeypatch.setattr(cache, "MIN_CACHED_BYTES", 2**22)
    assert content_key(old_file) == sha256(old_file)
    assert not cache_folder("known").exists()


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"0123", b"x" * 32, b"0" * 33, "é".encode() * 32, b"\x00" * 10_000]
)
def test_any_known_key_that_is_none_is_computed_again(old_file, content):
    key = content_key(old_file)
    (known,) = cache_folder("known").iterdir()
    known.write_bytes(content)
    assert content_key(old_file) == key
    assert known.read_text() == key


def test_a_folder_in_place_of_a_known_key(old_file):
    key = content_key(old_file)
    (known,) = cache_folder("known").iterdir()
    known.unlink()
    known.mkdir()
    assert content_key(old_file) == key


def test_the_key_of_a_file_that_is_written_meanwhile_is_not_kept(old_file, monkeypatch):
    original = hashlib.file_digest

    def write_meanwhile(file, name):
        digest = original(file, name)
        old_file.write_bytes(b"other words!")
        os.utime(old_file, (1e9, 1e9))  # as some programs do
        return digest

    monkeypatch.setattr(cache.hashlib, "file_digest", write_meanwhile)
    content_key(old_file)
    monkeypatch.setattr(cache.hashlib, "file_digest", original)
    assert content_key(old_file) == sha256(old_file)


@pytest.mark.parametrize("is_same_inode", [True, False])
def test_a_file_replaced_with_the_same_size_and_time_has_its_own_key(tmp_path, old_file, is_same_inode):
    """As `cp -p` and `rsync -t` do."""
    other = tmp_path / "other.mp4"
    other.write_bytes(b"more content")
    os.utime(other, (1e9, 1e9))
    content_key(old_file)
    if is_same_inode:
        shutil.copy2(other, old_file)
    else:
        other.replace(old_file)
    assert content_key(old_file) == sha256(old_file)


def test_two_contents_in_one_tick_of_the_clock(tmp_path):
    """The same size and the same modification time: a file that was just written may be written again."""
    path = tmp_path / "file"
    for content in (b"one", b"two", b"six"):
        path.write_bytes(content)
        assert content_key(path) == sha256(path)


@pytest.mark.parametrize(
    "error", [KeyError, ValueError, TypeError, AttributeError, IndexError, OSError, MemoryError, RuntimeError]
)
def test_whatever_is_wrong_with_a_cached_file(tmp_path, error):
    file = tmp_path / "cached"
    file.write_bytes(b"anything")

    def read(_):
        raise error("surprise")

    assert read_cached(file, read) is None
    assert not file.exists()
    assert read_cached(file, read) is None
