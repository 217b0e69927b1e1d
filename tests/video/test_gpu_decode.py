"""Decoding by a GPU: pictures are the CPU's up to rounding, and what the GPU cannot read the CPU reads."""

from __future__ import annotations

import contextlib

import av
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.storage.cache import file_state
from hiero.video import decode, gpu_decode, parallel_decode
from hiero.video.decode import new_reformatter, read_segments
from hiero.video.decode_worker import PartTask
from hiero.video.gpu_decode import LUMA_WEIGHTS, resize_weights, share_planes, yuv_to_rgb
from hiero.video.parallel_decode import DecodingPool, read_segments_parallel

MAX_ROUNDING = 4  # of 255, in a mean over pixels: swscale rounds colours down, and chroma of small pictures in its own way
OPTIONS = {"spacing_s": 1.0, "num_frames": 6, "short_side": 32, "min_share": 0.0}


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch):
    monkeypatch.setattr(parallel_decode, "PART_S", 0.5)


@pytest.fixture
def cpu_as_gpu(monkeypatch):
    """Frames that the CPU decodes in the layout in which a GPU leaves them: all but its decoder is as on a GPU."""

    def copy_planes(frame):
        layout = "p010le" if "10" in frame.format.name else "nv12"
        luma, chroma = share_planes(frame.reformat(format=layout))
        return luma.clone(), chroma.clone()

    monkeypatch.setattr(gpu_decode, "copy_planes", copy_planes)
    monkeypatch.setattr(parallel_decode, "has_gpu_decoder", lambda: True)
    monkeypatch.setattr(decode, "open_for_decoding", lambda file, _: av.open(file))


def smooth(num: int, width: int = 96, height: int = 64, seed: int = 0) -> list[np.ndarray]:
    """Frames that all differ, each a slope between four random colours."""
    corners = np.random.default_rng(seed).integers(0, 255, (num, 2, 2, 3)).astype(float)
    y, x = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[:, None]
    return [((1 - y) * ((1 - x) * c[0, 0] + x * c[0, 1]) + y * ((1 - x) * c[1, 0] + x * c[1, 1])).astype(np.uint8) for c in corners]


def assert_close(path, **options):
    """Segments of the GPU's path against one process of the CPU."""
    options = OPTIONS | options
    expected = list(read_segments(path, **options))
    actual = list(read_segments_parallel(path, processes=1, gpu=0, **options))
    assert [(s.index, s.times_s, s.end_s) for s in actual] == [(s.index, s.times_s, s.end_s) for s in expected]
    for one, other in zip(actual, expected, strict=True):
        assert np.abs(one.frames.astype(int) - other.frames).mean() < MAX_ROUNDING


def part_template(path):
    """A task of which `_find_parts` makes those of a video."""
    return PartTask(
        path=str(path), version=file_state(path), stream=0, skip_unreferenced=False, gpu=0, short_side=32, shape=(0, 0), entry=0,
        end=None, first_timestamp_s=0.0, begin_s=0.0, first_sample=0, spacing_s=1.0, num_frames=6,
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    st.integers(8, 60), st.integers(8, 60), st.integers(4, 80), st.integers(4, 80), st.sampled_from(sorted(LUMA_WEIGHTS)),
    st.booleans(), st.sampled_from(["nv12", "p010le"]), st.integers(0, 1000),
)  # fmt: skip
def test_pictures_are_those_of_swscale(half_height, half_width, height, width, matrix, is_full, layout, seed):
    (picture,) = smooth(1, 2 * half_width, 2 * half_height, seed)
    frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format=layout)
    frame.colorspace, frame.color_range = matrix, 2 if is_full else 1
    expected = new_reformatter().reformat(frame, width=width, height=height, format="rgb24").to_ndarray()
    luma, chroma = share_planes(frame)
    actual = yuv_to_rgb(luma[None], chroma[None], height, width, matrix, is_full)[0].numpy()
    assert np.abs(actual.astype(int) - expected).mean() < MAX_ROUNDING


def test_weights_of_a_row_sum_to_one_and_keep_what_is_not_scaled():
    assert torch.allclose(resize_weights(720, 256, torch.device("cpu"), torch.float64).sum(1), torch.ones(256, dtype=torch.float64))
    assert torch.equal(resize_weights(7, 7, torch.device("cpu"), torch.float32), torch.eye(7))


@pytest.mark.parametrize("num_b", [0, 2])
def test_the_same_segments(make, cpu_as_gpu, monkeypatch, num_b):
    def refuse(*_, **__):
        raise AssertionError("read by the CPU")

    path = make("v.mp4", [0] * 60, pictures=smooth(60), options={"g": "5", "bf": str(num_b), "preset": "fast"})
    for skip in (False, True):
        assert_close(path, skip_unreferenced=skip)
    with monkeypatch.context() as patched:
        patched.setattr(parallel_decode, "read_segments", refuse)
        assert len(list(read_segments_parallel(path, processes=1, gpu=0, **OPTIONS))) == 6
    assert_close(path, num_frames=24)  # several batches of frames a part


def test_turned_frames(make, cpu_as_gpu, monkeypatch):
    path = make("v.mp4", [0] * 60, pictures=smooth(60), options={"g": "5"})
    monkeypatch.setattr(decode, "quarter_turns", lambda _: 1)
    monkeypatch.setattr(gpu_decode, "quarter_turns", lambda _: 1)
    assert_close(path)


@pytest.mark.parametrize("broken", ["matrix", "memory"])
def test_the_cpu_reads_what_the_gpu_cannot(make, cpu_as_gpu, monkeypatch, broken):
    path = make("v.mp4", [0] * 60, pictures=smooth(60), options={"g": "5"})
    if broken == "matrix":
        monkeypatch.setattr(gpu_decode, "LUMA_WEIGHTS", {})
    else:
        calls = []

        def fail_later(self, number, num_bytes):
            calls.append(number)
            if len(calls) > 5:
                raise MemoryError("no memory")
            return np.empty(num_bytes, np.uint8)

        monkeypatch.setattr(gpu_decode.GpuWorker, "_memory", fail_later)
    expected = list(read_segments(path, **OPTIONS))
    for processes in (1, 2):
        actual = list(read_segments_parallel(path, processes=processes, gpu=0, **OPTIONS))
        assert [s.index for s in actual] == [s.index for s in expected]


def test_a_fault_of_the_gpu_in_the_last_part_is_not_one_of_the_file(make, cpu_as_gpu, monkeypatch):
    path = make("v.mp4", [0] * 60, pictures=smooth(60), options={"g": "5"})
    decode_packet = decode.VideoReader._decode

    def fail_at_the_end(reader, packet):
        if reader.gpu is not None and packet.pts is not None and float(packet.pts * packet.time_base) > 5.8:
            raise av.FFmpegError(1, "no memory on the GPU")
        return decode_packet(reader, packet)

    monkeypatch.setattr(decode.VideoReader, "_decode", fail_at_the_end)
    for processes in (1, 2):
        segments = list(read_segments_parallel(path, processes=processes, gpu=0, **OPTIONS))
        assert segments[-1].end_s == pytest.approx(6.0)


def test_a_pool_that_is_closed_stops_in_the_middle_of_a_part(make, cpu_as_gpu):
    path = make("v.mp4", [0] * 60, pictures=smooth(60), options={"g": "5"})
    pool = DecodingPool(2, gpu_decode.GpuWorker)
    pool.close()
    assert not any(thread.is_alive() for thread in pool.threads)
    worker = gpu_decode.GpuWorker()
    worker.close()
    task, num_bytes = next(parallel_decode._find_parts(part_template(path)))
    assert worker.decode(task, num_bytes, 0).error == "nobody waits for it"


def test_a_deleted_video(make, cpu_as_gpu):
    path = make("v.mp4", [0] * 80, pictures=smooth(80), options={"g": "5"})
    segments = read_segments_parallel(path, processes=2, gpu=0, **(OPTIONS | {"num_frames": 1}))
    next(segments)
    path.unlink()
    with contextlib.suppress(InputError):  # of what is not decoded yet
        list(segments)


def test_no_gpu(make, monkeypatch):
    """Named, but no driver, or a PyAV that was not built for it: the CPU decodes the same."""
    path = make("v.mp4", [0] * 60, pictures=smooth(60), options={"g": "5"})
    expected = [s.frames for s in read_segments(path, **OPTIONS)]
    for has_decoder in (False, True):
        monkeypatch.setattr(decode, "has_gpu_decoder", lambda has_decoder=has_decoder: has_decoder)
        monkeypatch.setattr(parallel_decode, "has_gpu_decoder", lambda has_decoder=has_decoder: has_decoder)
        actual = [s.frames for s in read_segments_parallel(path, processes=1, gpu=0, **OPTIONS)]
        assert np.array_equal(actual, expected)


@pytest.mark.gpu
def test_a_gpu_decodes_the_same(make, monkeypatch):
    path = make("v.mp4", [0] * 60, pictures=smooth(60, 256, 192), options={"g": "5", "bf": "2"})
    if not decode.has_gpu_decoder():
        pytest.skip("this PyAV does not decode on GPUs")
    monkeypatch.setattr(parallel_decode, "read_segments", None)  # the GPU reads all of it
    actual = list(read_segments_parallel(path, processes=1, gpu=0, **OPTIONS))
    for one, other in zip(actual, read_segments(path, **OPTIONS), strict=True):
        assert np.abs(one.frames.astype(int) - other.frames).mean() < MAX_ROUNDING
