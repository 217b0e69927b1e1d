"""The figures of the paper can be read back."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from hiero.errors import InputError
from tests.evaluation.simulated import STEPS, goalstep_segment, save_identity_model, write_own_videos
from tests.films import write_video
from tests.optional import skip_without

skip_without("matplotlib", "needs matplotlib: pip install 'hiero-video[figures]'")

from examples.figures import app, read_frames  # noqa: E402


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with a model, and one's own videos."""
    save_identity_model(tmp_path / "model", monkeypatch)
    return write_own_videos(tmp_path)


def draw(data, kind, source, out, *options, annotations="steps.json"):
    arguments = (kind, data / source, "--annotations", data / annotations, "--model", data / "model", *options)
    app([*map(str, arguments), "-o", str(data / out)], result_action="return_value")
    return data / out


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["similarity", "timeline", "features"])
def test_figures_are_drawn_in_both_formats(data, kind):
    figure = draw(data, kind, "features/v0.npy", "figure")
    ElementTree.parse(figure.with_suffix(".svg"))
    with Image.open(figure.with_suffix(".png")) as picture:
        grey = np.asarray(picture.convert("L"))
    assert grey.std() > 20  # something is drawn
    with pytest.raises(InputError, match="v9"):
        draw(data, kind, "features/v0.npy", "x.png", "--video", "v9")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["goalstep_val.json", "v0.csv"])
def test_official_annotations_are_drawn(data, layout):
    spans = [(20.0 * i, 20.0 * (i + 1)) for i in range(4)]
    if layout == "v0.csv":  # of EgoProceL
        rows = (f"{start_s},{end_s},{i} do it\n" for i, (start_s, end_s) in enumerate(spans))
        (data / layout).write_text("".join(rows))
    else:
        segments = [goalstep_segment(start_s, end_s, "Cook: stir", "stir") for start_s, end_s in spans]
        video = {"video_uid": "v0", "start_time": 0.0, "end_time": 240.0, "segments": segments}
        (data / layout).write_text(json.dumps({"videos": [video]}))
    figure = draw(data, "similarity", "features/v0.npy", "figure.svg", annotations=layout)
    assert ElementTree.parse(figure).getroot().tag.endswith("svg")


@pytest.mark.slow
def test_narrations_around_steps(data):
    lines = [f"v0,{t},{STEPS[t % 6]} now" for t in range(5, 300, 9)]
    (data / "narrations.csv").write_text("\n".join(["video,time_s,text", *lines]) + "\n")
    figure = draw(data, "narrations", "narrations.csv", "n.svg", "--video", "v0")
    assert ElementTree.parse(figure).getroot().tag.endswith("svg")
    with pytest.raises(InputError, match="v9"):
        draw(data, "narrations", "narrations.csv", "n.svg", "--video", "v9")


@pytest.mark.slow
def test_three_columns_labels_and_frames(data):
    draw(data, "similarity", "features/v0.npy", "s.svg", "--also", f"Another={data / 'features' / 'v0.npy'}")
    film = write_video(data / "v0.mp4", list(range(0, 240, 4)), fps=1)
    figure = draw(data, "timeline", "features/v0.npy", "t.svg", "--labels", "--frames", film)
    assert "<image" in figure.read_text()
    frames = read_frames(film, [1.5, 30.2, 1000.0])
    assert [time_s for time_s, _ in frames] == [1.5, 30.2]
    assert frames[1][1].mean() == pytest.approx(120, abs=6)
