"""A model learns from corrected videos: edits beside them, or a file of labelled steps."""

from __future__ import annotations

import json
import signal
from itertools import pairwise

import numpy as np
import pytest
import torch

import hiero
from hiero.config import ModelConfig
from hiero.corpus import adaptation
from hiero.corpus.adaptation import (
    CorrectedSteps,
    TuningSettings,
    adapt,
    annotated_corrections,
    find_corrections,
    fine_tune,
    learn_from_videos,
    named_steps,
    spread_narrations,
)
from hiero.corpus.adaptation_choice import cross_validate, score_held_out
from hiero.errors import InputError
from hiero.formats.hiero_json import edits_file, write_edits
from hiero.model.hiero import write_model_folder
from hiero.sources.source import VideoSource
from hiero.storage.files import load_tensors
from hiero.training.loop import STATE_FILE, SilentDisplay, read_metadata
from hiero.types import AnnotatedStep, Hierarchy, Step
from tests.optional import weights_or_skip
from tests.processes import start_python

NAMES = ("zib the quorn", "flox a wemble")  # no text encoder knows them


@pytest.fixture
def files(tmp_path):
    """Three recordings of class scores with two made-up steps; the first two are corrected."""
    directions = np.random.default_rng(0).normal(size=(2, 400))
    paths = {}
    for i, order in enumerate([(0, 1), (1, 0), (1, 0)]):
        rng = np.random.default_rng(i + 1)
        rows = np.concatenate([3 * directions[k] + rng.normal(size=(60, 400)) for k in order]).astype(np.float32)
        path = tmp_path / f"v{i}.npy"
        np.save(path, rows)
        paths[f"v{i}"] = VideoSource.of(path)
        if i < 2:
            steps = [
                Step(f"step-{j + 1}", 60.0 * j, 60.0 * j + 60, j, label=NAMES[k], origin="person")
                for j, k in enumerate(order)
            ]
            write_edits(path, None, Hierarchy(str(path), "m", 120.0, (tuple(steps),)))
    return paths


def test_learning_names_that_no_text_encoder_knows(files, tmp_path):
    engine = hiero.load("hiero-k400", backbone="default", device="cpu")
    corrections = find_corrections(files)
    assert [steps.name for steps in corrections] == ["v0", "v1"]
    out = tmp_path / "mine"
    prototypes = adapt(engine, corrections, lambda reader, path: reader.read(path, cache=False), out)
    assert prototypes.labels == NAMES
    assert json.loads((out / "prototypes.json").read_text())["fine_tuned"] is False
    adapted = hiero.load(out, backbone="default", device="cpu")
    video = adapted.read(files["v2"], cache=False)
    assert [step.label for step in video.steps(2).levels[0]] == [NAMES[1], NAMES[0]]
    first, second = video.ask(list(NAMES), num=1)
    assert first.matches[0].start_s >= 40
    assert second.matches[0].end_s <= 80
    assert first.probability > engine.read(files["v2"], cache=False).ask(NAMES[0], num=1)[0].probability
    # Prototypes may be taken away and set again, and answers follow.
    named = video.likely_labels(video.steps(2, labels=[]).levels[0], num=1)
    adapted.prototypes = None
    assert video.likely_labels(video.steps(2, labels=[]).levels[0], num=1) != named
    with pytest.raises(InputError, match="choose another folder"):
        adapt(adapted, corrections, lambda reader, path: reader.read(path, cache=False), out)


def test_a_learned_name_is_labelled_where_it_fits_best_not_where_the_cut_is(files):
    """The steps of a cut are a minute long; the learned step takes a third of that."""
    engine = hiero.load("hiero-k400", backbone="default", device="cpu")
    directions = np.random.default_rng(5).normal(size=(2, 400))
    rows = [[0] * 50 + [1] * 20 + [0] * 110, [0] * 110 + [1] * 20 + [0] * 50]
    videos = []
    for i, shown in enumerate(rows):
        noise = np.random.default_rng(i).normal(size=(180, 400))
        features = (3 * directions[shown] + noise).astype(np.float32)
        videos.append(engine.read_array(features, hiero.Clock(1.0, 1.0), f"v{i}"))
    engine.prototypes = learn_from_videos([(videos[0], [AnnotatedStep(50.0, 70.0, NAMES[0])])])
    (found,) = [step for step in videos[1].label(NAMES[0]) if step.label]
    assert abs(found.start_s - 110) <= 10
    assert abs(found.end_s - 130) <= 10
    labelled = videos[1].label([NAMES[0]])
    assert labelled[0].start_s == 0
    assert labelled[-1].end_s == 180
    assert all(a.end_s == b.start_s for a, b in pairwise(labelled))
    answer = videos[1].ask(NAMES[0], num=1)[0].matches[0]
    assert abs(answer.end_s - answer.start_s - 20) <= 10
    assert [step.label for step in videos[1].label(NAMES[0], num_steps=1)] == [None]  # as many steps as asked for


def test_a_short_training_goes_on_from_the_weights(files, tmp_path, monkeypatch):
    engine = hiero.load("hiero-k400", backbone="default", device="cpu")
    out = tmp_path / "tuned"
    corrections = find_corrections(files)
    original = adaptation.fine_tune
    monkeypatch.setattr(
        adaptation, "fine_tune", lambda *a, **k: original(*a, **k, tuning=TuningSettings(num_updates=1))
    )
    adapt(engine, corrections, lambda reader, path: reader.read(path, cache=False), out, tune=True)
    # The shipped model is an ensemble: a training goes on with the first of its networks.
    before, after = engine.model.members[0].state_dict(), hiero.HiERO.from_pretrained(out).state_dict()
    changes = [float((before[name] - after[name]).abs().max()) for name in before if before[name].is_floating_point()]
    assert 0 < max(changes) < 0.01  # one small update, not a new network
    assert not list(tmp_path.glob(".tuned*"))  # what an interrupted training would go on with


NUM_UPDATES, KILLED_AT = 16, 3
TUNE = f"""
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import hiero
from hiero.corpus.adaptation import TuningSettings, find_corrections, fine_tune
from hiero.sources.source import VideoSource
from hiero.training.loop import TrainingLoop
folder, model = Path(sys.argv[1]), sys.argv[2]
save = TrainingLoop.save
def save_and_die(training):
    save(training)
    if training.step_number == {KILLED_AT}:
        os.kill(os.getpid(), signal.SIGKILL)
TrainingLoop.save = save_and_die
engine = hiero.load(model, backbone="default", device="cpu")
corrections = find_corrections({{path.stem: VideoSource.of(path) for path in sorted(folder.glob("v*.npy"))}})
videos = [(engine.read(steps.source, cache=False), steps) for steps in corrections]
tuning = TuningSettings(num_updates={NUM_UPDATES}, save_every_s=0.0)
fine_tune(engine, videos, folder / "killed", tuning, device="cpu")
"""


def test_a_killed_training_goes_on_and_ends_as_an_undisturbed_one(files, tmp_path):
    weights_or_skip("minilm")
    config = ModelConfig(
        400, 8, 8, 384, gate_size=4, radius_s=2.5, dropout=0.2, backbone="k400", clock=hiero.Clock(1.0, 1.0)
    )
    encoder = {"text_encoder": {"name": "minilm", "file": None}}
    write_model_folder(tmp_path / "model", config, hiero.HiERO(config).state_dict(), encoder)
    process = start_python(TUNE, tmp_path, tmp_path / "model")
    assert process.wait() == -signal.SIGKILL, process.communicate()
    assert read_metadata(tmp_path / ".killed.training" / "model" / STATE_FILE)["step"] == KILLED_AT
    assert not (tmp_path / "killed").exists()

    engine = hiero.load(tmp_path / "model", backbone="default", device="cpu")
    videos = [(engine.read(steps.source, cache=False), steps) for steps in find_corrections(files)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the process: sums have the same order then
    try:
        for name in ("whole", "killed"):
            tuning = TuningSettings(num_updates=NUM_UPDATES)
            fine_tune(engine, videos, tmp_path / name, tuning, device="cpu", display=(display := _Lines()))
    finally:
        torch.set_num_threads(threads)
    assert any("resuming at step" in line for line in display.lines)
    whole, resumed = (load_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not torch.equal(
        whole["project.weight"], load_tensors(tmp_path / "model" / "model.safetensors")["project.weight"]
    )
    assert not list(tmp_path.glob(".*.training"))


class _Lines(SilentDisplay):
    def __init__(self):
        self.lines = []

    def log(self, line):
        self.lines.append(line)


def test_annotations_instead_of_edits(files, tmp_path):
    file = tmp_path / "steps.json"
    file.write_text(json.dumps({"v0": {"steps": [{"start_s": 0, "end_s": 60, "text": "x"}]}, "other": {"steps": []}}))
    (steps,) = annotated_corrections(files, file)
    assert (steps.name, steps.steps) == ("v0", (AnnotatedStep(0.0, 60.0, "x"),))
    file.write_text(json.dumps({"other": {"steps": [{"start_s": 0, "end_s": 60, "text": "x"}]}}))
    with pytest.raises(InputError, match="any of these videos"):
        annotated_corrections(files, file)


def test_steps_with_names():
    fine = (
        Step("1.0", 0.0, 4.0, 0, parent="0.0", label="a", origin="person"),
        Step("1.1", 4.0, 6.0, 1, parent="0.0", label="moved, named by the model", probability=0.8, origin="person"),
        Step("1.2", 6.0, 9.0, 1, parent="0.1", label="b", background=True, origin="person"),
    )
    coarse = (
        Step("0.0", 0.0, 6.0, 0, children=("1.0", "1.1"), label="c", origin="person"),
        Step("0.1", 6.0, 9.0, 1, children=("1.2",), label="b", origin="person"),
    )
    names = [(step.start_s, step.end_s, step.text) for step in named_steps(Hierarchy("v", "m", 9.0, (coarse, fine)))]
    assert names == [(0.0, 6.0, "c"), (0.0, 4.0, "a")]  # the other "b" only repeats what it holds


def test_the_machine_does_not_teach_itself(files, tmp_path):
    """Only names from people do, also in files of the version before, in which they have no score."""
    steps = (
        Step("step-1", 0.0, 60.0, 0, label="open the fridge", probability=1.0),
        Step("step-2", 60.0, 90.0, 1, label=NAMES[0], origin="person"),
        Step("step-3", 90.0, 120.0, 1, label=NAMES[1], origin="imported"),
    )
    path = files["v2"].path
    hierarchy = Hierarchy(str(path), "m", 120.0, (steps,))
    write_edits(path, None, hierarchy)
    (corrected,) = find_corrections({"v2": files["v2"]})
    assert [step.text for step in corrected.steps] == list(NAMES)
    document = hierarchy.to_dict()
    document["version"] = 1
    for step in document["levels"][0]["steps"]:
        del step["origin"], step["probability"]
    edits_file(path).write_text(json.dumps(document))
    (corrected,) = find_corrections({"v2": files["v2"]})
    assert [step.text for step in corrected.steps] == list(NAMES)


def test_narrations_are_spread_over_steps(tmp_path):
    rows = spread_narrations(
        [
            CorrectedSteps(
                "v", VideoSource.of(tmp_path), (AnnotatedStep(10.0, 18.0, "a\nb"), AnnotatedStep(20.0, 21.0, "c"))
            )
        ]
    )
    assert rows == [("v", 12.0, "a b"), ("v", 16.0, "a b"), ("v", 20.5, "c")]


def test_nothing_corrected(files):
    with pytest.raises(InputError, match="none of the videos has corrected steps"):
        find_corrections({"v2": files["v2"]})
    engine = hiero.load("hiero-k400", backbone="default", device="cpu")
    video = engine.read(files["v0"], cache=False)
    with pytest.raises(InputError, match="no step has a name"):
        learn_from_videos([(video, [])])


@pytest.fixture
def quick_choice(files, monkeypatch):
    """Fine-tuning is tried from two videos on, and copies the model; returns the folders that were trained."""
    trained = []

    def copy(engine, videos, out, **options):
        trained.append((out.name, [steps.name for _, steps in videos]))
        out.mkdir(parents=True, exist_ok=True)
        adaptation.copy_model(engine.folder.path, out)

    monkeypatch.setattr(adaptation, "fine_tune", copy)
    monkeypatch.setattr(adaptation, "MIN_TUNING_STEPS", 2)
    monkeypatch.setattr(adaptation, "MIN_TUNING_VIDEOS", 2)
    return trained


def adapt_and_log(files, out):
    lines = []
    engine = hiero.load("hiero-k400", backbone="default", device="cpu")
    adapt(engine, find_corrections(files), lambda reader, path: reader.read(path, cache=False), out, log=lines.append)
    assert engine.prototypes is None
    return lines


def test_no_fine_tuning_that_does_not_help_on_held_out_videos(files, tmp_path, quick_choice):
    lines = adapt_and_log(files, tmp_path / "mine")
    assert [videos for _, videos in quick_choice] == [["v1"], ["v0"]]  # each without the video that it is scored on
    assert lines[-1].startswith("no fine-tuning: it does not help on held-out videos: with it ")
    assert lines[-1].count("of names and") == 2
    assert json.loads((tmp_path / "mine" / "prototypes.json").read_text())["fine_tuned"] is False
    assert not list(tmp_path.glob(".mine*"))


def test_fine_tuning_that_helps_on_held_out_videos(files, tmp_path, quick_choice, monkeypatch):
    def score(videos, names):
        tuned = ".checks" in str(videos[0][0].engine.folder.path)
        return np.array([[0.5, 0.9 if tuned else 0.5]])

    monkeypatch.setattr(adaptation, "score_held_out", score)
    lines = adapt_and_log(files, tmp_path / "mine")
    assert [videos for _, videos in quick_choice] == [["v1"], ["v0"], ["v0", "v1"]]
    line = "fine-tuning helps on held-out videos: with it 50% of names and 90% of answers right, without 50% of names"
    assert any(text.startswith(line) for text in lines)
    assert json.loads((tmp_path / "mine" / "prototypes.json").read_text())["fine_tuned"] is True


def test_few_videos_are_not_used_for_fine_tuning(files, tmp_path):
    (line,) = adapt_and_log(files, tmp_path / "mine")
    assert line.startswith("no fine-tuning: with fewer than 8 videos and 100 steps")


def test_an_interrupted_comparison_goes_on(tmp_path):
    groups = []

    def score(learned, held_out):
        groups.append((learned, held_out))
        if len(groups) == 2:
            raise KeyboardInterrupt
        return np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])

    with pytest.raises(KeyboardInterrupt):
        cross_validate(3, score, tmp_path / "checks", "steps")
    without, tuned = cross_validate(3, score, tmp_path / "checks", "steps")
    assert groups == [([1], [0, 2]), ([0, 2], [1]), ([0, 2], [1])]  # the first group is not scored again
    assert (without, tuned) == ((1.0, 0.0), (0.0, 1.0))
    assert not (tmp_path / "checks").exists()
    groups.clear()
    with pytest.raises(KeyboardInterrupt):
        cross_validate(3, score, tmp_path / "checks", "steps")
    cross_validate(3, score, tmp_path / "checks", "other steps")
    assert len(groups) == 4  # scores of other steps are not used


def test_held_out_steps_are_named_and_found(files):
    engine = hiero.load("hiero-k400", backbone="default", device="cpu")
    corrected = [(engine.read(steps.source, cache=False), steps.steps) for steps in find_corrections(files)]
    engine.prototypes = learn_from_videos(corrected[:1])
    assert score_held_out(corrected[1:], NAMES).tolist() == [[1.0, 1.0]] * 2
    wrong = [AnnotatedStep(step.start_s, step.end_s, other) for step, other in zip(corrected[1][1], NAMES, strict=True)]
    assert score_held_out([(corrected[1][0], wrong)], NAMES).tolist() == [[0.0, 0.0]] * 2
