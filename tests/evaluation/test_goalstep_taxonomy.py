"""Labels of Goal-Step from several files."""

from __future__ import annotations

import json

from hiero.evaluation.annotations import AnnotatedVideo
from hiero.evaluation.goalstep_taxonomy import read_taxonomy
from hiero.types import AnnotatedStep


def test_labels_of_all_files_are_joined(tmp_path):
    annotated = [AnnotatedVideo("v", (AnnotatedStep(0, 1, "pour"), AnnotatedStep(1, 2, "boil")))]
    segments = [
        {"start_time": 0, "end_time": 1, "step_category": "stir"},
        {"start_time": 1, "end_time": 2, "step_category": "boil"},
    ]
    video = {"video_uid": "w", "start_time": 0, "end_time": 2, "segments": segments}
    (tmp_path / "train.json").write_text(json.dumps({"videos": [video]}))
    (tmp_path / "more.txt").write_text("add milk\n\npour\n")
    assert read_taxonomy(annotated) == ["boil", "pour"]
    assert read_taxonomy(annotated, [tmp_path / "train.json", tmp_path / "more.txt"]) == [
        "add milk",
        "boil",
        "pour",
        "stir",
    ]
