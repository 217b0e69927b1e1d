"""Remote files: ranges, lost connections, changed files, the limit of the cache, and no secret in any message."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from hiero.cli import main
from hiero.errors import InputError
from hiero.media import remote
from hiero.media.addresses import describe_error, display_addresses, public_address, query_identity
from hiero.media.remote import RemoteFile, copy_path, list_remote
from hiero.media.source import LocalFile, VideoSource
from hiero.storage.cache import content_key
from tests.remote_server import file_server, isolate_remote

MB = 2**20


@pytest.fixture(autouse=True)
def fast(tmp_path, monkeypatch):
    """A home of its own, and no waiting between attempts."""
    isolate_remote(tmp_path, monkeypatch)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(remote, "CHUNK_BYTES", MB)


@pytest.fixture
def server():
    with file_server() as server:
        yield server


def random_bytes(num_bytes, seed=0):
    return np.random.default_rng(seed).bytes(num_bytes)


def serve(server, content, path="/a.mp4"):
    """A remote file with this content."""
    return RemoteFile.from_address(server.put(path, content))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("https://me:pw@host:8/a/b%20c.mp4?X-Amz-Signature=ab#t=3", "https://host:8/a/b%20c.mp4"),
        ("HTTPS://host/a.mp4?id=4", "https://host/a.mp4"),
        ("s3://bucket/what?.mp4", "s3://bucket/what?.mp4"),
        ("s3://bucket/a.mp4?token=ab", "s3://bucket/a.mp4"),
        ("ftp://me:p%40w@host/a.mp4", "ftp://host/a.mp4"),
        ("zip://a.mp4::https://me:pw@host/b.zip#sig=ab", "zip://a.mp4::https://host/b.zip"),
        ("https://me:pw@[::1]:8/a.mp4?sig=ab", "https://[::1]:8/a.mp4"),
        ("https://host?token=ab", "https://host"),
        ("s3://key:SEC/R+ET@bucket/k@x.mp4", "s3://bucket/k@x.mp4"),
        ("hf://hf_secret@datasets/me/k@main/a.mp4", "hf://datasets/me/k@main/a.mp4"),
        ("s3:/key:SEC/RET@bucket/a.mp4", "s3:/bucket/a.mp4"),  # as pathlib writes it
        ("https://host:8000/k@x.mp4", "https://host:8000/k@x.mp4"),
        ("abfs://box@account/a.mp4", "abfs://box@account/a.mp4"),  # two containers are two files
        ("ABFSS://box@account/a.mp4", "abfss://box@account/a.mp4"),
        ("az://box@account/a.mp4", "az://box@account/a.mp4"),
        ("abfs://me:pw@account/a.mp4", "abfs://account/a.mp4"),
    ],
)
def test_addresses_are_shown_without_secrets(address, public):
    assert public_address(address) == public


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("steps s3://key:hid/den@bucket/a.mp4", "s3://bucket/a.mp4"),
        ("steps hf://hidden@datasets/me/a.mp4", "hf://datasets/me/a.mp4"),
        ("corpus list a s3://key:hid/den@bucket/b", "s3://bucket/b"),
    ],
)
def test_no_command_prints_a_key(capfd, monkeypatch, command, shown):
    monkeypatch.setattr("sys.argv", ["hiero", *command.split()])
    with pytest.raises(SystemExit):
        main()
    printed = capfd.readouterr()
    assert shown in printed.err
    assert "den@" not in printed.out + printed.err
    assert "hid" not in printed.out + printed.err


def test_a_signature_does_not_make_another_file():
    signed = "https://host/v/a.mp4?X-Amz-Credential=k&X-Amz-Signature={}&X-Amz-Date=1"
    assert copy_path(signed.format("1")) == copy_path(signed.format("2")) == copy_path("https://host/v/a.mp4")
    assert (
        query_identity("https://host/d?id=1&token=a")
        == query_identity("https://host/d?id=1&token=b")
        != query_identity("https://host/d?id=2")
    )
    assert copy_path("https://host/d.mp4?id=1") != copy_path("https://host/d.mp4?id=2")
    containers = [copy_path(f"{scheme}://{name}@account/a.mp4") for scheme in ("abfs", "ABFS", "az") for name in "ab"]
    assert len(set(containers)) == 4  # the scheme's case does not matter
    # chapters lie beside each other
    assert copy_path("https://host/v/a.mp4").parent == copy_path("https://host/v/b.mp4").parent


@pytest.mark.parametrize("name", ["%2e%2e%2fetc", "..", ".hidden.mp4", "a" * 400 + ".mp4", "a%00b.mp4", "a%2Fb.mp4"])
def test_a_copy_stays_in_its_folder(name, tmp_path):
    path = copy_path(f"https://host/v/{name}")
    assert path.resolve().parent == path.parent.resolve()
    assert path.parent.parent == tmp_path / "home/cache/remote"
    assert not path.name.startswith(".")
    path.write_bytes(b"")


def test_local_files_are_not_copied(tmp_path):
    assert VideoSource.of("videos/a.mp4").files == (LocalFile(Path("videos/a.mp4")),)
    assert VideoSource.of("file:///tmp/a%20b.mp4").path.as_posix() == "/tmp/a b.mp4"
    assert VideoSource.of(tmp_path / "a.mp4").fetch() == (tmp_path / "a.mp4",)
    assert VideoSource.of([tmp_path / "a.mp4", "https://host/a.mp4"]).missing_paths == [tmp_path / "a.mp4"]


def test_a_second_fetch_only_asks_for_the_version(server):
    content, events = random_bytes(3 * MB + 17), []
    file = serve(server, content)
    assert not server.requests
    assert file.fetch(events.append).read_bytes() == content
    assert {event.stage for event in events} == {"download"}
    assert (events[0].done, events[-1].done, events[-1].total) == (0, len(content), len(content))
    sent = server.num_sent
    file.fetch()
    assert server.num_sent - sent == 1  # the first byte, to ask whether it is the same
    assert file.known_key() == content_key(file.path)
    file.path.unlink()
    sent = server.num_sent
    assert file.known_key() is not None
    assert server.num_sent - sent == 1


@pytest.mark.parametrize("drops", [[2 * MB + 5], [0, 70_000, 0, MB, 3 * MB]])
def test_a_lost_connection_or_a_busy_server_costs_one_chunk(server, drops):
    content = random_bytes(5 * MB + 3)
    file = serve(server, content)
    server.drops, server.codes = list(drops), [503, 429, 500]
    assert file.fetch().read_bytes() == content
    num_lost = server.num_sent - len(content) - 2  # the first byte is sent twice: to ask before and after
    assert 0 <= num_lost <= sum(drop for drop in drops if drop < MB)


def test_a_failed_download_is_resumed_later(server):
    content = random_bytes(4 * MB)
    file = serve(server, content)
    server.drops = [MB, MB, MB // 2] + [0] * 20
    with pytest.raises(InputError, match=r"/a\.mp4.* 2\.1 MB"):
        file.fetch()
    server.drops = []
    server.num_sent = 0
    assert file.fetch().read_bytes() == content
    assert server.num_sent == 2 * MB + 2


def test_a_changed_file_is_downloaded_again(server):
    address = server.put("/a.mp4", b"old" * MB)
    file = RemoteFile.from_address(address)
    file.fetch()
    key = file.known_key()
    server.put("/a.mp4", b"new" * MB)
    assert file.known_key() is None
    assert file.fetch().read_bytes() == b"new" * MB
    assert file.known_key() != key
    server.put("/b.mp4", b"old" * MB)
    server.drops = [MB] + [0] * 20
    with pytest.raises(InputError, match="lost"):
        RemoteFile.from_address(server.address + "/b.mp4").fetch()
    server.drops = []
    server.put("/b.mp4", b"NEW" * MB)  # same size
    assert RemoteFile.from_address(server.address + "/b.mp4").fetch().read_bytes() == b"NEW" * MB


def test_a_file_changed_during_its_download(server, monkeypatch):
    file = serve(server, b"old" * MB)
    changes = [b"new" * MB]

    def change(event):
        if changes and event.done > MB:
            server.put("/a.mp4", changes.pop())

    assert file.fetch(change).read_bytes() == b"new" * MB
    file = serve(server, b"x" * MB, "/b.mp4")
    with pytest.raises(InputError, match="changed again and again"):
        file.fetch(lambda _: server.put("/b.mp4", os.urandom(MB)))


@pytest.mark.parametrize("says_size", [True, False])
def test_a_server_without_ranges(server, says_size):
    content = random_bytes(2 * MB + 9)
    file = serve(server, content)
    server.has_ranges, server.says_size = False, says_size
    server.drops = [0, MB] if says_size else []  # the first is the question for one byte
    assert file.fetch().read_bytes() == content
    file.path.unlink()
    assert file.reader() == str(file.path)  # a reader of parts has to bring it too


def test_a_download_without_an_end_stops_at_the_limit(server, monkeypatch):
    monkeypatch.setenv("HIERO_REMOTE_CACHE_GB", "0.005")
    file = serve(server, b"x")
    server.has_ranges, server.says_size, server.is_endless = False, False, True
    with pytest.raises(InputError, match="HIERO_REMOTE_CACHE_GB"):
        file.fetch()
    assert not remote._parts(file.path)


def test_a_server_that_sends_more_than_the_range(server):
    file = serve(server, b"x" * 10)
    server.says_size, server.is_endless = False, True
    assert file.fetch().read_bytes() == b"x" * 10
    assert server.num_sent < 50 * MB


def test_a_download_that_cannot_be_resumed_leaves_no_file(server):
    file = serve(server, bytes(3 * MB))
    server.has_ranges, server.drops = False, [0] + [MB, 0] * 20
    with pytest.raises(InputError, match=r"a\.mp4: the connection was lost"):
        file.fetch()
    assert not remote._parts(file.path)


def test_secrets_are_never_shown(server, tmp_path, monkeypatch):
    address = server.put("/v/a.mp4", b"x" * 10)
    secret = address.replace("//", "//me:pass-word-1@") + "?X-Amz-Signature=sig-nature-1"
    server.authorization = "Basic " + __import__("base64").b64encode(b"me:pass-word-1").decode()
    file = RemoteFile.from_address(secret)
    assert file.fetch().read_bytes() == b"x" * 10
    texts = [file.name, file.stored_name, repr(file), display_addresses(f"{file.path}: broken")]
    server.codes = [403] * 20
    file.path.unlink()
    with pytest.raises(InputError) as refused:
        file.fetch()
    server.codes = [404]
    with pytest.raises(InputError) as gone:
        file.fetch()
    server.codes = [500] * 100
    with pytest.raises(InputError) as broken:
        file.fetch()
    texts += [str(error.value) for error in (refused, gone, broken)]
    assert all(error.value.__cause__ is None for error in (refused, gone, broken))
    stored = b"".join(file.read_bytes() for file in (tmp_path / "home").rglob("*") if file.is_file())
    for text in [*texts, stored.decode("latin1")]:
        assert "pass-word-1" not in text
        assert "sig-nature-1" not in text
    assert file.name == address
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    text = describe_error(OSError(f"cannot read {secret} with very-secret, Signature=abc&token: q"), secret)
    assert text == f"cannot read {address}, with ***, Signature=***&token: ***".replace(", with", " with")


def test_a_password_stays_with_its_server(server):
    with file_server() as other:
        other.put("/a.mp4", b"y" * 10)
        server.put("/same/a.mp4", b"y" * 10)
        server.redirects = {"/away.mp4": other.address + "/a.mp4", "/here.mp4": "/same/a.mp4"}
        for name in ("/away.mp4", "/here.mp4"):
            RemoteFile.from_address(server.address.replace("//", "//me:pw@") + name).fetch()
        assert all("Authorization" not in headers for _, _, headers in other.requests)
        assert all("Authorization" in headers for path, _, headers in server.requests if path == "/same/a.mp4")


def test_passwords_come_from_netrc(server, tmp_path):
    (tmp_path / "none").write_text("machine 127.0.0.1 login me password pw\n")
    (tmp_path / "none").chmod(0o600)
    server.authorization = "Basic bWU6cHc="
    assert serve(server, b"x").fetch().read_bytes() == b"x"


def test_the_copy_is_used_if_the_server_denies_access(server):
    file = serve(server, b"x" * 10)
    file.fetch()
    server.codes = [403]
    events = []
    assert file.fetch(events.append).read_bytes() == b"x" * 10
    assert "the complete copy on this machine is used" in events[0].message
    server.codes = [404]
    with pytest.raises(InputError, match="no such file on the server"):
        file.fetch()


def test_the_least_recently_used_copies_are_evicted(server, monkeypatch):
    monkeypatch.setenv("HIERO_REMOTE_CACHE_GB", "0.005")
    files = [RemoteFile.from_address(server.put(f"/{i}.mp4", random_bytes(2 * MB, i))) for i in range(4)]
    for i, file in enumerate(files[:2]):
        file.fetch()
        os.utime(file.path.with_name(f".{file.path.name}.json"), (i, i))
    files[0].fetch()  # used again
    os.utime(files[0].path.with_name(".0.mp4.json"), (5, 5))
    files[2].fetch()
    assert [file.path.is_file() for file in files] == [True, False, True, False]
    assert files[1].known_key() is not None  # what was computed from it is still found
    with pytest.raises(
        InputError, match=r"6.mp4: 0.0 GB do not fit into the 0.005 GB .* HIERO_REMOTE_CACHE_GB to 1 or more"
    ):
        serve(server, bytes(6_000_000), "/6.mp4").fetch()
    assert files[0].path.is_file()
    monkeypatch.setenv("HIERO_REMOTE_CACHE_GB", "lots")
    with pytest.raises(InputError, match=r"HIERO_REMOTE_CACHE_GB.*lots"):
        files[3].fetch()


def test_a_full_disk_is_reported(server, monkeypatch):
    file = serve(server, bytes(MB))
    monkeypatch.setattr(remote, "MIN_FREE_BYTES", 2**60)
    with pytest.raises(InputError, match=r"do not fit into .* make room on the disk"):
        file.fetch()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("https://host/videos/", "cannot be listed over http"),
        ("https://host/*.mp4", "cannot be listed over http"),
        ("rtsp://host/live.mp4", "rtsp"),
        ("nothing://host/a.mp4", "nothing"),
        ("zip://a.mp4::https://host/b.zip", "archive"),
    ],
)
def test_addresses_that_cannot_be_read(address, message):
    with pytest.raises(InputError, match=message) as caught:
        [RemoteFile.from_address(entry.address).fetch() for entry in list_remote(address, (".mp4",))]
    assert "\n" not in str(caught.value)


def test_empty_and_missing_files(server):
    with pytest.raises(InputError, match=r"/a.mp4: is empty"):
        serve(server, b"").fetch()
    with pytest.raises(InputError, match="no such file on the server"):
        RemoteFile.from_address(server.address + "/none.mp4").fetch()


def test_a_damaged_record_leads_to_another_download(server):
    content = random_bytes(3 * MB)
    file = serve(server, content)
    record = file.path.with_name(".a.mp4.json")
    for damage in (b"", b"[" * 9999, b"[1]", b"\xff\n"):
        record.write_bytes(damage)
        assert file.fetch().read_bytes() == content
        assert json.loads(record.read_text())["size"] == len(content)


def test_files_of_other_file_systems():
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
    file = RemoteFile.from_address(entry.address)
    assert file.fetch().read_bytes() == b"b"
    assert file.path.with_suffix(".srt").read_bytes() == b"e"  # a transcript comes with it
    memory.rm("/clips/day/b.srt")
    file.fetch()
    assert not file.path.with_suffix(".srt").exists()
    memory.rm("/clips", recursive=True)


def test_blocks_are_those_of_the_file_over_lost_connections(server, monkeypatch):
    content = random_bytes(100)
    monkeypatch.setattr(remote, "BLOCK_BYTES", 4)
    file = serve(server, content)
    reader = file.reader()
    server.drops = [0, 3, 1]
    for position, size in ((90, 20), (0, 9), (41, 3)):
        reader.seek(position)
        assert reader.read(size) == content[position : position + size]
    assert server.num_sent < len(content)
