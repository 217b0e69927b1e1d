"""Commands use the corrections that people made, and print nothing that would control a terminal."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hiero.cli.console import ReadingBars, log, print_json, results_console, transient_bars
from hiero.cli.moments import Found, Moment, print_found
from hiero.cli.steps import print_steps
from hiero.corpus.rows import Hit
from hiero.errors import InputError
from hiero.formats.hiero_json import encode_edits, read_edits, write_edits
from hiero.serve.state import State
from hiero.storage.cache import content_key
from hiero.storage.files import home
from hiero.types import Hierarchy, Match, ProgressEvent, Step
from tests.optional import weights_or_skip
from tests.processes import run_hiero

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
    assert "2 corrections from kitchen.npy.hiero.json" in err
    assert NAME in out
    assert NAME in (tmp_path / "out" / "steps.csv").read_text()
    assert NAME in (tmp_path / "out" / "report.html").read_text()
    _, out, err = run("steps", kitchen, "--no-edits")
    assert "correction" not in err
    assert NAME not in out
    _, out, err = run("steps", kitchen, "-k", "1")
    assert "-k" in err
    assert NAME not in out


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
    assert "2 corrections" in err
    (answer,) = json.loads(out)["queries"]
    (match,) = answer["matches"]
    assert (answer["present"], match["rests_on"], match["start_s"]) == (True, "name", 40.0)
    _, out, _ = run("ask", kitchen, NAME, "--no-edits", "--json")
    assert "rests_on" not in out


def test_a_renamed_video_keeps_its_corrections(kitchen, run):
    moved = kitchen.rename(kitchen.with_name("renamed.npy"))
    _, out, err = run("steps", moved)
    assert f"2 corrections from {home() / 'edits' / content_key(moved)}.json" in err
    assert NAME in out


def test_a_repeated_query_is_answered_once(kitchen, run):
    _, out, _ = run("ask", kitchen, NAME, "dry", NAME, "--json")
    assert [answer["query"] for answer in json.loads(out)["queries"]] == [NAME, "dry"]
    _, out, _ = run("ask", kitchen, "--in-order", NAME, "dry", NAME, "--json")
    assert [answer["query"] for answer in json.loads(out)["queries"]] == [NAME, "dry", NAME]


@pytest.fixture
def found():
    """One query that was found, and one that was not."""
    cup = [Moment("kitchen", Match(3.0, 9.0, 0.65)), Moment("sink", Match(4.0, 8.0, 0.03))]
    return [Found("cup", 0.65, cup), Found("plane", 0.08, [Moment("sink", Match(20.0, 30.0, 0.08))])]


def test_of_what_is_not_there_only_the_closest_moment_is_named(found, capsys):
    print_found(found, "this video", names_videos=False, show_all=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == [["cup"], ["from", "to", "probability"], ["0:03", "0:09", "65", "%"]]
    assert lines[3][0] == "plane"
    assert lines[3][-3:] == ["0:20–0:30,", "8", "%"]
    assert len(lines) == 4


def test_all_moments_of_several_videos_have_their_names(found, capsys):
    print_found(found, "these videos", names_videos=True, show_all=True)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["video", "from", "to", "probability"]
    assert [line[0] for line in lines if line[-1] == "%"] == ["kitchen", "sink", "sink"]


def test_a_long_run_says_once_how_long_it_takes(capsys):
    now = iter([0.0, 5.0, 12.0, 20.0])
    with transient_bars() as bars:
        report = ReadingBars(bars, clock=lambda: next(now))
        for done_s in (0.0, 20.0, 60.0, 100.0):
            report(ProgressEvent("read", "kitchen.mp4", done_s, 3660.0))
    (line,) = capsys.readouterr().err.splitlines()
    assert "kitchen.mp4" in line
    assert "12:00" in line


def test_nothing_printed_controls_the_terminal(capsys):
    log(f"{ESCAPE}.mp4: no such file")
    print_json({"label": f"{ESCAPE}\x9bx"})
    results_console(f"video {ESCAPE}").print(f"a {ESCAPE}")
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert not set("\x1b\x07\x9b\u202e") & set(text)
        assert "\\" in text
    assert json.loads(captured.out.splitlines()[0])["label"] == f"{ESCAPE}\x9bx"


def test_arguments_that_control_the_terminal_are_refused():
    result = run_hiero("steps", f"--{ESCAPE}", check=False)
    assert result.returncode == 2
    assert "\x1b" not in result.stderr


def test_threads_are_counted_whatever_their_numbers(capsys):
    steps = Step("step-1", 0.0, 4.0, thread=7), Step("step-2", 4.0, 9.0, thread=7)
    print_steps(Hierarchy("a.mp4", "model", 9.0, (steps,)))
    assert "2 steps, 1 thread" in capsys.readouterr().out


def test_columns_without_content_are_left_out(capsys):
    step = Step("step-1", 0.0, 9.0, thread=7, label="rinse", origin="person")
    hit = Hit("a", 0, "step-1", 0.0, 9.0, 0, "rinse", 0.9, rests_on="name")
    print_steps(Hierarchy("a.mp4", "model", 9.0, ((step,),)))
    print_found(
        [Found("rinse", 0.9, [Moment("a", hit, step="rinse")])], "this video", names_videos=False, show_all=False
    )
    print_steps(Hierarchy("a.mp4", "model", 9.0, ((replace(step, probability=0.8),),)))
    spoken = Moment("a", replace(hit, rests_on="speech", quote="rinse it"), step="rinse")
    print_found([Found("rinse", 0.9, [spoken])], "this video", names_videos=False, show_all=False)
    printed = capsys.readouterr().out
    assert ", 1 step\n" in printed
    tables = [line.split()[2:] for line in printed.splitlines() if line.startswith("from")]
    assert tables[:2] == [["step"], ["probability", "step", "by"]]
    assert [table[-1] for table in tables[2:]] == ["probability", "words"]
