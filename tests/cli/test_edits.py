"""Commands use the corrections that people made, and print nothing that would control a terminal."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hiero.cli import main
from hiero.cli.console import log, print_json, results_console
from hiero.cli.corpus import _print_hits
from hiero.cli.steps import print_steps
from hiero.corpus.rows import Hit
from hiero.errors import InputError
from hiero.formats.hiero_json import encode_edits, read_edits, write_edits
from hiero.serve.state import State
from hiero.storage.cache import content_key
from hiero.storage.files import home
from hiero.types import Answer, Hierarchy, Match, Step
from tests.optional import weights_or_skip

NAME = "rinse the blue cup"
ESCAPE = "\x1b]0;title\x07"


@pytest.fixture
def kitchen(tmp_path):
    """Features whose second step a person named and whose third one was imported."""
    weights_or_skip("minilm")
    path = tmp_path / "kitchen.npy"
    np.save(path, np.random.default_rng(3).normal(size=(120, 400)).astype(np.float32))
    steps = (
        Step("step-1", 0.0, 40.0, 0),
        Step("step-2", 40.0, 70.0, 1, label=NAME, origin="person"),
        Step("step-3", 70.0, 120.0, 2, label="dry", origin="imported"),
    )
    write_edits(path, content_key(path), Hierarchy(str(path), "hiero-k400", 120.0, (steps,)))
    return path


def test_steps_announces_and_exports_corrections(kitchen, run, tmp_path):
    _, out, err = run("steps", kitchen, "-o", tmp_path / "out", "--export", "csv")
    assert "using 2 corrections from kitchen.npy.hiero.json" in err
    assert NAME in out
    assert NAME in (tmp_path / "out" / "steps.csv").read_text()
    assert NAME in (tmp_path / "out" / "report.html").read_text()
    _, out, err = run("steps", kitchen, "--no-edits")
    assert "correction" not in err
    assert NAME not in out
    _, out, err = run("steps", kitchen, "-k", "1")
    assert "2 corrections from kitchen.npy.hiero.json not used, because -k" in err
    assert ", 1 step\n" in out


def test_the_corrections_of_a_server_are_used_only_on_request(kitchen, run, tmp_path):
    found = read_edits(kitchen)
    first, second, third = found.hierarchy.levels[0]
    steps = replace(found.hierarchy, levels=((first, replace(second, label="on the server"), third),))
    state = State(tmp_path / "root")
    state.add_edit(content_key(kitchen), "version", encode_edits(steps), 1, "anna")
    state.close()
    _, out, _ = run("steps", kitchen)
    assert (NAME in out, "on the server" in out) == (True, False)
    _, out, err = run("steps", kitchen, "--edits", f"server:{tmp_path / 'root'}")
    assert (NAME in out, "on the server" in out) == (False, True)
    assert str(tmp_path / "root") in err
    for edits in ("nonsense", "server:", f"server:{tmp_path}"):
        with pytest.raises(InputError, match=edits.removeprefix("server:") or "--edits"):
            run("steps", kitchen, "--edits", edits)


def test_ask_uses_corrections(kitchen, run):
    _, out, err = run("ask", kitchen, NAME, "--json", "-n", "1")
    assert "using 2 corrections" in err
    (answer,) = json.loads(out)["queries"]
    assert (answer["present"], answer["rests_on"]) == (True, "name")
    assert answer["matches"][0]["start_s"] == 40.0
    _, out, _ = run("ask", kitchen, NAME, "--no-edits", "--json")
    assert "rests_on" not in out


def test_a_renamed_video_keeps_its_corrections(kitchen, run):
    moved = kitchen.rename(kitchen.with_name("renamed.npy"))
    _, out, err = run("steps", moved)
    assert f"using 2 corrections from {home() / 'edits' / content_key(moved)}.json" in err
    assert NAME in out


def test_a_repeated_query_is_answered_once(kitchen, run):
    _, out, _ = run("ask", kitchen, NAME, "dry", NAME, "--json")
    assert [answer["query"] for answer in json.loads(out)["queries"]] == [NAME, "dry"]
    _, out, _ = run("ask", kitchen, "--in-order", NAME, "dry", NAME, "--json")
    assert [answer["query"] for answer in json.loads(out)["queries"]] == [NAME, "dry", NAME]


@pytest.fixture
def answers(monkeypatch):
    """`ask` finds one query and not the other."""
    given = [Answer("cup", 0.65, (Match(3.0, 9.0, 0.65),)), Answer("plane", 0.08, (Match(20.0, 30.0, 0.08),))]
    monkeypatch.setattr("hiero.engine.video.Video.ask", lambda *_, **__: given)


def test_ask_prints_a_header_and_no_rows_of_what_is_not_there(kitchen, run, answers):
    _, out, _ = run("ask", kitchen, "cup", "plane", "--no-edits")
    lines = out.splitlines()
    assert lines[0] == "cup"
    assert lines[1].split() == ["from", "to", "probability"]
    assert lines[2].split() == ["0:03", "0:09", "65", "%"]
    assert lines[3:] == ["plane   probably not in this video; closest: 0:20–0:30, 8 %"]
    _, out, _ = run("ask", kitchen, "cup", "plane", "--no-edits", "--all")
    assert out.splitlines()[-1].split() == ["0:20", "0:30", "8", "%"]


def test_ask_of_several_videos(kitchen, run, answers, tmp_path):
    np.save(tmp_path / "other.npy", np.random.default_rng(4).normal(size=(120, 400)).astype(np.float32))
    _, out, _ = run("ask", "--video", kitchen, "--video", tmp_path / "other.npy", "cup", "plane", "--no-edits")
    best = out[out.index("best of all videos: cup") :]
    assert best.splitlines()[1].split() == ["from", "to", "probability", "video"]
    assert "best of all videos: plane   probably not in these videos" in best
    assert "0:20  0:30" not in out


def test_nothing_printed_controls_the_terminal(capsys):
    log(f"{ESCAPE}.mp4: no such file")
    print_json({"label": f"{ESCAPE}\x9bx"})
    results_console(f"video {ESCAPE}").print(f"a {ESCAPE}")
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert not set("\x1b\x07\x9b\u202e") & set(text)
        assert "\\" in text
    assert json.loads(captured.out.splitlines()[0])["label"] == f"{ESCAPE}\x9bx"


def test_arguments_that_control_the_terminal_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["hiero", "steps", f"--{ESCAPE}"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert "control characters" in err
    assert "\x1b" not in err


def test_columns_without_content_are_left_out(capsys):
    step = Step("step-1", 0.0, 9.0, thread=7, label="rinse", origin="person")
    hit = Hit("a", 0, "step-1", 0.0, 9.0, 0, "rinse", 0.9, rests_on="name")
    print_steps(Hierarchy("a.mp4", "model", 9.0, ((step,),)))
    _print_hits([hit], {})
    print_steps(Hierarchy("a.mp4", "model", 9.0, ((replace(step, probability=0.8),),)))
    _print_hits([replace(hit, rests_on="speech", quote="rinse it")], {})
    printed = capsys.readouterr().out
    assert ", 1 step\n" in printed
    tables = [line.split()[2:] for line in printed.splitlines() if line.startswith("from")]
    assert tables[:2] == [["step"], ["probability", "step", "by"]]
    assert [table[-1] for table in tables[2:]] == ["probability", "speech"]
