"""Narrations around steps, from files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hiero.errors import InputError
from tests.optional import skip_without

skip_without("matplotlib", "needs matplotlib: pip install 'hiero-video[figures]'")

from hiero.report import figures  # noqa: E402
from hiero.report.figures import narrated_steps_figure  # noqa: E402


class StubEngine:
    """Texts are random vectors."""

    def encode(self, texts):
        vectors = np.random.default_rng(len(texts)).normal(size=(len(texts), 8)).astype(np.float32)
        return vectors, vectors


@pytest.fixture
def files(tmp_path):
    steps = [{"start_s": 0, "end_s": 10, "text": "boil"}, {"start_s": 8, "end_s": 20, "text": "pour"}]
    (tmp_path / "steps.json").write_text(json.dumps({"tea": {"steps": steps}, "soup": {"steps": steps}}))
    rows = ["tea,1,the kettle", "tea,9,both", "tea,15,the cup", "tea,20,too late", "cake,1,an egg"]
    (tmp_path / "narrations.csv").write_text("\n".join(["video,time_s,text", *rows]) + "\n")
    return tmp_path / "narrations.csv", tmp_path / "steps.json"


def test_a_narration_counts_for_every_step_that_it_falls_into(files, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "narration_figure", lambda *arguments: drawn.append(arguments))
    narrated_steps_figure(StubEngine(), *files, "tea", seed=3)
    vectors, steps, labels, names, seed = drawn[0]
    assert steps == [0, 0, 1, 1]
    assert (len(vectors), len(labels), names, seed) == (4, 2, ["boil", "pour"], 3)


@pytest.mark.parametrize(("video", "file"), [("soup", "narrations.csv"), ("cake", "steps.json")])
def test_the_file_that_lacks_the_video_is_named(files, video, file):
    with pytest.raises(InputError, match=f"{video}: not in .*{file}"):
        narrated_steps_figure(StubEngine(), *files, video)
