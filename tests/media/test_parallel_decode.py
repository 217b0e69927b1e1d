"""Decoding by processes: the segments are those of one process, pixel by pixel, whatever the file is like."""

from __future__ import annotations

import os
import signal
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.media import parallel_decode
from hiero.media.decode import BrokenVideoWarning, Sampling, read_segments
from hiero.media.parallel_decode import decoding_pool, read_segments_parallel
from tests.films import import_av, write_video

av = import_av()
pytestmark = pytest.mark.skipif(
    not parallel_decode.can_start_processes(), reason="needs memory that processes share (Linux)"
)
PROCESSES = 2


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch):
    monkeypatch.setattr(parallel_decode, "PART_S", 0.5)


@pytest.fixture
def only_parts(monkeypatch):
    """An error where a video is not read in parts to its end."""

    def refuse(*_, **__):
        raise AssertionError("read by one process")

    monkeypatch.setattr(parallel_decode, "read_segments", refuse)


def noise(num: int, width: int = 64, height: int = 48, seed: int = 0) -> list[np.ndarray]:
    """Frames that all differ."""
    return list(np.random.default_rng(seed).integers(0, 255, (num, height, width, 3), dtype=np.uint8))


def assert_same(path, **options) -> int:
    """Compare with one process; returns the number of segments."""
    options = {"num_frames": 6, "short_side": 32} | options
    expected, actual = (
        list(read_segments(path, Sampling(**options))),
        list(read_segments_parallel(path, Sampling(**options), processes=PROCESSES)),
    )
    assert [(s.index, s.times_s, s.end_s) for s in actual] == [(s.index, s.times_s, s.end_s) for s in expected]
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one.frames, other.frames)
    return len(actual)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(20, 60),
    st.integers(3, 12),
    st.integers(0, 3),
    st.sampled_from([0.4, 1.0, 1.7]),
    st.booleans(),
    st.integers(1, 9),
)
def test_segments_equal_those_of_one_process(tmp_path, num, keyframes, num_b, spacing_s, skip, num_frames):
    options = {"g": str(keyframes), "bf": str(num_b), "preset": "fast"}
    path = write_video(tmp_path / "v.mp4", [0] * num, pictures=noise(num), options=options)
    assert_same(path, spacing_s=spacing_s, skip_unreferenced=skip, num_frames=num_frames)


def test_a_video_is_read_in_parts_to_its_end(make, only_parts):
    path = make("v.mp4", [0] * 60, pictures=noise(60), options={"g": "5", "bf": "2", "preset": "fast"})
    assert assert_same(path) == 6


def test_open_groups_of_pictures(tmp_path, only_parts):
    """In HEVC pictures that are shown before a keyframe may come after it, and need what came before."""
    path = tmp_path / "v.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx265", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        stream.options = {"preset": "fast", "x265-params": "keyint=8:min-keyint=8:open-gop=1:bframes=3:log-level=error"}
        for picture in noise(60, 64, 64):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        out.mux(stream.encode(None))
    assert assert_same(path) == 6


@pytest.mark.parametrize(
    ("name", "codec"), [("v.mkv", "libvpx-vp9"), ("v.ts", "libx264"), ("v.avi", "mpeg4"), ("v.gif", "gif")]
)
def test_containers_and_codecs(make, name, codec):
    assert_same(make(name, [0] * 30, pictures=noise(30), codec=codec, options={"g": "5"}))


def test_a_variable_frame_rate(make, only_parts):
    times_s = np.cumsum(np.random.default_rng(1).uniform(0.03, 0.6, 40)).round(3).tolist()
    assert_same(make("v.mkv", [0] * 40, times_s, pictures=noise(40), options={"g": "4"}))


def test_a_video_with_a_jump_is_read_by_one_process(make):
    times_s = [i / 10 + (7200 if i > 30 else 0) for i in range(60)]
    path = make("v.mkv", [0] * 60, times_s, pictures=noise(60), options={"g": "5"})
    with pytest.warns(BrokenVideoWarning, match="jump ahead"):
        assert_same(path)


def test_a_broken_tail(make, tmp_path):
    path = make("v.ts", [0] * 60, pictures=noise(60), options={"g": "5"})
    cut = tmp_path / "cut.ts"
    cut.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenVideoWarning)
        assert assert_same(cut) == 4


def test_a_file_that_is_not_a_video(tmp_path):
    path = tmp_path / "v.mp4"
    path.write_bytes(b"no video")
    with pytest.raises(InputError, match="not a video"):
        list(read_segments_parallel(path, processes=PROCESSES))


def test_a_killed_process_is_restarted(make):
    path = make("v.mp4", [0] * 60, pictures=noise(60), options={"g": "5"})
    assert_same(path)
    pool = decoding_pool(PROCESSES)
    for worker in pool.workers:
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
    for _ in range(3):
        assert_same(path)


def test_processes_that_cannot_be_started(make, monkeypatch):
    parallel_decode.close_pools()
    monkeypatch.setattr("sys.executable", "/nonexistent")
    assert assert_same(make("v.mp4", [0] * 60, pictures=noise(60), options={"g": "5"})) == 6


def test_abandoned_readers_free_their_parts(make):
    path = make("v.mp4", [0] * 60, pictures=noise(60), options={"g": "5"})
    for _ in range(4):
        segments = read_segments_parallel(path, Sampling(num_frames=2), processes=PROCESSES)
        next(segments)
        segments.close()
    assert not decoding_pool(PROCESSES).readers
    assert_same(path)


def test_a_paused_reader_does_not_block_others(make, only_parts):
    path = make("v.mp4", [0] * 80, pictures=noise(80), options={"g": "5"})
    readers = [
        read_segments_parallel(path, Sampling(num_frames=6, short_side=32), processes=PROCESSES) for _ in range(3)
    ]
    firsts = [next(reader) for reader in readers]
    assert assert_same(path) > 1
    for one, *others in [firsts, *zip(*readers, strict=True)]:
        assert all(np.array_equal(one.frames, other.frames) for other in others)


def test_a_file_replaced_while_it_is_read(make):
    """Parts of the new one are not taken for those of the old one; the rest is read as one process would."""
    path = make("v.mp4", [0] * 60, pictures=noise(60), options={"g": "5"})
    reader = read_segments_parallel(path, Sampling(num_frames=6, short_side=32), processes=PROCESSES)
    indices = [next(reader).index]
    make("w.mp4", [0] * 60, pictures=noise(60, seed=1), options={"g": "5"}).replace(path)
    indices += [segment.index for segment in reader]
    assert indices == list(range(len(indices)))
