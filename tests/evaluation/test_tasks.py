"""The tasks that every benchmark is made of, on videos that plainly show their steps."""

from __future__ import annotations

import pytest

from hiero.engine import load
from hiero.evaluation.cases import EvalOptions, TextEmbeddings
from hiero.evaluation.grounding import grounding_task
from hiero.evaluation.own_videos import read_own_cases
from hiero.evaluation.tasks import choice_task, localization_task, procedure_task
from hiero.formats.annotations import read_annotations
from hiero.types import Clock
from tests.evaluation.simulated import FEW_DRAWS, STEPS, TEXT_SIZE, save_random_model, scores_by_method


def test_spans_in_seconds_are_nodes(cases):
    case, num = cases[0], len(cases[0].features)
    assert case.to_nodes((0.2, 0.4)) == (0, 1)
    assert case.to_nodes((3.0, 7.0)) == (3, 7)
    assert case.to_nodes((3.6, 7.4)) == (3, 8)
    assert case.to_nodes((num - 0.5, num + 9.0)) == (num - 1, num)
    assert case.to_nodes((num + 5.0, num + 9.0)) == (num - 1, num)


@pytest.fixture
def embeddings(cases):
    return TextEmbeddings(cases[0].video.engine, STEPS)


def test_grounding_finds_what_is_plainly_there(cases, embeddings):
    scores = scores_by_method(grounding_task(cases, embeddings, FEW_DRAWS).evaluate(cases)[0])
    assert scores["HiERO, runs of threads"]["R1@.5"] == 100
    assert scores["HiERO, all queries in their order"]["R1@.5"] == 100
    assert scores["HiERO"]["R1@.3"] > 80
    assert scores["random"]["R1@.5"] < 60
    assert scores["raw, spectral"]["R1@.5"] == 100  # these features have no names: the model's words
    assert "text of each second, no graph" not in scores


def test_localization(cases, embeddings):
    scores = scores_by_method(localization_task(cases, STEPS, embeddings, FEW_DRAWS).evaluate(cases)[0])
    assert scores["HiERO, runs of threads"]["mAP@0.5"] == pytest.approx(100)
    assert scores["HiERO"]["mAP@0.3"] > 90
    assert scores["random"]["mean"] < 70


def test_multiple_choice(cases, embeddings):
    scores = scores_by_method(choice_task(cases, embeddings, FEW_DRAWS).evaluate(cases)[0])
    assert scores["HiERO"] == {"inter": 100, "intra": 100}
    assert scores["random"]["intra"] < 80


@pytest.mark.slow
def test_procedure_learning(cases):
    removed, included = procedure_task(cases, FEW_DRAWS).evaluate(cases)
    assert "removed" in removed.title
    assert scores_by_method(removed)["HiERO nodes, spectral"]["F1"] == pytest.approx(100)
    assert scores_by_method(removed)["HiERO"]["F1"] > 95
    assert scores_by_method(removed)["random"]["F1"] < 35
    assert scores_by_method(included)["equal parts"]["IoU"] < scores_by_method(removed)["HiERO"]["IoU"]
    (fixed, _) = procedure_task(cases, FEW_DRAWS, num_clusters=3).evaluate(cases)
    halves = scores_by_method(fixed)["HiERO nodes, spectral"]  # three clusters hold all six steps
    assert halves["recall"] == pytest.approx(100)
    assert 50 < halves["precision"] < 75
    assert len(procedure_task(cases, EvalOptions(baselines=False, num_draws=5)).evaluate(cases)[0].rows) == 2


@pytest.mark.slow
def test_a_shallow_model_has_its_deepest_level(data, tmp_path):
    save_random_model(tmp_path / "shallow", input_size=TEXT_SIZE, depth=1, radius_s=2.5)
    engine = load(tmp_path / "shallow", device="cpu")
    cases, _, _ = read_own_cases(engine, data / "features", read_annotations(data / "steps.json"), Clock(1.0, 1.0))
    assert engine.deep_level == 0
    assert procedure_task(cases, EvalOptions(num_draws=2)).evaluate(cases)[0].rows[1].method == "HiERO, spectral"
