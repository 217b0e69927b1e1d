"""Clips hold exactly the frames of their span, at their times: copied ones are equal, encoded ones near."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hiero.decoding.cutting import Piece, write_clip
from hiero.errors import InputError
from tests.films import import_av
from tests.processes import run_python

av = import_av()
WIDTH, HEIGHT, FPS = 96, 64, 30


def draw(i):
    """A picture that differs from frame to frame."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    picture = np.stack([(2 * x + 3 * i) % 256, (2 * y + 5 * i) % 256, (x + y + 7 * i) % 256], -1).astype(np.uint8)
    picture[8:24, 3 * i % (WIDTH - 20) : 3 * i % (WIDTH - 20) + 20] = 255
    return picture


def write_film(path, *, num=60, codec="libx264", options=None, times=None, audio=None, rotation=0, ticks=15360):
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=FPS)
        stream.width, stream.height, stream.pix_fmt, stream.options = WIDTH, HEIGHT, "yuv420p", options or {}
        stream.time_base = stream.codec_context.time_base = Fraction(1, ticks)
        out.metadata["comment"] = "a made film"
        if rotation:
            stream.set_display_rotation(rotation)
        sound = out.add_stream(audio, rate=48_000, layout="stereo") if audio else None
        position = 0
        for i in range(num):
            time_s = i / FPS if times is None else times[i]
            frame = av.VideoFrame.from_ndarray(draw(i), format="rgb24")
            frame.pts, frame.time_base = round(time_s * ticks), Fraction(1, ticks)
            out.mux(stream.encode(frame))
            while sound is not None and position / 48_000 <= time_s:
                size = sound.codec_context.frame_size or 960
                wave = 0.3 * np.sin(2 * np.pi * 440 * (position + np.arange(size)) / 48_000)
                is_planar = sound.codec_context.format.name == "fltp"
                samples = np.stack([wave, wave]).astype(np.float32)
                if not is_planar:
                    samples = (32_000 * samples.T.reshape(1, -1)).astype(np.int16)
                piece = av.AudioFrame.from_ndarray(samples, format=sound.codec_context.format.name, layout="stereo")
                piece.sample_rate, piece.pts, piece.time_base = 48_000, position, Fraction(1, 48_000)
                position += size
                out.mux(sound.encode(piece))
        for each in out.streams:
            out.mux(each.encode(None))
    return path


def read_frames(path):
    """Times from the first frame on, and pictures."""
    with av.open(str(path)) as container:
        frames = [
            (float(f.pts * f.time_base), f.to_ndarray(format="gray").astype(int), f.rotation)
            for f in container.decode(video=0)
        ]
    return [(time_s - frames[0][0], picture, rotation) for time_s, picture, rotation in frames]


def check_clip(path, pieces, written):
    """The frames of a clip are those of its pieces."""
    expected, offset_s = [], 0.0
    for piece in pieces:
        source = read_frames(piece.path)
        inside = [frame for frame in source if piece.start_s - 1e-4 <= frame[0] < piece.end_s - 1e-4]
        after = [frame for frame in source if frame[0] >= piece.end_s - 1e-4]
        expected += [(offset_s + time_s - inside[0][0], picture) for time_s, picture, _ in inside]
        offset_s += (after[0][0] if after else inside[-1][0] + 1 / FPS) - inside[0][0]
    frames = read_frames(path)
    assert len(frames) == len(expected) == written.num_copied + written.num_encoded
    np.testing.assert_allclose([time_s for time_s, *_ in frames], [time_s for time_s, _ in expected], atol=0.0021)
    differences = [np.abs(a[1] - b[1]).mean() for a, b in zip(frames, expected, strict=True)]
    assert max(differences) < 4  # grey values of encoded frames
    assert sum(difference == 0 for difference in differences) >= written.num_copied
    assert written.duration_s == pytest.approx(offset_s, abs=0.002)


@pytest.mark.parametrize(("gop", "b_frames"), [(1, 0), (12, 0), (12, 3), (250, 2)])
def test_h264_of_any_structure_is_cut_to_the_frame(tmp_path, gop, b_frames):
    film = write_film(
        tmp_path / "film.mp4", options={"g": str(gop), "bf": str(b_frames), "preset": "ultrafast"}, audio="aac"
    )
    for start_s, end_s in [(0.0, 1.0), (0.5, 1.63), (0.9, 0.97), (1.2, 9.0)]:
        pieces = [Piece(film, start_s, end_s)]
        written = write_clip(tmp_path / "clip.mp4", pieces, title="a clip")
        check_clip(tmp_path / "clip.mp4", pieces, written)
        if gop == 12 and end_s - start_s >= 0.8:
            assert written.num_encoded <= gop + b_frames  # only edges
        if gop == 1:
            assert written.num_encoded == 0
    with av.open(str(tmp_path / "clip.mp4")) as clip:
        assert clip.metadata["title"] == "a clip"
        assert clip.metadata["comment"] == "a made film"
        audio = clip.streams.audio[0]
        assert audio.codec_context.name == "aac"
        samples = np.concatenate([frame.to_ndarray() for frame in clip.decode(audio)], axis=1)
        assert samples.shape[1] / 48_000 == pytest.approx(0.8, abs=0.06)
        assert np.abs(samples[:, 4096:-4096]).max() == pytest.approx(0.3, abs=0.03)


TIMES_S = np.cumsum(np.random.default_rng(0).uniform(0.01, 0.09, 60))
OPEN_GOP = {
    "x265-params": "keyint=15:min-keyint=15:scenecut=0:bframes=3:open-gop=1:log-level=error",
    "preset": "ultrafast",
}
FILMS = {
    "variable rate": (
        "film.mp4",
        {"options": {"g": "15", "bf": "2"}, "times": TIMES_S - TIMES_S[0], "ticks": 90_000},
        0.5,
    ),
    "matroska that begins late": (
        "film.mkv",
        {"options": {"g": "15", "bf": "2"}, "times": TIMES_S + 5, "ticks": 1000},
        0.5,
    ),
    "turned": ("film.mp4", {"options": {"g": "15", "bf": "2"}, "rotation": 90}, 0.5),
    "transport stream": ("film.ts", {"options": {"g": "15", "bf": "2"}, "ticks": 90_000, "audio": "aac"}, 0.5),
    "vp9 in webm": (
        "film.webm",
        {"codec": "libvpx-vp9", "options": {"g": "15", "cpu-used": "8"}, "ticks": 1000, "audio": "libopus"},
        0.5,
    ),
    "hevc, open groups": ("film.mp4", {"codec": "libx265", "options": OPEN_GOP}, 0.5),
    "h264, open groups": ("film.mp4", {"options": {"g": "15", "bf": "3", "x264-params": "open-gop=1"}}, 0.0),
    "mpeg4": ("film.mp4", {"codec": "mpeg4", "options": {"g": "15", "qmin": "2", "qmax": "2"}, "ticks": 30}, 0.0),
}


@pytest.mark.parametrize("kind", FILMS)
def test_other_films(tmp_path, kind):
    name, settings, min_copied = FILMS[kind]
    film = write_film(tmp_path / name, **settings)
    pieces = [Piece(film, 0.7, 1.6)]
    written = write_clip(tmp_path / f"clip{film.suffix}", pieces)
    check_clip(tmp_path / f"clip{film.suffix}", pieces, written)
    assert written.num_copied >= min_copied * (written.num_copied + written.num_encoded)
    assert bool(written.note) == (min_copied == 0)  # what was encoded as a whole says why
    if kind == "turned":
        assert {rotation for *_, rotation in read_frames(tmp_path / "clip.mp4")} == {90}
    if settings.get("audio"):
        with av.open(str(tmp_path / f"clip{film.suffix}")) as clip:
            assert len(clip.streams.audio) == 1


def test_pieces_of_several_files_are_joined(tmp_path):
    one = write_film(tmp_path / "one.mp4", options={"g": "15", "bf": "2"}, audio="aac")
    two = write_film(tmp_path / "two.mp4", options={"g": "20", "bf": "3", "preset": "ultrafast"})
    pieces = [Piece(one, 0.7, 1.6), Piece(two, 0.2, 1.1), Piece(one, 0.1, 0.4)]
    written = write_clip(tmp_path / "reel.mp4", pieces)
    check_clip(tmp_path / "reel.mp4", pieces, written)
    assert written.num_copied > 20
    with av.open(str(tmp_path / "reel.mp4")) as clip:  # the second has no sound: silence
        samples = np.concatenate([frame.to_ndarray() for frame in clip.decode(clip.streams.audio[0])], axis=1)
    loud = [
        float(np.abs(samples[:, int(a * 48_000) : int(b * 48_000)]).max())
        for a, b in ((0.2, 0.8), (1.0, 1.7), (1.9, 2.05))
    ]
    assert loud[0] > 0.2 > 0.01 > loud[1]
    assert loud[2] > 0.2


def test_different_videos_are_encoded(tmp_path):
    one = write_film(tmp_path / "one.mp4", options={"g": "15"})
    two = write_film(tmp_path / "two.webm", codec="libvpx", options={"g": "15", "b": "4M"}, ticks=1000)
    pieces = [Piece(one, 0.2, 0.6), Piece(two, 0.5, 0.9)]
    written = write_clip(tmp_path / "reel.mp4", pieces)
    check_clip(tmp_path / "reel.mp4", pieces, written)
    assert written.num_copied == 0
    assert "different" in written.note


def test_errors_leave_nothing(tmp_path):
    film = write_film(tmp_path / "film.mp4", num=10)
    with pytest.raises(InputError, match="shorter"):
        write_clip(tmp_path / "clip.mp4", [Piece(film, 50.0, 60.0)])
    (tmp_path / "no.mp4").write_bytes(b"no video")
    with pytest.raises(InputError, match="FFmpeg"):
        write_clip(tmp_path / "clip.mp4", [Piece(tmp_path / "no.mp4", 0.0, 1.0)])
    assert not (tmp_path / "clip.mp4").exists()


def test_a_full_disk_is_an_oserror(tmp_path):
    film = write_film(tmp_path / "film.mp4", options={"crf": "1", "g": "10"})
    code = (
        "from pathlib import Path; from hiero.decoding.cutting import Piece, write_clip\n"
        f"write_clip(Path({str(tmp_path / 'clip.mp4')!r}), [Piece(Path({str(film)!r}), 0.1, 1.9)])"
    )
    result = run_python(code, check=False, limit_bytes=20_000)
    assert result.returncode == 1
    assert "OSError" in result.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.mp4"]
