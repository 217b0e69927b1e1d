"""Which files of a watched folder or address are whole, and which of them are due."""

from __future__ import annotations

import shutil

import pytest

from hiero.corpus.indexing import ArrivalWatcher
from hiero.media import remote
from hiero.media.source import VideoSource

pytestmark = pytest.mark.usefixtures("_home")


@pytest.fixture
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(remote, "_stats", {})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def names(watcher):
    """What a look takes, which is then done."""
    taken = watcher.look()
    watcher.finish(taken)
    return list(taken)


def test_a_file_is_whole_when_it_stays_the_same(folder):
    watcher = ArrivalWatcher([folder])
    assert names(watcher) == []
    (folder / "a.npy").write_bytes(b"1")
    assert names(watcher) == []
    (folder / "a.npy").write_bytes(b"12")
    assert names(watcher) == []
    assert names(watcher) == ["a"]
    assert names(watcher) == []
    (folder / "a.npy").write_bytes(b"123")
    assert (names(watcher), names(watcher), names(watcher)) == ([], ["a"], [])
    (folder / "a.npy").unlink()
    assert names(watcher) == []


def test_a_file_replaced_with_the_same_size_and_time_is_new(tmp_path, folder):
    (folder / "a.npy").write_bytes(b"1")
    watcher = ArrivalWatcher([folder])
    assert (names(watcher), names(watcher), names(watcher)) == ([], ["a"], [])
    (tmp_path / "other.npy").write_bytes(b"2")
    shutil.copystat(folder / "a.npy", tmp_path / "other.npy")
    shutil.copy2(tmp_path / "other.npy", folder / "a.npy")
    assert (names(watcher), names(watcher)) == ([], ["a"])


def test_a_recording_waits_for_its_growing_chapter(folder):
    lines = []
    watcher = ArrivalWatcher([folder], log=lines.append)
    (folder / "GX010001.npy").write_bytes(b"1")
    assert (names(watcher), names(watcher)) == ([], ["GX010001"])
    (folder / "GX020001.npy").write_bytes(b"1")
    assert names(watcher) == []
    (folder / "GX020001.npy").write_bytes(b"12")
    assert names(watcher) == []
    taken = watcher.look()
    assert [len(source.files) for source in taken.values()] == [2]
    assert len(lines) == 1


def test_what_failed_is_tried_again_ever_later(folder):
    (folder / "a.npy").write_bytes(b"1")
    watcher = ArrivalWatcher([folder])
    scans = []
    for number in range(40):
        taken = watcher.look()
        if taken:
            scans.append(number)
        watcher.finish(taken, list(taken))
    assert scans == [1, 2, 4, 8, 16, 32]


def test_of_two_files_with_one_name_the_first_is_taken_and_nothing_else_waits(tmp_path, folder):
    other, lines = tmp_path / "other", []
    other.mkdir()
    for file in (other / "a.npy", other / "b.npy", folder / "c.npy"):
        file.write_bytes(b"1")
    watcher = ArrivalWatcher([folder, other], log=lines.append)
    assert (names(watcher), sorted(names(watcher))) == ([], ["a", "b", "c"])
    (folder / "a.npy").write_bytes(b"2")
    assert (names(watcher), names(watcher)) == ([], [])
    assert [str(folder / "a.npy") in line for line in lines] == [True]
    (other / "a.npy").unlink()
    assert (names(watcher), names(watcher)) == ([], ["a"])


def test_a_prefix(folder):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/arrivals/a.npy", b"1")
    watcher = ArrivalWatcher(["memory://arrivals/"])
    assert (names(watcher), names(watcher), names(watcher)) == ([], ["a"], [])
    memory.pipe("/arrivals/day/b.npy", b"1")
    assert (names(watcher), names(watcher)) == ([], ["day/b"])
    assert not any(VideoSource.of("memory://arrivals/a.npy").path.parent.glob("*.npy"))  # nothing is brought by looking
    memory.rm("/arrivals", recursive=True)
