"""`hiero reproduce`: every table of the paper from one folder with the authors' released files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading

import pytest
from filelock import FileLock

from hiero.cli import app
from hiero.cli.reproduce import write_summary
from hiero.errors import BusyError, InputError
from hiero.evaluation.commands import run_hiero
from hiero.evaluation.paper_tables import default_tables, definitions
from hiero.evaluation.released_files import ReleasedFiles
from hiero.evaluation.reproduction import Reproduction
from hiero.evaluation.results import Report
from tests.evaluation.released import EGO4D, EGOPROCEL, GOALSTEP, write_release
from tests.optional import skip_without, weights_or_skip
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

skip_without("transformers", "transformers is not installed (extra: text)")

# Training of one epoch with small heads: the numbers do not matter, only that they come from the released files.
SHORT = {
    "vslnet": ["--set", "epochs=1", "--set", "vslnet.hidden_size=16"],
    "actionformer": ["--set", "epochs=1", "--set", "actionformer.hidden_size=16"],
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return write_release(tmp_path_factory.mktemp("released") / "HiERO")


@pytest.fixture(scope="module")
def reproduced(release):
    """The output folder of a complete run."""
    weights_or_skip("minilm")
    compute(release, release.parent / "reproduced", *default_tables(True))
    return release.parent / "reproduced"


def run_here(arguments, environment):
    """Run a command in this process instead of its own."""
    short = SHORT[arguments[2]] if arguments[:2] == ["head", "train"] else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["hiero", *arguments])  # a report records its command
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            app([*arguments, *short], result_action="return_value")
        except InputError as error:
            return str(error)
    return ""


def compute(data, out, *tables, execute=run_here, device="auto"):
    """Do the jobs of tables and write the summary, as the command does; the names of the commands that were run."""
    done = []

    def execute_and_record(arguments, environment):
        done.append(" ".join(arguments[: 1 if arguments[0] in ("pack", "embed") else 2]))
        return execute(arguments, environment)

    reproduction = Reproduction(ReleasedFiles(data, out, 1), device)
    for job in reproduction.jobs(tables):
        if not reproduction.is_finished(job):
            reproduction.perform(job, execute_and_record)
    write_summary(reproduction, tables)
    return done


def run(*arguments):
    """Run hiero reproduce; returns its exit code."""
    try:
        app(["reproduce", *map(str, arguments)], result_action="return_value")
    except SystemExit as error:
        return error.code
    return 0


def read_summary(out):
    return {table["name"]: table for table in json.loads((out / "summary.json").read_text())["tables"]}


def ours(out, table, method):
    return next(row for row in read_summary(out)[table]["rows"] if row["method"] == method)


def test_every_table_comes_out_of_the_released_files(reproduced):
    summary = read_summary(reproduced)
    assert list(summary) == default_tables(True)
    for name, table in summary.items():
        assert table["label"] == definitions()["tables"][name]["label"]
        own = [row for row in table["rows"] if "EgoVLP" in row["method"] and not row["published_only"]]
        assert all(row["ours"] and not row["missing"] and not row["failed"] for row in own), name
        for row in own:
            assert row["difference"] == {c: row["ours"][c] - row["published"][c] for c in row["difference"]}
            assert set(row["difference"]) == set(row["ours"]) & set(row["published"])
    row = ours(reproduced, "mcq", "HiERO (EgoVLP)")
    assert (row["published"]["inter"], row["published"]["intra"]) == (91.6, 59.6)
    assert ours(reproduced, "egoprocel-statistics", "MECCANO")["ours"] == {"videos": 1.0, "key-steps": 5.0}
    assert "91.6" in (reproduced / "summary.html").read_text()
    assert any("1 of 326 videos" in note for note in summary["egoprocel"]["notes"])


@pytest.mark.parametrize(
    ("table", "method", "row", "command"),
    [
        ("mcq", "HiERO (EgoVLP)", None, "egomcq --store STORE --questions {ego4d}/annotations/egomcq.json"),
        (
            "egoprocel",
            "HiERO (EgoVLP)",
            "HiERO, spectral",
            "egoprocel --annotations {egoprocel}/annotations --features {egoprocel}/features/egovlp "
            "--videos {egoprocel}/videos --protocol release",
        ),
        (
            "grounding",
            "HiERO (EgoVLP), zero-shot",
            "HiERO, runs of threads",
            "goalstep-grounding --annotations {goalstep}/val.json --protocol release",
        ),
        (
            "localization",
            "HiERO (EgoVLP), zero-shot",
            "HiERO, runs of threads",
            "goalstep-localization --annotations {goalstep}/goalstep_val.json "
            "--taxonomy {goalstep}/goalstep_train.json",
        ),
        (
            "classification",
            "HiERO (EgoVLP)",
            "zero-shot",
            "goalstep-classification --annotations {goalstep}/goalstep_val.json --train {goalstep}/goalstep_train.json",
        ),
    ],
)
def test_numbers_are_those_of_the_single_commands(release, reproduced, tmp_path, table, method, row, command):
    """The same files by hand: import the checkpoint, pack the features, score."""
    if command.startswith("goalstep"):
        command += " --features {ego4d}/features/egovlp --groups {goalstep}/goalstep_video_groups.tsv"
    folders = {"ego4d": EGO4D, "goalstep": GOALSTEP, "egoprocel": EGOPROCEL}
    words = command.format(**{name: release / place for name, place in folders.items()}).split()
    hand(["models", "import", release / "checkpoints/hiero_egovlp.pth", "-o", tmp_path / "model"])
    if "STORE" in words:
        words[words.index("STORE")] = tmp_path / "store"
        hand(["pack", release / EGO4D / "features/egovlp", tmp_path / "store", "--dtype", "float32"])
    hand(["eval", *words, "--model", tmp_path / "model", "-o", tmp_path / "report.json"])
    rows = Report.load(tmp_path / "report.json").tables[0].rows
    expected = next(each for each in rows if row in (None, each.method)).scores
    result = ours(reproduced, table, method)["ours"]
    shared = set(result) & set(expected)
    assert len(shared) >= 2
    assert any(expected[name] > 0 for name in shared)
    assert {name: result[name] for name in shared} == pytest.approx({name: expected[name] for name in shared})


def hand(arguments):
    app([*map(str, arguments)], result_action="return_value")


def test_a_second_run_computes_only_what_depends_on_changed_files(release, reproduced):
    assert run(release, "-o", reproduced) == 0
    assert compute(release, reproduced, *default_tables(True)) == []
    questions = release / EGO4D / "annotations" / "egomcq.json"
    content = questions.read_text()
    changed = json.loads(content)
    del changed["0"]
    questions.write_text(json.dumps(changed))
    try:
        assert compute(release, reproduced, *default_tables(True)) == ["pack", "eval egomcq", "eval egomcq"]
    finally:
        questions.write_text(content)


def test_damaged_results_are_made_again(release, reproduced):
    report = reproduced / "runs" / "egoprocel-hiero-egovlp-egovlp-release.json"
    report.write_text(report.read_text()[:100])
    before = read_summary(reproduced)["egoprocel"]
    assert compute(release, reproduced, "egoprocel") == ["eval egoprocel"]
    assert read_summary(reproduced)["egoprocel"] == before
    assert read_summary(reproduced)["localization"]["runs"]  # tables of earlier runs stay in the summary


def test_a_stopped_run_goes_on(release, tmp_path):
    done = []

    def stop_at_the_third(arguments, environment):
        done.append(arguments[0])
        if len(done) == 3:
            raise KeyboardInterrupt
        return run_here(arguments, environment)

    with pytest.raises(KeyboardInterrupt):
        compute(release, tmp_path / "out", "mcq", execute=stop_at_the_third)
    assert done == ["pack", "eval", "models"]
    assert compute(release, tmp_path / "out", "mcq") == ["models import", "eval egomcq"]
    assert ours(tmp_path / "out", "mcq", "EgoVLP")["ours"]


def test_an_interrupted_training_is_resumed_unless_its_data_changed(release, tmp_path):
    done = []

    def interrupt(arguments, environment):
        if arguments[:2] == ["head", "train"]:
            folder = tmp_path / "out/models/heads/nlq-egovlp-seed0"
            done.append(("--resume" in arguments, folder.exists()))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "training.safetensors").touch()
            raise KeyboardInterrupt
        return ""

    data = shutil.copytree(release, tmp_path / "HiERO")
    for change in (False, False, True):
        if change:
            (data / EGO4D / "annotations/v1/nlq_train.json").write_text("{}")
        with pytest.raises(KeyboardInterrupt):
            compute(data, tmp_path / "out", "nlq", execute=interrupt)
    assert done == [(False, False), (True, True), (False, False)]


def test_missing_and_damaged_files_cost_only_their_own_rows(release, tmp_path, capsys):
    data, out = shutil.copytree(release, tmp_path / "HiERO"), tmp_path / "out"
    questions = data / EGO4D / "annotations/egomcq.json"
    questions.write_text(questions.read_text()[:1000])
    film = data / EGOPROCEL / "features/egovlp/MECCANO/0020.pt"
    film.write_bytes(film.read_bytes()[:1000])
    for name in ("val.json", "goalstep_val.json"):  # the official file has the queries, too
        (data / GOALSTEP / name).unlink()
    tables = ["mcq", "egoprocel", "grounding", "egoprocel-statistics"]
    compute(data, out, *tables, device="cpu")
    assert "egomcq.json" in ours(out, "mcq", "EgoVLP")["failed"][0]
    assert str(film) in ours(out, "egoprocel", "EgoVLP")["failed"][0]
    assert f"{data}/{GOALSTEP}/val.json" in ours(out, "grounding", "HiERO (EgoVLP), zero-shot")["missing"]
    assert ours(out, "egoprocel-statistics", "MECCANO")["ours"]
    shutil.copy(release / EGO4D / "annotations/egomcq.json", questions)
    shutil.copy(release / film.relative_to(data), film)
    done = compute(data, out, *tables)
    assert done == ["pack", "eval egomcq", "eval egomcq", "eval egoprocel"]
    film.write_bytes(b"nothing")
    assert run(data, "-o", out, "egoprocel") == 1  # its only run fails, in a process of its own
    assert "Failed: " in capsys.readouterr().out


def test_mistakes_say_what_to_do(release, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        ([tmp_path / "none"], "none"),
        ([release, "nine", "-o", tmp_path], "nine"),
        ([release, "nlq", "--seeds", 0, "-o", tmp_path / "untrained"], "missing"),
        ([tmp_path / "empty", "-o", tmp_path / "out"], "missing"),
    ):
        capsys.readouterr()
        with pytest.raises(InputError, match=message):
            run(*arguments)
    named = [line.split(" (")[0].strip() for line in capsys.readouterr().err.splitlines()]
    for place, _ in definitions()["release"].values():
        if not place.endswith(("rates.csv", "egoclip.csv")):  # videos are expected, and networks are not trained
            assert named.count(str(tmp_path / "empty" / place)) == 1
    (tmp_path / "empty" / "egomcq.json").touch()  # the layout of docs/reproduction.md is accepted, too
    with pytest.raises(InputError, match="missing"):
        run(tmp_path / "empty", "-o", tmp_path / "out")
    assert f"present  {tmp_path / 'empty' / 'egomcq.json'}" in capsys.readouterr().err
    with FileLock(tmp_path / "out" / ".lock"), pytest.raises(BusyError, match="out"):
        run(release, "-o", tmp_path / "out")


def test_commands_run_in_their_own_process(tmp_path, capfd):
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "a.npy").write_bytes(b"no numbers")
    with_bars = {"FORCE_COLOR": "1"}  # as in a terminal: they do not hide the reason
    reason = run_hiero(["pack", str(tmp_path / "features"), str(tmp_path / "store")], with_bars)
    assert reason.startswith(str(tmp_path / "features"))
    shown = capfd.readouterr().err
    assert reason.splitlines()[0] in shown
    assert "━" in shown
    (tmp_path / "egovlp").mkdir()
    (tmp_path / "egovlp" / "egovlp.pth").touch()
    assert run_hiero(["models", "get", "egovlp"], {"HIERO_WEIGHTS": str(tmp_path)}) == ""


SAVES = """#!/bin/sh
trap 'sleep 0.5; echo saving >&2 && echo yes > FOLDER/saved; exit 130' INT
echo $$ > FOLDER/pid.part && mv FOLDER/pid.part FOLDER/pid
while :; do sleep 0.05; done
"""


@pytest.fixture
def interruptible():
    """Ctrl-C interrupts, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_until_the_command_has_saved_its_state(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text(SAVES.replace("FOLDER", str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    def press_ctrl_c():
        wait_until((tmp_path / "pid").exists)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGINT)

    thread = threading.Thread(target=press_ctrl_c)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_hiero(["head", "train"], {})
    thread.join()
    assert (tmp_path / "saved").exists()
