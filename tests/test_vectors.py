"""Unit vectors and cosine similarity."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hiero.vectors import cosine_similarity, unit_vectors

ROWS = arrays(np.float64, (4, 3), elements=st.floats(-100, 100).filter(lambda x: x == 0 or abs(x) > 1e-6))


@given(ROWS)
def test_rows_have_length_one_or_zero(x):
    for row, unit in zip(x, unit_vectors(x), strict=True):
        length = math.sqrt(sum(value * value for value in row))
        expected = [value / length for value in row] if length else [0.0, 0.0, 0.0]
        np.testing.assert_allclose(unit, expected, atol=1e-12)


@given(ROWS, ROWS)
def test_cosines_are_those_of_each_pair(a, b):
    cosines = cosine_similarity(a, b)
    for i, u in enumerate(a):
        for j, v in enumerate(b):
            lengths = math.hypot(*u) * math.hypot(*v)
            expected = sum(p * q for p, q in zip(u, v, strict=True)) / lengths if lengths else 0.0
            assert math.isclose(cosines[i, j], expected, abs_tol=1e-9)


def test_unit_vectors_keep_precision_and_shape_and_very_short_ones_stay_short():
    units = unit_vectors(np.ones((2, 3, 4), np.float32))
    assert units.dtype == np.float32
    np.testing.assert_allclose(units, np.full((2, 3, 4), 0.5))
    assert np.linalg.norm(unit_vectors(np.array([[1e-8, 0.0]]), 1e-6)) < 0.02
