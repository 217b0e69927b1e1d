"""The release's evaluation scripts, run unmodified on small made data: every intermediate value and
every number, against ours.

fixtures/protocols: a checkpoint of the release's layout with random weights, made features and
annotations in the official layouts, and what the scripts computed from them (expected.json,
expected.safetensors).
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from safetensors.numpy import load_file

from hiero.cli import app
from hiero.config import Behaviour
from hiero.engine import load
from hiero.evaluation import egoprocel, egoprocel_data
from hiero.evaluation.cases import EvalOptions, TextEmbeddings
from hiero.evaluation.egomcq import read_questions
from hiero.evaluation.goalstep import read_goalstep_cases, read_grounding, read_groups
from hiero.evaluation.grounding import evaluate_runs, ground_by_runs
from hiero.evaluation.metrics import interval_iou
from hiero.evaluation.protocols import CORRECTED, RELEASE
from hiero.features.files import read_feature_array
from hiero.features.stores import FeatureStore
from hiero.model.released import read_released
from hiero.steps.clustering import cluster
from hiero.types import Clock
from tests.conftest import FIXTURES

DATA = FIXTURES / "protocols"
CLOCK = Clock(30.0, 16.0)
OPTIONS = EvalOptions(num_threads=8, min_nodes=5, num_draws=2, protocol=RELEASE)
TASKS = {  # of the release, and how ours begin
    "CMU Brownie": "brownie",
    "CMU Sandwich": "sandwich",
    "EGTEA Cheeseburger": "cheeseburger",
    "MECCANO": "meccano",
    "EGTEA GreekSalad": "greeksalad",
    "EPIC-Tent": "epic-tents",
}
OPTION_NAMES = [field.name for field in dataclasses.fields(RELEASE) if field.name != "name"]


@cache
def expected(part):
    return json.loads((DATA / "expected.json").read_text())[part]


@cache
def tensors():
    return load_file(DATA / "expected.safetensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The checkpoint as a model folder."""
    folder = tmp_path_factory.mktemp("released") / "model"
    checkpoint = DATA / "checkpoint" / "hiero_small.pth"
    app(["models", "import", str(checkpoint), "-o", str(folder)], result_action="return_value")
    return folder


@pytest.fixture(scope="module")
def videos():
    rates = egoprocel_data.read_rates(DATA / "egoprocel" / "rates.csv")
    videos, missing, _ = egoprocel_data.find_egoprocel_videos(
        DATA / "egoprocel" / "annotations", DATA / "egoprocel" / "features" / "egovlp", rates
    )
    assert not missing
    return videos


def runs_of(values):
    """[start, length, value] of each stretch of equal values."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return [[a, b - a, int(values[a])] for a, b in pairwise(edges)]


def evaluate(capsys, *arguments):
    """The JSON report of `hiero eval`."""
    app(["eval", *map(str, arguments), "--json"], result_action="return_value")
    return json.loads(capsys.readouterr().out)


def same_partition(labels, others):
    pairs = set(zip(np.asarray(labels).tolist(), np.asarray(others).tolist(), strict=True))
    return len(pairs) == len(set(labels)) == len(set(others))


# EgoProceL


@pytest.mark.parametrize("raw", [False, True])
def test_egoprocel_clusters_truth_and_scores_of_each_video(folder, videos, raw):
    engine = RELEASE.configure(load(str(folder)))
    of_videos = expected("egoprocel_baseline" if raw else "egoprocel_hiero")["videos"]
    assert len(videos) == len(of_videos) == 16
    for video in videos:
        wanted = of_videos[video.name]
        assert (video.fps, video.num_frames) == (wanted["fps"], wanted["frames"])
        features = read_feature_array(video.features, 256)
        nodes, num_segments = egoprocel.nodes_to_cluster(engine, features, video.fps, raw, 16, RELEASE)
        assert len(nodes) == wanted["num_nodes_clustered"]
        assert num_segments == 4
        assert same_partition(cluster(nodes, 7, "spectral", kappa=0.5, random_state=0), wanted["node_labels"])
        assert runs_of(video.labels(truncated_rate=True)) == wanted["frame_truth_rle"]
        predicted = egoprocel.predict(engine, video, 7, egoprocel.ClusteringMethod("", raw, "spectral"), 16, 0, RELEASE)
        assert len(predicted) == wanted["num_frames_scored"]
        stretches = [(start, length) for start, length, _ in wanted["frame_clusters_rle"]]
        assert [(start, length) for start, length, _ in runs_of(predicted)] == stretches
        scores = egoprocel.score(predicted, video, egoprocel.MAIN, 7, RELEASE)
        for name, other in (("recall", "recall"), ("precision", "precision"), ("IoU", "iou")):
            assert scores[name] == pytest.approx(wanted[other], abs=1e-6), (video.name, name)


def test_egoprocel_node_times(videos):
    for video in videos:
        wanted = tensors()[f"egoprocel/release/{video.name}/positions"]
        clock = Clock(video.fps, 16 * 4)
        np.testing.assert_allclose(np.arange(len(wanted)) * clock.spacing_s, wanted, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize(
    ("variant", "threads", "stretched"),
    [("intended", True, True), ("off", False, True), ("off_unstretched", False, False)],
)
def test_egoprocel_what_is_clustered(folder, videos, variant, threads, stretched):
    """`intended` is the release with true thread edges; its own depend on how K-Means numbers clusters."""
    engine = load(str(folder))
    behaviour = Behaviour(rounded_times=True, rounded_samples=True)
    config = engine.folder.config.replace(threads_at_inference=threads, behaviour=behaviour)
    engine = replace(engine, folder=replace(engine.folder, config=config))
    for video in videos:
        protocol = replace(RELEASE, stretched_times=stretched)
        features = read_feature_array(video.features, 256)
        nodes, _ = egoprocel.nodes_to_cluster(engine, features, video.fps, False, 16, protocol)
        np.testing.assert_allclose(nodes, tensors()[f"egoprocel/{variant}/{video.name}/level2"], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_egoprocel_means_and_command(folder, capsys):
    features, rates = DATA / "egoprocel" / "features" / "egovlp", DATA / "egoprocel" / "rates.csv"
    options = ["--annotations", DATA / "egoprocel" / "annotations", "--features", features, "--rates", rates]
    report = evaluate(capsys, "egoprocel", "--model", folder, *options, "--protocol", "release")
    assert "protocol: release" in report["tables"][0]["title"]
    for name, part in (("HiERO", "egoprocel_hiero"), ("raw", "egoprocel_baseline")):
        wanted, summary = expected(part), report["summary"][name]
        assert set(summary) == {*wanted["data_sets"], "Overall"}
        for data_set, scores in [*wanted["data_sets"].items(), ("Overall", wanted["overall"])]:
            assert summary[data_set]["F1"] == pytest.approx(100 * scores["f1"], abs=1e-5)
            assert summary[data_set]["IoU"] == pytest.approx(100 * scores["iou"], abs=1e-5)
        for data_set, printed in wanted["printed"].items():
            assert {measure: f"{summary[data_set][measure]:.2f}" for measure in printed} == printed
    tasks = {row["method"].lower().replace(" ", "").split(":")[1]: row["scores"] for row in report["tables"][2]["rows"]}
    for name, scores in expected("egoprocel_hiero")["tasks"].items():
        ours = next(own for task, own in tasks.items() if task.startswith(TASKS[name]))
        for measure in ("precision", "recall"):
            assert ours[measure] == pytest.approx(100 * scores[measure], abs=1e-5)


def test_predictions_that_are_too_short(folder, videos):
    """The release fills them with cluster 0, we go on with the last one."""
    video = replace(videos[0], num_frames=videos[0].num_frames + 400)
    equal_parts = egoprocel.ClusteringMethod("", True, "equal-parts")
    predicted = [egoprocel.predict(load(str(folder)), video, 7, equal_parts, 16, 0, p) for p in (RELEASE, CORRECTED)]
    assert predicted[0][-1] == 0
    assert predicted[1][-1] == 6


# Grounding


@pytest.fixture(scope="module")
def cases(folder):
    return read_cases(folder, RELEASE)


def read_cases(folder, protocol):
    annotated = read_grounding(DATA / "goalstep" / "val.json")
    groups = read_groups(DATA / "goalstep" / "goalstep_video_groups.tsv")
    engine = protocol.configure(load(str(folder)))
    cases, missing = read_goalstep_cases(
        engine, DATA / "ego4d" / "features" / "egovlp", annotated, groups, CLOCK, protocol=protocol
    )
    assert not missing
    return cases


def embeddings_of(cases):
    return TextEmbeddings(cases[0].video.engine, [text for case in cases for text in case.texts])


def test_grounding_runs_scores_and_spans(cases):
    embeddings = embeddings_of(cases)
    wanted_queries = iter(expected("grounding")["queries"])
    for case in cases:
        wanted = expected("grounding")["videos"][str(case.video.path)]
        assert len(case.projected) == wanted["num_nodes"]
        answers = ground_by_runs(case, embeddings, OPTIONS)
        assert [[start, end - start] for start, end in answers.runs.tolist()] == wanted["kept_runs_start_length"]
        for row, text in enumerate(case.texts):
            query = next(wanted_queries)
            assert (text, list(case.spans_s[row])) == (query["text"], query["truth"])
            np.testing.assert_allclose(answers.scores[row], query["score_of_each_kept_run"], atol=5e-3)
            assert np.argsort(-answers.scores[row])[:5].tolist() == query["top5_runs"]
            np.testing.assert_allclose(answers.spans_s[row], query["predicted_times"], atol=1e-5)
            np.testing.assert_allclose(interval_iou(answers.spans_s[row], case.spans_s[row]), query["iou"], atol=1e-6)
    assert next(wanted_queries, None) is None


def test_grounding_numbers(folder, cases, capsys):
    wanted = expected("grounding")["metrics"]
    scores = evaluate_runs(cases, embeddings_of(cases), OPTIONS).rows[0].scores
    assert scores["mIoU"] == pytest.approx(wanted["mIoU_top1"], abs=1e-4)
    features, groups = DATA / "ego4d" / "features" / "egovlp", DATA / "goalstep" / "goalstep_video_groups.tsv"
    options = ["--annotations", DATA / "goalstep" / "val.json", "--features", features, "--groups", groups]
    report = evaluate(capsys, "goalstep-grounding", "--model", folder, *options, "--protocol", "release")
    for name, value in wanted.items():
        if name.startswith("R"):
            assert report["summary"]["HiERO"][name] == pytest.approx(value, abs=1e-6), name
    assert "protocol: release" in report["tables"][0]["title"]


def test_corrected_grounding_runs_in_the_time_of_the_video(folder, capsys):
    """Cropped to the clip, nothing taken off, the last run where it is."""
    cases = read_cases(folder, CORRECTED)
    answers = ground_by_runs(cases[0], embeddings_of(cases), replace(OPTIONS, protocol=CORRECTED))
    assert answers.runs[-1, 1] == len(cases[0].projected)
    released = read_cases(folder, RELEASE)
    assert cases[0].shift_s == 0
    assert released[0].shift_s > 0


# EgoMCQ


def test_egomcq(folder, tmp_path, capsys):
    store, wanted = tmp_path / "store", expected("egomcq")
    app(
        ["pack", str(DATA / "ego4d" / "features" / "egovlp"), str(store), "--fps", "30", "--stride", "16"],
        result_action="return_value",
    )
    capsys.readouterr()
    questions = DATA / "egomcq" / "egomcq.json"
    report = evaluate(capsys, "egomcq", "--store", store, "--questions", questions, "--model", folder)
    assert report["summary"]["HiERO"] == pytest.approx(wanted["accuracy"], abs=1e-6)
    assert len(read_questions(questions)) == len(wanted["questions"]) + len(
        wanted["left_out_because_a_video_has_no_features"]
    )
    assert FeatureStore(store).width == 256


# Texts and options


def test_texts(folder):
    texts = json.loads((DATA / "expected.json").read_text())["texts"]
    _, projected = load(str(folder)).encode(texts)
    wanted = tensors()["texts"]
    wanted = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(projected, wanted, atol=2e-3)


def test_the_release_is_all_options_and_each_has_its_line():
    assert all(getattr(RELEASE, name) for name in OPTION_NAMES)
    assert not any(getattr(CORRECTED, name) for name in OPTION_NAMES)
    page = (FIXTURES.parent.parent / "docs" / "protocols.md").read_text()
    assert [name for name in OPTION_NAMES if f"`{name}`" not in page] == []


def test_the_imported_checkpoint_is_read_as_data():
    assert read_released(DATA / "checkpoint" / "hiero_small.pth").config.num_threads == 4
