"""Corrections of steps: they belong to the content of a video, and count in steps and answers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hiero.engine import load
from hiero.errors import InputError
from hiero.formats.hiero_json import delete_edits, edits_file, read_edits, write_edits
from hiero.storage.cache import content_key
from hiero.storage.files import home
from hiero.types import Hierarchy, Step
from tests.evaluation.simulated import encode_as_own_vector, save_identity_model
from tests.optional import weights_or_skip

NAME = "rinse the blue cup"


def corrected(label=NAME, duration_s=120.0):
    """Three steps: a person named the second one, the model the first one."""
    steps = (
        Step("step-1", 0.0, 40.0, 0, label="open the fridge", probability=0.8),
        Step("step-2", 40.0, 70.0, 1, label=label, origin="person"),
        Step("step-3", 70.0, duration_s, 2),
    )
    return Hierarchy("elsewhere.mp4", "hiero-k400", duration_s, (steps,))


@pytest.fixture
def kitchen(tmp_path):
    path = tmp_path / "kitchen.npy"
    np.save(path, np.random.default_rng(3).normal(size=(120, 400)).astype(np.float32))
    return path


@pytest.fixture(scope="module")
def engine():
    weights_or_skip("minilm")
    return load(device="cpu")


def labels_of(hierarchy):
    return [step.label for step in hierarchy.levels[-1]]


def test_steps_are_the_corrected_ones(kitchen, engine):
    assert NAME not in labels_of(engine.read(kitchen).steps())
    write_edits(kitchen, content_key(kitchen), corrected())
    video = engine.read(kitchen)
    assert video.steps().levels == corrected().levels
    assert video.steps().video == str(kitchen)
    assert video.edits_name == "kitchen.npy.hiero.json"
    assert len(video.steps(5).levels[0]) == 5  # an explicit number finds new steps
    assert len(video.steps(method="equal-parts").levels) == 3
    assert NAME not in labels_of(engine.read(kitchen, edits=False).steps())


def test_labels_replace_the_names_of_the_model_only(tmp_path, monkeypatch):
    engine = load(save_identity_model(tmp_path / "model", monkeypatch), device="cpu")
    features = np.tile(encode_as_own_vector(["wash the pot"]), (120, 1))
    np.save(tmp_path / "pot.npy", features)
    write_edits(tmp_path / "pot.npy", None, corrected())
    named = engine.read(tmp_path / "pot.npy").steps(labels=["wash the pot"])
    assert labels_of(named) == ["wash the pot", NAME, "wash the pot"]
    assert [step.origin for step in named] == ["model", "person", "model"]


def test_answers_use_the_names_of_people(kitchen, engine):
    before = engine.read(kitchen).ask(NAME)[0]
    assert before.rests_on is None
    write_edits(kitchen, None, corrected())
    answer, other = engine.read(kitchen).ask([NAME, "repair a motorcycle"])
    best = answer.matches[0]
    assert (best.start_s, best.end_s, best.rests_on, best.quote) == (40.0, 70.0, "name", NAME)
    assert answer.present
    assert best.probability == pytest.approx(answer.probability)
    assert best.probability > 0.95
    assert other.rests_on != "name"


def test_a_moved_video_keeps_its_edits(kitchen, engine, tmp_path):
    write_edits(kitchen, content_key(kitchen), corrected())
    moved = tmp_path / "elsewhere" / "renamed.npy"
    moved.parent.mkdir()
    kitchen.rename(moved)
    edits_file(kitchen).unlink()
    video = engine.read(moved)
    assert labels_of(video.steps())[1] == NAME
    assert video.edits_name == str(home() / "edits" / f"{content_key(moved)}.json")
    assert engine.read(moved, cache=False).edits is not None
    delete_edits(moved, content_key(moved))
    assert engine.read(moved).edits is None


def test_the_file_with_the_highest_revision_counts_whatever_its_time(kitchen):
    key = content_key(kitchen)
    write_edits(kitchen, key, corrected())
    backup = edits_file(kitchen).read_bytes()
    write_edits(kitchen, key, corrected("dry the cup"))
    edits_file(kitchen).write_bytes(backup)  # the newest file, with the oldest steps
    found = read_edits(kitchen, key)
    assert labels_of(found.hierarchy)[1] == "dry the cup"
    assert (found.name, found.revision) == (str(home() / "edits" / f"{key}.json"), 2)
    write_edits(kitchen, key, corrected())
    found = read_edits(kitchen, key)
    assert (labels_of(found.hierarchy)[1], found.name, found.revision) == (NAME, "kitchen.npy.hiero.json", 3)


@pytest.mark.parametrize("revision", [-1, 1.5, True, "3", 10**30])
def test_an_impossible_revision_is_an_error_and_can_be_replaced(kitchen, revision):
    edits_file(kitchen).write_text(json.dumps({**corrected().to_dict(), "revision": revision}))
    with pytest.raises(InputError, match=r"kitchen\.npy\.hiero\.json.*revision"):
        read_edits(kitchen)
    write_edits(kitchen, None, corrected())
    assert read_edits(kitchen).revision == 1


def test_edits_of_another_video_are_not_used(kitchen, engine):
    write_edits(kitchen, None, corrected(duration_s=200.0))
    with pytest.warns(UserWarning, match=r"200\.0 s"):
        assert engine.read(kitchen).edits is None
    write_edits(kitchen, content_key(kitchen), corrected())
    np.save(kitchen, np.random.default_rng(4).normal(size=(120, 400)).astype(np.float32))
    with pytest.warns(UserWarning, match=r"kitchen\.npy\.hiero\.json"):
        assert engine.read(kitchen).edits is None


def test_a_damaged_file_is_an_error(kitchen, engine):
    edits_file(kitchen).write_text("{")
    with pytest.raises(InputError, match=r"kitchen\.npy\.hiero\.json"):
        engine.read(kitchen)


def test_edits_that_cannot_be_kept_beside_the_video_are_kept_by_its_content(kitchen):
    edits_file(kitchen).mkdir()  # as good as a folder that cannot be written
    key = content_key(kitchen)
    write_edits(kitchen, key, corrected())
    edits_file(kitchen).rmdir()
    found = read_edits(kitchen, key)
    assert (found.hierarchy, found.name) == (corrected(), str(home() / "edits" / f"{key}.json"))


def test_edits_that_can_be_kept_nowhere_are_an_error(kitchen):
    edits_file(kitchen).mkdir()
    with pytest.raises(OSError, match=r"kitchen\.npy"):
        write_edits(kitchen, None, corrected())


def test_a_moment_that_the_order_forces_has_its_own_probability(engine, kitchen):
    video = engine.read(kitchen)
    texts = ["wash the dishes", "peel potatoes", "wash the dishes"]
    free, ordered = video.ask(texts), video.ask(texts, in_order=True)
    assert all(one.matches[0].probability <= other.probability for one, other in zip(ordered, free, strict=True))
    first, _, last = (answer.matches[0].probability for answer in ordered)
    assert min(first, last) < free[0].probability  # one of the two is elsewhere


def test_answers_are_not_the_whole_video(engine, kitchen):
    """Similarity that is spread evenly made the whole video the best answer."""
    video = engine.read(kitchen)
    video.sight.spans = np.array([[0, 70], [0, 120], [70, 120]])
    video.sight.similarity = lambda texts: np.zeros((len(texts), 120))
    (answer,) = video.ask("cook")
    assert [(match.start_s, match.end_s) for match in answer.matches] == [(0.0, 70.0), (70.0, 120.0)]
    assert answer.matches[0].probability == pytest.approx(answer.probability)
