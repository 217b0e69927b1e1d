"""Scores of the adaptation benchmark on hand-made steps."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.adaptation import segmental_f1, summarise
from hiero.types import AnnotatedStep

STEPS = [AnnotatedStep(0.0, 10.0, "a"), AnnotatedStep(10.0, 20.0, "b"), AnnotatedStep(20.0, 30.0, "a")]


def test_segmental_f1():
    assert segmental_f1([(0, 10, "a"), (10, 20, "b"), (20, 30, "a")], STEPS) == 1
    assert segmental_f1([(0, 10, "b"), (10, 20, "a"), (20, 30, "b")], STEPS) == 0
    assert segmental_f1([(0, 30, "a")], STEPS) == pytest.approx(2 * 1 / 4)  # IoU 1/3, and each true step is used once
    assert segmental_f1([(0, 5, "a"), (5, 10, "a")], STEPS) == pytest.approx(2 * 1 / 5)


def test_summary_compares_the_same_draws():
    cells = [
        {
            "method": method,
            "recipe": recipe,
            "num": 1,
            "draw": draw,
            "scores": [score, score, None if method == "vslnet" else score],
        }
        for method, draws in (("none", (0, 1)), ("vslnet", (0,)))
        for draw in draws
        for recipe, score in (("tea", 0.2 + draw), ("egg", 0.4 + draw))
    ]
    summary = summarise(cells)
    np.testing.assert_allclose(summary["none"][1], [[30, 30, 30], [10, 10, 10]])
    assert np.isnan(summary["vslnet"][1][0, 2])
