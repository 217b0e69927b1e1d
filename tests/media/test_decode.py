"""Decoding: each moment shows what a player would show, whatever the file does with time."""

from __future__ import annotations

import subprocess
import sys
import warnings
import wave
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from hiero.errors import InputError
from hiero.media.decode import BrokenVideoWarning, Sampling, VideoReader, probe, read_frame, read_segments
from tests.films import grey, import_av, write_video
from tests.media.test_cutting import draw, write_film

av = import_av()
DAY_S = 24 * 3600


def sampled_greys(path, **options):
    """What each segment shows: the grey of each of its frames, to the nearest ten."""
    segments = list(read_segments(path, Sampling(**options)))
    assert [s.index for s in segments] == list(range(len(segments)))
    return [[10 * round(float(frame.mean()) / 10) for frame in segment.frames] for segment in segments]


def test_a_constant_rate(make):
    path = make("v.mp4", [10 * (i // 10) + 20 for i in range(30)])  # 3 s at 10 fps, one grey a second
    assert sampled_greys(path, num_frames=4) == [[20] * 4, [30] * 4, [40] * 4]
    assert sampled_greys(path, num_frames=2, spacing_s=1.5) == [[20, 30], [30, 40]]
    segment = next(read_segments(path, Sampling(num_frames=4)))
    assert segment.times_s == (0.125, 0.375, 0.625, 0.875)


def test_a_variable_rate_is_read_by_time(make):
    """A slide that stands for 3 s, then quick frames: frame numbers would get every second wrong."""
    path = make("v.mkv", [50, 100, 150, 200, 250], [0.0, 3.0, 3.2, 3.4, 3.6])
    assert sampled_greys(path, num_frames=2) == [[50, 50], [50, 50], [50, 50], [150, 250]]


def test_a_late_start_counts_from_the_first_frame(make):
    path = make("v.mkv", [20] * 10 + [90] * 10, start_s=100.0)
    assert sampled_greys(path, num_frames=2) == [[20, 20], [90, 90]]


@pytest.mark.parametrize(("name", "start_s"), [("v.mp4", 0.0), ("v.mkv", 1.0), ("v.ts", 0.0)])
def test_one_frame_is_found_by_seeking(make, name, start_s):
    """It is the frame that reading the whole video shows at that time."""
    path = make(name, [10 * i for i in range(25)], fps=1, start_s=start_s, options={"g": "4"})
    whole = [frames[0] for frames in sampled_greys(path, num_frames=1)]
    found = [10 * round(float(read_frame(path, i + 0.5).mean()) / 10) for i in (0, 3, 4, 13, 23)]
    assert found == [whole[i] for i in (0, 3, 4, 13, 23)]
    assert round(float(read_frame(path, 999.0).mean())) == pytest.approx(240, abs=3)  # the last one
    path.write_bytes(path.read_bytes()[:600])  # only its header
    with pytest.raises(InputError):
        read_frame(path, 3.0)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("v.avi", "mpeg4"), ("v.mov", "libx264"), ("v.webm", "libvpx"), ("v.mkv", "ffv1"), ("v.gif", "gif")],
)
def test_containers_and_codecs(make, name, codec):
    path = make(name, [40] * 10 + [200] * 10, codec=codec)
    assert [[round(v / 20) for v in row] for row in sampled_greys(path, num_frames=2)] == [[2, 2], [10, 10]]
    info = probe(path)
    assert (info.width, info.height) == (64, 48)
    assert info.fps == pytest.approx(10, rel=0.01)


def test_rotation_is_applied(tmp_path):
    """A phone held upright: the file holds it lying and asks for a turn."""
    path = write_film(tmp_path / "turned.mp4", num=5, rotation=90)
    assert (probe(path).width, probe(path).height) == (64, 96)
    frame = next(read_segments(path, Sampling(num_frames=1, short_side=None))).frames[0]
    upright = np.rot90(draw(4)).astype(int)  # counterclockwise: left goes down
    assert np.abs(frame - upright).mean() < 10 < np.abs(frame[::-1] - upright).mean()


def test_frames_are_scaled_by_the_short_side(make):
    path = make("v.mp4", [90] * 10)
    assert next(read_segments(path, Sampling(num_frames=1, short_side=24))).frames.shape == (1, 24, 32, 3)


@pytest.mark.parametrize(("width", "height"), [(4096, 16), (8192, 2), (16, 512)])
def test_the_aspect_of_scaled_frames_is_limited(make, width, height):
    """Scaled by its short side, a strip of two pixels would be a million wide."""
    path = make("strip.mkv", [90] * 2, pictures=[np.full((height, width, 3), 90, dtype=np.uint8)] * 2, codec="ffv1")
    frames = next(read_segments(path, Sampling(num_frames=2, short_side=256))).frames
    assert sorted(frames.shape[1:3]) == [256, 8 * 256]
    assert abs(int(frames[0, 100, 100, 0]) - 90) < 10


@pytest.mark.parametrize("limit", ["hiero.media.decode.MAX_PIXELS", "hiero.storage.files.available_bytes"])
def test_frames_that_do_not_fit_into_memory_are_refused(make, monkeypatch, limit):
    path = make("v.mp4", [90] * 10)
    monkeypatch.setattr(limit, 3000 if limit.endswith("PIXELS") else lambda: 3000)
    with pytest.raises(InputError, match=r"v\.mp4: its frames have 64 × 48 pixels"):
        list(read_segments(path))


@pytest.mark.parametrize("name", ["v.mkv", "v.mp4"])
@pytest.mark.parametrize("skip", [False, True])
def test_a_jump_of_the_timestamps_is_left_out(make, name, skip):
    """Forty frames, a day between two of them: not a day of a standing picture."""
    times_s = [i / 10 + (DAY_S if i >= 20 else 0) for i in range(40)]
    path = make(name, [50] * 20 + [150] * 20, times_s)
    with pytest.warns(BrokenVideoWarning, match=r"its timestamps jump ahead by 24:00:00 after 0:02") as caught:
        assert sampled_greys(path, num_frames=2, skip_unreferenced=skip) == [[50, 50], [50, 50], [150, 150], [150, 150]]
    assert len(caught) == 1


def test_a_single_wrong_timestamp_is_ignored(make):
    ticks = [0, 100, 200, 300 + 1000 * 30 * DAY_S, 400, 500]
    with (
        VideoReader(make("v.mp4", [50] * 2), 0) as reader,
        pytest.warns(BrokenVideoWarning, match="jump ahead") as caught,
    ):
        times_s = [reader.time_of(SimpleNamespace(pts=t, time_base=Fraction(1, 1000), duration=100)) for t in ticks]
    assert times_s == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert len(caught) == 1


def test_stretched_timestamps_are_bounded_by_the_file_size(make):
    """Every frame half an hour after the last, as another unit of time in the header makes it: the size
    of the file bounds how long its pictures may stand.
    """
    path = make("v.mkv", [50] * 100, [1800 * i for i in range(100)])
    with pytest.warns(BrokenVideoWarning, match="jump ahead by 30:00"):
        end_s = list(read_segments(path, Sampling(num_frames=1, spacing_s=60.0)))[-1].end_s
    assert end_s < 3600 + path.stat().st_size / 500 + 100 * 10


def test_the_last_segment_is_filled_up(make):
    assert sampled_greys(make("a.mp4", [50] * 10 + [90] * 2), num_frames=4) == [[50] * 4, [90] * 4]
    assert sampled_greys(make("b.mp4", [50] * 10 + [90]), num_frames=4) == [[50] * 4]  # its first time is later
    assert sampled_greys(make("c.mp4", [50]), num_frames=4) == [[50] * 4]  # one frame is a video too


def test_a_damaged_file_is_read_up_to_the_damage(make):
    path = make("v.ts", list(range(20, 220, 2)), codec="libx264", options={"g": "5"})
    whole = sampled_greys(path, num_frames=2)
    path.write_bytes(path.read_bytes()[: int(0.6 * path.stat().st_size)] + b"\x00" * 5000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decoded = sampled_greys(path, num_frames=2)
    assert 3 <= len(decoded) < len(whole)
    assert decoded[:3] == whole[:3]
    assert all(issubclass(w.category, BrokenVideoWarning) for w in caught)


def test_files_that_are_not_videos(make, tmp_path):
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "noise.mp4").write_bytes(np.random.default_rng(0).bytes(5000))
    (tmp_path / "text.mp4").write_text("not a video")
    with wave.open(str(tmp_path / "sound.wav"), "wb") as out:
        out.setparams((1, 2, 8000, 800, "NONE", ""))
        out.writeframes(bytes(1600))
    for name in ("empty.mp4", "noise.mp4", "text.mp4", "sound.wav"):
        with pytest.raises(InputError, match=name):
            sampled_greys(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        sampled_greys(tmp_path / "missing.mp4")
    cut = make("cut.mp4", [50] * 30)
    cut.write_bytes(cut.read_bytes()[:200])  # without its index an mp4 is nothing
    with pytest.raises(InputError, match=r"cut\.mp4: "):
        sampled_greys(cut)


def test_several_streams(tmp_path):
    path = tmp_path / "two.mkv"
    with av.open(str(path), "w") as out:
        streams = [out.add_stream("mpeg4", rate=10) for _ in range(2)]
        for stream in streams:
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for stream, value in zip(streams, (40, 200), strict=True):
            for _ in range(10):
                out.mux(stream.encode(av.VideoFrame.from_ndarray(grey(value), format="rgb24")))
            out.mux(stream.encode(None))
    assert [sampled_greys(path, num_frames=1, stream=number) for number in (0, 1)] == [[[40]], [[200]]]
    with pytest.raises(InputError, match="--stream"):
        sampled_greys(path, stream=2)


def test_bad_arguments(make):
    with pytest.raises(InputError, match="spacing_s must be positive"):
        sampled_greys(make("v.mp4", [1] * 5), spacing_s=0)


@pytest.mark.slow
def test_memory_does_not_grow_with_length(make):
    """Ten times as long takes no more memory (measured in a process of its own)."""
    program = (
        "import resource, sys; from hiero.media.decode import Sampling, read_segments\n"
        "for _ in read_segments(sys.argv[1], Sampling(num_frames=2)): pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    pictures = [np.random.default_rng(i).integers(0, 255, (240, 320, 3), dtype=np.uint8) for i in range(4)]
    peak = []
    for name, num in (("short.mkv", 60), ("long.mkv", 600)):
        path = make(name, [0] * num, pictures=[pictures[i % 4] for i in range(num)], codec="mpeg4")
        command = [sys.executable, "-c", program, str(path)]
        peak.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert peak[1] < 1.15 * peak[0]


def test_a_stream_that_changes_its_size(tmp_path):
    """Two transport streams one after the other: later pictures take the size of the first."""
    for i, (width, height) in enumerate([(64, 48), (48, 96)]):
        pictures = [np.full((height, width, 3), 100 + 50 * i, dtype=np.uint8)] * 20
        write_video(tmp_path / f"{i}.ts", [0] * 20, pictures=pictures, container="mpegts")
    joined = tmp_path / "joined.ts"
    joined.write_bytes((tmp_path / "0.ts").read_bytes() + (tmp_path / "1.ts").read_bytes())
    segments = list(read_segments(joined, Sampling(num_frames=4, short_side=None)))
    assert {segment.frames.shape[1:] for segment in segments} == {(48, 64, 3)}
    assert abs(int(segments[0].frames[0, 24, 32, 0]) - 100) < 10


@pytest.mark.parametrize("threads", [0, 1])
def test_a_truncated_file_gives_a_warning(make, tmp_path, threads):
    """Its index is at the front, so that it opens; the rest of its frames is gone. FFmpeg's threads hide that."""
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, (48, 64, 3), dtype=np.uint8) for _ in range(100)]
    whole = make("whole.mp4", [0] * 100, pictures=pictures)
    moved = tmp_path / "moved.mp4"
    with av.open(str(whole)) as source, av.open(str(moved), "w", options={"movflags": "faststart"}) as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(moved.read_bytes()[: int(0.6 * moved.stat().st_size)])
    with pytest.warns(BrokenVideoWarning, match="ends after"):
        segments = list(read_segments(cut, threads=threads))
    assert 3 <= len(segments) <= 7


def b_frames(make, num_b_frames):
    """30 frames a second, each a little brighter than the one before, with B-frames that nothing refers to."""
    options = {"bf": str(num_b_frames), "b-pyramid": "none", "b_strategy": "0", "crf": "1"}
    return make("b.mp4", [20 + 2 * i for i in range(90)], fps=30, codec="libx264", options=options)


def both_ways(path):
    """Segments with all frames, and with those that others refer to."""
    return [list(read_segments(path, Sampling(num_frames=10, skip_unreferenced=skip))) for skip in (False, True)]


def test_unreferenced_frames_are_skipped(make):
    """Half of the frames: the same segments and times, each picture at most one sampling late."""
    every, some = both_ways(b_frames(make, 1))
    assert [(s.index, s.times_s, s.end_s) for s in some] == [(s.index, s.times_s, s.end_s) for s in every]
    late = np.stack([s.frames.mean((1, 2, 3)) for s in every]) - np.stack([s.frames.mean((1, 2, 3)) for s in some])
    assert late.min() > -1
    assert 1 < late.max() < 2 * 30 / 10 + 1  # some were left out


def test_unreferenced_frames_are_kept_if_too_few_would_remain(make):
    for a, b in zip(*both_ways(b_frames(make, 7)), strict=True):  # of 30 frames a second fewer than four would be left
        np.testing.assert_array_equal(a.frames, b.frames)


@pytest.mark.parametrize("suffix", ["", ".mp4"])
@pytest.mark.parametrize("kind", ["list.ffconcat", "list.m3u8", "list.mpd", "image%d.png", "list.sdp"])
def test_a_playlist_is_not_a_video(make, tmp_path, kind, suffix):
    """It would show files that nobody named, also under the name of a video."""
    film = make("film.mp4", [50] * 10, options={"g": "5"})
    with av.open(str(film)) as source, av.open(str(tmp_path / "image%d.png"), "w", format="image2") as images:
        stream = images.add_stream("png", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb24"
        for frame in source.decode(video=0):
            images.mux(stream.encode(frame.reformat(format="rgb24")))
    playlists = {
        "list.ffconcat": "ffconcat version 1.0\nfile film.mp4\n",
        "list.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfilm.mp4\n#EXT-X-ENDLIST\n",
        "list.mpd": '<MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period><AdaptationSet mimeType="video/mp4">'
        '<Representation id="0"><BaseURL>film.mp4</BaseURL></Representation></AdaptationSet></Period></MPD>',
        "list.sdp": "v=0\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
        "image%d.png": "",
    }
    playlist = tmp_path / (kind + suffix)
    playlist.write_text(playlists[kind])
    with pytest.raises(InputError, match=kind):
        probe(playlist)


def test_a_name_that_looks_like_a_protocol_is_a_file(make, tmp_path, monkeypatch):
    make("concat:12.mp4", [50] * 5)
    monkeypatch.chdir(tmp_path)
    assert probe("concat:12.mp4").width == 64
