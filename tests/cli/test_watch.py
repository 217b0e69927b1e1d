"""hiero watch as a user runs it: in a process of its own, ended by the writer, by Ctrl-C, or killed."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hiero.cli import app, watch
from hiero.engine.live import LiveUpdate
from hiero.errors import InputError
from hiero.types import Step
from tests.films import import_av
from tests.live import SlowWriter, install_backbone, write_film
from tests.processes import start_hiero
from tests.waiting import wait_until

import_av()
BACKBONE = ["--model", "raw", "--backbone", "colours", "--device", "cpu"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    return install_backbone(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def film(tmp_path_factory) -> Path:
    return write_film(tmp_path_factory.mktemp("film") / "film.ts", seconds=30, scene_s=10)


def start(site, home, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(site), "HIERO_HOME": str(home)}
    return start_hiero(*arguments, *BACKBONE, env=environment, **options)


def num_windows(recording: Path) -> int:
    """How many windows of two seconds a recording has so far."""
    try:
        with closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT count(*) FROM windows").fetchone()[0]
    except sqlite3.OperationalError:  # it is about to be made
        return 0


def read_events(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_growing_file_ends_as_the_whole_file(site, film, tmp_path):
    growing = tmp_path / "growing.ts"
    growing.touch()
    options = ("--json", "--step-s", 8, "--export", "vtt", "--idle-s", 3)
    process = start(site, tmp_path / "home", "watch", growing, "-o", tmp_path / "out", *options)
    wait_until(lambda: list((tmp_path / "home").glob("cache/live/*")))
    with SlowWriter(growing, film.read_bytes(), num_pieces=40, pause_s=0.05):
        pass
    out, err = process.communicate()
    assert process.returncode == 0, err
    events = read_events(out)
    kinds = [event["event"] for event in events]
    assert {"update", "message", "end"} <= set(kinds)
    assert kinds[-1] == "end"
    assert events[-1]["differences"] == []
    updates = [event for event in events if event["event"] == "update"]
    assert all(event["open"][-1]["end_s"] == event["end_s"] for event in updates)
    steps = start(site, tmp_path / "another", "steps", growing, "--json")  # with a cache of its own
    whole, err = steps.communicate()
    assert json.loads(whole) == events[-1]["hierarchy"], err
    assert json.loads((tmp_path / "out" / "steps.json").read_text()) == events[-1]["hierarchy"]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "steps.json",
        "report.html",
        "pictures",
        "chapters.vtt",
    }


def test_ctrl_c_ends_it_with_a_result(site, film, tmp_path):
    growing = tmp_path / "growing.ts"
    with growing.open("wb", buffering=0) as file:
        file.write(film.read_bytes()[: film.stat().st_size * 2 // 3 // 188 * 188])
        process = start(site, tmp_path / "home", "watch", growing, "-o", tmp_path / "out", "--idle-s", 60)
        wait_until(lambda: (tmp_path / "out" / "steps.json").exists())
        document = json.loads((tmp_path / "out" / "steps.json").read_text())  # it is whole whenever it is looked at
        assert document["levels"][0]["steps"][0]["start_s"] == 0.0
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert "the file may be longer" in err
    assert "growing.ts: 0:" in out
    assert (tmp_path / "out" / "report.html").exists()


def test_kill_9_loses_seconds_only(site, film, tmp_path):
    read_end, write_end = os.pipe()
    process = start(site, tmp_path / "home", "watch", "-", "-o", tmp_path / "out", stdin=read_end)
    os.close(read_end)
    recording = tmp_path / "out" / "recording.features"
    with os.fdopen(write_end, "wb", buffering=0) as pipe:
        pipe.write(film.read_bytes())
        wait_until(lambda: num_windows(recording) >= 2)
        process.kill()
        process.communicate()
    steps = start(site, tmp_path / "home", "steps", recording, "--json")
    out, err = steps.communicate()
    assert steps.returncode == 0, err
    assert json.loads(out)["duration_s"] >= 4.0
    again = start(site, tmp_path / "home", "watch", "-", "-o", tmp_path / "out")
    _, err = again.communicate()
    assert again.returncode == 2
    assert "contains an earlier recording" in err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_line_of_the_open_step(monkeypatch):
    """What a terminal shows: one line that is drawn over, never into what comes after it."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    display = watch._Display("cam", as_json=False)
    closed = Step("0.0", 0.0, 8.0, 0, label="wash\x1b[31m")
    with display:
        display.update(LiveUpdate(20.0, (closed,), (Step("0.1", 8.0, 20.0, 1, label="切" * 20),), 3.0))
        display.message("slow")
    display.message("done")
    shown = re.sub(r"\x1b\[(\?25[hl]|1A|0m)", "", terminal.getvalue())  # the cursor, hidden and moved
    line = "   0:20  " + "切" * 15 + "…"  # 9, 30 and 1 cells
    assert shown.split("\r\x1b[2K") == [
        "cam: waiting for its first seconds",
        "   from       to  thread  step\ncam: waiting for its first seconds",
        "   0:00     0:08       1  wash[31m\ncam: waiting for its first seconds",
        line,
        f"hiero: slow\n{line}",
        f"{line}\n",
        "hiero: done\n",
    ]


def test_steps_without_a_name_count_from_one():
    assert watch._format_step(Step("step-3", 0.0, 4.0, 0)).endswith("  Step 3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/dev/video97"], "no such camera"),
        (["missing.ts"], "Start the recording first"),
        (["gopher://host"], "is not supported"),
        (["/dev/null", "--export", "vtt"], "needs an output folder"),
        (["/dev/null", "--hz", "2"], "only for feature files"),
        (["/dev/null", "--idle-s", "-1"], "must be positive"),
        (["/dev/null", "-k", "four"], "takes numbers"),
        (["/dev/null", "--labels", "missing.txt"], "no such file"),
    ],
)
def test_mistakes_get_one_clear_line(arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        app(["watch", *arguments], exit_on_error=False)
    assert "\n" not in str(caught.value)
