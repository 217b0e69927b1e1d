"""The annotation files of heads are known by their content."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hiero.errors import InputError
from hiero.evaluation.heads.clips import read_clips
from hiero.types import Clock


@pytest.mark.parametrize(("queries", "text"), [(False, "Wash: rinse"), (True, "rinse the cup")])
def test_the_texts_of_goalstep_do_not_depend_on_the_name_of_the_file(tmp_path, queries, text):
    step = {"start_time": 0.0, "end_time": 9.0, "step_category": "Wash: rinse", "step_description": "rinse the cup"}
    video = {"video_uid": "v0", "start_time": 0.0, "end_time": 20.0, "segments": [{**step, "segments": []}]}
    copied = tmp_path / "a copy.json"
    copied.write_text(json.dumps({"split": "val", "videos": [video]}))
    (tmp_path / "features").mkdir()
    np.save(tmp_path / "features" / "v0.npy", np.zeros((40, 4), np.float32))
    clips = read_clips(tmp_path / "features", copied, Clock(30.0, 15.0), queries=queries)
    assert [step.text for step in clips.clips[0].truth] == [text]


def test_a_video_whose_name_is_no_text_is_refused(tmp_path):
    (tmp_path / "features").mkdir()
    np.save(tmp_path / "features" / "v0.npy", np.zeros((40, 4), np.float32))
    (tmp_path / "steps.json").write_text(json.dumps({"videos": [{"video_uid": [1], "segments": []}]}))
    with pytest.raises(InputError, match="video_uid"):
        read_clips(tmp_path / "features", tmp_path / "steps.json")
