"""The packed store: what goes in comes out, only the window is read, and bad files are all named at once."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from hiero.errors import InputError
from hiero.features.stores import FeatureStore, pack
from hiero.types import Clock
from tests.documentation import check_schema


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / "in"
    (source / "b").mkdir(parents=True)
    torch.save(torch.randn(7, 4), source / "a.pt")
    np.save(source / "b" / "c.npy", torch.randn(5, 4).numpy())
    torch.save(torch.randn(3, 1, 4), source / "d.pt")
    return source


def test_round_trip(folder, tmp_path):
    store, problems = pack(
        folder, tmp_path / "out", backbone="omnivore", clock=Clock(24, 8), window=32, precision="float32"
    )
    assert not problems
    assert list(store) == ["a", "b/c", "d"]
    assert (store.backbone, store.width, store.clock, store.window) == ("omnivore", 4, Clock(24, 8), 32)
    original = torch.load(folder / "a.pt", weights_only=True)
    assert store.read("a").equal(original)
    assert store.read("a", 2, 5).equal(original[2:5])
    assert store.read("a", 7).shape == (0, 4)
    assert store.read("d").shape == (3, 4)
    assert store.num_segments("b/c") == 5
    assert "a" in store
    assert "x" not in store
    half, _ = pack(folder, tmp_path / "half")
    torch.testing.assert_close(half.read("a"), original, rtol=1e-3, atol=1e-3)
    assert half.read("a").dtype == torch.float32


def test_a_window_is_its_own_rows(folder, tmp_path):
    """Everything outside the window is poisoned on disk."""
    pack(folder, tmp_path / "out", precision="float32")
    data = next((tmp_path / "out").glob("features-*.bin"))
    raw = np.fromfile(data, dtype=np.float32).reshape(-1, 4)
    expected = raw[2:4].copy()
    raw[:2], raw[4:] = np.nan, np.nan
    raw.tofile(data)
    assert FeatureStore(tmp_path / "out").read("a", 2, 4).numpy().tolist() == expected.tolist()


def test_all_bad_files_are_named_at_once(folder, tmp_path):
    torch.save(torch.full((2, 4), torch.nan), folder / "nan.pt")
    torch.save(torch.zeros(2, 5), folder / "wide.pt")
    torch.save(torch.full((2, 4), 1e6), folder / "huge.pt")
    (folder / "cut.pt").write_bytes((folder / "a.pt").read_bytes()[:200])
    with pytest.raises(InputError) as error:
        pack(folder, tmp_path / "out")
    for message in ("4 of 7", "nan.pt", "wide.pt", "huge.pt", "cut.pt"):
        assert message in str(error.value)
    assert list((tmp_path / "out").iterdir()) == []
    store, problems = pack(folder, tmp_path / "out", skip_bad=True)
    assert len(problems) == 4
    assert list(store) == ["a", "b/c", "d"]


def test_one_odd_file_first_does_not_make_the_rest_wrong(folder, tmp_path):
    torch.save(torch.zeros(2, 9), folder / "0.pt")
    with pytest.raises(InputError, match=r"1 of 4 files.*\n.*0\.pt"):
        pack(folder, tmp_path / "out")


def test_packing_again_replaces_the_store_and_removes_what_a_killed_run_left(folder, tmp_path):
    out = tmp_path / "out"
    pack(folder, out)
    for name in (".features-123.part", ".store.json.abcd1234.part", "features-0123456789abcdef.bin"):
        (out / name).write_bytes(b"half")
    torch.save(torch.randn(9, 4), folder / "a.pt")
    store, _ = pack(folder, out)
    assert store.num_segments("a") == 9
    assert len(list(out.iterdir())) == 2


def test_an_interrupted_pack_leaves_the_old_store(folder, tmp_path):
    pack(folder, tmp_path / "out")
    torch.save(torch.randn(9, 4), folder / "a.pt")

    def stop(name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(folder, tmp_path / "out", progress=stop)
    assert FeatureStore(tmp_path / "out").num_segments("a") == 7
    assert len(list((tmp_path / "out").iterdir())) == 2


def change_index(folder, offset=None, **changes):
    info = json.loads((folder / "store.json").read_text()) | changes
    if offset is not None:
        info["videos"][0]["offset"] = offset
    (folder / "store.json").write_text(json.dumps(info))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "store.json").unlink(), "out"),
        (lambda f: (f / "store.json").write_text("{"), r"store\.json"),
        (lambda f: (f / "store.json").write_text("[" * 100_000), r"store\.json"),
        (lambda f: change_index(f, fps=-1), r"store\.json.*fps"),
        (lambda f: change_index(f, width=-4), r"store\.json.*width"),
        (lambda f: change_index(f, offset=5), r"store\.json.*rows of a"),
        (lambda f: change_index(f, data="n" * 300), "nnn"),
        (lambda f: (f / "store.json").write_text(json.dumps({"version": 99})), "version 99"),
        (lambda f: next(f.glob("*.bin")).write_bytes(b"x"), r"features-\w+\.bin"),
    ],
)
def test_a_damaged_store_is_refused(folder, tmp_path, damage, message):
    pack(folder, tmp_path / "out")
    damage(tmp_path / "out")
    with pytest.raises(InputError, match=message):
        FeatureStore(tmp_path / "out")


def test_an_index_cannot_point_out_of_its_folder(folder, tmp_path):
    pack(folder, tmp_path / "out")
    info = json.loads((tmp_path / "out/store.json").read_text())
    check_schema(info, "store")
    secret = tmp_path / info["data"]
    (tmp_path / "out" / info["data"]).rename(secret)
    info["data"] = f"../{secret.name}"
    (tmp_path / "out/store.json").write_text(json.dumps(info))
    with pytest.raises(InputError, match=r"features-\w+\.bin"):
        FeatureStore(tmp_path / "out")


def test_asking_for_what_is_not_there(folder, tmp_path):
    store, _ = pack(folder, tmp_path / "out")
    with pytest.raises(InputError, match="x"):
        store.read("x")
    with pytest.raises(InputError, match="0 to 7"):
        store.read("a", 5, 9)
