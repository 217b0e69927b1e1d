"""What lies in the cache, and who writes to a file while it is read, never makes an answer wrong or fail."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from hiero.engine import engine as module
from hiero.engine import load
from hiero.storage.files import load_arrays, save_arrays


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def rows(num=60, width=400, seed=0):
    rng = np.random.default_rng(seed)
    scenes = rng.normal(size=(4, width)).repeat(-(-num // 4), axis=0)[:num]
    return (scenes + 0.1 * rng.normal(size=(num, width))).astype(np.float32)


def write(path, array):
    """Write features in the past, as files were that are complete."""
    np.save(path, array) if path.suffix == ".npy" else torch.save(torch.from_numpy(array), path)
    os.utime(path, (1e9, 1e9))
    return path


def only_file(folder):
    (file,) = folder.iterdir()
    return file


def assert_same(arrays, others):
    assert set(arrays) == set(others)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name])


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
def test_nodes_that_do_not_fit_are_made_again(home, tmp_path, damage):
    path = write(tmp_path / "v.npy", rows())
    spans = load("raw").read(path).sight.spans
    file = only_file(home / "cache" / "nodes")
    whole = load_arrays(file)
    assert set(whole) == {"nodes", "spans"}
    save_arrays(file, NODES[damage](whole))
    again = load("raw").read(path)
    again.steps([3])
    np.testing.assert_array_equal(again.sight.spans, spans)
    assert_same(load_arrays(file), whole)


def test_spans_are_found_with_the_first_question_and_kept(home, tmp_path):
    """Indexing needs none, and they take longer to find than all else."""
    path = write(tmp_path / "v.npy", rows())
    load("raw").read(path)
    file = only_file(home / "cache" / "nodes")
    assert set(load_arrays(file)) == {"nodes"}
    spans = load("raw").read(path).sight.spans
    save_arrays(file, load_arrays(file) | {"spans": spans[:5]})  # what is found there is not found again
    np.testing.assert_array_equal(load("raw").read(path).sight.spans, spans[:5])


ARRAYS = {
    "one dimension": rows()[0],
    "empty": rows()[:0],
    "half precision": rows().astype(np.float16),
    "integers": rows().astype(np.int64),
    "NaN": np.full_like(rows(), np.nan),
}


@pytest.mark.parametrize("damage", [*ARRAYS, "missing"])
def test_features_of_torch_files_that_do_not_fit_are_read_again(home, tmp_path, damage):
    path = write(tmp_path / "v.pt", rows())
    nodes = load("raw").read(path).nodes
    file = only_file(home / "cache" / "features")
    save_arrays(file, {"features": ARRAYS[damage]} if damage in ARRAYS else {"other": rows()})
    np.testing.assert_array_equal(load("raw").read(path).nodes, nodes)
    assert_same(load_arrays(file), {"features": rows()})


ROWS = "features/brightness"
EXTRACTED = {
    "other rows": lambda a: {**a, ROWS: a[ROWS][:-1]},
    "other width": lambda a: {**a, ROWS: a[ROWS][:, :2]},
    "one dimension": lambda a: {**a, ROWS: a[ROWS][0]},
    "single precision": lambda a: {**a, ROWS: a[ROWS].astype(np.float32)},
    "integers": lambda a: {**a, ROWS: a[ROWS].astype(np.int32)},
    "NaN": lambda a: {**a, ROWS: np.full_like(a[ROWS], np.nan)},
    "no features": lambda a: {name: array for name, array in a.items() if name != ROWS},
    "one more": lambda a: {**a, "features/other": a[ROWS]},
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
def test_features_of_videos_that_do_not_fit_are_extracted_again(home, make, brightness, damage):
    path = make("v.mp4", [10] * 20 + [240] * 20)
    brightness.read(path)
    file = only_file(home / "cache" / "features")
    whole = load_arrays(file)
    save_arrays(file, EXTRACTED[damage](whole))
    video = brightness.read(path)
    np.testing.assert_allclose(video.source.features["brightness"][:, 0] * 255, [10, 10, 240, 240], atol=3)
    assert_same(load_arrays(file), whole)


@pytest.mark.parametrize("suffix", ["npy", "pt"])
def test_what_was_read_of_a_file_that_changes_is_not_kept(home, tmp_path, monkeypatch, suffix):
    """Neither content gets the other's result, also when the first comes back."""
    path = write(tmp_path / f"v.{suffix}", rows())
    original = module.read_feature_array

    def change_meanwhile(*args):
        write(path, rows(80, seed=1))
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "read_feature_array", change_meanwhile)
        with pytest.warns(UserWarning, match=path.name):
            assert len(load("raw").read(path).sight.spans)
    assert not (home / "cache").exists()
    assert len(load("raw").read(path).nodes) == 80
    write(path, rows())
    assert len(load("raw").read(path).nodes) == 60


def test_a_video_that_is_replaced_while_it_is_read_is_not_kept(home, tmp_path, make, brightness):
    path, new = make("v.mp4", [10] * 40), make("new.mp4", [240] * 30)
    brightness.read(path)
    whole = only_file(home / "cache" / "features")
    whole.rename(whole.with_suffix(".partial"))  # as if a reading had been interrupted

    def replace(event):
        if new.exists():
            new.replace(path)

    with pytest.warns(UserWarning, match=path.name):
        brightness.read(path, progress=replace)
    assert list(whole.parent.iterdir()) == []
