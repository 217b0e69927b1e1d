"""Goal-Step in its official layout: reading, grounding, localization, classification."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hiero.errors import InputError
from hiero.evaluation.cases import TextEmbeddings, read_input_features
from hiero.evaluation.goalstep import (
    evaluate_classification,
    label_text,
    read_goalstep_cases,
    read_grounding,
    read_groups,
    read_steps,
    read_taxonomy,
)
from hiero.features.files import read_feature_array
from hiero.formats.annotations import AnnotatedVideo
from hiero.types import AnnotatedStep, Clock
from tests.evaluation.simulated import CLOCK, goalstep_segment, write_goalstep

SHARED = Path(__file__).parents[3] / "shared" / "annotations"


@pytest.fixture
def folder(tmp_path):
    write_goalstep(tmp_path)
    return tmp_path


@pytest.fixture
def groups(folder):
    return read_groups(folder / "groups.tsv")


def test_a_group_of_videos_is_one_case_whose_steps_are_classified(folder, groups, engine):
    queries = read_grounding(folder / "grounding.json")
    assert queries[0].steps[0].text == "#C C Cook: Boil water"
    messages = []
    cases, missing = read_goalstep_cases(engine, folder / "features", queries, groups, CLOCK, log=messages.append)
    assert missing == messages == []
    assert len(cases[1].features) == CLOCK.index(60.0) + 1
    joined = np.concatenate([read_feature_array(folder / "features" / f"{name}.pt") for name in ("g1", "g2")])
    np.testing.assert_array_equal(cases[1].features, joined[: len(cases[1].features)])
    labelled = read_steps(folder / "valid.json")
    assert [step.text for step in labelled[0].steps] == ["Cook: Boil water", "Cook: Fill the pot", "Cook: Make tea"]
    taxonomy = read_taxonomy(labelled)
    cases, _ = read_goalstep_cases(engine, folder / "features", labelled, groups, CLOCK)
    embeddings = TextEmbeddings(engine, taxonomy, label_text)
    classification = evaluate_classification(cases, taxonomy, embeddings, train=cases)
    methods = [row.method for row in classification.rows]
    assert methods == ["zero-shot", "linear probe on HiERO", "linear probe on raw features"]
    assert classification.rows[2].scores["top-1"] == 100.0  # it has seen them
    assert classification.rows[0].scores["top-5"] == 100.0  # of three labels


def test_missing_features_and_steps_are_counted_or_refused(folder, groups, engine):
    (folder / "features" / "g2.pt").unlink()
    queries = read_grounding(folder / "grounding.json")
    for known, name in ((groups, "g2"), ({}, "grp-g1")):  # a group that nobody knows is not its first video
        cases, missing = read_goalstep_cases(engine, folder / "features", queries, known, CLOCK)
        assert (len(cases), missing) == (1, [name])
    for annotated in ([], [AnnotatedVideo("u1", ())]):
        with pytest.raises(InputError, match="step with a text"):
            read_goalstep_cases(engine, folder / "features", annotated, {}, CLOCK)
    with pytest.raises(InputError, match="--fps and --stride"):  # of features of another frame rate
        read_goalstep_cases(engine, folder / "features", queries, {}, Clock(60.0, 16.0))


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs shared/annotations")
def test_the_real_files_of_goalstep():
    queries = read_grounding(SHARED / "goalstep_grounding_val.json")
    assert (len(queries), sum(len(annotation.steps) for annotation in queries)) == (134, 7696)
    assert read_grounding(SHARED / "goalstep_valid.json") == queries
    labelled = read_steps(SHARED / "goalstep_valid.json")
    assert len(read_taxonomy(labelled)) == 425
    groups = read_groups(SHARED / "goalstep_video_groups.tsv")
    assert all(annotation.video in groups for annotation in queries if annotation.video.startswith("grp-"))


def test_a_query_of_an_official_file_is_the_description_of_a_step_or_substep(folder):
    annotated, _ = read_grounding(folder / "valid.json")
    assert [step.text for step in annotated.steps] == ["#C C boils water", "#C C fills the pot", "#C C makes tea"]
    assert (annotated.start_s, annotated.end_s) == (0.02, 40.0)


def test_labels_of_all_files_are_joined(tmp_path):
    annotated = [AnnotatedVideo("v", (AnnotatedStep(0, 1, "pour"), AnnotatedStep(1, 2, "boil")))]
    segments = [goalstep_segment(0, 1, "stir", ""), goalstep_segment(1, 2, "boil", "")]
    video = {"video_uid": "w", "start_time": 0, "end_time": 2, "segments": segments}
    (tmp_path / "train.json").write_text(json.dumps({"videos": [video]}))
    (tmp_path / "more.txt").write_text("add milk\n\npour\n")
    assert read_taxonomy(annotated) == ["boil", "pour"]
    labels = read_taxonomy(annotated, [tmp_path / "train.json", tmp_path / "more.txt"])
    assert labels == ["add milk", "boil", "pour", "stir"]


CLIPS = '{"videos": [{"video_uid": "u9", "clips": [{}]}]}'


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (read_steps, CLIPS),
        (read_grounding, CLIPS),
        (read_grounding, '{"videos": [{"video_uid": "v", "duration_sec": 3}]}'),
        (read_grounding, '{"videos": [{"video_uid": [1], "segments": []}]}'),
        (read_groups, "university\tvideo_group\n"),
        (read_groups, "university\tvideo_group\nx\t__import__('os')\n"),
    ],
)
def test_a_file_that_a_task_cannot_use_is_named(tmp_path, read, content):
    (tmp_path / "odd.file").write_text(content)
    with pytest.raises(InputError, match=r"odd\.file"):
        read(tmp_path / "odd.file")


def test_a_wrong_width_names_the_models_that_fit(tmp_path, engine):
    np.save(tmp_path / "v.npy", np.zeros((3, 1024), dtype=np.float32))
    with pytest.raises(InputError, match="--model hiero-omnivore-b or raw"):
        read_input_features(engine, tmp_path / "v.npy")
