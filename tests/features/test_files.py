"""Feature files: every format in, and a clear word on every bad one."""

from __future__ import annotations

import json
import pickle
import zipfile
from dataclasses import asdict

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hiero.errors import InputError
from hiero.features.files import (
    Sidecar,
    find_features,
    read_feature_array,
    read_features,
    read_sidecar,
    rows_key,
    sidecar_path,
)
from hiero.storage.pickles import read_torch
from hiero.types import Clock


def write(path, x):
    if path.suffix == ".pt":
        torch.save(x, path)
    elif path.suffix == ".npy":
        np.save(path, x.numpy())
    elif path.suffix == ".npz":
        np.savez(path, features=x.numpy())
    else:
        save_file({"features": x.contiguous()}, path)
    return path


FORMATS = [".pt", ".npy", ".npz", ".safetensors"]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_features_of_every_format_become_float32(tmp_path, suffix, dtype):
    x = torch.randn(7, 4).to(dtype)
    features = read_features(write(tmp_path / f"v{suffix}", x), width=4)
    assert features.dtype == torch.float32
    assert features.equal(x.float())


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"features": x}])
def test_legacy_torch_files_and_shapes_of_ego4d_are_read(tmp_path, is_new, wrap):
    x = torch.randn(7, 1, 4)
    torch.save(wrap(x), tmp_path / "v.pt", _use_new_zipfile_serialization=is_new)
    assert read_features(tmp_path / "v.pt").equal(x[:, 0])


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("num_bytes", [-500, 0])
def test_a_file_that_was_cut_is_named(tmp_path, suffix, num_bytes):
    path = write(tmp_path / f"v{suffix}", torch.randn(64, 32))
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(InputError, match=f"v{suffix}"):
        read_features(path)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3), r"\(3,\)"),
        (torch.zeros(0, 4), r"\(0, 4\)"),
        (torch.zeros(2, 3, 4), r"\(2, 3, 4\)"),
        (torch.zeros(5, 3), "3 wide, expected 4"),
        (torch.ones(5, 4, dtype=torch.bool), "bool"),
        (torch.cat([torch.zeros(5, 4), torch.full((2, 4), torch.nan)]), "NaN .* 2 of 7 segments, first at 5"),
        (torch.cat([torch.zeros(3, 4), torch.full((1, 4), -1e30)]), "1 of 4 segments, first at 3"),
        ("words", "str"),
        ({"a": torch.zeros(1, 2), "b": torch.zeros(1, 2)}, r"2 \(a, b\)"),
    ],
)
def test_contents_that_are_not_features_are_refused(tmp_path, x, message):
    torch.save(x, tmp_path / "v.pt")
    with pytest.raises(InputError, match=message):
        read_features(tmp_path / "v.pt", width=4)


@pytest.mark.parametrize(
    ("name", "content"), [("evil.pt", pickle.dumps(print)), ("v.mp4", b""), ("v.npy", b"\x93NUMPY"), ("gone.pt", None)]
)
def test_other_files_are_refused(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        read_features(tmp_path / name)


def test_pickled_objects_in_an_array_are_not_loaded(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"objects\.npy"):
        read_features(tmp_path / "objects.npy")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16])
def test_numbers_that_numpy_does_not_know(tmp_path, dtype):
    x = torch.randn(7, 4).to(dtype)
    assert read_features(write(tmp_path / "v.safetensors", x)).equal(x.float())
    pytest.importorskip("ml_dtypes")  # which teaches numpy some of them, for the whole process
    assert read_features(tmp_path / "v.safetensors").equal(x.float())


# Sizes, which are read before contents


def test_an_archive_that_unpacks_to_gigabytes_is_refused_unread(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "bomb.npz", features=np.zeros((3000, 1000), dtype=np.float32))  # 12 MB out of 12 kB
    assert read_feature_array(tmp_path / "bomb.npz").shape == (3000, 1000)
    monkeypatch.setattr("hiero.storage.files.available_bytes", lambda: 20 * 10**6)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(InputError, match=r"bomb\.npz"):
        read_feature_array(tmp_path / "bomb.npz")


@pytest.mark.slow
def test_an_archive_that_shrinks_as_no_features_do_is_refused_unread(tmp_path, monkeypatch):
    """However much memory is free: a small file must not take gigabytes of it."""
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", bytes(257 * 2**20))
    monkeypatch.setattr("hiero.storage.files.available_bytes", lambda: 2**40)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(InputError, match=r"bomb\.npz.*0\.3 GiB"):
        read_feature_array(tmp_path / "bomb.npz")


@pytest.mark.parametrize("suffix", FORMATS)
def test_more_than_any_video_has_is_refused(tmp_path, monkeypatch, suffix):
    path = write(tmp_path / f"v{suffix}", torch.zeros(50, 4))
    monkeypatch.setattr("hiero.features.files.MAX_FEATURE_BYTES", 799)
    with pytest.raises(InputError, match=f"v{suffix}"):
        read_feature_array(path)


def test_many_views_of_one_tensor_take_its_memory_once(tmp_path):
    """A thousand names for one megabyte: refused without a gigabyte of copies."""
    tracked = torch.zeros(1, 250_000, dtype=torch.float16)
    torch.save({f"x{i}": tracked for i in range(1000)}, tmp_path / "views.pt")
    assert len({tensor.data_ptr() for tensor in read_torch(tmp_path / "views.pt").values()}) == 1
    with pytest.raises(InputError, match="1000"):
        read_features(tmp_path / "views.pt")


def test_a_legacy_file_that_promises_more_than_it_holds(tmp_path):
    torch.save(torch.zeros(7, 4), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    raw = (tmp_path / "old.pt").read_bytes()
    assert raw.count(b"K\x1c") == 1  # 28 values
    (tmp_path / "more.pt").write_bytes(raw.replace(b"K\x1c", b"J\xff\xff\xff\x7f"))
    with pytest.raises(InputError, match=r"more\.pt: damaged .*tensor data cut short"):
        read_features(tmp_path / "more.pt")
    (tmp_path / "cut.pt").write_bytes(raw[:-20])
    with pytest.raises(InputError, match=r"cut\.pt: damaged .*tensor data cut short"):
        read_features(tmp_path / "cut.pt")


def test_torch_never_advises_to_trust_a_file(tmp_path):
    class Thing:
        def __reduce__(self):
            return print, ("executed",)

    for name, new in (("new.pt", True), ("old.pt", False)):
        torch.save({"x": torch.zeros(1), "y": Thing()}, tmp_path / name, _use_new_zipfile_serialization=new)
        with pytest.raises(InputError, match=r"unsafe pickle: it references __builtin__\.print") as error:
            read_features(tmp_path / name)
        assert "weights_only" not in str(error.value)


def test_parts_that_overlap_are_refused(tmp_path):
    torch.save({"a": torch.zeros(1000), "b": torch.zeros(1000)}, tmp_path / "v.pt")
    raw = (tmp_path / "v.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "v.pt") as archive:
        largest = max(archive.infolist(), key=lambda info: info.file_size)
    size = largest.file_size.to_bytes(4, "little") * 2
    assert size in raw
    (tmp_path / "w.pt").write_bytes(raw.replace(size, (2**30).to_bytes(4, "little") * 2))
    with pytest.raises(InputError, match=r"w\.pt: refused because its parts overlap"):
        read_features(tmp_path / "w.pt")


def test_feature_files_are_found_whatever_the_case_of_their_suffix(tmp_path):
    write(tmp_path / "b.npy", torch.randn(7, 4)).rename(tmp_path / "B.NPY")
    assert find_features(tmp_path) == [tmp_path / "B.NPY"]


# Sidecars


def write_sidecar(path, features, **changes):
    num_rows, width = features.shape
    times = (30.0, 16.0, 32.0, 16)
    values = Sidecar("i3d-k400", "w", "s", width, *times, "float32", num_rows, 4.0, "v.mp4", "0", rows_key(features))
    sidecar_path(path).write_text(json.dumps(asdict(values) | changes))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("changes", [{"num_segments": 60}, {"width": 5}, {"rows": "f" * 32}])
def test_a_sidecar_of_other_features_is_refused(tmp_path, suffix, changes):
    path, x = tmp_path / f"v{suffix}", torch.randn(7, 4)
    write(path, x)
    write_sidecar(path, x.numpy())
    assert read_feature_array(path).shape == (7, 4)
    write_sidecar(path, x.numpy(), **changes)
    with pytest.raises(InputError, match=rf"v{suffix}\.json"):
        read_feature_array(path)


@pytest.mark.parametrize("lie", [{"duration_s": 500.0}, {"fps": 1e-6, "stride": 1e6}, {"stride": 160.0}])
def test_a_sidecar_whose_times_contradict_each_other_is_refused(tmp_path, lie):
    path, x = tmp_path / "v.pt", torch.randn(7, 4)
    write(path, x)
    write_sidecar(path, x.numpy(), **lie)
    with pytest.raises(InputError, match=r"v\.pt\.json: .*duration_s"):
        read_feature_array(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("duration_s", 10**400),
        ("fps", 1e-300),
        ("fps", float("nan")),
        ("fps", "30"),
        ("stride", 1e300),
        ("window", True),
        ("num_segments", -1),
        ("width", 4.0),
        ("backbone", 3),
        ("rows", None),
    ],
)
def test_impossible_values_of_a_sidecar(tmp_path, field, value):
    path, x = tmp_path / "v.pt", torch.randn(7, 4)
    write(path, x)
    write_sidecar(path, x.numpy(), **{field: value})
    for read in (read_sidecar, read_feature_array):
        with pytest.raises(InputError, match=rf"v\.pt\.json: {field}"):
            read(path)


def test_a_sidecar_with_an_unknown_field_keeps_its_clock(tmp_path):
    path, x = tmp_path / "v.pt", torch.randn(7, 4)
    write(path, x)
    write_sidecar(path, x.numpy(), camera="left")
    assert read_sidecar(path).clock == Clock(30.0, 16.0)


@pytest.mark.parametrize("text", ['{"fps": 30.0, "stride": 16.0}', '{"fps": 30.0, "str', "[" * 100_000])
def test_an_incomplete_sidecar_is_not_ignored(tmp_path, text):
    path = write(tmp_path / "v.pt", torch.randn(7, 4))
    sidecar_path(path).write_text(text)
    with pytest.raises(InputError, match=r"v\.pt\.json"):
        read_feature_array(path)


@pytest.mark.parametrize("text", ["{}", "[]", '{"text": "Now I wash the cup.", "duration_s": 3.0}'])
def test_other_json_beside_a_feature_file_is_not_a_sidecar(tmp_path, text):
    path = write(tmp_path / "v.pt", torch.randn(7, 4))
    sidecar_path(path).write_text(text)
    assert read_sidecar(path) is None
    assert read_feature_array(path).shape == (7, 4)
