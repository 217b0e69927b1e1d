"""Heads learn: a tiny set by heart, on the loop of HiERO, from each layout of annotations."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from hiero.cli import app
from hiero.errors import InputError
from hiero.evaluation.heads import token_embeddings
from hiero.evaluation.heads.clips import read_clips
from hiero.evaluation.heads.head import HeadConfig, TrainedHead, load_trained_head
from hiero.evaluation.heads.layers import mean_pool
from hiero.evaluation.heads.scoring import evaluate_probe, score_heads
from hiero.evaluation.heads.token_embeddings import TokenEmbeddings
from hiero.evaluation.heads.training import random_crop, span_positions, train_head
from hiero.evaluation.heads.vslnet import VSLNet, VSLNetConfig
from hiero.evaluation.results import Report
from hiero.storage.files import save_tensors
from hiero.training.loop import RunOptions, SilentDisplay
from hiero.types import AnnotatedStep, Clock
from tests.evaluation.simulated import goalstep_segment
from tests.optional import skip_without

skip_without("lightning_fabric", "needs lightning-fabric: pip install 'hiero-video[train]'")
SECONDS = Clock(1.0, 1.0)
STEPS = ["boil water", "grind beans", "pour milk", "wash the pot"]


class FakeMiniLM:
    """Words as random vectors of their own."""

    def __init__(self, *_):
        pass

    def encode_tokens(self, texts):
        words = [[np.random.default_rng(sum(word.encode())) for word in text.split()] for text in texts]
        return [np.stack([rng.normal(size=384) for rng in text]).astype(np.float32) for text in words]


@pytest.fixture(autouse=True)
def fake_encoder(monkeypatch, tmp_path):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(token_embeddings, "MiniLM", FakeMiniLM)
    monkeypatch.setattr(token_embeddings.weights, "get", lambda *_: None)


@pytest.fixture
def data(tmp_path):
    """Six videos of a minute or two; each step looks its own."""
    rng = np.random.default_rng(0)
    appearances = {text: rng.normal(size=12) for text in STEPS}
    (tmp_path / "features").mkdir()
    annotations = {}
    for number in range(6):
        time_s, rows, steps = 0, [], []
        for text in rng.permutation(STEPS):
            length = int(rng.integers(10, 30))
            rows.append(appearances[text] + rng.normal(0, 0.3, (length, 12)))
            steps.append({"start_s": time_s, "end_s": time_s + length, "text": str(text)})
            time_s += length
        np.save(tmp_path / "features" / f"v{number}.npy", np.concatenate(rows).astype(np.float32))
        annotations[f"v{number}"] = {"steps": steps}
    (tmp_path / "steps.json").write_text(json.dumps(annotations))
    return tmp_path


ON_CPU = RunOptions(device="cpu")
NETWORKS = {
    "vslnet": {"hidden_size": 32, "num_positions": 48, "dropout": 0.0},
    "actionformer": {"hidden_size": 32, "num_levels": 5, "drop_path": 0.0},
}
RUNS = {
    "vslnet": ["epochs=15", "batch_size=12", "lr=0.006"],
    "actionformer": ["epochs=20", "warmup_epochs=2.0", "batch_size=3", "lr=0.003"],
}
SETTINGS = {kind: [*RUNS[kind], *(f"{kind}.{key}={value}" for key, value in NETWORKS[kind].items())] for kind in RUNS}


def clips_of(data, **options):
    return read_clips(data / "features", data / "steps.json", SECONDS, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scores"), [("vslnet", {"R1@.5": 90, "mIoU": 70}), ("actionformer", {"mAP@0.5": 90})])
def test_a_head_learns_a_tiny_set_by_heart(data, tmp_path, kind, scores):
    clips = clips_of(data)
    train_head(kind, clips, tmp_path / "out", validation=clips, settings=SETTINGS[kind], options=ON_CPU)
    (row,) = score_heads([load_trained_head(tmp_path / "out" / "best")], clips, "x", num_draws=10).rows
    assert all(row.scores[name] > least for name, least in scores.items())


def test_the_probe_tells_steps_apart(data):
    train, test = clips_of(data, only=[f"v{i}" for i in range(4)]), clips_of(data, only=["v4", "v5"])
    assert evaluate_probe(train, test, "x").rows[0].scores["top-1"] == 100
    test.clips = [replace(clip, truth=(AnnotatedStep(0.0, 5.0, "something else"),)) for clip in test.clips]
    with pytest.raises(InputError, match="none of the test labels"):
        evaluate_probe(train, test, "x")


class StoppingDisplay(SilentDisplay):
    """Asks for a stop at the first report, which comes after ten steps or an epoch."""

    def report(self, report):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vslnet", "actionformer"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(data, tmp_path, kind):
    settings = [*SETTINGS[kind], "epochs=2", "batch_size=2"]  # 24 queries of 6 videos

    def run(out, **options):
        train_head(kind, clips_of(data), out, settings=settings, options=replace(ON_CPU, **options))

    run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", display=StoppingDisplay())
    run(tmp_path / "parts", resume=True)
    a, b = (load_trained_head(tmp_path / name).network.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    with pytest.raises(InputError, match="already contains a run"):
        run(tmp_path / "whole")


def run(arguments):
    app(["head", *map(str, arguments)], result_action="return_value")


@pytest.mark.parametrize("impossible", [{"clips": 7}, {"head": []}, {"head": 5}])
def test_an_impossible_head_is_refused(tmp_path, impossible):
    config = HeadConfig(vslnet=VSLNetConfig(4, 4, hidden_size=8, num_heads=1))
    save_tensors(tmp_path / "model.safetensors", config.build_network().state_dict())
    document = {"head": config.to_dict(), "clock": {"fps": 1.0, "stride": 1.0}}
    (tmp_path / "config.json").write_text(json.dumps(document | impossible))
    with pytest.raises(InputError, match=str(tmp_path)):
        load_trained_head(tmp_path)


@pytest.mark.slow
def test_the_commands(data, tmp_path):
    inputs = ["--features", str(data / "features"), "--annotations", str(data / "steps.json"), "--hz", "1"]
    settings = [text for setting in [*SETTINGS["actionformer"], "epochs=2"] for text in ("--set", setting)]
    (data / "some.txt").write_text("v0\nv1\nv2\n")
    only = ["--only", data / "some.txt"]
    run(["train", "actionformer", *inputs, *settings, "--device", "cpu", "-o", tmp_path / "head", *only])
    without_clock = inputs[:-2]  # a head knows its clock
    run(["eval", tmp_path / "head", tmp_path / "head", *without_clock, "--device", "cpu", "-o", tmp_path / "r.json"])
    with pytest.raises(InputError, match="1 s"):
        run(["eval", tmp_path / "head", *without_clock, "--hz", "2", "--device", "cpu"])
    notes = Report.load(tmp_path / "r.json").tables[0].notes
    assert "mean of 2 seeds" in notes[0]
    assert "same seed" in notes[1]
    assert "3 of the 6 clips" in notes[2]
    run(["probe", *inputs, "--train-only", data / "some.txt", "-o", tmp_path / "p.json"])
    report = Report.load(tmp_path / "p.json")
    assert report.tables[0].rows[0].scores["top-1"] == 100
    assert report.settings["clips"] == 3  # those that it did not learn from
    for arguments, message in (
        (["train", "vslnet", *inputs, "--set", "precision=fp16", "-o", tmp_path / "x"], "precision"),
        (["train", "vslnet", *inputs, "--set", "optimizer=sgd", "-o", tmp_path / "x"], "optimizer"),
        (["train", "vslnet", *inputs, "--set", "seed=-1", "-o", tmp_path / "x"], "seed"),
        (["probe", *inputs], "--train"),
        (["eval", tmp_path, *inputs], str(tmp_path)),
    ):
        with pytest.raises(InputError, match=message):
            run(arguments)


def test_enriched_features_are_taken(data, tmp_path):
    """What `hiero embed` writes holds many tensors; level 0 takes the place of the features."""
    for i in range(6):
        x = torch.from_numpy(np.load(data / "features" / f"v{i}.npy"))
        tensors = {"level0": x[:, :5], "projected0": x, "times0": x[:, 0], "level1": x[::2]}
        save_tensors(tmp_path / "enriched" / f"v{i}.safetensors", tensors)
    clips = read_clips(tmp_path / "enriched", data / "steps.json", SECONDS)
    assert clips.width == 5
    with pytest.raises(InputError, match="expects 7-d features"):
        score_heads([TrainedHead(VSLNet(VSLNetConfig(7)), [])], clips, "x")


def test_pooling_and_cropping():
    np.testing.assert_allclose(mean_pool(np.arange(10.0)[:, None], 5)[:, 0], [0.5, 2.5, 4.5, 6.5, 8.5])
    assert len(mean_pool(np.zeros((3, 2)), 5)) == 3
    assert span_positions(np.array([0.0, 10.0]), 100, 50) == (0, 4)
    assert span_positions(np.array([99.9, 120.0]), 100, 50) == (49, 49)
    x = np.arange(20.0)[:, None]
    spans, labels = np.array([[0.0, 5.0], [6.0, 14.0], [15.0, 20.0]]), np.array([0, 1, 2])
    cropped, crop_spans, crop_labels = random_crop(x, spans, labels, 8, np.random.default_rng(3))
    start = int(cropped[0, 0])
    assert len(cropped) == 8
    for (first, last), label in zip(crop_spans, crop_labels, strict=True):
        whole_first, whole_last = spans[label]
        assert (first, last) == (max(whole_first, start) - start, min(whole_last, start + 8) - start)
        assert last - first >= 0.75 * (whole_last - whole_first)


def test_a_file_of_the_clip_alone_is_taken_whole(tmp_path):
    """Features may be those of the video, or those of the clip, which begin where it begins."""
    query = {"video_start_sec": 100.0, "video_end_sec": 110.0, "clip_start_sec": 10.0, "clip_end_sec": 20.0}
    annotations = [{"language_queries": [{**query, "query": "where?"}]}]
    clip = {"clip_uid": "c", "video_start_sec": 90.0, "video_end_sec": 150.0, "annotations": annotations}
    (tmp_path / "nlq.json").write_text(json.dumps({"videos": [{"video_uid": "v", "clips": [clip]}]}))
    rows = np.arange(200.0, dtype=np.float32)[:, None]
    for name, x in (("v", rows), ("c", rows[90:150])):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / f"{name}.npy", x)
        clips = read_clips(tmp_path / name, tmp_path / "nlq.json", SECONDS)
        assert clips.features(0)[[0, 10, 19], 0].tolist() == [90, 100, 109]
        np.testing.assert_allclose(clips.spans(0), [[10, 20]])
    assert clips.clips[0].own_file
    np.save(tmp_path / "v" / "v.npy", rows[:105])  # ends 15 s after the clip begins
    warnings = read_clips(tmp_path / "v", tmp_path / "nlq.json", SECONDS).warnings
    assert [warning.split(":")[0] for warning in warnings] == ["v"]


@pytest.mark.parametrize(("queries", "text"), [(False, "Wash: rinse"), (True, "rinse the cup")])
def test_the_texts_of_goalstep_do_not_depend_on_the_name_of_the_file(tmp_path, queries, text):
    segment = goalstep_segment(0.0, 9.0, "Wash: rinse", "rinse the cup")
    video = {"video_uid": "v0", "start_time": 0.0, "end_time": 20.0, "segments": [segment]}
    copied = tmp_path / "a copy.json"
    copied.write_text(json.dumps({"split": "val", "videos": [video]}))
    (tmp_path / "features").mkdir()
    np.save(tmp_path / "features" / "v0.npy", np.zeros((40, 4), np.float32))
    clips = read_clips(tmp_path / "features", copied, Clock(30.0, 15.0), queries=queries)
    assert [step.text for step in clips.clips[0].truth] == [text]


def test_every_reading_gives_the_same_numbers(data):
    rows = np.full((90, 12), 1e5, dtype=np.float32)  # beyond what half precision holds
    np.save(data / "features" / "v0.npy", rows)
    clips = clips_of(data, only=["v0"])
    np.testing.assert_array_equal(clips.features(0), rows)
    np.testing.assert_array_equal(clips.features(0), rows)


def test_problems_with_names_and_lengths_are_reported(data):
    content = json.loads((data / "steps.json").read_text())
    content["v0"]["duration_s"] = 9999
    content["v1"]["steps"].append({"start_s": 9000, "end_s": 9001, "text": "boil water"})
    (data / "steps.json").write_text(json.dumps(content))
    clips = read_clips(data / "features", data / "steps.json", only=["v0", "v1", "typo"])
    assert clips.clock == SECONDS  # one's own layout
    missing, *others = [message.split(":")[0] for message in clips.warnings]
    assert str(data / "steps.json") in missing
    assert others == ["v0", "v1"]
    with pytest.raises(InputError, match=r"steps\.json"):
        read_clips(data / "features", data / "steps.json", only=["typo"])


def test_token_vectors_are_cached(tmp_path):
    first = TokenEmbeddings(["boil the water", "stir"])
    again = TokenEmbeddings(["stir", "boil the water"])
    assert first.vectors["stir"].shape == (1, 384)
    for text in first.vectors:
        np.testing.assert_array_equal(first.vectors[text], again.vectors[text])
    vectors, mask = first.batch(["stir", "boil the water"])
    assert mask.sum(1).tolist() == [1, 3]
    assert vectors.shape == (2, 3, 384)
