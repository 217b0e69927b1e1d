"""Features of a recording that is still being written."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from hiero.decoding.decode import BrokenVideoWarning, Sampling, read_segments
from hiero.extraction.extractor import LoadedBackbones
from hiero.extraction.feature_log import FeatureLog, LogHeader, load_recording
from hiero.extraction.live_extraction import LiveExtraction
from hiero.sources.live_source import GrowingFile
from tests.extraction.test_extractor import brightness  # noqa: F401 (a fixture)


def test_a_picture_that_stands_is_seen_once(make, brightness, tmp_path):  # noqa: F811
    source = GrowingFile(make("v.mkv", [50, 150, 200], [0.0, 600.0, 601.0]), idle_s=0.3)
    header = LogHeader(("motion",), 2, 1.0, "v.mkv")
    with closing(FeatureLog(tmp_path / "r.features", header)) as log:
        extraction = LiveExtraction(source, LoadedBackbones.load(["motion"]), log, None)
        windows = [window for window in extraction.windows() if window is not None]
    assert [window.index for window in windows] == list(range(301))
    assert brightness.calls <= 4
    rows = load_recording(tmp_path / "r.features")[0].features["motion"]
    np.testing.assert_allclose(rows[:598, 0], 50, atol=3)


def test_a_clock_that_jumps_is_bounded_by_the_bytes(make):
    path = make("v.mkv", [50] * 100, [1800 * i for i in range(100)])
    with pytest.warns(BrokenVideoWarning, match="jump ahead by 30:00"):
        segments = list(read_segments(GrowingFile(path, idle_s=0.3), Sampling(num_frames=1, spacing_s=60.0)))
    assert segments[-1].end_s < 3600 + path.stat().st_size / 500 + 100 * 10
