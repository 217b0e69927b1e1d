"""Every export is read back by its own library, or by a parser as strict as the format."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from hiero.errors import InputError
from hiero.formats.registry import exporter_names, find_exporter, read_step_file, write_export
from hiero.formats.subtitles import chapters
from hiero.formatting import is_control
from hiero.types import Hierarchy, Step, Utterance, VideoFile, Word, link_levels
from tests.films import import_av

NASTY = 'Cut & "peel" <b>½ onion</b> --> = ; # \\ done\x07\x1b\nnow'


@pytest.fixture
def steps():
    fine = (
        Step("1.0", 0.0, 12.5, 0, parent="0.0", label="wash the tomato", probability=0.9),
        Step("1.1", 12.5, 47.04, 1, parent="0.0", label=NASTY, probability=0.85),
        Step("1.2", 47.04, 3725.3, 0, parent="0.1", label="wash the tomato", probability=None),
    )
    coarse = (
        Step("0.0", 0.0, 47.04, 0, children=("1.0", "1.1"), label="prepare", probability=0.5),
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
    av = import_av()
    with av.open(str(write("ffmetadata")), format="ffmetadata") as container:
        marks = list(container.chapters())
    spans = [(float(c["start"] * c["time_base"]), float(c["end"] * c["time_base"])) for c in marks]
    assert spans == [(0, 12.5), (12.5, 47.04), (47.04, 3725.3)]
    assert marks[1]["metadata"]["title"] == steps.titles[chapters(steps)[1].id]


def test_youtube(steps, write):
    starts = [line.split(" ")[0] for line in write("youtube").read_text().splitlines()]
    assert starts == ["0:00", "0:12", "0:47"]
    short = tuple(Step(f"0.{i}", 5.0 * i, 5.0 * i + 5, 0, label=f"s{i}") for i in range(5))
    text = find_exporter("youtube").convert(Hierarchy("v", "m", 25.0, (short,)))
    assert text == "0:00 s0\n0:10 s2\n"  # none shorter than ten seconds


def test_a_short_youtube_chapter_joins_the_one_with_the_weaker_name():
    spans = (0.0, 12.0, 16.0, 30.0, 45.0)
    names = {0: "wash", 3: "cook"}
    steps = tuple(
        Step(str(i), start_s, end_s, 0, label=names.get(i), words=(Word("cut", 0.3),) if i == 1 else ())
        for i, (start_s, end_s) in enumerate(pairwise(spans))
    )
    text = find_exporter("youtube").convert(Hierarchy("v", "m", 45.0, (steps,)))
    assert text == "0:00 wash\n0:12 cut?\n0:30 cook\n"


def test_otio(steps, write):
    otio = pytest.importorskip("opentimelineio")
    timeline = otio.adapters.read_from_file(str(write("otio")))
    assert [track.name for track in timeline.tracks] == ["coarse", "fine"]
    clips = list(timeline.tracks[1].find_clips())
    assert [clip.name for clip in clips] == [steps.titles[step.id] for step in steps.levels[1]]
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
    assert clips[1].name == steps.titles[steps.levels[1][1].id].encode("ascii", "replace").decode()
    assert clips[2].source_range.start_time.to_seconds() == pytest.approx(47.04)
    assert clips[2].source_range.end_time_exclusive().to_seconds() == pytest.approx(3725.3, abs=0.04)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_elan(steps, write):
    pympi = pytest.importorskip("pympi")
    eaf = pympi.Elan.Eaf(str(write("elan")))
    assert set(eaf.get_tier_names()) == {"coarse", "fine"}
    assert eaf.get_annotation_data_for_tier("coarse") == [(0, 47040, "prepare"), (47040, 3725300, "Part 2")]
    fine = sorted(eaf.get_annotation_data_for_tier("fine"))
    assert [(a, b) for a, b, _ in fine] == [(0, 12500), (12500, 47040), (47040, 3725300)]
    assert fine[1][2] == steps.titles[steps.levels[1][1].id]
    assert eaf.get_parameters_for_tier("fine")["PARENT_REF"] == "coarse"
    assert eaf.get_linked_files()[0]["MEDIA_URL"] == "my kitchen.mp4"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_speech(steps, tmp_path):
    """What is said has a column of tables and a tier of its own, which is no level of steps."""
    utterances = [(1.0, 3.0, "Wash <it>"), (2.5, 2.9, "twice"), (2.8, 60.0, "=1+1"), (50.0, 61.0, "end")]
    spoken = replace(steps, speech=tuple(Utterance(*row) for row in utterances))
    rows = list(csv.DictReader(io.StringIO(write_export("csv", spoken, tmp_path).read_bytes().decode(), newline="")))
    assert [row["speech"] for row in rows if row["level"] == "1"] == ["Wash <it> twice =1+1", "", "end"]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(write_export("parquet", spoken, tmp_path)).to_pylist()[4]["speech"] == "end"
    pympi = pytest.importorskip("pympi")
    path = write_export("elan", spoken, tmp_path)
    eaf = pympi.Elan.Eaf(str(path))
    tier = sorted(eaf.get_annotation_data_for_tier("speech"))
    assert tier == [(1000, 3000, "Wash <it>"), (3000, 60000, "=1+1"), (60000, 61000, "end")]  # none overlap
    with_speech = read_step_file(path, Path(steps.video))
    assert with_speech.levels == read_step_file(write_export("elan", steps, tmp_path), Path(steps.video)).levels
    assert Hierarchy.from_dict(spoken.to_dict()) == spoken


def test_csv_and_parquet(steps, write):
    rows = list(csv.DictReader(io.StringIO(write("csv").read_bytes().decode(), newline="")))
    assert [row["id"] for row in rows] == ["0.0", "0.1", "1.0", "1.1", "1.2"]
    assert rows[3]["label"] == NASTY.replace("\x07\x1b", "")
    assert rows[4]["probability"] == ""
    assert float(rows[3]["end_s"]) == 47.04
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(write("parquet")).to_pylist()
    assert [row["id"] for row in table] == [row["id"] for row in rows]
    assert table[3]["label"] == NASTY.replace("\x07\x1b", "")
    assert table[4]["probability"] is None
    assert table[0]["parent"] is None


def test_activitynet(steps, write):
    document = json.loads(write("activitynet").read_text())
    video = document["database"]["my kitchen"]
    assert video["duration"] == 3725.3
    assert [row["segment"] for row in video["annotations"]] == [[0.0, 12.5], [12.5, 47.04], [47.04, 3725.3]]
    assert all(set(row) == {"segment", "label", "score"} for row in document["results"]["my kitchen"])


def test_people_count_steps_from_one_and_levels_have_names(tmp_path):
    pytest.importorskip("pyarrow")
    levels = [[Step(f"{name}-{i + 1}", 10.0 * i, 10.0 * i + 10, 0) for i in range(12)] for name in ("coarse", "fine")]
    unnamed = Hierarchy("v.mp4", "m", 120.0, tuple(map(tuple, link_levels(levels))))
    files = {name: write_export(name, unnamed, tmp_path) for name in exporter_names()}
    for name in set(files) - {"csv", "parquet"}:
        text = files[name].read_text()
        assert "Step 12" in text, name
        assert "Step 0" not in text, name
        assert not re.search(r"level ?[01]\b", text), name
    pandas = pytest.importorskip("pandas")
    for table in (pandas.read_csv(files["csv"]), pandas.read_parquet(files["parquet"])):
        assert list(table["id"]) == [step.id for step in unnamed]  # 1.1 and 1.10 were one number


def test_formats_with_details_say_who_named_a_step(tmp_path):
    pytest.importorskip("pyarrow")
    corrected = Hierarchy("v.mp4", "m", 9.0, ((Step("step-1", 0.0, 9.0, 0, label="wash", origin="person"),),))
    without = {"srt", "ffmetadata", "youtube", "edl"}  # these hold only times and names
    for name in exporter_names():
        assert (b"person" in write_export(name, corrected, tmp_path).read_bytes()) == (name not in without), name


def test_control_characters_are_in_no_export(tmp_path):
    odd = "\x1b]0;owned\x07\x9b31m\u202egpj.\u2066x"
    steps = (Step("step-1", 0.0, 4.0, 0, label=f"wash{odd}"), Step("step-2", 4.0, 9.0, 1))
    speech = (Utterance(1.0, 2.0, f"now{odd}"),)
    hierarchy = Hierarchy(f"videos/v{odd}.mp4", "m", 9.0, (steps,), speech=speech)
    assert hierarchy.levels[0][0].label == "wash]0;owned31mgpj.x"
    for name in exporter_names():
        if name == "parquet":
            continue
        text = write_export(name, hierarchy, tmp_path).read_text(encoding="utf-8")
        assert not [c for c in text if is_control(c) and c not in "\r\n\t"], name


def test_one_step_in_every_format(tmp_path):
    pytest.importorskip("pyarrow")
    single = Hierarchy("v.mp4", "m", 0.4, ((Step("0.0", 0.0, 0.4, 0),),))
    for name in exporter_names():
        assert write_export(name, single, tmp_path).stat().st_size > 0
    with pytest.raises(InputError, match="choose from"):
        write_export("pdf", single, tmp_path)


@pytest.mark.parametrize("label", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"])
def test_no_label_is_a_formula_in_a_spreadsheet(label):
    hierarchy = Hierarchy("v.mp4", "m", 9.0, ((Step("=0", 0.0, 9.0, 0, label=label, parent="-1"),),))
    (row,) = csv.DictReader(io.StringIO(find_exporter("csv").convert(hierarchy), newline=""))
    assert (row["label"], row["id"], row["parent"]) == (f"'{label.replace(chr(13), '')}", "'=0", "'-1")
    assert row["start_s"] == "0.0"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "step_id", ["a --> b", '<b>"x"</b>', "a\n00:00:00.000 --> 00:00:01.000\nowned", "a&'\x00\ud800", "=x"]
)
def test_ids_that_hold_anything(tmp_path, step_id):
    webvtt, pympi, otio = (pytest.importorskip(name) for name in ("webvtt", "pympi", "opentimelineio"))
    steps = (Step(step_id, 0.0, 4.0, 0), Step("b", 4.0, 9.0, 1, label="x --> <i>y</i>"))
    hierarchy = Hierarchy("videos/odd \udcff\x01<name>.mp4", "m", 9.0, (steps,))
    names = [name for name in exporter_names() if name != "parquet"]
    files = {name: write_export(name, hierarchy, tmp_path) for name in names}
    for file in files.values():
        file.read_text(encoding="utf-8")
    cues = webvtt.read(str(files["vtt"]))
    assert [cue.start for cue in cues] == ["00:00:00.000", "00:00:04.000"]
    assert not set(cues[0].identifier) & set('<>"\n')
    eaf = pympi.Elan.Eaf(str(files["elan"]))
    assert [(a, b) for a, b, _ in sorted(eaf.get_annotation_data_for_tier("step"))] == [(0, 4000), (4000, 9000)]
    assert len(list(otio.adapters.read_from_file(str(files["otio"])).find_clips())) == 2
    blocks = files["srt"].read_text().strip().split("\n\n")
    assert [block.count("-->") for block in blocks] == [1, 1]
    assert [len(block.splitlines()) for block in blocks] == [3, 3]
    assert not set(files["youtube"].read_text()) & set("<>")


INVALID = {
    "id": ["a\nb", "--> x", "<b>", "../x", "", "i" * 200, ["a"], None, True, "0.1"],
    "parent": ["<b>"],
    "children": [["a\n"]],
    "thread": [-1, 10**12, 1.5, float("inf")],
    "start_s": [float("nan"), -1, 5],
    "end_s": [float("inf"), 1e300],
    "probability": [float("nan")],
    "label": [{"a": 1}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in INVALID.items() for value in values])
def test_documents_are_checked_when_they_are_read(name, value):
    good = Hierarchy("v.mp4", "m", 9.0, ((Step("0.0", 0.0, 4.0, 0, label="x"), Step("0.1", 4.0, 9.0, 1)),)).to_dict()
    assert Hierarchy.from_dict(good).to_dict() == good
    good["levels"][0]["steps"][0][name] = value
    with pytest.raises(InputError):
        Hierarchy.from_dict(good)


@pytest.mark.parametrize("duration_s", [float("nan"), float("inf"), -1, "long", 1e300])
def test_a_length_that_cannot_be(duration_s):
    with pytest.raises(InputError, match="not a hierarchy"):
        Hierarchy.from_dict({"duration_s": duration_s, "levels": []})


def test_half_of_a_character_is_refused_but_not_in_the_name_of_a_file():
    for change in ({"label": "\ud800x"}, {"id": "\udc00"}):
        with pytest.raises(InputError, match="an incomplete character"):
            Step.from_dict({"id": "0", "start_s": 0, "end_s": 1} | change)
    odd = Hierarchy("caf\udce9.mp4", "m", 1.0, ((Step("0", 0.0, 1.0, 0),),))
    assert Hierarchy.from_dict(odd.to_dict()) == odd


def test_files_that_were_read_as_one_video(steps, tmp_path):
    """Editing tools get each file with its own time; a step that goes on in the next file is two clips."""
    files = (VideoFile("card/GX010012.MP4", 0.0, 30.0), VideoFile("card/GX020012.MP4", 30.0, 3695.3))
    joined = replace(steps, video="card/GX010012.MP4", files=files)
    edl = write_export("edl", joined, tmp_path).read_text()
    events = re.findall(r"^\d{3}  AX +V +C +(\S+) (\S+) (\S+) (\S+)$", edl, re.MULTILINE)
    assert events[1] == ("00:00:12:12", "00:00:30:00", "00:00:12:12", "00:00:30:00")
    assert events[2] == ("00:00:00:00", "00:00:17:01", "00:00:30:00", "00:00:47:01")
    assert re.findall(r"SOURCE FILE: (.*)", edl) == ["GX010012.MP4"] * 2 + ["GX020012.MP4"] * 2
    opentimelineio = pytest.importorskip("opentimelineio")
    timeline = opentimelineio.adapters.read_from_file(str(write_export("otio", joined, tmp_path)))
    clips = list(timeline.tracks[1])
    assert [clip.media_reference.target_url for clip in clips] == ["GX010012.MP4"] * 2 + ["GX020012.MP4"] * 2
    assert [clip.source_range.start_time.to_seconds() for clip in clips] == pytest.approx([0, 12.5, 0, 17.04])
    assert timeline.duration().to_seconds() == pytest.approx(3725.3)
    own = write_export("srt", joined.of_file(files[1]), tmp_path).read_text()
    assert own.startswith("1\n00:00:00,000 --> 00:00:17,040")
