"""Sound on the video's clock."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hiero.errors import InputError
from hiero.media.audio import SAMPLE_RATE, has_audio, read_audio
from tests.films import grey, import_av, write_video

RATE = 44_100


def write_beeps(path, beeps_s, *, sound_from_s=0.0, pictures_from_s=0.0, length_s=6.0, gap=None, stereo=False):
    """Two streams of which each begins at its time; short beeps at the given times of the file's own clock."""
    av = import_av()
    time_s = np.arange(round(length_s * RATE)) / RATE
    track = np.zeros(len(time_s))
    for beep_s in beeps_s:
        inside = (time_s >= beep_s) & (time_s < beep_s + 0.2)
        track[inside] = 9000 * np.sin(2 * np.pi * 800 * time_s[inside])
    with av.open(str(path), "w") as out:
        video = out.add_stream("libx264", rate=10)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        sound = out.add_stream(
            "flac" if path.suffix == ".mkv" else "aac", rate=RATE, layout="stereo" if stereo else "mono"
        )
        video.time_base = video.codec_context.time_base = Fraction(1, 1000)
        for i in range(round(10 * pictures_from_s), round(10 * length_s)):
            frame = av.VideoFrame.from_ndarray(grey(80), format="rgb24")
            frame.pts, frame.time_base = 100 * i, video.time_base
            out.mux(video.encode(frame))
        out.mux(video.encode(None))
        for first in range(round(sound_from_s * RATE), len(track), 1024):
            if gap is not None and gap[0] <= first / RATE < gap[1]:
                continue
            block = track[first : first + 1024].astype(np.int16)[None]
            frame = av.AudioFrame.from_ndarray(
                np.repeat(block, 2, axis=1) if stereo else block, "s16", "stereo" if stereo else "mono"
            )
            frame.sample_rate, frame.pts, frame.time_base = RATE, first, Fraction(1, RATE)
            out.mux(sound.encode(frame))
        out.mux(sound.encode(None))
    return path


def beeps_in(path):
    samples = np.concatenate(list(read_audio(path))).astype(float)
    loud = np.abs(samples) > 2000
    starts = [i for i in np.flatnonzero(loud) if not loud[max(0, i - SAMPLE_RATE // 4) : i].any()]
    return [i / SAMPLE_RATE for i in starts], len(samples) / SAMPLE_RATE


@pytest.mark.parametrize(
    ("options", "shift_s"),
    [
        ({}, 0.0),
        ({"stereo": True}, 0.0),
        ({"sound_from_s": 1.5}, 0.0),  # the sound begins late
        ({"pictures_from_s": 1.0}, 1.0),  # times count from the first picture
        ({"gap": (2.6, 3.4)}, 0.0),
    ],
)
def test_beeps_are_heard_at_their_time(tmp_path, options, shift_s):
    path = write_beeps(tmp_path / "a.mkv", [2.0, 4.0], **options)
    heard, length_s = beeps_in(path)
    assert heard == pytest.approx([2.0 - shift_s, 4.0 - shift_s], abs=0.06)
    assert length_s == pytest.approx(6.0 - shift_s, abs=0.1)
    assert has_audio(path)


def test_silence_comes_in_bounded_blocks(tmp_path):
    path = write_beeps(tmp_path / "a.mkv", [], sound_from_s=25.0, length_s=26.0)
    blocks = list(read_audio(path))
    assert all(block.dtype == np.int16 and len(block) <= 10 * SAMPLE_RATE for block in blocks)


def test_a_truncated_file_is_heard_up_to_its_end(tmp_path):
    path = write_beeps(tmp_path / "a.mkv", [1.0], length_s=20.0)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    heard, length_s = beeps_in(path)
    assert heard == pytest.approx([1.0], abs=0.06)
    assert length_s < 20


def test_files_without_audio(tmp_path):
    silent = write_video(tmp_path / "a.mp4", [1] * 5)
    assert not has_audio(silent)
    with pytest.raises(InputError, match="no audio stream"):
        next(read_audio(silent))
    with pytest.raises(InputError, match="no such file"):
        has_audio(tmp_path / "gone.mp4")
    (tmp_path / "b.mp4").write_bytes(b"no video")
    with pytest.raises(InputError, match="FFmpeg"):
        has_audio(tmp_path / "b.mp4")
