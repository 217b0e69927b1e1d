"""Feature files through a model: where outputs go, and what is done again."""

from __future__ import annotations

import os

import pytest
import torch
from safetensors.torch import load_file

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.model.embed_files import FileEmbedder, output_files
from hiero.model.ensemble import embed_features
from hiero.model.hiero import HiERO
from hiero.types import Clock

CONFIG = ModelConfig(input_size=6, hidden_size=8, embedding_size=5, text_size=4, gate_size=7, sample_points=None)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return HiERO(CONFIG).eval()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in" / "kitchen").mkdir(parents=True)
    for name in ("a.pt", "kitchen/b.pt"):
        torch.save(torch.randn(9, 6), tmp_path / "in" / name)
    return tmp_path / "in"


def test_outputs_mirror_the_inputs(folder, tmp_path):
    out = tmp_path / "out"
    assert output_files(folder, out) == {
        folder / "a.pt": out / "a.safetensors",
        folder / "kitchen" / "b.pt": out / "kitchen" / "b.safetensors",
    }
    assert output_files(folder / "a.pt", tmp_path / "x.safetensors") == {folder / "a.pt": tmp_path / "x.safetensors"}


@pytest.mark.parametrize(
    ("source", "out", "message"),
    [
        ("in", "in/out", "would mix with the input"),
        ("in/a.pt", "in/a.pt", "would mix with the input"),
        ("in", "file", "is a file"),
        ("in/a.pt", "in/kitchen", "is a folder"),
        ("none", "out", "no such file or folder"),
    ],
)
def test_outputs_never_mix_with_inputs(folder, tmp_path, source, out, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=message):
        output_files(tmp_path / source, tmp_path / out)


def test_a_file_holds_what_the_model_gives(model, folder, tmp_path):
    clock, target = Clock(30.0, 16.0), tmp_path / "a.safetensors"
    returned = FileEmbedder(model, clock, levels=[0, 1], threads=False).embed_file(folder / "a.pt", target)
    expected = embed_features(model, torch.load(folder / "a.pt"), clock, [0, 1], threads=False)
    written = load_file(target)
    assert written.keys() == returned.keys() == expected.keys()
    assert all(written[name].equal(expected[name]) and returned[name].equal(expected[name]) for name in expected)


def test_only_what_changed_is_done_again(model, folder, tmp_path):
    targets = output_files(folder, tmp_path / "out")
    clock = Clock(30.0, 16.0)

    def run(levels=None):
        """Run all files; the names of those that were written, and the problems."""
        before = {path: path.stat().st_mtime_ns for path in targets.values() if path.is_file()}
        problems = FileEmbedder(model, clock, levels, threads=False).embed_files(targets)
        written = {
            path.name for path in targets.values() if path.is_file() and path.stat().st_mtime_ns != before.get(path)
        }
        return written, problems

    assert run() == ({"a.safetensors", "b.safetensors"}, [])
    assert run() == (set(), [])
    (tmp_path / "out/a.safetensors").write_bytes(b"half a file")
    assert run() == ({"a.safetensors"}, [])
    torch.save(torch.randn(12, 6), folder / "kitchen" / "b.pt")
    assert run() == ({"b.safetensors"}, [])
    times = (folder / "a.pt").stat()
    torch.save(torch.load(folder / "a.pt") + 1, folder / "a.pt")
    os.utime(folder / "a.pt", ns=(times.st_atime_ns, times.st_mtime_ns))  # as `cp -p` does
    assert run() == ({"a.safetensors"}, [])
    assert run(levels=[1]) == ({"a.safetensors", "b.safetensors"}, [])
    torch.save(torch.full((9, 6), torch.nan), folder / "a.pt")
    written, problems = run(levels=[1])
    assert written == set()
    assert len(problems) == 1
    assert "a.pt: NaN" in problems[0]


def test_a_video_of_one_node(model, tmp_path):
    """Its levels share their times, and the file holds each of them."""
    torch.save(torch.randn(1, 6), tmp_path / "one.pt")
    FileEmbedder(model, Clock(30.0, 16.0)).embed_file(tmp_path / "one.pt", tmp_path / "one.safetensors")
    written = load_file(tmp_path / "one.safetensors")
    assert [written[f"times{level}"].shape for level in range(3)] == [(1,)] * 3
