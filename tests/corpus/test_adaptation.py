"""A model learns from corrected videos: edits beside them, or a file of labelled steps."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hiero
from hiero.corpus.adaptation import adapt, annotated_corrections, find_corrections, learn_from_videos, named_steps
from hiero.errors import InputError
from hiero.formats.hiero_json import edits_file, write_edits
from hiero.media.source import VideoSource
from hiero.types import AnnotatedStep, Hierarchy, Step

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
            first, second = (NAMES[k] for k in order)
            steps = (
                Step("step-1", 0.0, 60.0, 0, label=first, origin="person"),
                Step("step-2", 60.0, 120.0, 1, label=second, origin="person"),
            )
            write_edits(path, None, Hierarchy(str(path), "m", 120.0, (steps,)))
    return paths


def test_learning_names_that_no_text_encoder_knows(files, tmp_path):
    engine = hiero.load("hiero-k400", device="cpu")
    corrections = find_corrections(files)
    assert [steps.name for steps in corrections] == ["v0", "v1"]
    out = tmp_path / "mine"
    prototypes = adapt(engine, corrections, lambda path: engine.read(path, cache=False), out)
    assert prototypes.labels == NAMES
    adapted = hiero.load(out, device="cpu")
    video = adapted.read(files["v2"], cache=False)
    assert [step.label for step in video.steps(2).levels[0]] == [NAMES[1], NAMES[0]]
    first, second = video.ask(list(NAMES), num=1)
    assert first.matches[0].start_s >= 40
    assert second.matches[0].end_s <= 80
    assert first.probability > engine.read(files["v2"], cache=False).ask(NAMES[0], num=1)[0].probability
    with pytest.raises(InputError, match="choose another folder"):
        adapt(adapted, corrections, lambda path: adapted.read(path, cache=False), out)


def test_an_adapted_model_keeps_its_head(files, tmp_path):
    engine = hiero.load("hiero-k400-permissive", device="cpu")
    adapt(engine, find_corrections(files), lambda path: engine.read(path, cache=False), tmp_path / "mine")
    adapted = hiero.load(tmp_path / "mine", device="cpu")
    assert (adapted.image_text_head, adapted.key) == ("permissive", engine.key)


def test_a_learned_name_is_labelled_where_it_fits_best_not_where_the_cut_is(files):
    """The steps of a cut are a minute long; the learned step takes a third of that."""
    engine = hiero.load("hiero-k400", device="cpu")
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
    answer = videos[1].ask(NAMES[0], num=1)[0].matches[0]
    assert abs(answer.end_s - answer.start_s - 20) <= 10
    assert [step.label for step in videos[1].label(NAMES[0], num_steps=1)] == [None]  # as many steps as asked for


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
        step["score"] = step.pop("probability")
        del step["origin"]
    edits_file(path).write_text(json.dumps(document))
    (corrected,) = find_corrections({"v2": files["v2"]})
    assert [step.text for step in corrected.steps] == list(NAMES)


def test_nothing_corrected(files):
    with pytest.raises(InputError, match="none of the videos has corrected steps"):
        find_corrections({"v2": files["v2"]})
