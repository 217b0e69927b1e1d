"""Features of a video in one pass, with backbones whose answers are known."""

from __future__ import annotations

import io
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from hiero.errors import InputError
from hiero.extraction import extractor as module
from hiero.extraction.extractor import choose_precision, extract_features
from hiero.extraction.video_features import VideoFeatures
from hiero.video.registry import Backbone, backbones


class Brightness(nn.Module):
    """Mean brightness, twice."""

    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(1))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        mean = x.flatten(1).mean(1)
        return torch.stack([mean, -mean], 1)


@pytest.fixture
def known(monkeypatch):
    """Two backbones: `motion` sees whole windows, `picture` single frames."""
    made = Brightness()
    networks = SimpleNamespace(load=lambda *_: made, prepare=lambda frames: frames.permute(0, 3, 1, 2).float())
    monkeypatch.setitem(sys.modules, "hiero.video.brightness", networks)
    motion = Backbone("motion", "", 2, "hiero.video.brightness", per_frame=False, half=False)
    picture = Backbone("picture", "", 2, "hiero.video.brightness", per_frame=True, half=False, scores=False)
    for backbone in (motion, picture):
        monkeypatch.setitem(backbones(), backbone.name, backbone)
    monkeypatch.setattr(module, "load_backbone", lambda backbone, *_: made)
    return made


def test_rows_follow_the_seconds(make, known):
    """Six seconds, each of its own grey: pictures give it, windows of two give the mean, interpolated."""
    path = make("v.mp4", [20 * (1 + i // 10) for i in range(60)])
    found = extract_features(path, ["motion", "picture"])
    assert found.duration_s == pytest.approx(6.0, abs=0.11)
    assert found.num_segments == 6
    np.testing.assert_allclose(found.features["picture"][:, 0], [20, 40, 60, 80, 100, 120], atol=3)
    # windows are 30, 70, 110 at 1, 3, 5 s
    np.testing.assert_allclose(found.features["motion"][:, 0], [30, 40, 60, 80, 100, 110], atol=4)
    np.testing.assert_allclose(found.picture_times, [0.5, 1.5, 2.5, 3.5, 4.5, 5.5], atol=0.3)


@pytest.mark.parametrize("seconds", [0.1, 0.5, 1.0, 1.4, 2.6, 7.0])
def test_any_length(make, known, seconds):
    path = make("v.mp4", [100] * max(1, round(10 * seconds)))
    found = extract_features(path, ["motion", "picture"])
    assert found.num_segments == max(1, round(found.duration_s))
    assert found.duration_s == pytest.approx(max(seconds, 0.1), abs=0.11)
    for rows in found.features.values():
        np.testing.assert_allclose(rows[:, 0], 100, atol=3)


def test_batches_change_nothing(make, known):
    path = make("v.mp4", np.random.default_rng(0).integers(0, 255, 90).tolist())
    one, many = (
        extract_features(path, ["motion", "picture"], batch_size=1),
        extract_features(path, ["motion", "picture"], batch_size=4),
    )
    for name in one.features:
        np.testing.assert_allclose(one.features[name], many.features[name], rtol=1e-5)
    assert one.pictures == many.pictures


def test_an_interrupted_run_goes_on(make, known, tmp_path, monkeypatch):
    path = make("v.mp4", list(range(0, 240, 2)))
    whole = extract_features(path, ["motion", "picture"])
    monkeypatch.setattr(module, "SAVE_EVERY_S", 0.0)

    def stop(done_s):
        if done_s >= 6:
            raise KeyboardInterrupt

    partial = tmp_path / "partial"
    with pytest.raises(KeyboardInterrupt):
        extract_features(path, ["motion", "picture"], partial=partial, progress=stop)
    assert partial.is_file()
    known.calls = 0
    again = extract_features(path, ["motion", "picture"], partial=partial)
    assert known.calls == 2 * (6 - 2)  # two of six windows were kept
    for name in whole.features:
        torch.testing.assert_close(again.features[name], whole.features[name])
    assert again.pictures == whole.pictures
    assert again.duration_s == whole.duration_s


def test_a_damaged_partial_is_begun_again(make, known, tmp_path):
    path = make("v.mp4", [50] * 60)
    (tmp_path / "partial").write_bytes(b"rubbish")
    assert extract_features(path, ["picture"], partial=tmp_path / "partial").num_segments == 6
    with pytest.raises(InputError, match="batch size is at least 1"):
        extract_features(path, ["picture"], batch_size=0)


def test_errors_come_out_and_no_thread_stays(make, known, tmp_path):
    (tmp_path / "no.mp4").write_bytes(b"not a video")
    before = threading.active_count()
    with pytest.raises(InputError, match="not a video"):
        extract_features(tmp_path / "no.mp4", ["picture"])

    def fail(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        extract_features(make("v.mp4", [1] * 600), ["picture"], progress=fail)
    assert threading.active_count() == before


def test_what_half_precision_cannot_hold_is_done_again(make, known, monkeypatch):
    class Large(Brightness):
        def forward(self, x):
            return super().forward(x) * 1000

    large = Large().half()
    monkeypatch.setattr(module, "load_backbone", lambda *_: large)
    found = extract_features(make("v.mp4", [200] * 40), ["motion"])
    np.testing.assert_allclose(found.features["motion"][:, 0], 200_000, rtol=0.03)


def test_pictures_are_thinned(make, known, monkeypatch):
    monkeypatch.setattr(module, "MAX_PICTURES", 4)
    found = extract_features(make("v.mp4", [50] * 160), ["picture"])
    assert 2 <= len(found.pictures) <= 5
    gaps = np.diff(found.picture_times)
    np.testing.assert_allclose(gaps, gaps[0], atol=0.1)


def test_what_is_saved_is_read_back(make, known, tmp_path):
    from PIL import Image

    found = extract_features(make("v.mp4", [50] * 35), ["motion", "picture"])
    found.save(tmp_path / "f.safetensors")
    held = VideoFeatures.load(tmp_path / "f.safetensors")
    assert held.pictures == found.pictures
    assert held.picture_times == found.picture_times
    assert (held.duration_s, held.spacing_s) == (found.duration_s, found.spacing_s)
    for name in found.features:
        np.testing.assert_array_equal(held.features[name], found.features[name])
    image = Image.open(io.BytesIO(held.thumbnail_at(2.0)))
    assert image.height <= 90
    assert VideoFeatures({"x": np.zeros((1, 1))}, 1.0, 1.0).thumbnail_at(0.0) is None


def test_unknown_backbones_and_precision():
    with pytest.raises(InputError, match="i3d-k400, lavila-l, lite2-imagenet"):
        extract_features("v.mp4", ["resnet"])
    assert choose_precision(torch.device("cpu")) in (torch.float16, torch.float32)
    assert choose_precision(torch.device("meta")) is torch.float32
