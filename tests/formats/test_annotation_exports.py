"""FiftyOne's dataset: its files, its links to videos, and frames of a real video."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from hiero.formats.registry import find_exporter, pack_export, read_step_file, write_export
from hiero.types import Hierarchy, Step, VideoFile
from tests.films import import_av, write_video

NASTY = 'Cut & "peel" <b>½ onion</b> --> = ; # \\ done\x07\x1b\nnow'


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory):
    import_av()
    path = tmp_path_factory.mktemp("videos") / "my kitchen.mp4"
    write_video(path, range(40), fps=10)
    return path


@pytest.fixture
def steps(kitchen):
    fine = (
        Step("1.0", 0.0, 1.25, 0, parent="0.0", label="wash the tomato", probability=0.9),
        Step("1.1", 1.25, 3.04, 1, parent="0.0", label=NASTY, probability=0.4),
        Step("1.2", 3.04, 4.0, 0, parent="0.1", label="wash the tomato", background=True),
    )
    coarse = (
        Step("0.0", 0.0, 3.04, 0, children=("1.0", "1.1"), label="prepare", probability=0.5),
        Step("0.1", 3.04, 4.0, 1, children=("1.2",)),
    )
    return Hierarchy(str(kitchen), "hiero-k400", 4.0, (coarse, fine))


def test_fiftyone_dataset(steps, tmp_path):
    file = write_export("fiftyone", steps, tmp_path)
    metadata = json.loads((file.parent / "metadata.json").read_text())
    (sample,) = json.loads(file.read_text())["samples"]
    fields = {field["name"]: field for field in metadata["sample_fields"]}
    assert set(sample) <= {field["db_field"] for field in fields.values()}
    (detections,) = fields["fine"]["fields"]
    for detection in sample["fine"]["detections"]:
        assert set(detection) - {"_cls"} <= {field["db_field"] for field in detections["fields"]}
        assert re.fullmatch("[0-9a-f]{24}", detection["_id"]["$oid"])
    link = file.parent / sample["filepath"]
    assert link.is_symlink()
    assert link.samefile(steps.video)
    assert write_export("fiftyone", steps, tmp_path) == file  # again, over what is there
    name, content = pack_export(find_exporter("fiftyone"), steps)
    assert name == "fiftyone.zip"
    with zipfile.ZipFile(BytesIO(content)) as archive:
        assert archive.read("fiftyone/samples.json") == file.read_bytes()
        assert sorted(archive.namelist()) == ["fiftyone/metadata.json", "fiftyone/samples.json"]


def test_a_video_whose_name_no_disk_can_hold_is_not_linked(tmp_path):
    hierarchy = Hierarchy("v" * 5000, "m", 1.0, ((Step("step-1", 0.0, 1.0, 0),),))
    assert write_export("fiftyone", hierarchy, tmp_path).is_file()
    assert not (tmp_path / "fiftyone" / "data").exists()


def test_fiftyone_has_a_sample_for_each_file(steps, tmp_path):
    files = (VideoFile("cards/a.mp4", 0.0, 2.0), VideoFile("cards/b.mp4", 2.0, 2.0))
    file = write_export("fiftyone", replace(steps, files=files), tmp_path)
    first, second = json.loads(file.read_text())["samples"]
    assert [detection["support"] for detection in first["coarse"]["detections"]] == [[1, 50]]
    assert [detection["support"] for detection in second["coarse"]["detections"]] == [[1, 26], [27, 50]]
    assert not (file.parent / "data").exists()  # these videos are elsewhere
    features = tmp_path / "kitchen.npy"
    features.touch()
    write_export("fiftyone", replace(steps, video=str(features)), tmp_path)
    assert not (file.parent / "data").exists()


def test_frames_of_a_real_video_come_back(steps, kitchen, tmp_path):
    back = read_step_file(write_export("fiftyone", steps, tmp_path), Path(kitchen.name))
    assert (back.levels, back.duration_s) == (steps.levels, steps.duration_s)
