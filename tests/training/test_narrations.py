from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hiero.errors import InputError
from hiero.training.narrations import read_narrations, read_skip_list

SAMPLE = Path(__file__).parents[3] / "shared" / "annotations" / "egoclip_sample.csv"
COLUMNS = (
    "video_uid video_dur narration_source narration_ind narration_time clip_start clip_end clip_text tag_verb tag_noun "
    "positive"
)
HEADER = "\t".join(COLUMNS.split()) + "\n"


def egoclip_line(video="v", time="3.5", text="#C C opens a door"):
    return f"{video}\t-1\tnarration_pass_1\t0\t{time}\t0\t0\t{text}\t[]\t[]\t1.0\n"


def test_egoclip_and_its_bad_lines(tmp_path):
    path = tmp_path / "egoclip.csv"
    path.write_text(
        HEADER
        + egoclip_line(time="9", text='#C C says "hello, world')
        + egoclip_line(time="2")
        + egoclip_line(time="soon")
        + egoclip_line(time="nan")
        + egoclip_line(text="  ")
        + "v\tonly\tthree\n"
        + egoclip_line("w", "-4")
    )
    narrations = read_narrations(path)
    assert [n.time_s for n in narrations.by_video["v"]] == [2.0, 9.0]
    assert narrations.by_video["v"][1].text == '#C C says "hello, world'
    assert narrations.left_out == {"no time": 1, "impossible time": 2, "no text": 1, "not 11 columns": 1}
    assert "2 narrations of 1 video used" in narrations.summary()
    assert "line 4: ['soon']" in narrations.summary()


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the sample of EgoClip's file is not here")
def test_a_real_sample_of_egoclip():
    narrations = read_narrations(SAMPLE)
    assert len(narrations) + sum(narrations.left_out.values()) == len(SAMPLE.read_text().splitlines()) - 1
    assert len(narrations) > 2400
    assert all(n.text for n in narrations)


def test_own_csv_and_jsonl(tmp_path):
    (tmp_path / "own.csv").write_text('video,start_s,end_s,text\nk,10,20,"cut, then wash"\nk,5,4,backwards\n')
    narrations = read_narrations(tmp_path / "own.csv")
    assert [(n.video, n.time_s, n.text) for n in narrations] == [("k", 15.0, "cut, then wash")]
    assert narrations.left_out == {"impossible time": 1}
    rows = [
        {"video": "k", "time_s": 3, "text": "wash"},
        {"video": "k", "start_s": 1, "end_s": 2, "text": "peel"},
        [1],
        {"text": "x"},
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n{broken\n")
    narrations = read_narrations(tmp_path / "own.jsonl")
    assert [(n.time_s, n.text) for n in narrations] == [(1.5, "peel"), (3.0, "wash")]
    assert narrations.left_out == {"not JSON": 1, "not a JSON object": 1, "no video id": 1}


def test_videos_without_features_and_skipped_ones_are_counted(tmp_path):
    (tmp_path / "own.csv").write_text("video,time_s,text\na,1,x\na,2,x\nb,1,y\nc,1,z\n")
    (tmp_path / "skip.txt").write_text("b  # test set\n\n")
    narrations = read_narrations(tmp_path / "own.csv").select_videos({"a", "b"}, read_skip_list(tmp_path / "skip.txt"))
    assert list(narrations.by_video) == ["a"]
    assert narrations.left_out == {"on the skip list": 1, "no features for the video": 1}
    assert {narration.text for narration in narrations} == {"x"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "the first line must name the columns"),
        ("a.csv", "x,y\n1,2\n", "the first line must name the columns"),
        ("a.csv", "video,time_s,text\n", "no usable narration"),
        ("a.jsonl", "nope\n", "no usable narration"),
        ("a.txt", "x", "unknown kind of narration file"),
    ],
)
def test_unusable_files(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_narrations(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_narrations(tmp_path / "missing.csv")


def test_cells_and_lines_without_end(tmp_path):
    (tmp_path / "open.csv").write_text('video,text,time_s\nv,"' + "x" * 140_000 + ",1\nv,y,2\n")
    with pytest.raises(InputError, match=r"open\.csv: not a valid table .*quotation mark left open"):
        read_narrations(tmp_path / "open.csv")
    (tmp_path / "head.csv").write_text("x" * 140_000 + "\n")
    with pytest.raises(InputError, match=r"head\.csv: "):
        read_narrations(tmp_path / "head.csv")
    good = json.dumps({"video": "v", "text": "x", "time_s": 1})
    huge = '{"video": "v", "text": "x", "time_s": 1' + "0" * 400 + "}"
    (tmp_path / "deep.jsonl").write_text("\n".join(["[" * 100_000, good, huge]))
    narrations = read_narrations(tmp_path / "deep.jsonl")
    assert len(narrations) == 1
    assert dict(narrations.left_out) == {"not JSON": 1, "no time": 1}


@pytest.mark.parametrize("name", ["n.csv", "n.jsonl"])
def test_a_file_larger_than_the_memory_is_refused_unread(tmp_path, name):
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 2**42)
    with pytest.raises(InputError, match=r"its text would take 4096\.0 GiB of memory"):
        read_narrations(tmp_path / name)


def test_transcripts_are_narrations(tmp_path):
    """One transcript, or a folder of them: utterances at their middle, each video under its name."""
    cue = "1\n00:00:{}0,000 --> 00:00:{}4,000\n{}\n"
    (tmp_path / "kitchen.srt").write_text(cue.format(1, 1, "now I cut the onion") + "\n" + cue.format(2, 2, "okay"))
    (tmp_path / "garage.en.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nwe repair the motorcycle\n")
    (tmp_path / "garage.de.txt").write_text("")
    (tmp_path / "broken.srt").write_text("1\nxx --> yy\nhello\n")
    (tmp_path / "notes.json").write_text("{}")
    narrations = read_narrations(tmp_path)
    assert {video: [(n.time_s, n.text) for n in rows] for video, rows in narrations.by_video.items()} == {
        "garage": [(2.0, "we repair the motorcycle")],
        "kitchen": [(12.0, "now I cut the onion")],
    }
    assert narrations.left_out["fewer than 3 words"] == 1
    assert narrations.left_out["not a transcript"] == 1
    assert list(read_narrations(tmp_path / "kitchen.srt").by_video) == ["kitchen"]
    with pytest.raises(InputError, match="is not a time"):
        read_narrations(tmp_path / "broken.srt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no transcripts"):
        read_narrations(tmp_path / "empty")
