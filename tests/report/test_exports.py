"""Every export is read back by its own library, or by a parser as strict as the format."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from hiero.errors import InputError
from hiero.report.exports import chapters, exporter_names, find_exporter, title, write_export
from hiero.types import Hierarchy, Step

NASTY = 'Cut & "peel" <b>½ onion</b> --> = ; # \\ done\x07\x1b\nnow'


@pytest.fixture
def steps():
    fine = (
        Step("1.0", 0.0, 12.5, 0, parent="0.0", label="wash the tomato", score=0.9),
        Step("1.1", 12.5, 47.04, 1, parent="0.0", label=NASTY, score=0.4),
        Step("1.2", 47.04, 3725.3, 0, parent="0.1", label="wash the tomato", score=None),
    )
    coarse = (
        Step("0.0", 0.0, 47.04, 0, children=("1.0", "1.1"), label="prepare", score=0.5),
        Step("0.1", 47.04, 3725.3, 1, children=("1.2",), label=None),
    )
    return Hierarchy("videos/my kitchen.mp4", "hiero-k400", 3725.3, (coarse, fine))


@pytest.fixture
def write(steps, tmp_path):
    return lambda name: write_export(name, steps, tmp_path)


def test_webvtt(steps, write):
    webvtt = pytest.importorskip("webvtt")
    cues = webvtt.read(str(write("vtt")))
    assert [(cue.start_in_seconds, cue.end_in_seconds) for cue in cues] == [(0, 12), (12, 47), (47, 3725)]
    assert [cue.start for cue in cues] == ["00:00:00.000", "00:00:12.500", "00:00:47.040"]
    assert cues[0].text == "wash the tomato"
    assert "&amp;" in cues[1].raw_text
    assert "-->" not in cues[1].raw_text


def test_srt(steps, write):
    blocks = write("srt").read_text().strip().split("\n\n")
    pattern = re.compile(r"(\d+)\n(\d\d:\d\d:\d\d,\d{3}) --> (\d\d:\d\d:\d\d,\d{3})\n(.+)")
    cues = [pattern.fullmatch(block).groups() for block in blocks]
    assert [number for number, *_ in cues] == ["1", "2", "3"]
    assert cues[2][1:3] == ("00:00:47,040", "01:02:05,300")


def test_ffmetadata_through_ffmpeg(steps, write, tmp_path):
    av = pytest.importorskip("av")
    with av.open(str(write("ffmetadata")), format="ffmetadata") as container:
        marks = [(c["start"] * c["time_base"], c["end"] * c["time_base"], c["metadata"]["title"]) for c in container.chapters()]
    assert [(float(start), float(end)) for start, end, _ in marks] == [(0, 12.5), (12.5, 47.04), (47.04, 3725.3)]
    assert marks[1][2] == title(chapters(steps)[1])


def test_youtube(steps, write):
    lines = write("youtube").read_text().splitlines()
    assert lines[0].startswith("0:00 ")
    starts = [line.split(" ")[0] for line in lines]
    assert starts == ["0:00", "0:12", "0:47"]
    short = Hierarchy("v", "m", 25.0, (tuple(Step(f"0.{i}", 5.0 * i, 5.0 * i + 5, 0, label=f"s{i}") for i in range(5)),))
    assert find_exporter("youtube").convert(short) == "0:00 s0\n0:10 s2\n"  # none shorter than ten seconds


def test_otio(steps, write):
    otio = pytest.importorskip("opentimelineio")
    timeline = otio.adapters.read_from_file(str(write("otio")))
    assert [track.name for track in timeline.tracks] == ["level 0", "level 1"]
    clips = list(timeline.tracks[1].find_clips())
    assert [clip.name for clip in clips] == [title(step) for step in steps.levels[1]]
    assert clips[1].source_range.start_time.to_seconds() == pytest.approx(12.5)
    assert clips[1].source_range.end_time_exclusive().to_seconds() == pytest.approx(47.04)
    assert timeline.tracks[0].duration().to_seconds() == pytest.approx(3725.3)
    assert clips[0].media_reference.target_url == "my kitchen.mp4"
    assert clips[1].metadata["hiero"]["parent"] == "0.0"


def test_edl(steps, write):
    otio = pytest.importorskip("opentimelineio")
    if "cmx_3600" not in otio.adapters.available_adapter_names():
        pytest.skip("needs otio-cmx3600-adapter")
    timeline = otio.adapters.read_from_file(str(write("edl")), rate=25)
    clips = list(timeline.find_clips())
    assert len(clips) == 3
    assert clips[1].name == title(steps.levels[1][1]).encode("ascii", "replace").decode()
    assert clips[2].source_range.start_time.to_seconds() == pytest.approx(47.04)
    assert clips[2].source_range.end_time_exclusive().to_seconds() == pytest.approx(3725.3, abs=0.04)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_elan(steps, write):
    pympi = pytest.importorskip("pympi")
    eaf = pympi.Elan.Eaf(str(write("elan")))
    assert set(eaf.get_tier_names()) == {"level 0", "level 1"}
    assert eaf.get_annotation_data_for_tier("level 0") == [(0, 47040, "prepare"), (47040, 3725300, "step 0.1")]
    fine = sorted(eaf.get_annotation_data_for_tier("level 1"))
    assert [(a, b) for a, b, _ in fine] == [(0, 12500), (12500, 47040), (47040, 3725300)]
    assert fine[1][2] == title(steps.levels[1][1])
    assert eaf.get_parameters_for_tier("level 1")["PARENT_REF"] == "level 0"
    assert eaf.get_linked_files()[0]["MEDIA_URL"] == "my kitchen.mp4"


def test_csv_and_parquet(steps, write):
    rows = list(csv.DictReader(io.StringIO(write("csv").read_bytes().decode(), newline="")))
    assert [row["id"] for row in rows] == ["0.0", "0.1", "1.0", "1.1", "1.2"]
    assert rows[3]["label"] == NASTY
    assert rows[4]["score"] == ""
    assert float(rows[3]["end_s"]) == 47.04
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(write("parquet")).to_pylist()
    assert [row["id"] for row in table] == [row["id"] for row in rows]
    assert table[3]["label"] == NASTY
    assert table[4]["score"] is None
    assert table[0]["parent"] is None


def test_activitynet(steps, write):
    document = json.loads(write("activitynet").read_text())
    video = document["database"]["my kitchen"]
    assert video["duration"] == 3725.3
    assert [row["segment"] for row in video["annotations"]] == [[0.0, 12.5], [12.5, 47.04], [47.04, 3725.3]]
    assert all(set(row) == {"segment", "label", "score"} for row in document["results"]["my kitchen"])


def test_labelstudio(steps, write):
    (task,) = json.loads(write("labelstudio").read_text())
    assert task["data"]["video"] == "my kitchen.mp4"
    results = task["predictions"][0]["result"]
    assert len({result["id"] for result in results}) == 5
    for result in results:
        assert result["type"] == "timelinelabels"
        (span,) = result["value"]["ranges"]
        assert 1 <= span["start"] <= span["end"]


def test_coco(steps, write):
    document = json.loads(write("coco").read_text())
    names = {category["id"]: category["name"] for category in document["categories"]}
    assert {annotation["video_id"] for annotation in document["annotations"]} == {document["videos"][0]["id"]}
    assert [names[annotation["category_id"]] for annotation in document["annotations"]][2] == "wash the tomato"
    ends = [sum(annotation["segment"]) for annotation in document["annotations"] if annotation["level"] == 1]
    assert ends == pytest.approx([12.5, 47.04, 3725.3])


def test_one_step_in_every_format(tmp_path):
    pytest.importorskip("pyarrow")
    single = Hierarchy("v.mp4", "m", 0.4, ((Step("0.0", 0.0, 0.4, 0),),))
    for name in exporter_names():
        assert write_export(name, single, tmp_path).stat().st_size > 0
    with pytest.raises(InputError, match="known are vtt"):
        write_export("pdf", single, tmp_path)
