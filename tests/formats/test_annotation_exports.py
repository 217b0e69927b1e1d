"""Exports for annotation tools, read back by the tools' own libraries.

These pin what hiero pins otherwise, so each lives in an environment of its own, named by a variable:

    HIERO_FIFTYONE_PYTHON      a Python with fiftyone, and its database (or FIFTYONE_DATABASE_URI)
    HIERO_DATUMARO_PYTHON      a Python with datumaro, the library of CVAT's formats
    HIERO_LABEL_STUDIO_PYTHON  a Python with label-studio-sdk
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from hiero.formats.label_studio_api import label_studio_interface, labels_of_tasks
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


def run_tool(package: str, code: str, *arguments: object) -> object:
    """What a script prints as JSON, run where a tool is installed."""
    variable = f"HIERO_{package.upper()}_PYTHON"
    modules = {"fiftyone": "fiftyone", "datumaro": "datumaro", "label_studio": "label_studio_sdk"}
    python = os.environ.get(variable) or (sys.executable if importlib.util.find_spec(modules[package]) else None)
    if python is None:
        pytest.skip(f"{modules[package]} is not installed; set {variable} to a Python that has it")
    command = [python, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "could not be installed" in result.stderr or "ServerSelectionTimeoutError" in result.stderr:
        pytest.skip("FiftyOne's database does not run here; set FIFTYONE_DATABASE_URI")
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.strip().splitlines()[-1])


READ_FIFTYONE = """
import json, os, sys
import fiftyone as fo
dataset = fo.Dataset.from_dir(dataset_dir=sys.argv[1], dataset_type=fo.types.FiftyOneDataset, progress=False)
try:
    sample = dataset.first()
    levels = {}
    for name in ("coarse", "fine"):
        levels[name] = [[d.label, list(d.support), d.confidence, d["step"], d["thread"], d["background"]]
                        for d in sample[name].detections]
    num_clips = len(dataset.to_clips("fine"))
    sample.fine.detections[0].label = "rinse"
    sample.save()
    dataset.export(export_dir=sys.argv[2], dataset_type=fo.types.FiftyOneDataset, export_media=False, progress=False)
    dataset.export(export_dir=sys.argv[3], dataset_type=fo.types.FiftyOneTemporalDetectionDataset, label_field="fine",
                   export_media=False, progress=False)
    print()
    print(json.dumps({"media_type": dataset.media_type, "num_samples": len(dataset), "levels": levels,
                      "num_clips": num_clips, "has_video": os.path.isfile(sample.filepath),
                      "frame_rate": sample.metadata.frame_rate}))
finally:
    dataset.delete()
"""


def test_fiftyone_reads_its_dataset(steps, kitchen, tmp_path):
    file = write_export("fiftyone", steps, tmp_path)
    read = run_tool("fiftyone", READ_FIFTYONE, file.parent, tmp_path / "back", tmp_path / "temporal")
    assert (read["media_type"], read["num_samples"], read["num_clips"], read["has_video"]) == ("video", 1, 3, True)
    assert read["frame_rate"] == 10.0
    assert read["levels"]["coarse"] == [
        ["prepare", [1, 30], 0.5, "0.0", 0, False],
        ["Step 2", [31, 40], None, "0.1", 1, False],
    ]
    assert [row[1] for row in read["levels"]["fine"]] == [[1, 12], [13, 30], [31, 40]]
    coarse, fine = read_step_file(tmp_path / "back" / "samples.json", kitchen).levels
    assert coarse == steps.levels[0]
    assert (fine[0].id, fine[0].start_s, fine[0].end_s, fine[0].label) == ("1.0", 0.0, 1.25, "rinse")
    assert fine[1:] == steps.levels[1][1:]
    (level,) = read_step_file(tmp_path / "temporal" / "labels.json", kitchen).levels
    assert [replace(step, parent=None) for step in level[1:]] == [replace(step, parent=None) for step in fine[1:]]


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
    assert pack_export(find_exporter("via"), steps)[0] == "via.json"


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


READ_DATUMARO = """
import json, sys
from datumaro.components.dataset import Dataset
from datumaro.components.annotation import AnnotationType
dataset = Dataset.import_from(sys.argv[1], "cvat")
names = [label.name for label in dataset.categories()[AnnotationType.label]]
tracks = {}
for item in dataset:
    for shape in item.annotations:
        values = shape.attributes
        row = [item.attributes["frame"], values["outside"], names[shape.label], values["name"], shape.get_bbox()]
        tracks.setdefault(shape.attributes["track_id"], []).append(row)
print(json.dumps({"labels": names, "tracks": [sorted(tracks[i]) for i in sorted(tracks)]}))
"""


def test_cvat_is_read_by_its_library(steps, tmp_path):
    shutil.copy(write_export("cvat", steps, tmp_path), tmp_path / "annotations.xml")
    (tmp_path / "cvat.xml").unlink()
    read = run_tool("datumaro", READ_DATUMARO, tmp_path)
    assert read["labels"] == ["coarse", "fine"]
    box = [0.0, 0.0, 64.0, 48.0]
    spans = [[0, 30], [30], [0, 12], [12, 30], [30]]
    for step, track, frames in zip(steps, read["tracks"], spans, strict=True):
        level = "coarse" if step in steps.levels[0] else "fine"
        outside = [False, True][: len(frames)]
        assert track == [
            [frame, out, level, steps.titles[step.id], box] for frame, out in zip(frames, outside, strict=True)
        ]


def test_cvat_for_video(steps, tmp_path):
    root = ET.parse(write_export("cvat", steps, tmp_path)).getroot()
    assert (root.tag, root.findtext("version"), root.findtext("meta/task/mode")) == (
        "annotations",
        "1.1",
        "interpolation",
    )
    assert (root.findtext("meta/task/size"), root.findtext("meta/task/stop_frame")) == ("40", "39")
    labels = {
        label.findtext("name"): [a.findtext("name") for a in label.iter("attribute")] for label in root.iter("label")
    }
    assert labels == {"coarse": ["name", "hiero"], "fine": ["name", "hiero"]}
    for track in root.iter("track"):
        frames = [int(box.get("frame")) for box in track.iter("box")]
        assert frames == sorted(frames)
        assert frames[-1] < 40
        for box in track.iter("box"):
            assert [a.get("name") for a in box.iter("attribute")] == labels[track.get("label")]
            assert {"frame", "keyframe", "outside", "occluded", "xtl", "ytl", "xbr", "ybr"} <= set(box.attrib)


def test_via_project(steps, tmp_path):
    # As VIA 3's own documentation of its data has it: segments of a view, which shows a file; times
    # z, no region xy, attributes av.
    project = json.loads(write_export("via", steps, tmp_path).read_text())
    assert project["project"]["data_format_version"] == "3.1.1"
    assert project["project"]["vid_list"] == list(project["view"]) == ["1"]
    assert [project["file"][fid]["fname"] for fid in project["view"]["1"]["fid_list"]] == ["my kitchen.mp4"]
    for attribute in project["attribute"].values():
        assert set(attribute) == {"aname", "anchor_id", "type", "desc", "options", "default_option_id"}
        assert attribute["anchor_id"] == "FILE1_Z2_XY0"
    levels = project["attribute"]["1"]["options"]
    rows = []
    for key, segment in project["metadata"].items():
        assert set(segment) == {"vid", "flg", "z", "xy", "av"}
        assert segment["xy"] == []
        assert key.startswith("1_")
        rows.append((levels[segment["av"]["1"]], segment["av"]["2"], *segment["z"]))
    expected = [
        (name, steps.titles[step.id], step.start_s, step.end_s)
        for name, level in zip(("coarse", "fine"), steps.levels, strict=True)
        for step in level
    ]
    assert rows == expected


READ_LABEL_STUDIO = """
import json, sys
from label_studio_sdk.label_interface import LabelInterface
tasks = json.load(open(sys.argv[1], encoding="utf-8"))
interface = LabelInterface(open(sys.argv[2], encoding="utf-8").read())
interface.validate()
data = [{"data": task["data"]} for task in tasks]
print(json.dumps({"is_valid": [interface.validate_task(task) for task in data],
                  "errors": [interface.validate_prediction(prediction, return_errors=True)
                             for task in tasks for prediction in task["predictions"]],
                  "controls": sorted(control.name for control in interface.controls)}))
"""


def test_label_studio_takes_tasks_and_interface(steps, tmp_path):
    file = write_export("labelstudio", steps, tmp_path)
    labels = labels_of_tasks(json.loads(file.read_text()))
    interface = tmp_path / "interface.xml"
    interface.write_text(label_studio_interface(labels), encoding="utf-8")
    assert [label.get("value") for label in ET.parse(interface).iter("Label")] == [
        "prepare",
        "Step 3",
        "wash the tomato",
        steps.titles[steps.levels[1][1].id],
    ]
    read = run_tool("label_studio", READ_LABEL_STUDIO, file, interface)
    assert read == {"is_valid": [True], "errors": [[]], "controls": ["coarse", "fine"]}


@pytest.mark.parametrize("name", ["fiftyone", "cvat", "via"])
def test_frames_of_a_real_video_come_back(name, steps, kitchen, tmp_path):
    back = read_step_file(write_export(name, steps, tmp_path), Path(kitchen.name))
    assert (back.levels, back.duration_s) == (steps.levels, steps.duration_s)
