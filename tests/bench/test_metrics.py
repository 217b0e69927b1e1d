"""Metrics against the official evaluators' numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hiero.bench.metrics import grounding_recall, interval_iou, procedure_scores
from tests.conftest import load_json


def test_grounding_recall_is_the_official_one():
    expected = load_json("metrics")["nlq"]
    truth = {}
    for video in expected["ground_truth"]["videos"]:
        for clip in video["clips"]:
            for annotation in clip["annotations"]:
                for i, query in enumerate(annotation["language_queries"]):
                    truth[clip["clip_uid"], annotation["annotation_uid"], i] = [query["clip_start_sec"], query["clip_end_sec"]]
    predicted = {(p["clip_uid"], p["annotation_uid"], p["query_idx"]): p["predicted_times"] for p in expected["predictions"]}
    keys = [key for key in truth if key in predicted]
    found = grounding_recall(
        [np.array(predicted[key]) for key in keys], np.array([truth[key] for key in keys]), expected["thresholds"], expected["topk"]
    )
    np.testing.assert_allclose(found, expected["recall[threshold][topk]"], atol=1e-6)


def test_overlaps():
    a = np.array([[0.0, 10.0], [0.0, 10.0], [0.0, 1.0], [3.0, 3.0]])
    b = np.array([[5.0, 15.0], [0.0, 10.0], [5.0, 6.0], [3.0, 3.0]])
    np.testing.assert_allclose(interval_iou(a, b), [1 / 3, 1.0, 0.0, 0.0])
    assert grounding_recall([np.zeros((0, 2))], np.array([[0.0, 1.0]])).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize("per_step", [True, False])
@pytest.mark.parametrize("skip_background", [True, False])
def test_procedure_scores_are_those_of_the_release(case, per_step, skip_background):
    expected = load_json("metrics")["egoprocel"][case]
    found = procedure_scores(
        np.array(expected["pred"]), np.array(expected["gt"]), per_step=per_step, skip_background=skip_background,
        num_steps=expected["n_keystep"], num_clusters=expected["M"],
    )  # fmt: skip
    wanted = expected["hiero"][f"per_keystep={per_step},skip_background={skip_background}"]
    for name, value in (
        ("recall_MoF", found.recall),
        ("IoU", found.iou),
        ("precision", found.precision),
        ("coverage", found.coverage),
    ):
        assert value == pytest.approx(wanted[name], abs=1e-6), name
