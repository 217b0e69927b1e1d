"""Clips hold exactly the frames and the sound of their span; copied ones start at the keyframe before it."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from hiero.errors import InputError
from hiero.media.cutting import FileSpan, write_clip
from tests.films import import_av, write_video
from tests.media.test_audio import beeps_in, write_beeps
from tests.processes import run_python

av = import_av()
WIDTH, HEIGHT, FPS = 96, 64, 30


def draw(i, width=WIDTH, height=HEIGHT):
    """A picture that differs from frame to frame."""
    y, x = np.mgrid[:height, :width]
    picture = np.stack([(x + 3 * i) % 256, (y + 5 * i) % 256, (x + y + 7 * i) % 256], -1).astype(np.uint8)
    picture[8:24, 3 * i % (width - 20) : 3 * i % (width - 20) + 20] = 255
    return picture


def sine(sound, position, rate):
    """A frame of audio for an encoder, from a sample on."""
    size = sound.codec_context.frame_size or 960
    wave = 0.3 * np.sin(2 * np.pi * 440 * (position + np.arange(size)) / rate)
    samples = np.stack([wave, wave]).astype(np.float32)
    if sound.codec_context.format.name != "fltp":
        samples = (32_000 * samples.T.reshape(1, -1)).astype(np.int16)
    frame = av.AudioFrame.from_ndarray(samples, format=sound.codec_context.format.name, layout="stereo")
    frame.sample_rate, frame.pts, frame.time_base = rate, position, Fraction(1, rate)
    return frame


def write_film(
    path,
    *,
    num=60,
    codec="libx264",
    options=None,
    times=None,
    audio=None,
    audio_rate=48_000,
    rotation=0,
    ticks=15360,
    pix_fmt="yuv420p",
    size=(WIDTH, HEIGHT),
):
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=FPS)
        stream.width, stream.height, stream.pix_fmt, stream.options = *size, pix_fmt, options or {}
        stream.time_base = stream.codec_context.time_base = Fraction(1, ticks)
        out.metadata["comment"] = "a made film"
        if rotation:
            stream.set_display_rotation(rotation)
        sound = out.add_stream(audio, rate=audio_rate, layout="stereo") if audio else None
        position = 0
        for i in range(num):
            time_s = i / FPS if times is None else times[i]
            frame = av.VideoFrame.from_ndarray(draw(i, *size), format="rgb24")
            frame.pts, frame.time_base = round(time_s * ticks), Fraction(1, ticks)
            out.mux(stream.encode(frame))
            while sound is not None and position / audio_rate <= time_s:
                block = sine(sound, position, audio_rate)
                position += block.samples
                out.mux(sound.encode(block))
        for each in out.streams:
            out.mux(each.encode(None))
    return path


def read_frames(path):
    """Times from the first frame on, pictures and rotations."""
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
        return [
            (float((f.pts - frames[0].pts) * f.time_base), f.to_ndarray(format="gray").astype(int), f.rotation)
            for f in frames
        ]


def psnr(picture, other):
    return 10 * np.log10(255**2 / max(1e-9, float(((picture - other) ** 2).mean())))


def read_sound(path, number=0):
    """Samples (channels, N) of a track, and its rate."""
    with av.open(str(path)) as container:
        track = container.streams.audio[number]
        samples = np.concatenate([frame.to_ndarray() for frame in container.decode(track)], axis=1)
        return samples, track.codec_context.sample_rate


def check_clip(path, spans, written, min_psnr=30):
    """The frames of a clip are those of its spans."""
    expected, offset_s = [], 0.0
    for span in spans:
        source = read_frames(span.path)
        inside = [frame for frame in source if span.start_s - 1e-4 <= frame[0] < span.end_s - 1e-4]
        after = [frame for frame in source if frame[0] >= span.end_s - 1e-4]
        expected += [(offset_s + time_s - inside[0][0], picture) for time_s, picture, _ in inside]
        offset_s += (after[0][0] if after else inside[-1][0] + 1 / FPS) - inside[0][0]
    frames = read_frames(path)
    assert len(frames) == len(expected) == written.num_frames
    np.testing.assert_allclose([time_s for time_s, *_ in frames], [time_s for time_s, _ in expected], atol=0.0021)
    assert min(psnr(a[1], b[1]) for a, b in zip(frames, expected, strict=True)) > min_psnr
    assert written.duration_s == pytest.approx(offset_s, abs=0.002)


@pytest.mark.slow
@pytest.mark.parametrize(("gop", "b_frames"), [(1, 0), (12, 3), (250, 2)])
def test_h264_of_any_structure_is_cut_to_the_frame(tmp_path, gop, b_frames):
    options = {"g": str(gop), "bf": str(b_frames), "preset": "ultrafast"}
    film = write_film(tmp_path / "film.mp4", options=options, audio="aac")
    for start_s, end_s in [(0.0, 1.0), (0.5, 1.63), (0.9, 0.97), (1.2, 9.0)]:
        spans = [FileSpan(film, start_s, end_s)]
        written = write_clip(tmp_path / "clip.mp4", spans, title="a clip")
        check_clip(tmp_path / "clip.mp4", spans, written)
    with av.open(str(tmp_path / "clip.mp4")) as clip:
        assert (clip.metadata["title"], clip.metadata["comment"]) == ("a clip", "a made film")
        assert [stream.codec_context.name for stream in clip.streams] == ["h264", "aac"]


TIMES_S = np.cumsum(np.random.default_rng(0).uniform(0.01, 0.09, 60))
OPEN_GOP = {
    "x265-params": "keyint=15:min-keyint=15:scenecut=0:bframes=3:open-gop=1:log-level=error",
    "preset": "ultrafast",
}
X264 = {"g": "15", "bf": "2"}
FILMS = {
    "variable rate": ("film.mp4", {"options": X264, "times": TIMES_S - TIMES_S[0], "ticks": 90_000}),
    "matroska that begins late": ("film.mkv", {"options": X264, "times": TIMES_S + 5, "ticks": 1000}),
    "turned": ("film.mp4", {"options": X264, "rotation": 90}),
    "transport stream": ("film.ts", {"options": X264, "ticks": 90_000, "audio": "aac"}),
    "vp9 in webm": (
        "film.webm",
        {"codec": "libvpx-vp9", "options": {"g": "15", "cpu-used": "8"}, "ticks": 1000, "audio": "libopus"},
    ),
    "hevc, open groups": ("film.mp4", {"codec": "libx265", "options": OPEN_GOP}),
    "h264, open groups": ("film.mp4", {"options": {"g": "15", "bf": "3", "x264-params": "open-gop=1"}}),
    "mpeg4": ("film.mp4", {"codec": "mpeg4", "options": {"g": "15", "qmin": "2", "qmax": "2"}, "ticks": 30}),
    "avi": ("film.avi", {"codec": "mpeg4", "options": {"g": "15", "qmin": "2", "qmax": "2"}, "ticks": 30}),
    "10 bits": ("film.mkv", {"options": X264, "pix_fmt": "yuv420p10le", "ticks": 1000}),
    "full range": ("film.mp4", {"codec": "mjpeg", "options": {"qmin": "1", "qmax": "2"}, "pix_fmt": "yuvj420p"}),
    "odd size": ("film.mkv", {"codec": "ffv1", "size": (97, 63), "ticks": 1000}),
    "rgb": ("film.mkv", {"codec": "ffv1", "pix_fmt": "bgr0", "ticks": 1000, "audio": "flac"}),
    "rare rate": ("film.mkv", {"options": X264, "ticks": 1000, "audio": "pcm_s16le", "audio_rate": 37_800}),
}


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [*((kind, ".mp4") for kind in FILMS), *product(("turned", "transport stream"), (".mkv", ".webm", ".ts"))],
)
def test_films_of_other_formats_are_cut_to_the_frame(tmp_path, kind, suffix):
    name, settings = FILMS[kind]
    film, clip = write_film(tmp_path / name, **settings), tmp_path / f"clip{suffix}"
    spans = [FileSpan(film, 0.7, 1.6)]
    written = write_clip(clip, spans)
    is_turned = kind == "turned" and suffix != ".mp4"  # only MP4 stores the rotation
    _, picture, rotation = read_frames(clip)[-1]
    assert rotation == (90 if kind == "turned" and not is_turned else 0)
    if is_turned or kind == "odd size":
        assert picture.shape == ((WIDTH, HEIGHT) if is_turned else (62, 96))
        assert len(read_frames(clip)) == written.num_frames == 27
    else:
        check_clip(clip, spans, written)
    if settings.get("audio"):
        samples, rate = read_sound(clip)
        assert rate == 48_000
        assert samples.shape[1] / rate == pytest.approx(0.9, abs=0.05 if suffix == ".ts" else 0.03)
        middle = samples[:, samples.shape[1] // 4 : samples.shape[1] // 2]
        assert np.abs(middle).max() == pytest.approx(0.3, abs=0.05)


def test_audio_stays_in_sync(tmp_path):
    film = write_beeps(tmp_path / "film.mkv", [1.5, 3.0, 4.5], length_s=6.0)
    write_clip(tmp_path / "clip.mp4", [FileSpan(film, 1.0, 2.0), FileSpan(film, 2.5, 5.0)])
    starts_s, length_s = beeps_in(tmp_path / "clip.mp4")
    assert starts_s == pytest.approx([0.5, 1.5, 3.0], abs=0.01)
    assert length_s == pytest.approx(3.5, abs=0.03)
    assert read_sound(tmp_path / "clip.mp4")[1] == 44_100  # as in the source


def test_a_clip_starts_with_the_frame_on_the_screen(tmp_path):
    slides = write_video(tmp_path / "slides.mp4", [50, 100, 150], times_s=[0.0, 4.0, 8.0])
    write_clip(tmp_path / "clip.mp4", [FileSpan(slides, 2.0, 6.0)])
    frames = read_frames(tmp_path / "clip.mp4")
    assert [(round(time_s, 2), round(picture.mean() / 50)) for time_s, picture, _ in frames] == [(0.0, 1), (2.0, 2)]
    written = write_clip(tmp_path / "clip.mp4", [FileSpan(slides, 5.0, 6.0)])
    assert (written.num_frames, written.duration_s) == (1, pytest.approx(1.0))


@pytest.mark.slow
def test_spans_of_several_files_are_joined(tmp_path):
    one = write_film(tmp_path / "one.mp4", options={"g": "15", "bf": "2"}, audio="aac")
    two = write_film(tmp_path / "two.webm", codec="libvpx", options={"g": "15", "b": "4M"}, ticks=1000)
    spans, done = [FileSpan(one, 0.7, 1.6), FileSpan(two, 0.2, 1.1), FileSpan(one, 0.1, 0.4)], []
    written = write_clip(tmp_path / "reel.mp4", spans, progress=done.append)
    check_clip(tmp_path / "reel.mp4", spans, written)
    assert done == ["one.mp4", "two.webm", "one.mp4"]
    samples, _ = read_sound(tmp_path / "reel.mp4")
    parts = samples[:, 9600:38_400], samples[:, 48_000:81_600], samples[:, 91_200:98_400]
    first, second, third = (np.abs(part).max() for part in parts)
    assert min(first, third) > 0.2 > 0.01 > second  # which has no sound


def test_other_sizes_and_rotations_fit_into_the_first(tmp_path):
    one = write_film(tmp_path / "one.mp4", num=10)
    two = write_film(tmp_path / "two.mp4", num=10, rotation=90)
    write_clip(tmp_path / "reel.mp4", [FileSpan(one, 0.0, 0.1), FileSpan(two, 0.0, 0.1)])
    frames = read_frames(tmp_path / "reel.mp4")
    assert len(frames) == 6
    picture, rotation = frames[-1][1:]
    assert (picture.shape, rotation) == ((HEIGHT, WIDTH), 0)
    assert picture[:, :20].max() < 40  # black beside the upright picture
    assert picture[:, 40:56].mean() > 45


@pytest.mark.parametrize("kind", ["variable rate", "turned", "transport stream", "vp9 in webm", "hevc, open groups"])
def test_copied_clips_start_at_the_keyframe_before(tmp_path, kind):
    name, settings = FILMS[kind]
    film = write_film(tmp_path / name, **settings)
    clip = tmp_path / f"clip{film.suffix}"
    written = write_clip(clip, [FileSpan(film, 0.7, 1.6)], copy=True)
    source, frames = read_frames(film), read_frames(clip)
    assert written.num_frames == len(frames)
    with av.open(str(film)) as container:
        zero = container.streams.video[0].start_time
        times_s = [
            float((p.pts - zero) * p.time_base) for p in container.demux(video=0) if p.pts is not None and p.is_keyframe
        ]
    begin_s = max(time_s for time_s in times_s if time_s <= 0.7001)
    expected = [frame for frame in source if begin_s - 0.002 <= frame[0] < 1.6]
    assert len(expected) <= len(frames) < len(expected) + 5  # later frames that others refer to
    for (time_s, picture, rotation), wanted in zip(frames, expected, strict=False):
        assert time_s == pytest.approx(wanted[0] - begin_s, abs=0.0021)
        assert (picture == wanted[1]).all()
        assert rotation == wanted[2]
    if settings.get("audio"):
        samples, rate = read_sound(clip)
        assert samples.shape[1] / rate == pytest.approx(1.6 - begin_s, abs=0.06)


def test_copied_spans_must_have_one_format(tmp_path):
    one = write_film(tmp_path / "one.mp4", options={"g": "15", "bf": "2"}, audio="aac")
    written = write_clip(tmp_path / "reel.mp4", [FileSpan(one, 0.5, 1.0), FileSpan(one, 1.0, 1.5)], copy=True)
    frames = read_frames(tmp_path / "reel.mp4")
    assert len(frames) == written.num_frames >= 30
    assert (np.diff([time_s for time_s, *_ in frames]) > 0).all()
    two = write_film(tmp_path / "two.mp4", options={"g": "15"})
    with pytest.raises(InputError, match="Cut without --copy"):
        write_clip(tmp_path / "other.mp4", [FileSpan(one, 0.5, 1.0), FileSpan(two, 0.5, 1.0)], copy=True)
    with pytest.raises(InputError, match="contains no frame after"):
        write_clip(tmp_path / "other.mp4", [FileSpan(one, 50.0, 60.0)], copy=True)
    assert not (tmp_path / "other.mp4").exists()


def test_errors_leave_no_file(tmp_path):
    film = write_film(tmp_path / "film.mp4", num=10)
    with pytest.raises(InputError, match="contains no frame after"):
        write_clip(tmp_path / "clip.mp4", [FileSpan(film, 50.0, 60.0)])
    (tmp_path / "no.mp4").write_bytes(b"no video")
    with pytest.raises(InputError, match="FFmpeg"):
        write_clip(tmp_path / "clip.mp4", [FileSpan(tmp_path / "no.mp4", 0.0, 1.0)])

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_clip(tmp_path / "clip.mp4", [FileSpan(film, 0.0, 1.0)], progress=interrupt)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.mp4", "no.mp4"]


@pytest.mark.parametrize("copy", [False, True])
def test_a_full_disk_is_an_oserror(tmp_path, copy):
    film = write_film(tmp_path / "film.mp4", options={"crf": "1", "g": "10"})
    code = (
        "from pathlib import Path; from hiero.media.cutting import FileSpan, write_clip\n"
        f"write_clip(Path({str(tmp_path / 'clip.mp4')!r}), [FileSpan(Path({str(film)!r}), 0.1, 1.9)], copy={copy})"
    )
    result = run_python(code, check=False, limit_bytes=8_000)
    assert result.returncode == 1
    assert "OSError" in result.stderr.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.mp4"]
