"""Conversions between seconds and nodes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.types import Clock

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


@pytest.mark.parametrize(
    ("clock", "span_s", "nodes"),
    [
        (Clock(1, 1), (3.6, 7.4), (3, 8)),
        (Clock(10, 1), (0.3, 0.6), (3, 6)),  # 0.3 / 0.1 is 2.9999999999999996
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


def test_every_node_comes_back_from_its_own_edges():
    clock = Clock(30, 16, start_s=1.25)
    for node in (0, 1, 7, 1000, 10**6):
        assert clock.span(clock.edge_s(node), clock.edge_s(node + 3)) == (node, node + 3)
