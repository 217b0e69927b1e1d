"""Folders of clips: names, resuming, what belongs to whom."""

from __future__ import annotations

import json
import os

import pytest

from hiero.errors import InputError
from hiero.media import splitting
from hiero.media.splitting import CLIP_LIST, clip_names, join_moments, safe_name
from hiero.types import VideoFile
from tests.media.test_cutting import read_frames, write_film


def split_video(video, spans, folder, labels=None, **options):
    files = video if isinstance(video, list) else [VideoFile(str(video), 0.0, 2.0)]
    return splitting.split_video(files, spans, labels or [None] * len(spans), folder, **options)


SPANS = [(0.0, 0.7), (0.7, 1.2), (1.2, 2.0)]


@pytest.fixture
def film(tmp_path):
    return write_film(tmp_path / "film.mp4", options={"g": "10", "bf": "0", "preset": "ultrafast"})


def test_clips_have_each_frame_once_and_safe_names(tmp_path, film):
    done = []
    result = split_video(
        film, SPANS, tmp_path / "clips", labels=["cut: the/onion?", None, "stir"], progress=done.append
    )
    assert done == [clip.file for clip in result.clips] == ["01 cut the onion.mp4", "02 at 0m01s.mp4", "03 stir.mp4"]
    assert sum(len(read_frames(tmp_path / "clips" / name)) for name in done) == 60
    assert result.num_written == 3


def test_complete_clips_are_kept(tmp_path, film):
    folder = tmp_path / "clips"
    split_video(film, SPANS, folder, labels=["a", "b", "c"])
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.name != CLIP_LIST}
    (folder / "02 b.mp4").write_bytes(b"cut short")
    result = split_video(film, SPANS, folder, labels=["a", "b", "c"])
    assert result.num_written == 1
    assert (folder / "01 a.mp4").stat().st_mtime_ns == times["01 a.mp4"]
    assert len(read_frames(folder / "02 b.mp4")) == 15
    # A clip that was whole when the process was killed, before its size was noted.
    document = json.loads((folder / CLIP_LIST).read_text())
    document["clips"][0]["num_bytes"] = -1
    (folder / CLIP_LIST).write_text(json.dumps(document))
    assert split_video(film, SPANS, folder, labels=["a", "b", "c"]).num_written == 1


def test_a_video_replaced_with_the_same_size_and_time_is_cut_again(tmp_path, film):
    other = write_film(tmp_path / "other.mp4", options={"g": "10", "bf": "0", "crf": "40"})
    for path in (film, other):
        os.truncate(path, 10**6)
        os.utime(path, (1e9, 1e9))
    split_video(film, SPANS, tmp_path / "clips")
    other.replace(film)
    assert split_video(film, SPANS, tmp_path / "clips").num_written == 3


def test_copied_and_encoded_clips_replace_each_other(tmp_path, film):
    folder = tmp_path / "clips"
    assert split_video(film, SPANS, folder, copy=True).num_written == 3
    assert split_video(film, SPANS, folder, copy=True).num_written == 0
    assert split_video(film, SPANS, folder).num_written == 3
    other = write_film(tmp_path / "other.mkv", ticks=1000)
    assert split_video(other, SPANS, tmp_path / "b", copy=True).clips[0].file == "01 at 0m00s.mkv"
    assert split_video(other, SPANS, tmp_path / "c").clips[0].file == "01 at 0m00s.mp4"


def test_clips_of_other_spans_are_removed(tmp_path, film):
    folder = tmp_path / "clips"
    split_video(film, SPANS, folder, labels=["a", "b", "c"])
    (folder / "notes.txt").write_text("mine")
    result = split_video(film, [(0.0, 2.0)], folder, labels=["all"])
    assert sorted(result.removed) == ["01 a.mp4", "02 b.mp4", "03 c.mp4"]
    assert sorted(path.name for path in folder.iterdir()) == ["01 all.mp4", CLIP_LIST, "notes.txt"]


def test_other_files_are_not_overwritten(tmp_path, film):
    folder = tmp_path / "clips"
    folder.mkdir()
    (folder / "01 a.mp4").write_bytes(b"of somebody")
    with pytest.raises(InputError, match="Choose another folder"):
        split_video(film, [(0.0, 1.0)], folder, labels=["a"])
    assert (folder / "01 a.mp4").read_bytes() == b"of somebody"
    (folder / CLIP_LIST).write_text('{"clips": [{"file": "../x"}]}')
    with pytest.raises(InputError, match="Choose another folder"):
        split_video(film, [(0.0, 1.0)], folder, labels=["a"])


def test_a_span_over_two_chapters(tmp_path, film):
    other = write_film(tmp_path / "other.mp4", options={"g": "10", "bf": "0", "preset": "ultrafast"})
    files = [VideoFile(str(film), 0.0, 2.0), VideoFile(str(other), 2.0, 2.0)]
    result = split_video(files, [(1.5, 2.5)], tmp_path / "clips")
    assert len(read_frames(tmp_path / "clips" / result.clips[0].file)) == 30
    written = join_moments(tmp_path / "reel.mp4", [(files, 0.0, 0.5), (files, 3.0, 3.5)])
    assert written.num_frames == len(read_frames(tmp_path / "reel.mp4")) == 30
    assert written.starts_s == pytest.approx((0.0, 0.5), abs=0.05)


def test_a_copied_reel_says_where_its_moments_start(tmp_path):
    """Moments begin at keyframes, which are a second apart, so that they are longer than asked for."""
    film = write_film(tmp_path / "film.mp4", options={"g": "30", "bf": "0", "preset": "ultrafast"})
    files = [VideoFile(str(film), 0.0, 2.0)]
    written = join_moments(tmp_path / "reel.mp4", [(files, 0.5, 0.9), (files, 1.5, 1.9)], copy=True)
    assert written.starts_s == pytest.approx((0.0, 0.9), abs=0.05)
    assert written.duration_s == pytest.approx(1.8, abs=0.1)


def test_names_are_safe_and_mistakes_are_refused(tmp_path, film):
    assert safe_name("a\x00b\u202e/../c" * 40).count("/") == 0
    assert len(safe_name("ä" * 500).encode()) <= 120
    assert clip_names([(3700.0, 3800.0)], [" . "], ".mkv") == ["01 at 1h01m40s.mkv"]
    with pytest.raises(InputError, match="empty"):
        split_video(film, [(1.0, 1.0)], tmp_path / "clips")
    with pytest.raises(InputError, match="Choose another name"):
        join_moments(film, [([VideoFile(str(film), 0, 2)], 0.0, 1.0)])
