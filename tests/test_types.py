"""Value types: seconds and nodes, origins, names and texts that are safe to show."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.formatting import format_percent, printable
from hiero.types import Answer, Clock, Hierarchy, Step, Word, link_levels

TOLERANCE_S = Fraction(501, 1_000_000)


def touched_nodes(clock: Clock, start_ms: int, end_ms: int, num_nodes: int) -> tuple[int, int]:
    """Every node that shares more than half a millisecond with the span, in exact arithmetic."""
    spacing, begin = Fraction(clock.stride) / Fraction(clock.fps), Fraction(clock.start_s)
    start, end = Fraction(start_ms, 1000), Fraction(end_ms, 1000)
    touched = []
    for node in range(num_nodes):
        overlap = min(end, begin + (node + 1) * spacing) - max(start, begin + node * spacing)
        if overlap > TOLERANCE_S:
            touched.append(node)
    return touched[0], touched[-1] + 1


@given(
    fps=st.integers(1, 60),
    stride=st.integers(1, 32).map(lambda i: 2 * i),
    begin=st.integers(0, 5),
    start_ms=st.integers(0, 30_000),
    length_ms=st.integers(2, 30_000),
)
def test_a_span_holds_every_node_that_it_touches(fps, stride, begin, start_ms, length_ms):
    clock = Clock(fps, stride, begin)
    start_ms += 1000 * begin
    num_nodes = int((start_ms + length_ms) / 1000 / clock.spacing_s) + 2
    expected = touched_nodes(clock, start_ms, start_ms + length_ms, num_nodes)
    assert clock.span(start_ms / 1000, (start_ms + length_ms) / 1000) == expected


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 10**25, 10**400])
@pytest.mark.parametrize("name", ["fps", "stride", "start_s"])
def test_impossible_clocks_are_refused(name, value):
    with pytest.raises(InputError, match=name):
        Clock(**{name: value})


@pytest.mark.parametrize(
    ("clock", "span_s", "nodes"),
    [
        (Clock(1, 1), (3.6, 7.4), (3, 8)),
        (Clock(10, 1), (0.1 + 0.2, 0.7 + 0.1), (3, 8)),  # 0.30000000000000004 / 0.1 is above 3
        (Clock(30, 16), (0.533, 1.067), (1, 2)),  # edges that a file keeps in milliseconds
        (Clock(1, 1), (5.0, 5.0), (5, 6)),
        (Clock(1, 1, start_s=2.0), (1.5, 4.5), (-1, 3)),
        (Clock(1000, 1), (0.002, 0.004), (2, 4)),
    ],
)
def test_edges_of_a_span(clock, span_s, nodes):
    assert clock.span(*span_s) == nodes


@given(st.floats(-50, 50), st.floats(0, 50), st.integers(1, 20))
def test_a_clipped_span_lies_in_the_video(start_s, length_s, num_nodes):
    first, last = Clock(1, 1).span(start_s, start_s + length_s, num_nodes)
    assert 0 <= first < last <= num_nodes


RATES = st.one_of(
    st.sampled_from([30, 25, Fraction(30_000, 1001), Fraction(24_000, 1001)]),
    st.fractions(1, 240, max_denominator=1001),
)
STRIDES = st.one_of(st.integers(1, 64), st.fractions(Fraction(1, 2), 64, max_denominator=1001))


@given(RATES, STRIDES, st.floats(0, 36_000), st.floats(0, 360_000))
def test_every_node_of_100_hours_comes_back_from_its_own_edges(fps, stride, start_s, after_s):
    clock = Clock(float(fps), float(stride), start_s)
    node = clock.index(start_s + after_s)
    assert clock.edge_s(node) <= start_s + after_s < clock.edge_s(node + 1)
    for each in range(node, node + 16):
        assert clock.index(clock.edge_s(each)) == clock.index(clock.time_s(each)) == each
        assert clock.span(clock.edge_s(each), clock.edge_s(each + 3)) == (each, each + 3)


def step_document(**fields) -> dict:
    return {"id": "a", "start_s": 0.0, "end_s": 1.0, **fields}


def test_documents_of_version_1_have_scores_and_no_origin():
    named_by_model = Step.from_dict(step_document(label="wash", score=0.5))
    assert (named_by_model.probability, named_by_model.origin) == (0.5, "model")
    assert Step.from_dict(step_document(label="wash", score=None)).origin == "person"
    assert Step.from_dict(step_document(label=None)).origin == "model"


@pytest.mark.parametrize(
    ("origin", "label", "probability", "expected"),
    [
        ("imported", "wash", None, True),
        ("model", "wash", 0.8, False),
        ("person", "wash", 0.8, False),  # only moved
        ("person", None, None, False),
    ],
)
def test_a_person_named_a_step_that_has_a_label_without_a_probability(origin, label, probability, expected):
    step = Step("a", 0.0, 1.0, 0, label=label, probability=probability, origin=origin)
    assert step.is_named_by_person == expected
    assert Step.from_dict(step.to_dict()) == step


@pytest.mark.parametrize(
    ("field", "value"),
    [("background", "false"), ("background", 1), ("probability", 5), ("score", -0.1), ("origin", "robot")],
)
def test_impossible_values_of_a_step_are_refused(field, value):
    with pytest.raises(InputError, match=str(value)):
        Step.from_dict(step_document(**{field: value}))


@pytest.mark.parametrize("end_s", [1.0, 1.0004, math.nextafter(1.0, 2.0)])
def test_a_step_that_files_cannot_hold_is_neither_written_nor_read(end_s):
    steps = (Step("a", 0.0, 1.0, 0), Step("short", 1.0, end_s, 1), Step("b", end_s, 2.0, 2))
    document = {"duration_s": 2.0, "levels": [{"steps": [step.to_dict() | vars(step) for step in steps]}]}
    with pytest.raises(InputError, match="short"):
        Hierarchy.from_dict(document)
    with pytest.raises(InputError, match="short"):
        Hierarchy("v", "m", 2.0, (steps,)).to_dict()


@given(st.floats(0, 1e6), st.integers(1, 9))
def test_steps_that_begin_later_come_back(start_s, num_steps):
    clock = Clock(30, 16, start_s)
    steps = [Step(str(i), clock.edge_s(i), clock.edge_s(i + 1), 0) for i in range(num_steps)]
    document = Hierarchy("v", "m", clock.edge_s(num_steps), (tuple(steps),)).to_dict()
    assert Hierarchy.from_dict(document).to_dict() == document


def test_levels_that_do_not_say_when_they_begin_begin_at_0():
    document = Hierarchy("v", "m", 9.0, ((Step("a", 5.0, 9.0, 0),),)).to_dict()
    del document["start_s"]
    with pytest.raises(InputError, match="step a"):
        Hierarchy.from_dict(document)


def test_a_step_before_all_others_belongs_to_the_first_parent():
    coarse = [Step("first", 0.04, 5.0, 0), Step("last", 5.0, 9.0, 0)]
    fine = [Step("a", 0.0, 0.02, 0), Step("b", 0.02, 9.0, 0)]
    assert link_levels([coarse, fine])[1][0].parent == "first"


def test_an_answer_says_whether_it_is_present():
    assert [Answer("wash", p, ()).to_dict()["present"] for p in (0.9, 0.1, 0.09)] == [True, True, False]


def test_words_are_shown_as_a_guess_and_name_the_step_around_them():
    tap, pot, egg = Word("tap", 0.31), Word("pot", 0.2), Word("egg", 0.9)
    fine = [Step("x", 0.0, 1.0, 0, words=(tap, pot)), Step("y", 1.0, 2.0, 0), Step("z", 2.0, 4.0, 0, words=(egg,))]
    levels = link_levels([[Step("all", 0.0, 4.0, 0)], fine])
    hierarchy = Hierarchy("v", "m", 4.0, tuple(map(tuple, levels)))
    assert hierarchy.shown_titles == {"all": "tap … egg?", "x": "tap, pot?", "y": "Step 2", "z": "egg"}
    assert hierarchy.titles == {"all": "Part 1", "x": "Step 1", "y": "Step 2", "z": "Step 3"}
    assert Hierarchy.from_dict(hierarchy.to_dict()) == hierarchy


@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "a\x9b31m", "\u202etxt.exe", "a\u2028b", "\x7f", "\ud800"])
def test_no_text_controls_a_terminal(text):
    shown = printable(text)
    assert shown.isprintable()
    assert shown != text
    assert printable("naïve 切 👩‍🍳\tok\n") == "naïve 切 👩‍🍳\tok\n"


@pytest.mark.parametrize(
    ("text", "label"), [("wa\x1b[31m\u202e", "wa[31m"), ("\x07", None), ("two\nlines", "two\nlines")]
)
def test_labels_hold_no_control_characters(text, label):
    assert Step("a", 0.0, 1.0, 0, label=text).label == label


def test_percentages():
    assert [format_percent(p) for p in (0.0, 0.004, 0.01, 0.655, 1.0)] == ["< 1 %", "< 1 %", "1 %", "66 %", "100 %"]


@pytest.mark.parametrize(
    ("probability", "origin", "shown"), [(0.79, "model", "wash?"), (0.8, "model", "wash"), (None, "person", "wash")]
)
def test_a_guess_has_a_question_mark(probability, origin, shown):
    step = Step("a", 0.0, 1.0, 0, label="wash", probability=probability, origin=origin)
    assert step.shown_label == shown
    hierarchy = Hierarchy("v", "m", 1.0, ((step,),))
    assert (hierarchy.shown_titles, hierarchy.titles) == ({"a": shown}, {"a": "wash"})


@pytest.mark.parametrize("time_s", [float("inf"), float("nan"), 1e308])
def test_a_time_without_a_segment_is_refused(time_s):
    with pytest.raises(InputError, match="time"):
        Clock(60.0, 0.5).index(time_s)
