"""Goal-Step in its official layout: reading, grounding, localization, classification."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hiero.errors import InputError
from hiero.evaluation.cases import EvalOptions, TextEmbeddings, read_input_features
from hiero.evaluation.goalstep import (
    evaluate_classification,
    label_text,
    read_goalstep_cases,
    read_grounding,
    read_groups,
    read_steps,
    read_taxonomy,
)
from hiero.evaluation.grounding import grounding_task
from hiero.evaluation.tasks import localization_task
from hiero.features.files import read_feature_array
from hiero.formats.annotations import AnnotatedVideo
from hiero.types import AnnotatedStep, Clock
from tests.evaluation.simulated import CLOCK, write_goalstep

SHARED = Path(__file__).parents[3] / "shared" / "annotations"


def test_goalstep(tmp_path, engine):
    write_goalstep(tmp_path)
    groups = read_groups(tmp_path / "groups.tsv")
    queries = read_grounding(tmp_path / "grounding.json")
    assert queries[0].steps[0].text == "#C C Cook: Boil water"
    cases, missing = read_goalstep_cases(engine, tmp_path / "features", queries, groups, CLOCK)
    assert not missing
    assert len(cases[1].features) == CLOCK.index(60.0) + 1
    joined = np.concatenate([read_feature_array(tmp_path / "features" / f"{name}.pt") for name in ("g1", "g2")])
    np.testing.assert_array_equal(cases[1].features, joined[: len(cases[1].features)])
    embeddings = TextEmbeddings(engine, [step.text for case in cases for step in case.truth])
    table = grounding_task(cases, embeddings, EvalOptions(num_threads=8, min_nodes=5, num_draws=20)).evaluate(cases)[0]
    assert table.rows[-1].method == "HiERO, all queries in their order"
    assert "R5@.3" not in table.rows[-1].scores
    labelled = read_steps(tmp_path / "valid.json")
    assert [step.text for step in labelled[0].steps] == ["Cook: Boil water", "Cook: Fill the pot", "Cook: Make tea"]
    taxonomy = read_taxonomy(labelled)
    cases, _ = read_goalstep_cases(engine, tmp_path / "features", labelled, groups, CLOCK)
    embeddings = TextEmbeddings(engine, taxonomy, label_text)
    localization = localization_task(cases, taxonomy, embeddings, EvalOptions(num_draws=20)).evaluate(cases)[0]
    assert 0 <= localization.rows[0].scores["mean"] <= 100
    classification = evaluate_classification(cases, taxonomy, embeddings, train=cases)
    assert [row.method for row in classification.rows] == [
        "zero-shot",
        "linear probe on HiERO",
        "linear probe on raw features",
    ]
    assert classification.rows[2].scores["top-1"] == 100.0  # it has seen them
    assert classification.rows[0].scores["top-5"] == 100.0  # of three labels


def test_goalstep_s_missing_and_bad_files(tmp_path, engine):
    write_goalstep(tmp_path)
    (tmp_path / "features" / "g2.pt").unlink()
    queries = read_grounding(tmp_path / "grounding.json")
    groups = read_groups(tmp_path / "groups.tsv")
    cases, missing = read_goalstep_cases(engine, tmp_path / "features", queries, groups, CLOCK)
    assert (len(cases), missing) == (1, ["g2"])
    cases, missing = read_goalstep_cases(engine, tmp_path / "features", queries, {}, CLOCK)
    assert (len(cases), missing) == (1, ["grp-g1"])  # a group that nobody knows is not its first video
    (tmp_path / "bad.json").write_text('{"videos": [{"video_uid": "u9", "clips": []}]}')
    with pytest.raises(InputError, match="none of the 0 annotated videos"):
        read_goalstep_cases(engine, tmp_path / "features", read_grounding(tmp_path / "bad.json"), {}, CLOCK)
    (tmp_path / "bad.json").write_text('{"videos": [{"video_uid": "u9", "clips": [{}]}]}')
    with pytest.raises(InputError, match="u9 cannot be read"):
        read_grounding(tmp_path / "bad.json")
    (tmp_path / "bad.tsv").write_text("university\tvideo_group\nx\t__import__('os')\n")
    with pytest.raises(InputError, match="video groups"):
        read_groups(tmp_path / "bad.tsv")


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs shared/annotations")
def test_the_real_files_of_goalstep():
    queries = read_grounding(SHARED / "goalstep_grounding_val.json")
    assert (len(queries), sum(len(annotation.steps) for annotation in queries)) == (134, 7696)
    labelled = read_steps(SHARED / "goalstep_valid.json")
    assert len(labelled) == 134
    assert len(read_taxonomy(labelled)) == 425
    groups = read_groups(SHARED / "goalstep_video_groups.tsv")
    assert all(annotation.video in groups for annotation in queries if annotation.video.startswith("grp-"))


def test_official_files_are_their_own_queries(tmp_path):
    """goalstep_val.json as published: a query for each step and substep, by its description."""
    steps = [
        {
            "start_time": 1.0,
            "end_time": 9.0,
            "step_category": "a: b",
            "step_description": " Boil water ",
            "segments": [
                {"start_time": 2.0, "end_time": 3.0, "step_category": "a: c", "step_description": "Fill the pot"}
            ],
        },
        {"start_time": 9.0, "end_time": 12.0, "step_category": "a: d", "step_description": "Add salt"},
    ]
    video = {"video_uid": "v", "start_time": 0.5, "end_time": 20.0, "segments": steps}
    (tmp_path / "goalstep_val.json").write_text(json.dumps({"videos": [video]}))
    (annotated,) = read_grounding(tmp_path / "goalstep_val.json")
    assert [step.text for step in annotated.steps] == ["#C C Boil water", "#C C Fill the pot", "#C C Add salt"]
    assert (annotated.start_s, annotated.end_s) == (0.5, 20.0)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real annotation files")
def test_official_files_are_the_converted_ones():
    assert read_grounding(SHARED / "goalstep_valid.json") == read_grounding(SHARED / "goalstep_grounding_val.json")


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


def test_features_of_another_frame_rate_are_refused(tmp_path, engine):
    write_goalstep(tmp_path)
    groups, annotated = read_groups(tmp_path / "groups.tsv"), read_grounding(tmp_path / "grounding.json")
    messages = []
    read_goalstep_cases(engine, tmp_path / "features", annotated, groups, CLOCK, log=messages.append)
    assert not messages
    with pytest.raises(InputError, match="--fps and --stride"):
        read_goalstep_cases(engine, tmp_path / "features", annotated, groups, Clock(60.0, 16.0))


def test_files_without_what_a_task_needs_say_so(tmp_path, engine):
    write_goalstep(tmp_path)
    with pytest.raises(InputError, match=r"grounding\.json: has queries without categories"):
        read_steps(tmp_path / "grounding.json")
    (tmp_path / "ego4d.json").write_text('{"videos": [{"video_uid": "v", "duration_sec": 3}]}')
    with pytest.raises(InputError, match=r"ego4d\.json: not an annotation file of Goal-Step"):
        read_grounding(tmp_path / "ego4d.json")
    with pytest.raises(InputError, match="none of the 1 annotated videos has a step with a text"):
        read_goalstep_cases(engine, tmp_path / "features", [AnnotatedVideo("u1", ())], {}, CLOCK)
    (tmp_path / "groups.tsv").write_text("university\tvideo_group\n")
    with pytest.raises(InputError, match=r"groups\.tsv"):
        read_groups(tmp_path / "groups.tsv")


def test_a_wrong_width_names_the_models_that_fit(tmp_path, engine):
    np.save(tmp_path / "v.npy", np.zeros((3, 1024), dtype=np.float32))
    with pytest.raises(InputError, match="--model hiero-omnivore-b or raw"):
        read_input_features(engine, tmp_path / "v.npy")
