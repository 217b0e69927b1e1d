"""The page over many videos: what it says of made videos whose truth is known."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pytest

from hiero.corpus.folder_report import VideoSteps, build_report, write_folder_report
from hiero.errors import InputError
from hiero.types import Step

USUAL = ("wash", "peel", "cut", "fry", "season", "serve")
ORDERS = {
    "ann": USUAL,
    "bob": USUAL,
    "cem": ("wash", "peel", "cut", "season", "serve"),  # no frying
    "dia": ("wash", "cut", "fry", "season", "peel", "serve"),  # peels late
    "eva": USUAL,
    "<script>": USUAL,
}


def make_videos(long=None):
    rng = np.random.default_rng(0)
    means = {name: rng.standard_normal(16) for name in USUAL}
    videos = []
    for name, order in ORDERS.items():
        lengths = [200.0 if (name, what) == long else 60.0 for what in order]
        ends = np.cumsum(lengths)
        steps = tuple(
            Step(str(i), float(end - length), float(end), 0, label=what, probability=0.9)
            for i, (what, length, end) in enumerate(zip(order, lengths, ends, strict=True))
        )
        vectors = np.stack([means[what] + 0.2 * rng.standard_normal(16) for what in order])
        videos.append(VideoSteps(name, float(ends[-1]), steps, vectors, (b"\xff\xd8picture",) * len(steps)))
    return videos


def different_videos():
    """Six videos of three steps each, none of which resembles another."""
    videos = []
    for number, vectors in enumerate(np.eye(18).reshape(6, 3, 18)):
        steps = tuple(Step(f"step-{i + 1}", 60.0 * i, 60.0 * i + 60, i, label=f"{number} {i}") for i in range(3))
        videos.append(VideoSteps(f"video {number}", 180.0, steps, vectors, (b"\xff\xd8picture",) * 3))
    return videos


@pytest.mark.parametrize("by_label", [True, False])
def test_an_activity_that_took_long_is_reported_and_nothing_else(by_label):
    document = build_report(make_videos(long=("eva", "cut")), title="fries", model="raw", by_label=by_label).document
    assert [activity["label"] for activity in document["activities"]] == list(USUAL)
    long = [(video["name"], note["activity"]) for video in document["videos"] for note in video["took_long"]]
    assert long == [("eva", 1 + USUAL.index("cut"))]
    assert document["activities"][2]["total_s"] == 5 * 60 + 200
    assert document["activities"][2]["usual_s"] == 60


def test_numbers_add_up_in_all_files(tmp_path):
    report = build_report(make_videos(), title="</script><b>", model="raw")
    files = write_folder_report(tmp_path / "page.html", report)
    document = json.loads(files[2].read_text())
    rows = list(csv.DictReader(io.StringIO(files[1].read_text())))
    for video in document["videos"]:
        in_table = sum(float(row["seconds"]) for row in rows if row["video"] == video["name"])
        assert sum(video["seconds"]) == pytest.approx(video["duration_s"])
        assert in_table == pytest.approx(video["duration_s"])
    page = files[0].read_text()
    assert page.count("</script>") == 3  # a title cannot end the data
    assert not re.search(r"(src|href)=.?https?:", page)  # no network
    embedded = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    assert embedded["videos"] == document["videos"]
    assert len(embedded["pictures"]) == 6


def test_six_different_videos_share_nothing_and_keep_what_they_show():
    report = build_report(different_videos(), title="", model="raw", by_label=True)
    assert report.num_shared == 0
    assert [len(video["runs"]) for video in report.document["videos"]] == [3] * 6
    assert len([picture for picture in report.pictures if picture]) == 18


def test_labels_that_are_not_probable_name_nothing():
    report = build_report(make_videos(), title="", model="raw", min_label_score=0.95)
    assert {activity["label"] for activity in report.document["activities"]} == {None}


def test_mistakes_are_named():
    first = make_videos()[0]
    unnamed = VideoSteps("x", 9.0, (Step("0", 0.0, 9.0, 0),), np.ones((1, 16)), (None,))
    for videos, message in (([first], "at least two"), ([first, first], "same name"), ([first, unnamed], "--by-label")):
        with pytest.raises(InputError, match=message):
            build_report(videos, title="", model="", by_label=True)
