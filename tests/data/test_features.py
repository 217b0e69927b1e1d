"""Feature files: every format in, and a clear word on every bad one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hiero.data.features import read_features
from hiero.errors import InputError


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
def test_every_format(tmp_path, suffix, dtype):
    x = torch.randn(7, 4).to(dtype)
    features = read_features(write(tmp_path / f"v{suffix}", x), width=4)
    assert features.dtype == torch.float32
    assert features.equal(x.float())


def test_legacy_torch_files_and_ego4d_shapes(tmp_path):
    x = torch.randn(7, 1, 4)
    torch.save(x, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert read_features(tmp_path / "old.pt").equal(x[:, 0])
    torch.save({"features": x}, tmp_path / "dict.pt")
    assert read_features(tmp_path / "dict.pt").equal(x[:, 0])


@pytest.mark.parametrize("suffix", FORMATS)
def test_truncated_files(tmp_path, suffix):
    path = write(tmp_path / f"v{suffix}", torch.randn(64, 32))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(InputError, match=f"v{suffix}"):
        read_features(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=f"v{suffix}"):
        read_features(path)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3), r"expected features of shape \(T, D\), found \(3,\)"),
        (torch.zeros(0, 4), "expected features of shape"),
        (torch.zeros(2, 3, 4), "expected features of shape"),
        (torch.zeros(5, 3), "features are 3 wide, expected 4"),
        (torch.ones(5, 4, dtype=torch.bool), "expected numbers"),
        (torch.cat([torch.zeros(5, 4), torch.full((2, 4), torch.nan)]), "NaN or infinite values in 2 of 7 segments, first at 5"),
    ],
)
def test_bad_contents(tmp_path, x, message):
    with pytest.raises(InputError, match=message):
        read_features(write(tmp_path / "v.pt", x), width=4)


def test_other_mistakes(tmp_path):
    save_file({"a": torch.zeros(1, 2), "b": torch.zeros(1, 2)}, tmp_path / "two.safetensors")
    with pytest.raises(InputError, match=r"expected one tensor, found 2 \(a, b\)"):
        read_features(tmp_path / "two.safetensors")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="not plain numbers"):
        read_features(tmp_path / "objects.npy")
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(print))
    with pytest.raises(InputError, match="holds only data"):
        read_features(tmp_path / "evil.pt")
    torch.save("words", tmp_path / "words.pt")
    with pytest.raises(InputError, match="expected a tensor, found str"):
        read_features(tmp_path / "words.pt")
    (tmp_path / "v.mp4").touch()
    with pytest.raises(InputError, match="unknown kind of feature file"):
        read_features(tmp_path / "v.mp4")
    with pytest.raises(InputError, match="no such file"):
        read_features(tmp_path / "missing.pt")
