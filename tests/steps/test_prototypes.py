"""Prototypes of named steps: learned from few nodes, found again in other videos, stored beside a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from hiero.errors import InputError
from hiero.steps.prototypes import (
    ARRAYS_FILE,
    RIDGE,
    SETTINGS_FILE,
    CorrectedVideo,
    StepPrototypes,
    learn_prototypes,
    place_names,
    price_names,
)
from hiero.types import AnnotatedStep, Clock
from hiero.vectors import unit_vectors

CLOCK = Clock(1.0, 1.0)
NAMES = ("wash the cup", "boil water", "pour the tea")


def make_video(seed: int, order=(0, 1, 2), length: int = 20) -> CorrectedVideo:
    """Steps of 20 nodes each, around directions that all videos share, with as many nodes of noise between them."""
    directions = np.random.default_rng(0).normal(size=(3, 16))
    rng = np.random.default_rng(seed)
    rows, steps = [], []
    for i in order:
        rows.append(rng.normal(size=(length, 16)))
        steps.append(AnnotatedStep(len(rows) * length, (len(rows) + 1) * length, NAMES[i]))
        rows.append(2 * directions[i] + rng.normal(size=(length, 16)))
    return CorrectedVideo({"nodes": unit_vectors(np.concatenate(rows))}, steps, CLOCK)


def test_steps_are_found_again_wherever_they_are():
    prototypes = learn_prototypes([make_video(1), make_video(2, (2, 0, 1))])
    assert prototypes.labels == NAMES
    assert prototypes.num_steps.tolist() == [2, 2, 2]
    other = make_video(3, (1, 2, 0))
    similarity = prototypes.similarity(range(3), other.views)
    for step in other.steps:
        start, end = other.span(step)
        assert NAMES[similarity[:, start:end].mean(1).argmax()] == step.text
        row = similarity[NAMES.index(step.text)]
        assert row[start:end].mean() > np.delete(row, np.s_[start:end]).mean() + 0.2


def test_position_says_when():
    prototypes = learn_prototypes([make_video(1), make_video(2)])
    only_position = prototypes.similarity([0, 2], {"nodes": np.zeros((100, 16))})
    assert only_position[0].argmax() == pytest.approx(100 * 30 / 120, abs=1)
    assert only_position[1].argmax() == pytest.approx(100 * 110 / 120, abs=1)


@given(st.integers(0, 1000), st.integers(1, 3))
def test_readout_is_ridge_regression(seed, num_videos):
    """Against the plain normal equations with a target for each node."""
    videos = [make_video(seed + i, tuple(np.random.default_rng(seed + i).permutation(3)), 5) for i in range(num_videos)]
    prototypes = learn_prototypes(videos)
    rows = np.concatenate([video.views["nodes"] for video in videos]).astype(float)
    for number, label in enumerate(prototypes.labels):
        target = []
        for video in videos:
            inside = np.zeros(video.num_nodes)
            for step in video.steps:
                if step.text == label:
                    inside[video.span(step)[0] : video.span(step)[1]] = 1
            target.append(inside)
        y = np.concatenate(target)
        padded = np.concatenate([rows, np.sqrt(RIDGE * len(rows)) * np.eye(rows.shape[1])])
        weights = np.linalg.lstsq(padded, np.concatenate([y - y.mean(), np.zeros(rows.shape[1])]), rcond=None)[0]
        np.testing.assert_allclose(
            prototypes.readouts["nodes"][number], weights / np.sqrt(y.mean()), rtol=1e-3, atol=1e-3
        )


def test_texts_that_mean_a_named_step():
    prototypes = learn_prototypes([make_video(1)])
    vectors = np.eye(4)[:3]
    near = np.array([0.9, 0.0, 0.0, np.sqrt(1 - 0.81)])
    assert prototypes.match(["Wash  the cup."], np.eye(4)[3:], vectors) == [(0, 1.0)]
    ((number, certainty),) = prototypes.match(["rinse the cup"], near[None], vectors)
    assert number == 0
    assert certainty == pytest.approx(0.75)
    assert prototypes.match(["sing"], np.eye(4)[3:], vectors) == [None]
    # Where the name itself is among the texts, another text does not take its place.
    assert prototypes.match(["wash the cup", "rinse the cup"], np.stack([vectors[0], near]), vectors) == [
        (0, 1.0),
        None,
    ]


def test_files(tmp_path):
    assert StepPrototypes.load(tmp_path) is None
    prototypes = learn_prototypes([make_video(1), make_video(2)])
    prototypes.save(tmp_path, {"videos": ["a"]})
    loaded = StepPrototypes.load(tmp_path)
    assert loaded is not None
    assert loaded.labels == prototypes.labels
    views = make_video(5).views
    np.testing.assert_allclose(loaded.similarity([0, 1, 2], views), prototypes.similarity([0, 1, 2], views), atol=1e-5)
    (tmp_path / SETTINGS_FILE).write_text('{"labels": ["a"]}')
    with pytest.raises(InputError, match="do not fit each other"):
        StepPrototypes.load(tmp_path)
    (tmp_path / ARRAYS_FILE).write_bytes(b"x")
    with pytest.raises(InputError, match="damaged"):
        StepPrototypes.load(tmp_path)


def test_nothing_to_learn_from():
    video = make_video(1)
    with pytest.raises(InputError, match="no step has a name"):
        learn_prototypes([CorrectedVideo(video.views, [], CLOCK)])


def test_steps_compete_for_a_name():
    """Both steps look like washing: the one that looks more like it gets the name, the other its second best."""
    prototypes = learn_prototypes([make_video(1), make_video(2)])
    similarity = np.array([[0.9, 0.7], [0.2, 0.5], [0.1, 0.1]])
    shared = prototypes.share_names(similarity, NAMES, np.full(2, 1 / 6), whole=True)
    assert shared.argmax(0).tolist() == [0, 1]
    assert shared[0, 0] == 0.9
    assert shared[1, 1] == 0.5
    assert (shared <= similarity).all()
    # Other texts may name any number of steps, and so may a step that a corrected video had twice.
    assert prototypes.share_names(similarity, ["rinse", "stir", "sing"], np.ones(2), True).argmax(0).tolist() == [0, 0]
    twice = learn_prototypes([make_video(1, (0, 1, 2, 0))])
    assert twice.max_repeats.tolist() == [2, 1, 1]
    assert twice.share_names(similarity, NAMES, np.full(2, 1 / 6), whole=True).argmax(0).tolist() == [0, 0]


def test_short_parts_of_one_step_share_its_name():
    prototypes = learn_prototypes([make_video(1)])  # each step is a sixth of the video
    similarity = np.array([[0.9, 0.8, 0.1], [0.2, 0.6, 0.1], [0.1, 0.1, 0.9]])
    parts = np.array([1 / 12, 1 / 12, 1 / 6])
    assert prototypes.share_names(similarity, NAMES, parts, whole=False).argmax(0).tolist() == [0, 0, 2]
    assert prototypes.share_names(similarity, NAMES, parts, whole=True).argmax(0).tolist() == [0, 1, 2]


@given(st.integers(0, 1000), st.integers(2, 6))
def test_prices_find_the_best_assignment(seed, num):
    """Some names are popular with all steps. The choice at the prices is that of the Hungarian algorithm."""
    rng = np.random.default_rng(seed)
    similarity = 0.4 * np.eye(num)[rng.permutation(num)] + 0.1 * rng.random((num, num)) + 0.5 * rng.random((num, 1))
    rows, columns = linear_sum_assignment(-similarity)
    priced = similarity - price_names(similarity, np.ones_like(similarity), np.ones(num))[:, None]
    assert priced.argmax(0)[columns].tolist() == rows.tolist()


def test_usual_lengths_weigh_more_with_every_example():
    once = learn_prototypes([make_video(1)])
    often = learn_prototypes([make_video(i) for i in range(4)])
    lengths = np.array([1 / 12, 1 / 6, 1 / 3])  # steps take a sixth of each video
    few, many = once.length_weights([0, 1], lengths), often.length_weights([0, 1], lengths)
    assert few.shape == (2, 3)
    assert np.allclose(few[:, 1], 1)
    assert np.allclose(few[:, 0], few[:, 2])  # half as long is as unusual as twice as long
    assert (many[:, [0, 2]] < few[:, [0, 2]]).all()


def test_the_most_probable_names_are_placed_first():
    spans = np.array([(0, 6), (2, 8), (5, 10), (0, 10)])
    owner = place_names(spans, np.array([0.9, 0.8, 0.7, 0.0]), 12)
    # The second name loses four of its six nodes and is left out; the third loses one and keeps the rest.
    assert owner.tolist() == [0] * 6 + [2] * 4 + [-1] * 2
