"""hiero import-steps and hiero adapt, as typed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hiero.errors import InputError
from hiero.formats.hiero_json import edits_file, read_edits
from tests.optional import weights_or_skip


@pytest.fixture
def kitchen(tmp_path):
    path = tmp_path / "kitchen.npy"
    directions = np.random.default_rng(0).normal(size=(2, 400))
    rows = np.concatenate([3 * row + np.random.default_rng(1).normal(size=(30, 400)) for row in directions])
    np.save(path, rows.astype(np.float32))
    return path


def test_imported_steps_are_corrections_of_a_video(run, kitchen, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("start,end,label\n0,30,wash\n35,60,dry\n")
    run("import-steps", table, "--video", kitchen)
    (level,) = read_edits(kitchen).hierarchy.levels
    assert [(step.label, step.end_s) for step in level] == [("wash", 30.0), (None, 35.0), ("dry", 60.0)]
    content = edits_file(kitchen).read_bytes()
    table.write_text("start,end,label\n0,30,scrub\n20,60,dry\n")
    with pytest.raises(InputError, match="--replace"):
        run("import-steps", table, "--video", kitchen)
    with pytest.raises(InputError, match="overlap"):
        run("import-steps", table, "--video", kitchen, "--replace")
    assert edits_file(kitchen).read_bytes() == content  # a mistake loses nothing
    run("import-steps", table, "--video", kitchen, "-o", tmp_path / "other.json", "--cut-overlaps")
    other = json.loads((tmp_path / "other.json").read_text())
    assert (other["levels"][0]["steps"][0]["end_s"], other["revision"]) == (20.0, 2)
    with pytest.raises(InputError, match=r"nothing\.mp4"):
        run("import-steps", table, "--video", tmp_path / "nothing.mp4")
    table.write_text("start,end,label\n0,30,a\n30,90,b\n")
    with pytest.raises(InputError, match="end"):
        run("import-steps", table, "--video", kitchen, "-o", tmp_path / "third.json")
    run("import-steps", table, "--video", kitchen, "-o", tmp_path / "third.json", "--hz", 0.5)


@pytest.mark.slow
def test_a_model_learns_names_from_corrected_steps(run, kitchen, tmp_path):
    for arguments, fact in (([kitchen], "corrected"), ([tmp_path / "nothing"], "nothing"), ([], "name the videos")):
        with pytest.raises(InputError, match=fact):
            run("adapt", *arguments, "-o", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    weights_or_skip("minilm")
    steps = [{"start_s": 0, "end_s": 30, "text": "flox"}]
    (tmp_path / "steps.json").write_text(json.dumps({"kitchen": {"steps": steps}}))
    run("adapt", kitchen, "--annotations", tmp_path / "steps.json", "-o", tmp_path / "mine", "--no-cache")
    _, out, _ = run("ask", kitchen, "flox", "--model", tmp_path / "mine", "--no-cache", "--json")
    (answer,) = json.loads(out)["queries"]
    assert answer["matches"][0]["end_s"] <= 32
