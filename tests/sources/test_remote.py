"""Remote files: ranges, lost connections, changed files, the limit of the cache, and no secret in any message."""

from __future__ import annotations

import json
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.sources import remote, remote_blocks
from hiero.sources.remote import (
    RemoteFile,
    as_path,
    copy_path,
    fetch_copy,
    find_remote,
    known_key,
    list_remote,
    open_copy,
    show_addresses,
    shown_path,
)
from hiero.sources.remote_blocks import PartialFile, part_path
from hiero.sources.remote_origins import RemoteStat, identity, public_address, reason
from hiero.storage.cache import content_key
from tests.processes import start_python
from tests.remote_server import file_server, isolate_remote
from tests.waiting import wait_until

MB = 2**20


@pytest.fixture(autouse=True)
def fast(tmp_path, monkeypatch):
    """A home of its own, and no waiting between attempts."""
    isolate_remote(tmp_path, monkeypatch)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(remote_blocks, "SAVE_BYTES", MB)


@pytest.fixture
def server():
    with file_server() as server:
        yield server


def random_bytes(num_bytes, seed=0):
    import numpy as np

    return np.random.default_rng(seed).bytes(num_bytes)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("https://me:pw@host:8/a/b%20c.mp4?X-Amz-Signature=ab#t=3", "https://host:8/a/b%20c.mp4"),
        ("HTTPS://host/a.mp4?id=4", "https://host/a.mp4"),
        ("s3://bucket/what?.mp4", "s3://bucket/what?.mp4"),
        ("s3://bucket/a.mp4?token=ab", "s3://bucket/a.mp4"),
        ("ftp://me:p%40w@host/a.mp4", "ftp://host/a.mp4"),
        ("zip://a.mp4::https://me:pw@host/b.zip?sig=ab", "zip://a.mp4::https://host/b.zip"),
        ("https://host?token=ab", "https://host"),
    ],
)
def test_addresses_are_shown_without_secrets(address, public):
    assert public_address(address) == public
    assert shown_path(address) == public


def test_a_signature_does_not_make_another_file():
    signed = "https://host/v/a.mp4?X-Amz-Credential=k&X-Amz-Signature={}&X-Amz-Date=1"
    assert copy_path(signed.format("1")) == copy_path(signed.format("2")) == copy_path("https://host/v/a.mp4")
    assert (
        identity("https://host/d?id=1&token=a")
        == identity("https://host/d?id=1&token=b")
        != identity("https://host/d?id=2")
    )
    assert copy_path("https://host/d.mp4?id=1") != copy_path("https://host/d.mp4?id=2")
    # chapters lie beside each other
    assert copy_path("https://host/v/a.mp4").parent == copy_path("https://host/v/b.mp4").parent


@pytest.mark.parametrize("name", ["%2e%2e%2fetc", "..", ".hidden.mp4", "a" * 400 + ".mp4", "a%00b.mp4", "a%2Fb.mp4"])
def test_a_copy_stays_in_its_folder(name, tmp_path):
    path = copy_path(f"https://host/v/{name}")
    assert path.resolve().parent == path.parent.resolve()
    assert path.parent.parent == tmp_path / "home/cache/remote"
    assert not path.name.startswith(".")
    path.write_bytes(b"")


def test_local_files_are_left_alone(tmp_path):
    assert as_path("videos/a.mp4") == as_path(os.path.join("videos", "a.mp4"))  # noqa: PTH118
    assert as_path("file:///tmp/a%20b.mp4").as_posix() == "/tmp/a b.mp4"
    assert find_remote(tmp_path / "a.mp4") is None
    assert fetch_copy(tmp_path / "a.mp4") == tmp_path / "a.mp4"
    with pytest.raises(InputError, match="no such file"):
        open_copy(tmp_path / "a.mp4")


def test_fetch_and_fetch_again(server):
    content = random_bytes(3 * MB + 17)
    path = copy_path(server.put("/v/kitchen.mp4", content))
    assert not path.exists()
    assert not server.requests
    events = []
    assert fetch_copy(path, events.append) == path
    assert path.read_bytes() == content
    assert [event.stage for event in events] == ["download"] * len(events)
    assert (events[0].done, events[-1].done, events[-1].total) == (0, len(content), len(content))
    sent = server.num_sent
    fetch_copy(path)
    assert server.num_sent - sent == 1  # the first byte, to ask whether it is the same
    assert known_key(path) == content_key(path)
    path.unlink()
    sent = server.num_sent
    assert known_key(path) is not None
    assert server.num_sent - sent == 1


@pytest.mark.parametrize("drops", [[2 * MB + 5], [0, 70_000, 0, MB, 3 * MB]])
def test_a_lost_connection_goes_on_at_its_byte(server, drops):
    content = random_bytes(5 * MB + 3)
    path = copy_path(server.put("/a.mp4", content))
    server.drops = list(drops)
    fetch_copy(path)
    assert path.read_bytes() == content
    assert server.num_sent == len(content) + 2  # and the first byte twice: to ask before and after


def test_statuses_that_pass_are_tried_again(server):
    path = copy_path(server.put("/a.mp4", b"x" * 100))
    server.codes = [503, 429, 500]
    assert fetch_copy(path).read_bytes() == b"x" * 100


def test_what_was_brought_stays_when_nobody_answers_any_more(server):
    content = random_bytes(4 * MB)
    path = copy_path(server.put("/a.mp4", content))
    server.drops = [int(2.5 * MB)] + [0] * 20
    with pytest.raises(InputError, match=r"/a.mp4: the connection was lost after 2.6 MB; run it again to go on there"):
        fetch_copy(path)
    server.drops = []
    server.num_sent = 0
    assert fetch_copy(path).read_bytes() == content
    assert server.num_sent == 2 * MB + 2


def test_a_killed_process_goes_on(server, tmp_path):
    content = random_bytes(24 * MB)
    address = server.put("/a.mp4", content)
    server.delay_s = 0.005
    code = f"from hiero.sources.remote import *; fetch_copy(copy_path({address!r}))"
    process = start_python(code)
    path = copy_path(address)
    wait_until(remote_blocks.index_path(path).exists, 30.0)
    process.kill()
    process.wait()
    assert not path.exists()
    partial = PartialFile.open(path, RemoteStat(len(content), server.versions["/a.mp4"]))
    assert partial.num_present >= 8 * MB
    server.delay_s = 0.0
    time.sleep(0.1)
    server.num_sent = 0
    assert fetch_copy(path).read_bytes() == content
    assert server.num_sent == len(content) - partial.num_present + 2


def test_a_changed_file_is_brought_anew(server):
    address = server.put("/a.mp4", b"old" * MB)
    path = copy_path(address)
    fetch_copy(path)
    key = known_key(path)
    server.put("/a.mp4", b"new" * MB)
    assert known_key(path) is None
    assert fetch_copy(path).read_bytes() == b"new" * MB
    assert known_key(path) != key
    server.put("/b.mp4", b"old" * MB)
    server.drops = [MB] + [0] * 20
    with pytest.raises(InputError, match="lost"):
        fetch_copy(copy_path(server.address + "/b.mp4"))
    server.drops = []
    server.put("/b.mp4", b"NEW" * MB)  # same size
    assert fetch_copy(copy_path(server.address + "/b.mp4")).read_bytes() == b"NEW" * MB


def test_a_file_that_changes_while_it_is_read(server, monkeypatch):
    path = copy_path(server.put("/a.mp4", b"old" * MB))
    changes = [b"new" * MB]

    def change(event):
        if changes and event.done > MB:
            server.put("/a.mp4", changes.pop())

    assert fetch_copy(path, change).read_bytes() == b"new" * MB
    with pytest.raises(InputError, match="changed again and again"):
        fetch_copy(copy_path(server.put("/b.mp4", b"x" * MB)), lambda _: server.put("/b.mp4", os.urandom(MB)))


@pytest.mark.parametrize("says_size", [True, False])
def test_a_server_without_ranges(server, says_size):
    content = random_bytes(2 * MB + 9)
    path = copy_path(server.put("/a.mp4", content))
    server.has_ranges, server.says_size = False, says_size
    server.drops = [0, MB] if says_size else []  # the first is the question for one byte
    assert fetch_copy(path).read_bytes() == content
    path.unlink()
    assert open_copy(path) == str(path)  # a reader of parts has to bring it too


def test_secrets_are_never_shown(server, tmp_path, monkeypatch):
    address = server.put("/v/a.mp4", b"x" * 10)
    secret = address.replace("//", "//me:pass-word-1@") + "?X-Amz-Signature=sig-nature-1"
    server.authorization = "Basic " + __import__("base64").b64encode(b"me:pass-word-1").decode()
    path = copy_path(secret)
    assert fetch_copy(path).read_bytes() == b"x" * 10
    texts = [shown_path(path), repr(find_remote(path)), find_remote(path).name, show_addresses(f"{path}: broken")]
    server.codes = [403] * 20
    path.unlink()
    with pytest.raises(InputError) as refused:
        fetch_copy(path)
    server.codes = [404]
    with pytest.raises(InputError) as gone:
        fetch_copy(path)
    server.codes = [500] * 100
    with pytest.raises(InputError) as broken:
        fetch_copy(path)
    texts += [str(error.value) for error in (refused, gone, broken)]
    assert all(error.value.__cause__ is None for error in (refused, gone, broken))
    stored = b"".join(file.read_bytes() for file in (tmp_path / "home").rglob("*") if file.is_file())
    for text in [*texts, stored.decode("latin1")]:
        assert "pass-word-1" not in text
        assert "sig-nature-1" not in text
    assert shown_path(path) == address
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    text = reason(OSError(f"cannot read {secret} with very-secret, Signature=abc&token: q"), secret)
    assert text == f"cannot read {address}, with ***, Signature=***&token: ***".replace(", with", " with")


def test_a_password_stays_with_its_server(server):
    with file_server() as other:
        other.put("/a.mp4", b"y" * 10)
        server.put("/same/a.mp4", b"y" * 10)
        server.redirects = {"/away.mp4": other.address + "/a.mp4", "/here.mp4": "/same/a.mp4"}
        for name in ("/away.mp4", "/here.mp4"):
            fetch_copy(copy_path(server.address.replace("//", "//me:pw@") + name))
        assert all("Authorization" not in headers for _, _, headers in other.requests)
        assert all("Authorization" in headers for path, _, headers in server.requests if path == "/same/a.mp4")


def test_netrc(server, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password pw\n")
    (tmp_path / ".netrc").chmod(0o600)
    server.authorization = "Basic bWU6cHc="
    assert fetch_copy(copy_path(server.put("/a.mp4", b"x"))).read_bytes() == b"x"


def test_a_copy_is_read_where_its_server_is_away(server):
    path = copy_path(server.put("/a.mp4", b"x" * 10))
    fetch_copy(path)
    server.codes = [403]
    events = []
    assert fetch_copy(path, events.append).read_bytes() == b"x" * 10
    assert "the copy that is here is read" in events[0].message
    server.codes = [404]
    with pytest.raises(InputError, match="no such file on the server"):
        fetch_copy(path)


def test_the_limit(server, monkeypatch):
    monkeypatch.setenv("HIERO_REMOTE_CACHE_GB", "0.005")
    paths = [copy_path(server.put(f"/{i}.mp4", random_bytes(2 * MB, i))) for i in range(4)]
    for i, path in enumerate(paths[:2]):
        fetch_copy(path)
        os.utime(path.with_name(f".{path.name}.lock"), (i, i))
    fetch_copy(paths[0])  # used again
    os.utime(paths[0].with_name(".0.mp4.lock"), (5, 5))
    fetch_copy(paths[2])
    assert [path.is_file() for path in paths] == [True, False, True, False]
    assert known_key(paths[1]) is not None  # what was computed from it is still found
    with pytest.raises(
        InputError, match=r"6.mp4: 0.0 GB do not fit into the 0.005 GB .* HIERO_REMOTE_CACHE_GB to 1 or more"
    ):
        fetch_copy(copy_path(server.put("/6.mp4", bytes(6_000_000))))
    assert paths[0].is_file()
    monkeypatch.setenv("HIERO_REMOTE_CACHE_GB", "lots")
    with pytest.raises(InputError, match="number of gigabytes, got 'lots'"):
        fetch_copy(paths[3])


def test_a_disk_that_is_full(server, monkeypatch):
    path = copy_path(server.put("/a.mp4", bytes(MB)))
    monkeypatch.setattr(remote, "MIN_FREE_BYTES", 2**60)
    with pytest.raises(InputError, match="do not fit on the disk"):
        fetch_copy(path)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("https://host/videos/", "cannot be listed over http"),
        ("https://host/*.mp4", "cannot be listed over http"),
        ("rtsp://host/live.mp4", "live streams are for hiero watch"),
        ("nothing://host/a.mp4", "not a kind of address that fsspec knows"),
    ],
)
def test_addresses_that_cannot_be_read(address, message):
    with pytest.raises(InputError, match=message) as caught:
        [fetch_copy(copy_path(entry.address)) for entry in list_remote(address, (".mp4",))]
    assert "\n" not in str(caught.value)


def test_empty_and_missing_files(server):
    with pytest.raises(InputError, match=r"/a.mp4: is empty"):
        fetch_copy(copy_path(server.put("/a.mp4", b"")))
    with pytest.raises(InputError, match="no such file on the server"):
        fetch_copy(copy_path(server.address + "/none.mp4"))


def test_a_damaged_index_costs_only_time(server):
    content = random_bytes(3 * MB)
    path = copy_path(server.put("/a.mp4", content))
    stat = RemoteFile.from_address(server.address + "/a.mp4").stat()
    for damage in (b"", b"[" * 9999, b'{"size": 1}\n\1', b"\xff\n"):
        partial = PartialFile.open(path, stat)
        partial.write(0, 0, [content[:MB]], lambda _: None)
        remote_blocks.index_path(path).write_bytes(damage)
        assert PartialFile.open(path, stat).num_present == 0
    path.with_name(".a.mp4.json").write_text("[1]")
    assert fetch_copy(path).read_bytes() == content
    assert json.loads(path.with_name(".a.mp4.json").read_text())["size"] == len(content)


def test_files_of_memory_are_listed_and_read():
    import fsspec

    memory = fsspec.filesystem("memory")
    for name, content in {
        "a.mp4": b"a" * 9,
        "day/b.MOV": b"b",
        "day/.c.mp4": b"c",
        "notes.txt": b"d",
        "day/b.srt": b"e",
    }.items():
        memory.pipe(f"/clips/{name}", content)
    names = [entry.name for entry in list_remote("memory://clips/", (".mp4", ".mov"))]
    assert names == ["a.mp4", "day/b.MOV"]
    assert [entry.name for entry in list_remote("memory://clips/*.mp4", (".mp4",))] == ["a.mp4"]
    assert [entry.name for entry in list_remote("memory://clips/**/*.MOV", (".mov",))] == ["day/b.MOV"]
    (entry,) = list_remote("memory://clips/day/b.MOV", (".mov",))
    path = fetch_copy(copy_path(entry.address))
    assert path.read_bytes() == b"b"
    assert path.with_suffix(".srt").read_bytes() == b"e"  # a transcript comes with it
    memory.rm("/clips/day/b.srt")
    fetch_copy(path)
    assert not path.with_suffix(".srt").exists()
    memory.rm("/clips", recursive=True)


@given(
    size=st.integers(1, 40),
    reads=st.lists(st.tuples(st.integers(0, 45), st.integers(0, 20)), max_size=8),
    drops=st.lists(st.integers(0, 12), max_size=3),
)
@settings(max_examples=20, deadline=None)
def test_parts_are_those_of_the_file(size, reads, drops):
    """Any reads, in any order, over connections that get lost, give what the file itself gives; then
    the rest is brought.
    """
    import io
    import tempfile

    content = random_bytes(size, size)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as home:
        patch.setenv("HIERO_HOME", home)
        patch.setattr(remote_blocks, "BLOCK_BYTES", 4)
        patch.setattr(remote, "BLOCK_BYTES", 4)
        patch.setattr(remote, "_stats", {})
        patch.setattr(remote, "STAT_AGE_S", 30.0)
        with file_server() as server:
            path = copy_path(server.put("/a.mp4", content))
            reader = open_copy(path)
            server.drops = list(drops)
            plain = io.BytesIO(content)
            for position, length in reads:
                reader.seek(position)
                plain.seek(position)
                data = b""
                while len(data) < length and (part := reader.read(length - len(data))):
                    data += part
                assert data == plain.read(length)
            reader.seek(0)
            assert fetch_copy(path).read_bytes() == content
            assert reader.readall() == content
            assert not part_path(path).exists()
