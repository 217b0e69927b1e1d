"""Probabilities: more evidence is more probable, and calibration is measured correctly."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.calibration import Judged, report
from benchmarks.scores import calibration_error
from hiero.steps import calibration
from hiero.types import ANSWER_THRESHOLD


@pytest.mark.parametrize("name", ["MATCH", "LABEL", "SAME_STEP", "SPOKEN"])
def test_more_evidence_is_more_probable(name):
    probability = calibration.probability(np.linspace(-1, 30, 9), getattr(calibration, name))
    assert (np.diff(probability) >= 0).all()
    assert 0 < probability[0] < 0.5 < probability[-1] <= 1


@pytest.mark.parametrize("weights", [calibration.ANSWER, calibration.PICTURE_ANSWER])
def test_a_more_similar_step_of_a_video_is_more_probable(weights):
    probability = calibration.answer(np.linspace(-1, 2, 9), np.array(0.3), weights)
    assert (np.diff(probability) > 0).all()
    assert 0 < probability[0] < ANSWER_THRESHOLD < probability[-1] < 1


def test_the_calibration_error():
    said = np.array([0.8, 0.8, 0.8, 0.8, 0.2, 0.2])
    right = np.array([1, 1, 1, 0, 0, 0], dtype=float)
    assert calibration_error(said, right, np.ones(6)) == pytest.approx((4 * 0.05 + 2 * 0.2) / 6)
    assert calibration_error(right, right, np.ones(6)) == 0
    assert calibration_error(said, right, np.array([1, 1, 1, 0, 0, 0])) == pytest.approx(0.2)


def test_numbers_are_fitted_on_one_half_and_judged_on_the_other(capsys, monkeypatch):
    rng = np.random.default_rng(0)
    raw = rng.normal(size=4000)
    right = rng.random(4000) < 1 / (1 + np.exp(-2 * raw + 1))
    monkeypatch.setattr(calibration, "LABEL", (0.0, 0.0))
    development = (np.arange(4000) % 2 == 0).tolist()
    report("title", Judged(raw[:, None].tolist(), right.tolist(), development, [1.0] * 4000), "LABEL")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("title: 2000 answers to fit, 2000 held out")
    errors = {line.split(":")[0]: float(line.split()[-2]) for line in lines[2:4]}
    assert errors["fitted"] < 4 < errors["now"]
    slope, offset = (float(number) for number in lines[4].removeprefix("LABEL = (").rstrip(")").split(","))
    assert (slope, offset) == (pytest.approx(2, abs=0.3), pytest.approx(-1, abs=0.3))
