"""Metrics against the official evaluators' numbers."""

from __future__ import annotations

import numpy as np

from hiero.bench.metrics import grounding_recall, interval_iou
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
