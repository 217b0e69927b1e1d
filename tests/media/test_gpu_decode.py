"""Decoding by a GPU: pictures are the CPU's, and what the GPU cannot read the CPU reads."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.media import decode, packets, parallel_decode
from hiero.media.decode import DisplayedFrame, Sampling, new_reformatter, read_segments
from hiero.media.parallel_decode import GpuFrame, PartDecoder, PartError, PartTask, read_segments_parallel
from hiero.storage.cache import file_state
from tests.films import write_video

OPTIONS = {"spacing_s": 1.0, "num_frames": 6, "short_side": 32}


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch):
    monkeypatch.setattr(parallel_decode, "PART_S", 0.5)


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    path, pictures = tmp_path_factory.mktemp("video") / "v.mp4", random_pictures(60, 256, 192)
    return write_video(path, [0] * 60, pictures=pictures, options={"g": "5", "bf": "2", "preset": "fast"})


@pytest.fixture
def cpu_as_gpu(monkeypatch):
    """The CPU takes the place of a GPU's decoder; the list grows with each video that it opens."""
    opened = []

    def open_for_decoding(file, gpu):
        if gpu is not None:
            opened.append(gpu)
        return av.open(file)

    monkeypatch.setattr(packets, "open_for_decoding", open_for_decoding)
    return opened


def random_pictures(num: int, width: int = 96, height: int = 64, seed: int = 0) -> list[np.ndarray]:
    """Frames that all differ, each a slope between four random colours."""
    corners = np.random.default_rng(seed).integers(0, 255, (num, 2, 2, 3)).astype(float)
    y, x = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[:, None]
    return [
        ((1 - y) * ((1 - x) * c[0, 0] + x * c[0, 1]) + y * ((1 - x) * c[1, 0] + x * c[1, 1])).astype(np.uint8)
        for c in corners
    ]


def find_parts(path) -> list[tuple[PartTask, int]]:
    template = PartTask(str(path), file_state(path), Sampling(spacing_s=1.0, num_frames=6, short_side=32))
    return list(parallel_decode._find_parts(template))


def decode_parts(decoder: PartDecoder, path) -> np.ndarray:
    """Pictures of all sampled times."""
    shown = []
    for task, num_bytes in find_parts(path):
        memory = np.empty(num_bytes, np.uint8)
        reply = decoder.decode(task, memory)
        pictures = memory[: reply.num_pictures * task.picture_bytes].reshape(-1, *task.shape, 3)
        shown.append(pictures[list(reply.shown)])
    return np.concatenate(shown)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(8, 60),
    st.integers(8, 60),
    st.integers(4, 80),
    st.sampled_from([1, 2, 5, 9]),
    st.booleans(),
    st.sampled_from([("yuv420p", "nv12"), ("yuvj420p", "nv12"), ("yuv420p10le", "p010le")]),
    st.integers(0, 1000),
)
def test_pixel_formats_of_a_gpu_give_the_same_pictures(
    half_height, half_width, short_side, matrix, is_full, layouts, seed
):
    if layouts[0] == "yuv420p10le":  # on x86 swscale reads beyond the last row of other widths, and shows what is there
        half_width = 16 * max(1, half_width // 16)
    (picture,) = random_pictures(1, 2 * half_width, 2 * half_height, seed)
    frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format=layouts[0])
    frame.colorspace, frame.color_range = matrix, 2 if is_full or layouts[0] == "yuvj420p" else 1
    for side in (short_side, None, 2 * min(half_height, half_width)):  # the last two keep the size
        downloaded = GpuFrame(frame.reformat(format=layouts[1]), new_reformatter(), new_reformatter(), layouts[0])
        assert np.array_equal(downloaded.picture(side), DisplayedFrame(frame, new_reformatter(), 1).picture(side))


def test_a_decoder_stays_open_for_the_next_part(video, cpu_as_gpu):
    expected = decode_parts(PartDecoder(), video)
    decoder = PartDecoder(gpu=0)
    assert np.array_equal(decode_parts(decoder, video), expected)
    assert cpu_as_gpu == [0]
    assert decoder.reader is not None
    decoder.close()
    assert decoder.reader is None


@pytest.mark.parametrize("packet_s", [0.0, 3.0, 5.5])
def test_the_cpu_reads_what_the_gpu_cannot(tmp_path, cpu_as_gpu, monkeypatch, packet_s):
    """Also in the last part, where a fault of the GPU must not look like one of the file."""
    path = write_video(tmp_path / "v.mp4", [0] * 60, pictures=random_pictures(60), options={"g": "20", "bf": "0"})
    expected = decode_parts(PartDecoder(), path)
    decode_packet = decode.VideoReader._decode

    def fail(reader, packet):
        if reader.gpu is not None and packet.pts is not None and float(packet.pts * packet.time_base) >= packet_s:
            raise av.FFmpegError(1, "no memory on the GPU")
        return decode_packet(reader, packet)

    monkeypatch.setattr(decode.VideoReader, "_decode", fail)
    decoder = PartDecoder(gpu=0)
    assert np.array_equal(decode_parts(decoder, path), expected)
    assert cpu_as_gpu == [0]  # it is not tried again on the same video
    assert decoder.reader is None


def test_inexact_codecs_are_decoded_by_the_cpu(tmp_path, cpu_as_gpu):
    path = write_video(tmp_path / "v.mp4", [0] * 60, pictures=random_pictures(60), codec="mpeg4")
    decoder = PartDecoder(gpu=0)
    assert np.array_equal(decode_parts(decoder, path), decode_parts(PartDecoder(), path))
    assert decoder.failed


def test_cropped_frames_are_decoded_by_the_cpu(video):
    """FFmpeg does not cut the left and the top off what is on a GPU."""
    stream = SimpleNamespace(codec_context=SimpleNamespace(width=1278, height=720))
    reader, frame = SimpleNamespace(gpu=0, stream=stream), SimpleNamespace(width=1280, height=720)
    with pytest.raises(PartError, match="does not crop"):
        PartDecoder(gpu=0)._display(frame, find_parts(video)[0][0], reader)


def test_a_replaced_file_is_noticed(video):
    task, num_bytes = find_parts(video)[0]
    with pytest.raises(PartError, match="the file has changed"):
        PartDecoder().decode(replace(task, version=(1, 2, 3)), np.empty(num_bytes, np.uint8))


def test_without_a_gpu_the_cpu_decodes(video):
    """Named, but no driver is here: the same processes decode by the CPU."""
    expected = list(read_segments(video, Sampling(**OPTIONS)))
    actual = list(read_segments_parallel(video, Sampling(**OPTIONS), processes=2, gpu=0))
    assert [(s.index, s.times_s, s.end_s) for s in actual] == [(s.index, s.times_s, s.end_s) for s in expected]
    assert np.array_equal([s.frames for s in actual], [s.frames for s in expected])


def test_a_video_deleted_while_it_is_read(video, tmp_path):
    expected = [s.frames for s in read_segments(video, Sampling(**OPTIONS | {"num_frames": 1}))]
    video = Path(shutil.copy(video, tmp_path / "v.mp4"))
    segments = read_segments_parallel(video, Sampling(**OPTIONS | {"num_frames": 1}), processes=2, gpu=0)
    actual = [next(segments).frames]
    video.unlink()
    with contextlib.suppress(InputError):  # of what is not decoded yet
        actual += [s.frames for s in segments]
    assert np.array_equal(actual, expected[: len(actual)])


@pytest.mark.gpu
def test_the_gpu_gives_the_same_pictures(video):
    if not decode.has_gpu_decoder():
        pytest.skip("this PyAV does not decode on GPUs")
    decoder = PartDecoder(gpu=0)
    assert np.array_equal(decode_parts(decoder, video), decode_parts(PartDecoder(), video))
    assert not decoder.failed
    decoder.close()
    for skip in (False, True):
        options = OPTIONS | {"skip_unreferenced": skip}
        actual = list(read_segments_parallel(video, Sampling(**options), processes=2, gpu=0))
        assert np.array_equal([s.frames for s in actual], [s.frames for s in read_segments(video, Sampling(**options))])
