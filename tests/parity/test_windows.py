"""Windows of EgoClip and EgoMCQ are those of the release."""

from __future__ import annotations

import pytest

from hiero.evaluation.egomcq import context_window
from hiero.training.narrated_windows import cut_windows, narrations_in
from hiero.types import Clock
from tests.conftest import load_json

WINDOWS = load_json("windows")


@pytest.mark.parametrize("case", WINDOWS["egoclip"], ids=lambda c: f"{c['n_segments']}@{c['fps']}")
def test_egoclip_windows(case):
    clock = Clock(case["fps"], case["stride"])
    narrated = []
    for index, window in enumerate(cut_windows(case["n_segments"], clock)):
        indices = narrations_in(case["narration_times"], index, case["n_segments"], clock)
        if indices:
            narrated.append((index, window, [case["narration_times"][i] for i in indices]))
    assert [index for index, _, _ in narrated] == [part["part"] for part in case["parts"]]
    for (_, window, narrations), part in zip(narrated, case["parts"], strict=True):
        assert (window.start, window.end, window.num_nodes) == (part["idx_start"], part["idx_end"], part["num_nodes"])
        assert narrations == part["kept_narration_times"]
        assert window.clock.time_s(0) == pytest.approx(part["pos_first"], abs=1e-4)
        assert window.clock.time_s(window.num_nodes - 1) == pytest.approx(part["pos_last"], abs=1e-4)


@pytest.mark.parametrize(
    "case", WINDOWS["egomcq"], ids=lambda c: f"{c['n_segments']}@{c['fps']}+{c['context']}-{c['clip_start']}"
)
def test_egomcq_windows(case):
    window = context_window(
        case["n_segments"], Clock(case["fps"], case["stride"]), case["clip_start"], case["clip_end"], case["context"]
    )
    assert (window.start, window.end) == (case["window_idx_start"], case["window_idx_end"])
    expected = 0 if case["zero_placeholder"] else case["num_nodes"]
    assert window.num_nodes == expected
    if expected:
        assert window.num_nodes // 2 == case["centre_node"]
        assert window.clock.time_s(0) == pytest.approx(case["pos_first"], abs=1e-4)
        assert window.clock.time_s(expected - 1) == pytest.approx(case["pos_last"], abs=1e-4)
