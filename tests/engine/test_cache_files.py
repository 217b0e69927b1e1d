"""What lies in the cache, and who writes to a file while it is read, never makes an answer wrong or fail."""

from __future__ import annotations

import os
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hiero.engine import engine as module
from hiero.engine import load
from hiero.features.video_features import VideoFeatures
from hiero.storage.files import load_arrays, save_arrays


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def rows(num=60, width=400, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(4, width)).repeat(-(-num // 4), axis=0)[:num] + 0.1 * rng.normal(size=(num, width))
    ).astype(np.float32)


@pytest.fixture
def feature_file(tmp_path):
    np.save(tmp_path / "v.npy", rows())
    os.utime(tmp_path / "v.npy", (1e9, 1e9))
    return tmp_path / "v.npy"


def only_file(folder):
    (file,) = folder.iterdir()
    return file


NODES = {
    "other rows": lambda a: {**a, "nodes": a["nodes"][:-7]},
    "other width": lambda a: {**a, "nodes": a["nodes"][:, :9]},
    "one dimension": lambda a: {**a, "nodes": a["nodes"][0]},
    "integers": lambda a: {**a, "nodes": a["nodes"].astype(np.int32)},
    "double precision": lambda a: {**a, "nodes": a["nodes"].astype(np.float64)},
    "NaN": lambda a: {**a, "nodes": np.full_like(a["nodes"], np.nan)},
    "no nodes": lambda a: {"spans": a["spans"]},
    "nothing": lambda _: {"x": np.zeros(1)},
    "spans beyond the end": lambda a: {**a, "spans": a["spans"] + 9},
    "spans before the start": lambda a: {**a, "spans": a["spans"] - 1},
    "spans that end first": lambda a: {**a, "spans": a["spans"][:, ::-1]},
    "empty spans": lambda a: {**a, "spans": a["spans"][:0]},
    "spans as floats": lambda a: {**a, "spans": a["spans"].astype(np.float32)},
    "spans of three": lambda a: {**a, "spans": np.zeros((3, 3), np.int64)},
    "flat spans": lambda a: {**a, "spans": a["spans"].ravel()},
}


@pytest.mark.parametrize("damage", NODES)
def test_nodes_that_do_not_fit_are_made_again(home, feature_file, damage):
    video = load("raw").read(feature_file)
    nodes, spans = video.nodes, video.sight.spans
    file = only_file(home / "cache" / "nodes")
    whole = load_arrays(file)
    assert set(whole) == {"nodes", "spans"}
    save_arrays(file, NODES[damage](whole))
    again = load("raw").read(feature_file)
    assert np.array_equal(again.nodes, nodes)
    assert np.array_equal(again.sight.spans, spans)
    again.steps([3])
    assert all(np.array_equal(whole[name], array) for name, array in load_arrays(file).items())


def test_spans_are_found_with_the_first_question_and_kept(home, feature_file, monkeypatch):
    """Indexing needs none, and they take longer to find than all else."""
    video = load("raw").read(feature_file)
    file = only_file(home / "cache" / "nodes")
    assert set(load_arrays(file)) == {"nodes"}
    spans = load("raw").read(feature_file).sight.spans
    monkeypatch.setattr("hiero.engine.evidence.candidate_spans", lambda *_: pytest.fail("found again"))
    assert np.array_equal(load("raw").read(feature_file).sight.spans, spans)
    assert np.array_equal(load_arrays(file)["nodes"].astype(np.float32), video.nodes)


ARRAYS = {
    "one dimension": rows()[0],
    "empty": rows()[:0],
    "half precision": rows().astype(np.float16),
    "integers": rows().astype(np.int64),
    "NaN": np.full_like(rows(), np.nan),
}


@pytest.mark.parametrize("damage", [*ARRAYS, "missing"])
def test_features_of_torch_files_that_do_not_fit_are_read_again(home, tmp_path, damage):
    torch.save(torch.from_numpy(rows()), tmp_path / "v.pt")
    os.utime(tmp_path / "v.pt", (1e9, 1e9))
    nodes = load("raw").read(tmp_path / "v.pt").nodes
    file = only_file(home / "cache" / "features")
    save_arrays(file, {"features": ARRAYS[damage]} if damage in ARRAYS else {"other": rows()})
    assert np.array_equal(load("raw").read(tmp_path / "v.pt").nodes, nodes)
    assert np.array_equal(load_arrays(file)["features"], rows())


I3D = "features/i3d-k400"
EXTRACTED = {
    "other rows": lambda a: {**a, I3D: a[I3D][:-9]},
    "other width": lambda a: {**a, I3D: a[I3D][:, :9]},
    "one dimension": lambda a: {**a, I3D: a[I3D][0]},
    "single precision": lambda a: {**a, I3D: a[I3D].astype(np.float32)},
    "integers": lambda a: {**a, I3D: a[I3D].astype(np.int32)},
    "NaN": lambda a: {**a, I3D: np.full_like(a[I3D], np.nan)},
    "no features": lambda a: {name: array for name, array in a.items() if name != I3D},
    "one more": lambda a: {**a, "features/other": a[I3D]},
    "no clock": lambda a: {name: array for name, array in a.items() if name != "clock"},
    "clock of three": lambda a: {**a, "clock": np.ones(3)},
    "clock of zeros": lambda a: {**a, "clock": np.zeros(2)},
    "clock of NaN": lambda a: {**a, "clock": np.full(2, np.nan)},
    "another clock": lambda a: {**a, "clock": 3 * a["clock"]},
    "more times than pictures": lambda a: {**a, "picture_times": np.arange(9.0)},
    "pictures cut": lambda a: {**a, "pictures": a["pictures"][:4]},
    "no picture": lambda a: {**a, "pictures": np.zeros_like(a["pictures"])},
    "picture ends as text": lambda a: {**a, "picture_ends": np.zeros((2, 2))},
}


@pytest.mark.parametrize("damage", EXTRACTED)
def test_features_of_videos_that_do_not_fit_are_extracted_again(home, tmp_path, monkeypatch, damage):
    engine = load("i3d-k400")
    num_extracted = []

    def extract(*_, **__):
        num_extracted.append(1)
        pictures = [b"\xff\xd8 one", b"\xff\xd8 two"]
        return VideoFeatures({"i3d-k400": rows(40)}, 40 * engine.spacing_s, engine.spacing_s, [1.0, 2.0], pictures)

    monkeypatch.setattr("hiero.features.extractor.extract_features", extract)
    monkeypatch.setattr("hiero.media.decode.probe", lambda *_: SimpleNamespace(duration_s=None))
    monkeypatch.setattr(module.weights, "get", lambda *_: None)
    path = tmp_path / "v.mp4"
    path.write_bytes(b"a video")
    os.utime(path, (1e9, 1e9))
    nodes = engine.read(path).nodes
    assert np.array_equal(engine.read(path).nodes, nodes)
    assert len(num_extracted) == 1
    file = only_file(home / "cache" / "features")
    save_arrays(file, EXTRACTED[damage](load_arrays(file)))
    assert np.array_equal(engine.read(path).nodes, nodes)
    assert len(num_extracted) == 2
    assert engine.read(path).source.thumbnail_at(2.0) == b"\xff\xd8 two"
    assert len(num_extracted) == 2


@pytest.mark.parametrize("suffix", ["npy", "pt"])
def test_what_was_read_of_a_file_that_changes_is_not_kept(home, tmp_path, monkeypatch, suffix):
    """Neither content gets the other's result, also when the first comes back."""
    path = tmp_path / f"v.{suffix}"
    original = module.read_feature_array

    def write(array):
        np.save(path, array) if suffix == "npy" else torch.save(torch.from_numpy(array), path)

    def change_meanwhile(*args):
        write(rows(80, seed=1))
        return original(*args)

    write(rows())
    os.utime(path, (1e9, 1e9))
    monkeypatch.setattr(module, "read_feature_array", change_meanwhile)
    with pytest.warns(UserWarning, match="changed while it was read, so the result is not cached"):
        video = load("raw").read(path)
    assert len(video.sight.spans)
    assert not (home / "cache" / "nodes").exists()
    assert not (home / "cache" / "features").exists()
    monkeypatch.setattr(module, "read_feature_array", original)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load("raw").read(path).nodes) == 80
        write(rows())
        assert len(load("raw").read(path).nodes) == 60


def test_a_video_that_is_replaced_while_it_is_read(home, tmp_path, monkeypatch):
    path = tmp_path / "v.mp4"
    path.write_bytes(b"the old one")
    engine = load("i3d-k400")

    def extract(path, *_, partial, **__):
        partial.parent.mkdir(parents=True)
        partial.write_bytes(b"half of both")
        (tmp_path / "new").write_bytes(b"the new one")
        (tmp_path / "new").replace(path)
        return VideoFeatures({"i3d-k400": rows(40)}, 40 * engine.spacing_s, engine.spacing_s)

    monkeypatch.setattr("hiero.features.extractor.extract_features", extract)
    monkeypatch.setattr("hiero.media.decode.probe", lambda *_: SimpleNamespace(duration_s=None))
    monkeypatch.setattr(module.weights, "get", lambda *_: None)
    with pytest.warns(UserWarning, match="changed while it was read"):
        engine.read(path)
    assert list((home / "cache" / "features").iterdir()) == []
