"""Files of steps: what hiero writes comes back as it was; files of other tools become levels that cover the video."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.engine.transcripts import read_transcript
from hiero.errors import InputError
from hiero.formats import nesting
from hiero.formats.hiero_json import encode_edits, parse_hierarchy
from hiero.formats.nesting import nest_rows
from hiero.formats.registry import convert_files, find_exporter, read_step_file, write_export
from hiero.formats.rows import frame_span, frame_step, imported_step
from hiero.formats.subtitles import chapters
from hiero.types import ORIGINS, Hierarchy, Step, link_levels
from tests.waiting import PATIENCE_S

VIDEO = Path("kitchen.mp4")
LABELS = st.one_of(
    st.none(),
    st.sampled_from(
        ["wash the tomato", "=1+1", "'=1", "''-x", "'", "a --> b", "<i>&amp;</i>", "step 0.0", 'a,"b"\n;c']
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"]), min_size=1, max_size=12),
)


@st.composite
def hierarchies(draw) -> Hierarchy:
    """Nested levels in whole milliseconds, with any labels, threads, ids."""
    edges_ms = draw(st.lists(st.integers(1, 500_000), min_size=1, max_size=7, unique=True).map(sorted))
    fine = [0, *edges_ms]
    levels = [fine]
    for _ in range(draw(st.integers(0, 2))):
        inner = levels[0][1:-1]
        keep = [edge for edge in inner if draw(st.booleans())]
        levels.insert(0, [0, *keep, fine[-1]])
    ids = iter(draw(st.permutations([f"{prefix}{i}" for i in range(10) for prefix in ("0.", "a ", "é-_+")])))
    steps = [
        [
            Step(
                next(ids),
                a / 1000,
                b / 1000,
                draw(st.integers(0, 5)),
                label=draw(LABELS),
                background=draw(st.booleans()),
                origin=draw(st.sampled_from(ORIGINS)),
                probability=draw(st.one_of(st.none(), st.integers(0, 10_000).map(lambda value: value / 10_000))),
            )
            for a, b in pairwise(level)
        ]
        for level in levels
    ]
    return Hierarchy("kitchen.mp4", "m", fine[-1] / 1000, tuple(map(tuple, link_levels(steps))))


def read_back(name: str, hierarchy: Hierarchy, folder: Path, duration_s: float | None = None) -> Hierarchy:
    exporter = find_exporter(name)
    file = folder / exporter.file_name
    file.parent.mkdir(exist_ok=True)
    # Without waiting for the disk, as write_export does: there are hundreds.
    file.write_bytes(convert_files(exporter, hierarchy)[exporter.file_name])
    return read_step_file(file, VIDEO, duration_s)


@pytest.mark.parametrize("name", ["elan", "labelstudio", "csv", "fiftyone"])
@given(hierarchy=hierarchies(), knows_duration=st.booleans())
def test_all_that_these_formats_hold_comes_back(name, hierarchy, knows_duration, tmp_path_factory):
    back = read_back(name, hierarchy, tmp_path_factory.getbasetemp(), hierarchy.duration_s if knows_duration else None)
    assert back.levels == hierarchy.levels
    assert back.duration_s == hierarchy.duration_s


def test_a_name_changed_in_a_spreadsheet_is_a_persons(tmp_path):
    steps = (
        Step("step-1", 0.0, 2.0, 0, label="open the fridge", probability=0.8),
        Step("step-2", 2.0, 4.0, 0, label="=pour", probability=0.9),
        Step("step-3", 4.0, 6.0, 1),
    )
    file = tmp_path / "steps.csv"
    table = convert_files(find_exporter("csv"), Hierarchy(VIDEO, "m", 6.0, (steps,)))["steps.csv"].decode()
    first, header_end = table.split("open the fridge", 1)
    file.write_text(f"{first}close the fridge{header_end}", newline="")
    ((changed, kept, unnamed),) = read_step_file(file, VIDEO, 6.0).levels
    assert (changed.label, changed.origin, changed.probability) == ("close the fridge", "imported", None)
    assert (kept.label, kept.origin, kept.probability) == ("=pour", "model", 0.9)
    assert (unnamed.label, unnamed.origin) == (None, "model")


@given(hierarchy=hierarchies())
def test_hieros_own_documents_come_back(hierarchy, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "steps.json"
    file.write_bytes(encode_edits(hierarchy))
    assert read_step_file(file, VIDEO, hierarchy.duration_s) == replace(hierarchy, model="m")


@pytest.mark.parametrize("name", ["vtt", "activitynet"])
@given(hierarchy=hierarchies())
def test_formats_of_one_level(name, hierarchy, tmp_path_factory):
    back = read_back(name, hierarchy, tmp_path_factory.getbasetemp(), hierarchy.duration_s)
    expected = chapters(hierarchy) if name == "vtt" else hierarchy.levels[-1]
    (level,) = back.levels
    assert level == tuple(replace(step, parent=None, children=()) for step in expected)


def test_a_boundary_that_a_person_moved_in_another_tool(tmp_path):
    steps = (
        Step("0.0", 0.0, 4.0, 3, label="boil", probability=0.5),
        Step("0.1", 4.0, 9.013, 1),
        Step("0.2", 9.013, 12.0, 1, label="x"),
    )
    hierarchy = Hierarchy("kitchen.mp4", "m", 12.0, (steps,))
    (task,) = json.loads(find_exporter("labelstudio").convert(hierarchy))
    result = task.pop("predictions")[0]["result"]
    result[0]["value"]["ranges"][0]["end"] = 75  # at 3 s
    result[1]["value"]["ranges"][0]["start"] = 76
    task["annotations"] = [{"result": [], "was_cancelled": True}, {"result": result, "updated_at": "2026"}]
    (tmp_path / "task.json").write_text(json.dumps([task]))
    file = write_export("fiftyone", hierarchy, tmp_path)
    document = json.loads(file.read_text())
    detections = document["samples"][0]["step"]["detections"]
    detections[0]["support"][1], detections[1]["support"][0] = 75, 76
    file.write_text(json.dumps(document))
    for changed in (tmp_path / "task.json", file):
        (level,) = read_step_file(changed, VIDEO, 12.0).levels
        assert [(step.start_s, step.end_s) for step in level] == [(0.0, 3.0), (3.0, 9.013), (9.013, 12.0)]
        assert [(step.id, step.label, step.origin) for step in level[:1]] == [("0.0", "boil", "imported")]
        assert level[2] == steps[2]


@pytest.mark.parametrize("name", ["elan", "labelstudio", "fiftyone", "vtt", "activitynet"])
def test_what_a_person_changed_elsewhere_is_imported_and_the_rest_stays_the_models(name, tmp_path):
    spans = [("step-1", "boil", 0.8), ("step-2", "pour", 0.9), ("step-3", "stir", None), ("step-4", None, None)]
    steps = [Step(id, 4.0 * i, 4.0 * i + 4, i, label=label, probability=p) for i, (id, label, p) in enumerate(spans)]
    steps[2] = replace(steps[2], origin="person")
    file = write_export(name, Hierarchy("kitchen.mp4", "m", 16.0, (tuple(steps),)), tmp_path)
    shown = {"elan": ">pour<", "vtt": "\npour\n"}
    shown |= {"labelstudio": '[\n        "pour"', "fiftyone": '"label": "pour"', "activitynet": '"label": "pour"'}
    text = file.read_text()
    assert shown[name] in text
    file.write_text(text.replace(shown[name], shown[name].replace("pour", "brew"), 1))
    (level,) = read_step_file(file, VIDEO, 16.0).levels
    expected = [("boil", "model"), ("brew", "imported"), ("stir", "person"), (None, "model")]
    assert [(step.label, step.origin) for step in level] == expected
    assert [step.id for step in level] == [step.id for step in steps]
    assert level[1].probability is None


ELAN = """<?xml version="1.0" encoding="UTF-8"?>
<ANNOTATION_DOCUMENT AUTHOR="Anna" VERSION="3.0"><HEADER/><TIME_ORDER>
<TIME_SLOT TIME_SLOT_ID="t1" TIME_VALUE="1000"/><TIME_SLOT TIME_SLOT_ID="t2"/>
<TIME_SLOT TIME_SLOT_ID="t3" TIME_VALUE="5000"/>
<TIME_SLOT TIME_SLOT_ID="t4" TIME_VALUE="0"/><TIME_SLOT TIME_SLOT_ID="t5" TIME_VALUE="6000"/></TIME_ORDER>
<TIER TIER_ID="hands"><ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a1" TIME_SLOT_REF1="t1" TIME_SLOT_REF2="t2">
<ANNOTATION_VALUE>peel &amp; cut</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
<ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a2" TIME_SLOT_REF1="t2" TIME_SLOT_REF2="t3">
<ANNOTATION_VALUE>wash</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION></TIER>
<TIER TIER_ID="recipe"><ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a3" TIME_SLOT_REF1="t4" TIME_SLOT_REF2="t5">
<ANNOTATION_VALUE>salad</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION></TIER>
<TIER TIER_ID="notes"><ANNOTATION><REF_ANNOTATION ANNOTATION_ID="a4" ANNOTATION_REF="a1">
<ANNOTATION_VALUE>good</ANNOTATION_VALUE>
</REF_ANNOTATION></ANNOTATION></TIER></ANNOTATION_DOCUMENT>"""


@given(
    bounds_ms=st.lists(st.integers(0, 10**8), min_size=2, max_size=2, unique=True).map(sorted),
    fps=st.sampled_from([25.0, 30.0, 24000 / 1001, 30000 / 1001, 59.94, 12.5]),
    shift=st.sampled_from([(0, 0), (3, 3), (0, 3)]),
)
def test_frames_that_nobody_moved_have_their_exact_times(bounds_ms, fps, shift):
    step = Step("a", bounds_ms[0] / 1000, bounds_ms[1] / 1000, 0, label="x")
    first, last = frame_span(step.start_s, step.end_s, fps)
    assert abs((first - 1) / fps - step.start_s) < 1.01 / fps
    row = frame_step(first + shift[0], last + shift[1], fps, "x", step.to_dict())
    assert (row.start_s == step.start_s) == (shift[0] == 0)
    assert (row.end_s == step.end_s) == (shift[1] == 0)


def labels_of(level):
    return [(step.start_s, step.end_s, step.label) for step in level]


def test_elan_of_others(tmp_path):
    file = tmp_path / "anna.eaf"
    file.write_text(ELAN)
    coarse, fine = read_step_file(file, VIDEO, 10.0).levels
    assert labels_of(coarse) == [(0.0, 6.0, "salad"), (6.0, 10.0, None)]
    named = [(1.0, 3.0, "peel & cut"), (3.0, 5.0, "wash")]
    assert labels_of(fine) == [(0.0, 1.0, None), *named, (5.0, 6.0, None), (6.0, 10.0, None)]
    assert [step.background for step in fine] == [True, False, False, True, True]
    (only,) = read_step_file(file, VIDEO, 10.0, tiers=["hands"]).levels
    assert labels_of(only)[1:3] == named
    with pytest.raises(InputError, match="no tier nobody"):
        read_step_file(file, VIDEO, 10.0, tiers=["nobody"])


@pytest.mark.parametrize("ends", ["", "</TIER>"])  # one in the other, and one after the other
def test_thousands_of_elan_tiers_are_refused_at_once(tmp_path, ends):
    annotation = re.search("<ANNOTATION>((?!</ANNOTATION>).)*salad.*?</ANNOTATION>", ELAN, re.DOTALL)[0]
    tiers = [f'<TIER TIER_ID="{i}" PARENT_REF="{i + 1}">{annotation}{ends}' for i in range(2000)]
    document = ELAN.partition("<TIER ")[0] + "<TIER TIER_ID='all'>" * (not ends)
    document += "".join(tiers) + ("" if ends else "</TIER>" * 2001) + "</ANNOTATION_DOCUMENT>"
    (tmp_path / "tiers.eaf").write_text(document)
    begin_s = time.perf_counter()
    with pytest.raises(InputError, match=r"tiers\.eaf"):
        read_step_file(tmp_path / "tiers.eaf", VIDEO)
    assert time.perf_counter() - begin_s < 3


def test_xml_cannot_harm(tmp_path):
    file = tmp_path / "bomb.eaf"
    entities = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))
    for content, message in (
        (f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "ha">{entities}]><x>&a11;</x>', "document type"),
        ('<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>', "document type"),
        ("<a>" * 100_000, "not XML"),
        ("<a>" * 100_000 + "</a>" * 100_000, "not an ELAN file"),
        ("<x", "not XML"),
        ("<x/>", "not an ELAN file"),
        (ELAN.replace('TIME_VALUE="5000"', ""), "hands"),
        (ELAN.replace('TIME_SLOT_REF1="t4"', 'TIME_SLOT_REF1="?"'), "bomb"),
    ):
        file.write_text(content)
        with pytest.raises(InputError, match=message):
            read_step_file(file, VIDEO)


@pytest.mark.parametrize("encoding", ["rot13", "zlib", "utf-7", "idna", "undefined", "utf-99"])
def test_xml_in_an_encoding_that_xml_does_not_know(encoding, tmp_path):
    file = tmp_path / "odd.eaf"
    file.write_text(ELAN.replace("UTF-8", encoding))
    with pytest.raises(InputError, match=r"odd\.eaf.*UTF-8"):
        read_step_file(file, VIDEO)


def test_a_pipe_is_not_waited_for(tmp_path):
    pipe = tmp_path / "steps.csv"
    os.mkfifo(pipe)
    messages = []

    def read():
        with pytest.raises(InputError) as caught:
            read_step_file(pipe, VIDEO)
        messages.append(str(caught.value))

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(PATIENCE_S)
    assert messages == [f"{pipe}: a pipe or a device, not a file; write its content to a file first"]


def test_many_nested_rows_are_refused_at_once():
    rows = [imported_step(i / 1000, 200.0 - i / 1000) for i in range(50_000)]  # each inside the one before
    with pytest.raises(ValueError, match="more than 16 levels"):
        nest_rows([rows], 200.0)


def test_gaps_count_as_steps(monkeypatch):
    monkeypatch.setattr(nesting, "MAX_STEPS", 9)
    rows = [imported_step(2.0 * i, 2.0 * i + 1, "cut") for i in range(5)]
    assert len(nest_rows([rows], 9.0)[0]) == 9
    with pytest.raises(ValueError, match="more than 16 levels or 9 steps, including the gaps"):
        nest_rows([rows], 10.0)  # otherwise hiero could not read what it writes


@pytest.mark.parametrize(
    "table",
    [
        "start,end,label\n1,3,peel\n5.5,0:07,wash\n",
        "begin;duration;text\n1;2;peel\n5,5;1,5;wash\n",
        "Video\tStart_s\tEnd_s\tAction\nkitchen.mp4\t1\t3\tpeel\nother.mp4\t0\t99\tno\nkitchen.mp4\t5.5\t7\twash\n",
    ],
)
def test_tables_of_others(tmp_path, table):
    file = tmp_path / "t.csv"
    file.write_text(table)
    (level,) = read_step_file(file, VIDEO, 9.0).levels
    named = [(1.0, 3.0, "peel"), (5.5, 7.0, "wash")]
    assert labels_of(level) == [(0.0, 1.0, None), named[0], (3.0, 5.5, None), named[1], (7.0, 9.0, None)]
    assert [step.thread for step in level] == [0, 1, 0, 2, 0]
    assert {step.origin for step in level} == {"imported"}
    assert parse_hierarchy(read_step_file(file, VIDEO, 9.0).to_dict(), 9.0).levels == (level,)  # the page takes it


TIMELINE_LABEL = {
    "id": "x",
    "type": "timelinelabels",
    "value": {"ranges": [{"start": 26, "end": 75}], "timelinelabels": ["peel"]},
}
AUDIO_LABEL = {"type": "labels", "value": {"start": 1.0, "end": 3.0, "labels": ["peel"]}}
BROKEN = {"hiero": "{broken"}


@pytest.mark.parametrize(
    "document",
    [
        {"kitchen": {"steps": [{"start_s": 1, "end_s": 3, "text": "peel"}]}, "b": {"steps": []}},
        {"database": {"kitchen": {"annotations": [{"segment": [1, 3], "label": "peel"}]}, "b": {"annotations": []}}},
        {"results": {"kitchen": [{"segment": [1, 3], "label": "peel", "score": 0.2}]}},
        {"v_1": {"duration": 9, "timestamps": [[1, 3]], "sentences": ["peel"]}},
        [
            {"data": {"video": "/data/upload/1/kitchen.mp4"}, "annotations": [{"result": [TIMELINE_LABEL]}]},
            {"data": {"video": "/data/b.mp4"}, "annotations": []},
        ],
        {"data": {"audio": "kitchen.wav"}, "annotations": [{"result": [AUDIO_LABEL]}]},
        {"classes": ["peel"], "labels": {"kitchen": [{"label": 0, "timestamps": [1, 3]}], "hall": []}},
        {"classes": [], "labels": {"kitchen": [{"label": "peel", "support": [26, 75], "attributes": BROKEN}]}},
    ],
)
def test_json_of_others(tmp_path, document):
    file = tmp_path / "t.json"
    file.write_text(json.dumps(document))
    (level,) = read_step_file(file, VIDEO, 9.0).levels
    assert labels_of(level) == [(0.0, 1.0, None), (1.0, 3.0, "peel"), (3.0, 9.0, None)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "start,end,label\n1,5,a\n3,9,b\n", r"a \(1\.0-5\.0 s\) and b \(3\.0-9\.0 s\) overlap"),
        ("a.csv", "start,end,label\nx,5,a\n", "line 2: 'x' is not a time"),
        ("a.csv", "begin,label\n1,a\n", "columns start_s, end_s and label, found begin, label"),
        ("a.csv", "start,end,label\n5,99,a\n", "after the end of the video"),
        ("a.csv", "start,end,label\n5,5,a\n", "end after it begins"),
        ("a.csv", "start,end,label\n", "columns"),
        ("a.csv", "video,start,end,label\nx,1,2,a\ny,1,2,a\n", "2 videos but none named kitchen"),
        ("a.json", '{"classes": [], "labels": {"a": [], "b": []}}', "2 videos but none named kitchen"),
        ("a.json", "[]", "unknown kind of JSON"),
        ("a.json", "{", "Expecting"),
        ("a.json", '{"levels": 3}', "not a hierarchy"),
        ("a.json", '{"database": {"a": {"annotations": [{"segment": 3}]}}}', "a.json"),
        ("a.json", '[{"data": {}}]', "neither annotations"),
        ("a.eaf", '<!DOCTYPE x [<!ENTITY e "a">]><annotations>&e;</annotations>', "document type"),
        ("a.json", '{"samples": [{"filepath": "x.mp4"}]}', "no temporal detections"),
        ("a.vtt", "WEBVTT\n\n1\n00:x --> 00:02\nhi\n", "line 4 is not a time"),
        ("a.vtt", "WEBVTT\n", "no steps"),
        ("a.txt", "", "unknown kind"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        read_step_file(tmp_path / name, VIDEO, 12.0)
    assert "\n" not in str(caught.value)


def test_nesting_and_cuts():
    spans = [(0, 6, "salad"), (1, 2, "peel"), (2, 4, "cut"), (7, 9, "eat")]
    rows = [imported_step(*span) for span in spans]
    coarse, fine = nest_rows([rows], 10.0)
    assert labels_of(coarse) == [(0.0, 6, "salad"), (6, 7, None), (7, 9, "eat"), (9, 10.0, None)]
    # A step without finer ones stands for itself on the finer level.
    assert labels_of(fine) == [(0.0, 1, None), *spans[1:3], (4, 6, None), (6, 7, None), spans[3], (9, 10.0, None)]
    assert {step.parent for step in fine[:4]} == {coarse[0].id}
    (level,) = nest_rows([[imported_step(0, 5, "a"), imported_step(3, 10, "b")]], 10.0, cut_overlaps=True)
    assert labels_of(level) == [(0.0, 3, "a"), (3, 10.0, "b")]
    with pytest.raises(ValueError, match="crosses the boundary"):
        nest_rows([[imported_step(0, 5, "a"), imported_step(5, 10, "b")], [imported_step(4, 7, "c")]], 10.0)


@given(
    st.lists(
        st.tuples(st.integers(0, 95), st.integers(1, 30), st.sampled_from(["a", "b", None])), min_size=1, max_size=8
    ),
    st.booleans(),
)
def test_any_rows_become_levels_that_the_page_takes_or_an_error(rows, cut_overlaps):
    steps = [imported_step(a, min(100, a + length), label) for a, length, label in rows]
    try:
        levels = nest_rows([steps], 100.0, cut_overlaps=cut_overlaps)
    except ValueError as error:
        assert "overlap" in str(error) or "boundary" in str(error)  # noqa: PT017
        return
    hierarchy = Hierarchy("v", "", 100.0, tuple(map(tuple, levels)))
    assert parse_hierarchy(hierarchy.to_dict(), 100.0) == hierarchy
    if not cut_overlaps:
        spans = {(step.start_s, step.end_s, step.label) for step in hierarchy}
        assert {(row.start_s, row.end_s, row.label) for row in steps} <= spans


def test_long_ids_are_the_same_for_steps_and_their_parents(tmp_path):
    coarse = [Step("c" * 127 + str(i), 5.0 * i, 5.0 * i + 5, i, label="x") for i in range(2)]
    fine = [Step("f" * 127 + str(i), 5.0 * i, 5.0 * i + 5, i, label="y") for i in range(2)]
    hierarchy = Hierarchy("kitchen.mp4", "m", 10.0, tuple(map(tuple, link_levels([coarse, fine]))))
    assert Hierarchy.from_dict(hierarchy.to_dict()) == hierarchy
    assert parse_hierarchy(hierarchy.to_dict(), 10.0) == hierarchy
    for name in ("elan", "csv", "labelstudio"):
        assert read_back(name, hierarchy, tmp_path).levels == hierarchy.levels


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([[Step("0", 0.0, 4.0, 0), Step("1", 5.0, 9.0, 0)]], "level 0: step 1"),
        ([[Step("0", 0.0, 8.0, 0)]], r"level 0 ends at 8\.0 s"),
        ([[Step("0", 0.0, 9.0, 0)], [Step("1", 0.0, 9.0, 0, parent="2")]], "step 1 must lie inside its parent"),
        ([[Step("0", 0.0, 9.0, 0)], [Step("1", 0.0, 9.0, 0)]], "step 1 must lie inside its parent"),
        ([[Step("0", 0.0, 9.0, 0)], []], "16 levels"),
        ([[Step(str(i), 0.0, 9.0, 0, parent=str(i - 1) if i else None)] for i in range(17)], "16 levels"),
        ([[Step("0", 0.0, 9.0, 10**6 + 1)]], "thread"),
    ],
)
def test_one_check_of_levels_for_documents_and_for_the_page(levels, message):
    document = Hierarchy("v.mp4", "m", 9.0, tuple(map(tuple, levels))).to_dict()
    for parse in (Hierarchy.from_dict, parse_hierarchy):
        with pytest.raises(InputError, match=message):
            parse(document)


@pytest.mark.parametrize("fraction", ["", ".5", ",5", ".50", ".500000", ".500000000"])
@pytest.mark.parametrize("suffix", [".vtt", ".srt"])
def test_steps_and_speech_have_the_same_times(tmp_path, suffix, fraction):
    file = tmp_path / f"a{suffix}"
    header = "WEBVTT\n\n" if suffix == ".vtt" else ""
    file.write_text(f"{header}1\n01:00:01{fraction} --> 150:02{fraction}\ncut the onion\n")
    (step,) = [step for step in read_step_file(file, VIDEO) if step.label]
    (utterance,) = read_transcript(file)
    expected = (3601.5, 9002.5) if fraction else (3601.0, 9002.0)
    assert (step.start_s, step.end_s) == (utterance.start_s, utterance.end_s) == expected
