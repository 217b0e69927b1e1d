"""Folds over recipes, interleaved recordings, and guesses of the number of steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cross_validation import NUM_FOLDS, PARTS, count_changes, deal_folds, score_steps, shorten, split_fold
from benchmarks.threads import interleave

ANNOTATIONS = {f"{recipe}_{i}": {"recipe": f"recipe {recipe}"} for recipe in range(19) for i in range(12)}


def test_every_recording_is_once_of_a_recipe_that_was_never_seen():
    unseen = []
    for fold in range(NUM_FOLDS):
        parts = split_fold(ANNOTATIONS, list(ANNOTATIONS), fold)
        recipes = {name: {ANNOTATIONS[r]["recipe"] for r in parts[name]} for name in parts}
        assert not recipes["unseen"] & (recipes["train"] | recipes["known"])
        assert recipes["known"] <= recipes["train"]
        assert sum(map(len, parts.values())) == len(ANNOTATIONS)
        unseen += parts["unseen"]
    assert sorted(unseen) == sorted(ANNOTATIONS)
    assert set(deal_folds(ANNOTATIONS).values()) == set(range(NUM_FOLDS))
    everything = split_fold(ANNOTATIONS, list(ANNOTATIONS), -1)
    assert len(everything["train"]) == len(ANNOTATIONS)
    assert not any(everything[part] for part in PARTS)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("Add 1/8 tsp of turmeric to the pan", "Add turmeric to pan"),
        ("Cut tofu into large cubes (about 1 in x 1 in)", "Cut tofu into large cubes"),
        ("Rinse", "Rinse"),
    ],
)
def test_short_sentences(text, short):
    assert shorten(text) == short


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=4), turn=st.integers(1, 20))
def test_recordings_take_turns_and_lose_nothing(lengths, turn):
    rows = interleave(lengths, turn)
    for i, length in enumerate(lengths):
        assert rows[rows[:, 0] == i, 1].tolist() == list(range(length))
    runs = np.diff(np.flatnonzero(np.diff(rows[:, 0]) != 0), prepend=-1)
    assert (runs <= turn).all()


def test_changes_and_scores_of_clear_steps():
    nodes = np.repeat(np.eye(5), 40, axis=0) + 0.01 * np.random.default_rng(0).normal(size=(200, 5))
    steps = [{"start_s": 40 * i, "end_s": 40 * i + 40, "text": str(i)} for i in range(5)]
    assert count_changes(nodes) == 5
    assert score_steps(nodes, steps) == pytest.approx((1, 1))
    assert score_steps(nodes, steps, 5, equal_parts=True) == pytest.approx((1, 1))
    assert score_steps(nodes, steps, 2)[0] < 0.7
