"""The cache: keys by content; whatever lies in its folder never costs the answer."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hiero.errors import InputError
from hiero.storage import cache
from hiero.storage.cache import cache_folder, cache_limit, content_key, read_cached, store_cached
from hiero.storage.files import check_fits, write_bytes


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


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"x" * 32, b"0" * 33, "é".encode() * 32])
def test_a_damaged_cached_key_is_computed_again(old_file, content):
    key = content_key(old_file)
    (known,) = cache_folder("known").iterdir()
    known.write_bytes(content)
    assert content_key(old_file) == key
    assert known.read_text() == key


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


@pytest.mark.parametrize("error", [KeyError, InputError, RuntimeError])
def test_a_malformed_file_is_removed(tmp_path, error):
    file = tmp_path / "cached"
    file.write_bytes(b"anything")

    def read(_):
        raise error("surprise")

    assert read_cached(file, read) is None
    assert not file.exists()
    assert read_cached(file, read) is None


def interrupt(_):
    raise KeyboardInterrupt


def run_out_of_files(_):
    try:
        raise OSError(errno.EMFILE, "too many open files")
    except OSError:
        raise InputError("cannot be read") from None


@pytest.mark.parametrize("read", [run_out_of_files, interrupt, lambda _: check_fits(2**60, "its content")])
def test_a_file_that_could_not_be_read_is_kept(tmp_path, read):
    file = tmp_path / "cached"
    file.write_bytes(b"valid")
    with suppress(KeyboardInterrupt):
        assert read_cached(file, read) is None
    assert file.read_bytes() == b"valid"


def cached(kind, name, num_bytes=1000, age_days=0.0):
    """A file of the cache that was last used some days ago."""
    file = cache_folder(kind) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(num_bytes))
    os.utime(file, (time.time() - 86_400 * age_days,) * 2)
    return file


def store():
    """Store something of 1000 bytes; this is when the size of the cache is checked."""
    file = cache_folder("nodes") / "stored"
    assert store_cached(lambda: write_bytes(file, bytes(1000)))
    return file


def test_the_least_recently_used_files_make_room(monkeypatch):
    monkeypatch.setenv("HIERO_CACHE_MAX", "3 kB")
    first, second = cached("features", "a", age_days=4), cached("speech", "b", age_days=3)
    third, fourth = cached("known", "c", age_days=2), cached("nodes", "d", age_days=1)
    assert read_cached(second, Path.read_bytes) is not None
    stored = store()
    assert [file.exists() for file in (first, second, third, fourth, stored)] == [False, True, False, True, True]


def test_files_in_use_copies_of_videos_and_corrections_stay(monkeypatch, tmp_path):
    monkeypatch.setenv("HIERO_CACHE_MAX", "0")
    kept = [
        cached("features", "unfinished.partial", age_days=0.01),
        cached("features", ".being-written.part"),
        cached("remote", "key/kitchen.mp4", age_days=9),
        cached("remote", "key/.kitchen.mp4.lock", age_days=9),
        cached("../edits", "key.json", age_days=9),
    ]
    left_by_a_killed_process = cached("features", ".abandoned.part", age_days=1)
    kept.append(store())
    assert all(file.exists() for file in kept)
    assert not left_by_a_killed_process.exists()


def test_the_size_of_the_cache_is_not_checked_at_every_store(monkeypatch):
    monkeypatch.setenv("HIERO_CACHE_MAX", "0")
    store()
    old = cached("nodes", "old", age_days=1)
    store()
    assert old.exists()


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        *(("", 20e9), ("500 mb", 5e8), ("1.5G", 1.5e9), (".5k", 500), ("123", 123), ("0", 0)),
        *((text, None) for text in ("-1", "5 GB of space", "GB", "nan", "1e9", ".", "9" * 400)),
    ],
)
def test_sizes_of_the_cache(monkeypatch, text, num_bytes):
    monkeypatch.setenv("HIERO_CACHE_MAX", text)
    if num_bytes is not None:
        assert cache_limit() == num_bytes
    else:
        with pytest.raises(InputError, match="HIERO_CACHE_MAX"):
            cache_limit()


def test_a_pipe_has_no_content_key(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe"):
        content_key(tmp_path / "pipe")
