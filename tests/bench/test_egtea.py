"""Questions about whole videos are right, and cuts of videos are scored correctly."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.egtea import Action, Question, is_named, make_questions
from benchmarks.egtea_graph import Sample

OPEN, TAKE, CUT, CLOSE = 2, 3, 4, 6
ACTIONS = {
    "a": [
        Action(0, 2, OPEN, ("fridge",)),
        Action(3, 4, TAKE, ("onion",)),
        Action(9, 12, CUT, ("onion", "knife")),
        Action(20, 21, CLOSE, ("fridge",)),
        Action(30, 31, OPEN, ("fridge",)),
    ],
    "b": [Action(0, 3, CUT, ("bread",)), Action(5, 6, TAKE, ("cup",)), Action(8, 9, OPEN, ("drawer",))],
}


@pytest.mark.parametrize("seed", range(5))
def test_present_questions_are_true_and_absent_ones_false(seed):
    questions = make_questions("a", ACTIONS, seed)
    present = {question.text: question.moments for question in questions if question.kind == "present"}
    assert present["open the fridge"] == ((0, 2), (30, 31))
    assert len(present) == 4
    absent = [question for question in questions if question.kind != "present"]
    assert {question.kind for question in absent} <= {"another verb", "another thing", "another video"}
    assert not set(present) & {question.text for question in absent}
    assert not any(question.moments for question in absent)


def test_an_answer_overlaps_most_of_the_shorter_span():
    question = Question("cut the onion", "present", ((9.0, 12.0),))
    assert question.is_shown(0, 100)
    assert question.is_shown(11, 11.5)
    assert not question.is_shown(11, 20)
    assert not question.is_shown(12, 13)
    assert not Question("x", "another verb").is_shown(0, 100)


def test_a_bundled_label_needs_the_verb_and_a_thing():
    action = ACTIONS["a"][2]
    assert is_named(action, "slice an onion")
    assert not is_named(action, "peel an onion")
    assert not is_named(action, "cut the bread")


def test_the_true_cut_is_perfect_and_another_is_not():
    clock = SimpleNamespace(edge_s=float)
    sample = Sample(SimpleNamespace(duration_s=30.0, clock=clock), [(0, 10), (10, 15), (15, 30)])
    assert sample.f1(np.array([0.0, 10.0, 15.0])) == pytest.approx(100)
    assert sample.f1(np.array([0.0, 10.0, 20.0])) < 90
    features = np.repeat(np.eye(3), [10, 5, 15], axis=0)
    assert sample.cut(features) == pytest.approx(100)
