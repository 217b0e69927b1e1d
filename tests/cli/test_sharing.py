"""hiero report and hiero clips."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from jsonschema import ValidationError

from hiero.cli.clips import ClipOptions, choose_moments, write_chapters, write_clips, write_reel
from hiero.errors import InputError
from hiero.types import Answer, Hierarchy, Match, Step, VideoFile
from tests.documentation import check_schema
from tests.media.test_cutting import read_frames, write_film


@pytest.fixture
def recordings(tmp_path):
    """Feature files of four recordings that show five things in order; the last leaves one out."""
    rng = np.random.default_rng(0)
    means = 3 * rng.standard_normal((5, 16))
    for number in range(4):
        shown = [0, 1, 2, 3, 4] if number < 3 else [0, 1, 3, 4]
        rows = np.concatenate([means[i] + 0.3 * rng.standard_normal((int(rng.integers(50, 70)), 16)) for i in shown])
        np.save(tmp_path / f"recording{number}.npy", rows.astype(np.float32))
    return tmp_path


def test_report_over_a_folder(run, recordings, tmp_path):
    page = tmp_path / "out" / "page.html"
    _, out, _ = run("report", recordings, "-o", page, "--model", "raw", "--no-cache", "--json", "-n", 5)
    document = json.loads(out)
    assert [video["name"] for video in document["videos"]] == [f"recording{i}" for i in range(4)]
    assert sum(activity["num_videos"] > 1 for activity in document["activities"]) == 5
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["page.csv", "page.html", "page.json"]


def correct(run, recordings, number, *rows):
    """Import steps of a recording; its feature file."""
    table, video = recordings / "labels.csv", recordings / f"recording{number}.npy"
    table.write_text("\n".join(["start,end,label", *rows]))
    run("import-steps", table, "--video", video)
    return video


def test_report_uses_corrected_steps_and_follows_its_schema(run, recordings, tmp_path):
    files = [correct(run, recordings, i, "0,50,wash", f"{55 + i},110,dry", "110,200,put away") for i in range(3)]
    options = ("-o", tmp_path / "page.html", "--model", "raw", "--json")
    _, out, err = run("report", *files, *options, "--by-label")
    document = json.loads(out)
    check_schema(document, "report")
    assert "5 corrections from recording0.npy.hiero.json" in err
    assert [activity["label"] for activity in document["activities"]] == ["wash", "dry", "put away"]
    runs = [(run["start_s"], run["end_s"]) for run in document["videos"][2]["runs"]]
    assert runs == [(0.0, 50.0), (57.0, 110.0), (110.0, 200.0)]  # the gap is nobody's, and the rest is cut off
    check_schema(json.loads(run("report", recordings, *options, "--no-cache", "--level", 0)[1]), "report")
    del document["videos"][0]["runs"]
    with pytest.raises(ValidationError):
        check_schema(document, "report")


def test_report_over_a_corpus(run, recordings, tmp_path):
    pytest.importorskip("lancedb")
    run("index", recordings, "--to", tmp_path / "corpus", "--model", "raw", "--no-cache", "-k", "2,5")
    _, out, _ = run("report", tmp_path / "corpus", "-o", tmp_path / "page.html", "--json", "--title", "Four")
    document = json.loads(out)
    assert (document["title"], len(document["videos"])) == ("Four", 4)
    with pytest.raises(InputError, match="levels"):
        run("report", tmp_path / "corpus", "-o", tmp_path / "page.html", "--level", 7)


def test_report_over_videos_that_share_nothing_says_so(run, recordings, tmp_path):
    files = [correct(run, recordings, i, f"0,50,wash {i}", f"50,110,dry {i}") for i in range(2)]
    _, _, err = run("report", *files, "-o", tmp_path / "page.html", "--model", "raw", "--no-cache", "--by-label")
    assert "0 shared activities" in err


def test_report_says_what_is_wrong(run, recordings, tmp_path):
    with pytest.raises(InputError, match=r"page\.html"):
        run("report", recordings, "-o", tmp_path / "page.pdf")
    with pytest.raises(InputError, match="at least two"):
        run("report", recordings / "recording0.npy", "-o", tmp_path / "page.html", "--model", "raw")


def test_clips_of_steps_and_the_best_moments(tmp_path):
    film = write_film(tmp_path / "film.mp4", options={"g": "10", "preset": "ultrafast"})
    coarse = (Step("0.0", 0.0, 2.0, 0, label="all"),)
    fine = (Step("1.0", 0.0, 0.8, 0, label="cut"), Step("1.1", 0.8, 2.0, 1))
    hierarchy = Hierarchy(str(film), "raw", 2.0, (coarse, fine))
    video = SimpleNamespace(files=(VideoFile(str(film), 0.0, 2.0),))
    write_clips(video, hierarchy, tmp_path / "clips", ClipOptions())
    write_clips(video, hierarchy, tmp_path / "coarse", ClipOptions(level=0))
    assert sorted(path.name for path in tmp_path.glob("*/*.mp4")) == ["01 all.mp4", "01 cut.mp4", "02 at 0m01s.mp4"]
    with pytest.raises(InputError, match="--level"):
        write_clips(video, hierarchy, tmp_path / "clips", ClipOptions(level=5))
    answers = [Answer("cut", 0.9, (Match(0.0, 0.5, 0.9), Match(1.0, 1.4, 0.8)))]
    write_reel(tmp_path / "reel.mp4", {"film": answers}, {"film": video.files}, ClipOptions())
    assert len(read_frames(tmp_path / "reel.mp4")) == 27
    absent = [Answer("fly", 0.05, (Match(0.0, 0.5, 0.05),))]
    with pytest.raises(InputError, match=r"none\.mp4"):
        write_reel(tmp_path / "none.mp4", {"film": absent}, {"film": video.files}, ClipOptions())


def test_a_video_is_written_once_more_with_its_steps_as_chapters(tmp_path):
    av = pytest.importorskip("av")
    from tests.media.test_cutting import read_frames, write_film

    film = write_film(tmp_path / "film.mp4", options={"g": "10", "preset": "ultrafast"}, audio="aac")
    coarse = (Step("0.0", 0.0, 2.0, 0, label="all"),)
    fine = (Step("1.0", 0.0, 0.8, 0, label="cut; = it"), Step("1.1", 0.8, 2.0, 1, label="wash"))
    video = SimpleNamespace(files=(VideoFile(str(film), 0.0, 2.0),), path=film, duration_s=2.0)
    write_chapters(video, Hierarchy(str(film), "raw", 2.0, (coarse, fine)), tmp_path / "out", ClipOptions())
    copied = tmp_path / "out" / "film.chapters.mp4"
    assert all((one[1] == other[1]).all() for one, other in zip(read_frames(film), read_frames(copied), strict=True))
    with av.open(str(copied)) as container:
        assert [float(row["end"] * row["time_base"]) for row in container.chapters()] == [0.8, 2.0]
        assert [row["metadata"]["title"] for row in container.chapters()] == ["cut; = it", "wash"]
        assert len(container.streams.audio) == 1


def test_moments_of_a_reel():
    answers = {
        "a": [Answer("cut", 0.9, (Match(10, 20, 0.9), Match(12, 14, 0.8), Match(2, 4, 0.7), Match(50, 60, 0.2)))],
        "b": [Answer("cut", 0.2, (Match(0, 9, 0.2),))],
    }
    assert [(name, match.start_s) for _, name, match in choose_moments(answers, 5)] == [("a", 2), ("a", 10)]
    assert [(name, match.start_s) for _, name, match in choose_moments(answers, 1)] == [("a", 10)]


def test_mistakes_in_clips_are_reported_before_anything_is_read(run, tmp_path):
    feature, film = tmp_path / "x.npy", tmp_path / "x.mp4"
    for path in (feature, film):
        path.write_bytes(b"")
    for arguments, fact in (
        ((feature, "-o", tmp_path / "clips"), r"x\.npy"),
        ((film, "-o", film), "-o"),
        ((film, "-o", tmp_path / "clips", "-k", "2,4", "--level", 2), "--level"),
        ((film, "cut", "-o", tmp_path / "reel.gif"), "-o"),
        ((film, "cut", "-o", film), "-o"),
    ):
        with pytest.raises(InputError, match=fact):
            run("clips", *arguments)
