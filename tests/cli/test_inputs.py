"""hiero steps, ask and label over files, folders, patterns and chapters; in this process, to be fast."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hiero.cli.ask import split_queries
from hiero.cli.clips import rank_across_videos
from hiero.cli.inputs import find_inputs
from hiero.cli.options import VideoOptions
from hiero.errors import InputError
from hiero.types import Answer, Match
from tests.documentation import check_schema
from tests.evaluation.simulated import encode_as_own_vector, save_identity_model


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))


def activities(num_rows, seed=0):
    rng = np.random.default_rng(seed)
    out = np.repeat(rng.normal(0, 3, (4, 16)), num_rows // 4, 0) + rng.normal(0, 1, (num_rows, 16))
    return out.astype(np.float32)


@pytest.fixture
def card(tmp_path):
    """A card with a recording of three chapters, one of a single file, a name that is no camera's, and
    what is no video.
    """
    folder = tmp_path / "card" / "100GOPRO"
    folder.mkdir(parents=True)
    rows = activities(80)
    parts = {"GX010012": rows[:30], "GX020012": rows[30:55], "GX030012": rows[55:], "GX010013": rows[:40]}
    for name, part in parts.items():
        np.save(folder / f"{name}.npy", part)
    np.save(tmp_path / "card" / "kitchen.npy", rows[20:60])
    (folder / "GX010012.THM").write_bytes(b"a picture")
    return tmp_path / "card"


@pytest.mark.slow
def test_closed_outputs(card, tmp_path):
    """Results need standard output; messages are dropped, and never mixed with the results."""
    kitchen = card / "kitchen.npy"
    kitchen.with_suffix(".srt").write_text("no subtitles")
    command = shlex.join([sys.executable, "-m", "hiero", "steps", str(kitchen), "--model", "raw", "--json"])
    refused = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert (refused.returncode, "standard output" in refused.stderr) == (2, True)
    done = subprocess.run(f"{command} 2>&-", shell=True, capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["video"]) == (0, str(kitchen))


def test_links_in_a_circle_are_no_file(run, tmp_path):
    (tmp_path / "a.mp4").symlink_to(tmp_path / "b.mp4")
    (tmp_path / "b.mp4").symlink_to(tmp_path / "a.mp4")
    with pytest.raises(InputError, match=r"a\.mp4"):
        run("steps", tmp_path / "a.mp4", "--model", "raw")


def test_a_folder_gives_one_result_each(run, card, tmp_path):
    code, out, err = run("steps", card, "--model", "raw", "-k", "2,4", "-o", tmp_path / "out", "--export", "srt")
    assert code == 0
    assert "GX010012.npy, GX020012.npy, GX030012.npy" in err
    for title in ("100GOPRO/GX010012, 3 files", "100GOPRO/GX010013", "\nkitchen"):
        assert title in out
    assert "GX020012.npy 0:10" in out  # a step at 0:40
    for name in ("100GOPRO/GX010012", "100GOPRO/GX010013", "kitchen"):
        assert (tmp_path / "out" / name / "steps.json").is_file()
    # Of each file its own subtitles, in its own time.
    subtitles = sorted((tmp_path / "out" / "100GOPRO" / "GX010012" / "files").rglob("steps.srt"))
    assert [path.parent.name for path in subtitles] == ["01-GX010012", "02-GX020012", "03-GX030012"]
    assert all("1\n00:00:00,000 -->" in path.read_text() for path in subtitles)
    assert "--> 00:00:25,000" in subtitles[1].read_text()
    assert not list((tmp_path / "out" / "kitchen").glob("files"))


def test_json_of_several_is_a_list_and_of_one_file_as_ever(run, card):
    code, out, _ = run("steps", card, "--model", "raw", "--json")
    document = json.loads(out)
    assert (code, document["version"]) == (0, 2)
    check_schema(document, "videos")
    assert [video["name"] for video in document["videos"]] == ["100GOPRO/GX010012", "100GOPRO/GX010013", "kitchen"]
    for video in document["videos"]:
        check_schema(video, "steps")
    assert [file["start_s"] for file in document["videos"][0]["files"]] == [0.0, 30.0, 55.0]
    assert "files" not in document["videos"][1]
    one = json.loads(run("steps", card / "kitchen.npy", "--model", "raw", "--json")[1])
    check_schema(one, "steps")
    assert {**one, "name": "kitchen"} == document["videos"][2]
    # A folder gives a list, however many videos are in it: a script can rely on it.
    (card / "100GOPRO" / "GX010013.npy").unlink()
    assert len(json.loads(run("steps", card / "100GOPRO", "--model", "raw", "--json")[1])["videos"]) == 1


def test_patterns_and_several_files(run, card):
    quoted = card / "*" / "GX0?0012.npy"
    document = json.loads(run("steps", quoted, "--model", "raw", "--json")[1])
    assert [video["name"] for video in document["videos"]] == ["100GOPRO/GX010012"]
    assert document["videos"][0]["duration_s"] == 80.0
    # Files that make one recording are one video, whose result stands alone.
    files = [card / "100GOPRO" / f"GX0{i}0012.npy" for i in (3, 1, 2)]
    assert json.loads(run("steps", *files, "--model", "raw", "--json")[1])["duration_s"] == 80.0
    separate = json.loads(run("steps", *files, "--model", "raw", "--json", "--no-join")[1])
    # in the order in which they were given
    assert [video["duration_s"] for video in separate["videos"]] == [25.0, 30.0, 25.0]
    joined = json.loads(run("steps", card / "kitchen.npy", files[0], "--join", "--model", "raw", "--json")[1])
    assert [Path(file["path"]).name for file in joined["files"]] == ["kitchen.npy", "GX030012.npy"]


def test_one_bad_file_stops_nothing(run, card, tmp_path):
    (card / "bad.npy").write_bytes(b"no array")
    code, out, err = run("steps", card, tmp_path / "gone.npy", "--model", "raw", "--json")
    videos = {video["name"]: video for video in json.loads(out)["videos"]}
    assert (code, "3 of 5 videos" in err) == (1, True)
    assert "bad.npy" in videos["bad"]["error"]
    assert "gone.npy" in videos["gone"]["error"]
    assert "levels" in videos["kitchen"]
    # A chapter that cannot be read: its recording fails, and it is said what to do.
    (card / "100GOPRO" / "GX020012.npy").write_bytes(b"no array")
    code, _, err = run("steps", card / "100GOPRO", "--model", "raw")
    assert (code, "1 of 2 videos" in err) == (1, True)
    assert "GX020012.npy" in err
    assert "--no-join" in err
    # when, and at the end
    assert run("steps", card / "100GOPRO", "--model", "raw", "--no-join")[2].count("failed:") == 2


def test_names_are_unique(run, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "tea.npy", activities(20))
    (tmp_path / "a" / "tea.mp4").write_bytes(b"")  # of a video and its features in a folder, the video
    paths = [tmp_path / "b" / "tea.npy", tmp_path / "a", tmp_path / "b" / "tea.npy"]
    inputs = find_inputs(paths, VideoOptions(), "read")
    paths = {name: source.path for name, source in inputs.sources.items()}
    assert paths == {"tea": tmp_path / "b" / "tea.npy", "tea (2)": tmp_path / "a" / "tea.mp4"}
    assert not inputs.is_single


@pytest.mark.parametrize("name", [None, "empty", "*.mp4", "**.mp4", "gone.mp4"])
def test_mistakes_name_what_was_given(run, tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="name a video" if name is None else re.escape(name)):
        run("steps", *([] if name is None else [tmp_path / name]), "--model", "raw")


def test_a_lone_chapter_is_read_and_the_others_are_named(run, card):
    code, out, err = run("steps", card / "100GOPRO" / "GX020012.npy", "--model", "raw")
    assert (code, "0:25" in out) == (0, True)
    assert "GX010012.npy, GX030012.npy" in err


@pytest.mark.parametrize(
    ("arguments", "given", "videos"),
    [
        (["a.mp4", "cut"], [], ["a.mp4"]),
        (["*.mp4", "cut"], [], ["*.mp4"]),
        (["a.mp4", "b.mp4", "cut", "wash"], [], ["a.mp4", "b.mp4"]),  # written out by a shell
        (["a.mp4", "b.mp4"], [], ["a.mp4", "b.mp4"]),
        (["cut", "b.mp4"], ["a.mp4"], ["a.mp4"]),
        (["a.mp4", "cut"], ["b.mp4"], ["a.mp4", "b.mp4"]),
        (["x" * 5000], ["b.mp4"], ["b.mp4"]),
        ([], [], []),
    ],
)
def test_which_arguments_are_videos(tmp_path, monkeypatch, arguments, given, videos):
    monkeypatch.chdir(tmp_path)
    for name in ("a.mp4", "b.mp4"):
        Path(name).write_bytes(b"")
    queries = [argument for argument in arguments if argument not in videos]
    assert split_queries(arguments, given) == (videos, queries)


def test_the_best_of_all_videos():
    a = Answer("cut", 0.5, (Match(0, 1, 0.5), Match(2, 3, 0.1)))
    b = Answer("cut", 0.9, (Match(4, 5, 0.9), Match(6, 7, 0.3)))
    best = rank_across_videos({"a": [a], "b": [b]}, 3)
    assert [(name, match.probability) for name, match in best["cut"]] == [("b", 0.9), ("a", 0.5), ("b", 0.3)]


@pytest.mark.slow
def test_a_question_is_asked_of_all_videos_of_a_folder(run, tmp_path, monkeypatch):
    """A pot is washed in the second chapter of a recording; and not in another video."""
    model = ("--model", save_identity_model(tmp_path / "model", monkeypatch))
    milk, pot = (encode_as_own_vector([text]).repeat(100, axis=0) for text in ("pour the milk", "wash the pot"))
    kitchen = tmp_path / "kitchen"
    kitchen.mkdir()
    rows = np.concatenate([milk, pot])
    for name, part in (("GX010001", rows[:80]), ("GX020001", rows[80:]), ("sink", milk)):
        np.save(kitchen / f"{name}.npy", part)
    code, out, err = run("ask", kitchen, "wash the pot", "--json", "-n", 2, *model)
    document = json.loads(out)
    assert code == 0, err
    check_schema(document, "ask")
    (query,) = document["queries"]
    top, second = query["matches"]
    assert top["video"] == "GX010001"
    assert top["start_s"] >= 90
    assert Path(top["file"]).name == "GX020001.npy"
    assert top["file_start_s"] == top["start_s"] - 80
    assert top["probability"] == query["probability"] >= second["probability"]
    videos = ("--video", kitchen / "GX010001.npy", "--video", kitchen / "sink.npy")
    code, out, err = run("ask", *videos, "wash the pot", *model, "--all")
    assert code == 0
    assert {"GX010001", "sink"} <= set(out.split())
    assert "2 of 2 videos done" in err
