"""Commands use the corrections that people made, and print nothing that would control a terminal."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hiero.cli.console import log, print_json, results_console
from hiero.cli.corpus import _print_hits
from hiero.cli.steps import print_steps
from hiero.corpus.rows import Hit
from hiero.formats.hiero_json import write_edits
from hiero.storage.cache import content_key
from hiero.storage.files import home
from hiero.types import Hierarchy, Step
from tests.evaluation.simulated import encode_as_own_vector, save_identity_model
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


def test_ask_uses_corrections(kitchen, run):
    _, out, err = run("ask", kitchen, NAME, "--json", "-n", "1")
    assert "2 corrections" in err
    (answer,) = json.loads(out)["queries"]
    assert (answer["present"], answer["rests_on"]) == (True, "name")
    assert answer["matches"][0]["start_s"] == 40.0
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
def cups(tmp_path, monkeypatch):
    """A model, and two videos of which one shows that a cup is stirred; neither shows milk."""
    model = save_identity_model(tmp_path / "model", monkeypatch)
    noise = np.random.default_rng(0).normal(0, 0.05, (60, 384))
    for name, shown in (("cup", "stir the cup"), ("pot", "wash the pot")):
        rows = np.concatenate([encode_as_own_vector([shown]).repeat(20, axis=0), noise])
        np.save(tmp_path / f"{name}.npy", rows.astype(np.float32))
    return "--model", model


QUERIES = ("stir the cup", "pour the milk")


@pytest.mark.slow
def test_ask_prints_a_header_and_no_rows_of_what_is_not_there(cups, run, tmp_path):
    _, out, _ = run("ask", tmp_path / "cup.npy", *QUERIES, *cups)
    lines = out.splitlines()
    assert lines[0] == "stir the cup"
    assert lines[1].split() == ["from", "to", "probability"]
    assert lines[2].split()[:2] == ["0:00", "0:20"]
    assert [line.split("  ")[0] for line in lines if line.startswith("pour")] == ["pour the milk"]
    _, everything, _ = run("ask", tmp_path / "cup.npy", *QUERIES, *cups, "--all")
    assert len(everything.splitlines()) > len(lines) + 1


@pytest.mark.slow
def test_ask_of_several_videos_names_the_best(cups, run, tmp_path):
    _, out, _ = run("ask", "--video", tmp_path / "pot.npy", "--video", tmp_path / "cup.npy", *QUERIES, *cups)
    _, columns, first, *_, last = out[out.index("best of all videos: stir the cup") :].splitlines()
    assert columns.split() == ["from", "to", "probability", "video"]
    assert (first.split()[:2], first.split()[-1]) == (["0:00", "0:20"], "cup")
    assert last.startswith("best of all videos: pour the milk")


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
