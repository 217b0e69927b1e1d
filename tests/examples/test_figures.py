"""The figures of the paper can be read back."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from hiero.errors import InputError
from tests.evaluation.simulated import STEPS, save_identity_model, write_own_videos
from tests.films import write_video
from tests.optional import skip_without

skip_without("matplotlib", "needs matplotlib: pip install 'hiero-video[figures]'")

from examples.figures import app, read_frames  # noqa: E402


@pytest.fixture
def model(tmp_path, monkeypatch):
    return save_identity_model(tmp_path / "model", monkeypatch)


@pytest.fixture
def data(tmp_path):
    return write_own_videos(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["similarity", "timeline", "features"])
def test_figures(model, data, kind):
    arguments = [
        kind,
        str(data / "features" / "v0.npy"),
        "--annotations",
        str(data / "steps.json"),
        "--model",
        str(model),
    ]
    app([*arguments, "-o", str(data / "figure")], result_action="return_value")
    text = (data / "figure.svg").read_text()
    ElementTree.fromstring(text)
    from PIL import Image

    with Image.open(data / "figure.png") as picture:
        grey = np.asarray(picture.convert("L"))
    assert grey.std() > 20  # something is drawn
    with pytest.raises(InputError, match="no video v9"):
        app([*arguments, "--video", "v9", "-o", str(data / "x.png")], result_action="return_value")


def test_narrations_around_steps(model, data):
    lines = [f"v0,{t},{STEPS[t % 6]} now" for t in range(5, 300, 9)]
    (data / "narrations.csv").write_text("\n".join(["video,time_s,text", *lines]) + "\n")
    arguments = [
        "narrations",
        str(data / "narrations.csv"),
        "--annotations",
        str(data / "steps.json"),
        "--model",
        str(model),
    ]
    app([*arguments, "--video", "v0", "-o", str(data / "n.svg")], result_action="return_value")
    assert ElementTree.fromstring((data / "n.svg").read_text()).tag.endswith("svg")
    with pytest.raises(InputError, match="v9: not in"):
        app([*arguments, "--video", "v9", "-o", str(data / "n.svg")], result_action="return_value")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["goalstep_val.json", "v0.csv"])
def test_official_annotations_are_drawn(model, data, layout):
    spans = [(20.0 * i, 20.0 * (i + 1)) for i in range(4)]
    if layout == "v0.csv":  # of EgoProceL
        (data / layout).write_text(
            "".join(f"{start_s},{end_s},{i} do it\n" for i, (start_s, end_s) in enumerate(spans))
        )
    else:
        segments = [
            {"start_time": start_s, "end_time": end_s, "step_category": "Cook: stir", "step_description": "stir"}
            for start_s, end_s in spans
        ]
        video = {"video_uid": "v0", "start_time": 0.0, "end_time": 240.0, "segments": segments}
        (data / layout).write_text(json.dumps({"videos": [video]}))
    arguments = ["similarity", str(data / "features" / "v0.npy"), "--annotations", str(data / layout)]
    app([*arguments, "--model", str(model), "-o", str(data / "figure.svg")], result_action="return_value")
    assert ElementTree.fromstring((data / "figure.svg").read_text()).tag.endswith("svg")


@pytest.mark.slow
def test_three_columns_labels_and_frames(model, data):
    arguments = [str(data / "features" / "v0.npy"), "--annotations", str(data / "steps.json"), "--model", str(model)]
    other = f"Another={data / 'features' / 'v0.npy'}"
    app(["similarity", *arguments, "--also", other, "-o", str(data / "s.svg")], result_action="return_value")
    film = write_video(data / "v0.mp4", list(range(0, 240, 4)), fps=1)
    app(
        ["timeline", *arguments, "--labels", "--frames", str(film), "-o", str(data / "t.svg")],
        result_action="return_value",
    )
    assert "<image" in (data / "t.svg").read_text()
    frames = read_frames(film, [1.5, 30.2, 1000.0])
    assert [time_s for time_s, _ in frames] == [1.5, 30.2]
    assert frames[1][1].mean() == pytest.approx(120, abs=6)
