"""Questions about whole videos are right."""

from __future__ import annotations

import pytest

from benchmarks.egtea import Action, Question, is_named, make_questions

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
