"""Features of a video in one pass, with backbones that measure brightness, so that the right answers are known."""

from __future__ import annotations

import io
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from hiero.errors import InputError
from hiero.features import extractor
from hiero.features.extractor import NUM_FRAMES, ExtractionOptions, LoadedBackbones, extract_features
from hiero.features.video_features import VideoFeatures
from hiero.networks.registry import Backbone


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


MOTION = Backbone("motion", "", 2, "hiero.networks.brightness", per_frame=False, allows_half=False)
PICTURE = Backbone("picture", "", 2, "hiero.networks.brightness", per_frame=True, allows_half=False, scores=False)


@pytest.fixture
def brightness(monkeypatch):
    """The network of two backbones: `motion` sees whole windows, `picture` single frames."""
    module = SimpleNamespace(prepare=lambda frames: frames.permute(0, 3, 1, 2).float())
    monkeypatch.setitem(sys.modules, "hiero.networks.brightness", module)
    return Brightness()


def extract(path, network, backbones=(MOTION, PICTURE), batch_size=1, **arguments):
    networks = LoadedBackbones(list(backbones), [network] * len(backbones), torch.device("cpu"), NUM_FRAMES, 2)
    return extract_features(path, networks, ExtractionOptions(batch_size=batch_size), **arguments)


def test_rows_follow_the_seconds(make, brightness):
    """Six seconds, each of its own grey: pictures give it, windows of two give the mean, interpolated."""
    path = make("v.mp4", [20 * (1 + i // 10) for i in range(60)])
    source = extract(path, brightness)
    assert source.duration_s == pytest.approx(6.0, abs=0.11)
    assert source.num_segments == 6
    np.testing.assert_allclose(source.features["picture"][:, 0], [20, 40, 60, 80, 100, 120], atol=3)
    # windows are 30, 70, 110 at 1, 3, 5 s
    np.testing.assert_allclose(source.features["motion"][:, 0], [30, 40, 60, 80, 100, 110], atol=4)
    np.testing.assert_allclose(source.thumbnail_times, [0.5, 1.5, 2.5, 3.5, 4.5, 5.5], atol=0.3)


@pytest.mark.parametrize("seconds", [0.1, 1.0, 2.6])
def test_a_video_of_any_length_has_a_row_for_each_second(make, brightness, seconds):
    path = make("v.mp4", [100] * max(1, round(10 * seconds)))
    source = extract(path, brightness)
    assert source.num_segments == max(1, round(source.duration_s))
    assert source.duration_s == pytest.approx(max(seconds, 0.1), abs=0.11)
    for rows in source.features.values():
        np.testing.assert_allclose(rows[:, 0], 100, atol=3)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_picture_that_stands_is_seen_once(make, brightness, batch_size):
    path = make("v.mkv", [50, 150, 200], [0.0, 600.0, 601.0])
    source = extract(path, brightness, batch_size=batch_size)
    assert source.num_segments == 601
    assert brightness.calls <= 2 * 4
    assert len(source.thumbnails) < 10
    for rows in source.features.values():
        np.testing.assert_allclose(rows[:598, 0], 50, atol=3)
    np.testing.assert_allclose(source.features["picture"][600, 0], 150, atol=3)


def test_batches_change_nothing(make, brightness):
    path = make("v.mp4", np.random.default_rng(0).integers(0, 255, 90).tolist())
    single, batched = (extract(path, brightness, batch_size=size) for size in (1, 4))
    for name in single.features:
        np.testing.assert_allclose(single.features[name], batched.features[name], rtol=1e-5)
    assert single.thumbnails == batched.thumbnails


def test_an_interrupted_run_goes_on(make, brightness, tmp_path, monkeypatch):
    path = make("v.mp4", list(range(0, 240, 2)))
    expected = extract(path, brightness)
    monkeypatch.setattr(extractor, "SAVE_EVERY_S", 0.0)

    def stop(done_s):
        if done_s >= 6:
            raise KeyboardInterrupt

    partial = tmp_path / "partial"
    with pytest.raises(KeyboardInterrupt):
        extract(path, brightness, partial=partial, progress=stop)
    assert partial.is_file()
    brightness.calls = 0
    resumed = extract(path, brightness, partial=partial)
    assert brightness.calls == 2 * (6 - 2)  # two of six windows were kept
    for name in expected.features:
        torch.testing.assert_close(resumed.features[name], expected.features[name])
    assert resumed.thumbnails == expected.thumbnails
    assert resumed.duration_s == expected.duration_s


def test_a_damaged_partial_result_is_ignored(make, brightness, tmp_path):
    (tmp_path / "partial").write_bytes(b"rubbish")
    assert extract(make("v.mp4", [50] * 60), brightness, [PICTURE], partial=tmp_path / "partial").num_segments == 6


def test_a_batch_size_below_1_is_refused():
    with pytest.raises(InputError, match="batch_size"):
        ExtractionOptions(batch_size=0)


def test_errors_come_out_and_no_thread_stays(make, brightness, tmp_path):
    (tmp_path / "no.mp4").write_bytes(b"not a video")
    before = threading.active_count()
    with pytest.raises(InputError, match=r"no\.mp4"):
        extract(tmp_path / "no.mp4", brightness, [PICTURE])

    def fail(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        extract(make("v.mp4", [1] * 600), brightness, [PICTURE], progress=fail)
    assert threading.active_count() == before


def test_what_half_precision_cannot_hold_is_done_again(make, brightness):
    class Large(Brightness):
        def forward(self, x):
            return super().forward(x) * 1000

    source = extract(make("v.mp4", [200] * 40), Large().half(), [MOTION])
    np.testing.assert_allclose(source.features["motion"][:, 0], 200_000, rtol=0.03)


def test_thumbnails_are_thinned(make, brightness, monkeypatch):
    monkeypatch.setattr(extractor, "MAX_THUMBNAILS", 4)
    source = extract(make("v.mp4", [50] * 160), brightness, [PICTURE])
    assert 2 <= len(source.thumbnails) <= 5
    gaps = np.diff(source.thumbnail_times)
    np.testing.assert_allclose(gaps, gaps[0], atol=0.1)


def test_thumbnails_are_wide_and_not_blurred(make, brightness):
    """In each second, only the picture at 0.7 s is sharp."""
    sharp = np.kron(np.random.default_rng(0).integers(0, 255, (12, 16)), np.ones((8, 8)))
    sharp = np.repeat(sharp[..., None], 3, axis=2).astype(np.uint8)
    pictures = [sharp if i % 10 == 7 else np.full_like(sharp, 128) for i in range(40)]
    source = extract(make("v.mp4", [0] * 40, pictures=pictures, options={"g": "1"}), brightness, [PICTURE])
    np.testing.assert_allclose(np.mod(source.thumbnail_times, 1), 0.75, atol=0.06)
    for thumbnail in source.thumbnails:
        image = Image.open(io.BytesIO(thumbnail))
        assert 320 <= image.width <= 384
        assert np.asarray(image).std() > 40


def test_the_picture_of_a_step_is_the_sharpest_near_its_middle():
    times_s = [0.5 + i for i in range(20)]
    thumbnails = [b"x" * (99 if i in (2, 18) else 5 + i % 3) for i in range(20)]  # those at the ends are the largest
    source = VideoFeatures({"x": np.zeros((20, 1))}, 20.0, 1.0, times_s, thumbnails)
    assert source.thumbnail_of(0.0, 20.0) == thumbnails[8]
    assert source.thumbnail_of(10.0, 10.4) == thumbnails[10]  # none that near: the next one
    assert source.thumbnail_of(0.0, 5.0) == thumbnails[2]
    assert VideoFeatures({"x": np.zeros((1, 1))}, 1.0, 1.0).thumbnail_of(0.0, 1.0) is None


@pytest.mark.parametrize("thumbnails", [{}, {0.5: b"one", 1.5: b"second"}])
def test_saved_features_are_read_back(tmp_path, thumbnails):
    saved = VideoFeatures({"x": np.eye(3)}, 2.9, 1.0, list(thumbnails), list(thumbnails.values()))
    saved.save(tmp_path / "f.safetensors")
    loaded = VideoFeatures.load(tmp_path / "f.safetensors")
    np.testing.assert_array_equal(loaded.features.pop("x"), saved.features.pop("x"))
    assert loaded == saved
    assert loaded.thumbnail_at(2.0) == thumbnails.get(1.5)


@pytest.mark.parametrize(
    ("half", "brain", "expected"),
    [(0.9, 0.85, torch.float32), (0.5, 0.7, torch.float16), (2.0, 0.3, torch.bfloat16), (None, None, torch.float32)],
)
def test_the_fastest_precision_of_a_cpu_is_chosen(monkeypatch, half, brain, expected):
    spent_s = {torch.float32: 1.0, torch.float16: half, torch.bfloat16: brain}

    def measure(dtype):
        if spent_s[dtype] is None:
            raise RuntimeError("not implemented")
        return spent_s[dtype]

    monkeypatch.setattr(extractor, "_time_convolution", measure)
    assert extractor._fastest_precision.__wrapped__() is expected


@pytest.mark.parametrize(
    ("device", "num_cores", "gib", "free_gib", "setting", "is_built", "expected"),
    [
        ("cpu", 2, 0, 0, "", True, (0, None)),
        ("cpu", 16, 0, 0, "", True, (4, None)),
        ("cuda:1", 16, 140, 130, "", True, (12, 1)),
        ("cuda:1", 2, 24, 20, "", True, (5, 1)),
        ("cuda:1", 32, 24, 20, "", True, (32, None)),  # the cores are faster
        ("cuda:1", 4, 4, 4, "", True, (4, None)),  # no memory to spare
        ("cuda:1", 4, 140, 1, "", True, (4, None)),  # others have it
        ("cuda:1", 16, 140, 130, "0", True, (16, None)),  # turned off
        ("cuda:1", 16, 140, 130, "", False, (16, None)),  # not installed
    ],
)
def test_who_decodes(monkeypatch, device, num_cores, gib, free_gib, setting, is_built, expected):
    monkeypatch.setattr(extractor, "num_usable_cores", lambda: num_cores)
    monkeypatch.setattr(extractor, "has_gpu_decoder", lambda: is_built)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free_gib * 2**30, gib * 2**30))
    monkeypatch.setenv("HIERO_GPU_DECODING", setting)
    assert extractor.decoding_processes(torch.device(device)) == expected
