"""Metrics against the official evaluators' numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.evaluation.metrics import (
    THRESHOLDS,
    Detections,
    average_precision,
    choice_accuracy,
    first_iou,
    grounding_recall,
    harmonic_mean,
    interval_iou,
    match_detections,
    matched_accuracy,
    mean_average_precision,
    procedure_scores,
    query_hits,
)
from tests.conftest import load_json
from tests.oracle.detection import plain_mean_average_precision


def test_grounding_recall_is_the_official_one():
    expected = load_json("metrics")["nlq"]
    queries = {
        (clip["clip_uid"], annotation["annotation_uid"], i): query
        for video in expected["ground_truth"]["videos"]
        for clip in video["clips"]
        for annotation in clip["annotations"]
        for i, query in enumerate(annotation["language_queries"])
    }
    predicted, truth = [], []
    for p in expected["predictions"]:
        if query := queries.get((p["clip_uid"], p["annotation_uid"], p["query_idx"])):
            predicted.append(np.array(p["predicted_times"]))
            truth.append([query["clip_start_sec"], query["clip_end_sec"]])
    recall = query_hits(predicted, np.array(truth), expected["thresholds"], expected["topk"]).mean(0)
    np.testing.assert_allclose(recall, expected["recall[threshold][topk]"], atol=1e-6)
    assert first_iou(predicted, np.array(truth)).mean() == pytest.approx(expected["mIoU"], abs=1e-6)


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
    scores = procedure_scores(
        np.array(expected["pred"]),
        np.array(expected["gt"]),
        per_step=per_step,
        skip_background=skip_background,
        num_steps=expected["n_keystep"],
        num_clusters=expected["M"],
    )
    official = expected["hiero"][f"per_keystep={per_step},skip_background={skip_background}"]
    for name, ours in (("recall_MoF", "recall"), ("IoU", "iou"), ("precision", "precision"), ("coverage", "coverage")):
        assert getattr(scores, ours) == pytest.approx(official[name], abs=1e-6), name


@pytest.mark.parametrize("case", range(6))
def test_all_frames_pooled(case):
    expected = load_json("metrics")["egoprocel"][case]
    accuracy = matched_accuracy(np.array(expected["pred"]), np.array(expected["gt"]))
    for name in ("precision", "recall", "f1"):
        assert accuracy == pytest.approx(expected["egoprocel_procl_eval"][name], abs=1e-6)


@pytest.mark.parametrize("case", range(6))
def test_key_steps_one_by_one(case):
    expected = load_json("metrics")["egoprocel"][case]
    predicted, truth = np.array(expected["pred"]), np.array(expected["gt"])
    sizes = {"num_steps": expected["n_keystep"], "num_clusters": expected["M"]}
    whole = procedure_scores(predicted, truth, **sizes)
    steps = whole.key_steps
    assert set(steps) <= set(truth.tolist())
    for name in ("precision", "recall", "iou"):
        assert np.mean([step[name] for step in steps.values()]) == pytest.approx(getattr(whole, name))
    assert whole.mean_f1 == pytest.approx(np.mean([harmonic_mean(s["precision"], s["recall"]) for s in steps.values()]))
    assert whole.f1 == pytest.approx(harmonic_mean(whole.precision, whole.recall))


def make_detections(rows, videos):
    return [
        Detections(
            np.array([r["span"] for r in rows if r["video"] == v]).reshape(-1, 2),
            np.array([r["label"] for r in rows if r["video"] == v], dtype=int),
            np.array([r.get("score", 0.0) for r in rows if r["video"] == v]),
        )
        for v in videos
    ]


@pytest.mark.parametrize("subset", ["validation", "all_subsets"])
def test_average_precision_is_that_of_activitynet(subset):
    case = load_json("metrics")["detection"]
    truth = [
        {"video": video, "span": a["segment"], "label": a["label_id"]}
        for video, entry in case["ground_truth"]["database"].items()
        if subset == "all_subsets" or entry["subset"] == subset
        for a in entry["annotations"]
    ]
    p = case["predictions"]
    rows = zip(p["video-id"], p["t-start"], p["t-end"], p["label"], p["score"], strict=True)
    predicted = [{"video": v, "span": [a, b], "label": label, "score": score} for v, a, b, label, score in rows]
    videos = sorted({row["video"] for row in truth + predicted})
    matched = match_detections(
        make_detections(truth, videos), make_detections(predicted, videos), case["tiou_thresholds"]
    )
    expected = case["results"][subset]
    assert sum(matches.num_true.sum() for matches in matched.values()) == expected["num_ground_truth"]
    np.testing.assert_allclose(mean_average_precision(matched), expected["mAP"], atol=1e-6)
    precision = np.stack([average_precision(matched[label]) for label in expected["class_order"]], axis=1)
    np.testing.assert_allclose(precision, expected["AP[threshold][class]"], atol=1e-6)


def test_no_true_spans_at_all():
    empty = Detections(np.zeros((0, 2)), np.zeros(0, dtype=int), np.zeros(0))
    some = Detections(np.array([[0.0, 5.0]]), np.array([0]), np.array([0.5]))
    assert np.isnan(mean_average_precision(match_detections([empty], [some]))).all()
    matched = match_detections([some, empty], [some, some])
    assert np.isnan(mean_average_precision(matched, np.array([0.0, 2.0]))).all()


def test_choices():
    case = load_json("metrics")["egomcq"]
    correct = choice_accuracy(np.array(case["similarities"]), np.array(case["answers"]))
    types = np.array(case["types"])
    for kind in (1, 2):
        assert 100 * correct[types == kind].mean() == pytest.approx(case[f"accuracy_percent_type{kind}"], abs=1e-6)


@given(st.integers(0, 2**31), st.integers(2, 4))
def test_map_of_all_draws_at_once_is_that_of_each(seed, num_videos):
    """A draw counts a video as often as it is drawn: it equals the score of a list that repeats the video."""
    rng = np.random.default_rng(seed)

    def detect(starts, lengths):
        spans = np.stack([starts, starts + lengths], axis=1)
        return Detections(spans, rng.integers(0, 3, len(starts)), rng.random(len(starts)))

    predicted = [
        detect(40.0 * rng.integers(0, 4, num) + rng.uniform(0, 12, num), rng.uniform(1, 12, num))
        for num in rng.integers(0, 9, num_videos)
    ]  # and true spans of which none occurs twice: it would count once
    truth = [detect(40.0 * np.arange(num), np.full(num, 10.0)) for num in rng.integers(1, 5, num_videos)]
    matched = match_detections(truth, predicted)
    draws = [np.ones(num_videos, dtype=int), *rng.multinomial(num_videos, np.full(num_videos, 1 / num_videos), size=4)]
    together = mean_average_precision(matched, np.array(draws, dtype=float))
    for draw, scores in zip(draws, together, strict=True):
        drawn = np.repeat(np.arange(num_videos), draw)
        repeated = [truth[i] for i in drawn], [predicted[i] for i in drawn]
        np.testing.assert_allclose(scores, mean_average_precision(match_detections(*repeated)), atol=1e-9)
        # copies of a video have equal scores, and precision between them is not defined
        if max(draw) == 1:
            np.testing.assert_allclose(scores, plain_mean_average_precision(*repeated, THRESHOLDS), atol=1e-9)
