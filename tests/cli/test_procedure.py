"""`hiero procedure`: the same step has the same number and name in all videos of a task."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from hiero import Clock, load
from hiero.engine.together import _describe
from hiero.errors import InputError

SCENES = 6 * np.random.default_rng(0).normal(size=(3, 400))


@pytest.fixture
def recordings(tmp_path):
    """Features of three steps; in the second recording the last two are swapped."""
    rng = np.random.default_rng(1)
    paths = []
    for name, order in (("monday", [0, 1, 2]), ("tuesday", [0, 2, 1])):
        rows = np.repeat(SCENES[order], 40, axis=0) + rng.normal(size=(120, 400))
        paths.append(tmp_path / f"{name}.npy")
        np.save(paths[-1], rows.astype(np.float32))
    return paths


def test_a_shared_step_has_one_number_in_the_json_and_the_exports(recordings, run, tmp_path):
    code, out, _ = run(
        *("procedure", *recordings, "-k", 3, "--hz", 1, "--model", "raw"),
        *("--json", "-o", tmp_path / "out", "--export", "csv"),
    )
    assert code == 0
    monday, tuesday = (video["levels"][0]["steps"] for video in json.loads(out)["videos"])
    assert [step["thread"] for step in monday] == [0, 1, 2]
    assert [step["thread"] for step in tuesday] == [0, 2, 1]
    assert [step["label"] for step in (*monday, *tuesday)] == [None] * 6  # a number is no name
    rows = list(csv.DictReader((tmp_path / "out" / "tuesday" / "steps.csv").read_text().splitlines()))
    assert [row["thread"] for row in rows] == ["0", "2", "1"]


def test_the_table_has_the_times_in_each_video(recordings, run):
    code, out, _ = run("procedure", *recordings, "-k", 3, "--hz", 1, "--model", "raw")
    assert code == 0
    assert "3 steps of 2 videos" in out
    (row,) = (line.split() for line in out.splitlines() if line.strip().startswith("2 "))
    assert row == ["2", "Step", "2", "0:40-1:20", "1:20-2:00"]


def test_one_video_has_no_shared_procedure(recordings, run):
    with pytest.raises(InputError, match="at least two"):
        run("procedure", recordings[0], "--hz", 1)


def test_features_of_other_networks_are_refused():
    rows = np.repeat(SCENES, 4, axis=0).astype(np.float32)
    with_features = load("hiero-k400", device="cpu").read_array(rows, Clock(1.0, 1.0))
    without = load("raw", device="cpu").read_array(rows, Clock(1.0, 1.0))
    with pytest.raises(InputError, match="one kind only"):
        _describe([with_features, without], [np.array([[0, 4]])] * 2)
