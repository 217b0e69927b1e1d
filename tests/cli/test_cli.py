"""The commands, as a user runs them: in a process of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jsonschema import ValidationError
from safetensors.torch import load_file, save_file

import hiero.cli
from hiero.formats.hiero_json import write_edits
from hiero.formats.registry import exporter_names, find_exporter
from hiero.types import Hierarchy, Step
from tests.conftest import FIXTURES, close, load
from tests.documentation import check_schema
from tests.optional import weights_or_skip
from tests.processes import run_hiero, start_python


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "small"
    out = run_hiero("models", "import", FIXTURES / "official_small.pth", "-o", folder).stdout
    assert "egovlp features (24-d)" in out
    return folder


def test_embed_equals_the_release(model, tmp_path):
    data, source, out = load("forward"), tmp_path / "v.safetensors", tmp_path / "out.safetensors"
    save_file({"x": data["offset/x"]}, source)
    clock = ("--fps", 30, "--stride", 16, "--start-s", 562 * 16 / 30)
    run_hiero("embed", source, "--model", model, "-o", out, *clock, "--levels", "0,1,2", "--no-threads")
    tensors = load_file(out)
    assert set(tensors) == {f"{kind}{level}" for kind in ("level", "projected", "times") for level in range(3)}
    for level in range(3):
        close(tensors[f"level{level}"], data[f"offset/out_depth{level}"])
        close(tensors[f"projected{level}"], data[f"offset/proj_depth{level}"])
        close(tensors[f"times{level}"], data[f"offset/pos_depth{level}"])


def test_embed_with_threads_and_fewer_levels(model, tmp_path):
    source, out = tmp_path / "v.pt", tmp_path / "out.safetensors"
    torch.save(torch.randn(64, 24), source)
    run_hiero("embed", source, "--model", model, "-o", out, "--levels", "2,0", "--threads")
    tensors = load_file(out)
    assert set(tensors) == {f"{kind}{level}" for kind in ("level", "projected", "times", "threads") for level in (0, 2)}
    assert tensors["threads0"].eq(-1).all()
    assert tensors["threads2"].shape == (16,)
    assert tensors["threads2"].min() >= 0


def test_a_folder_is_resumed_and_one_bad_file_stops_nothing(model, tmp_path):
    source = tmp_path / "in"
    (source / "kitchen").mkdir(parents=True)
    for name in ("a.pt", "kitchen/b.pt"):
        torch.save(torch.randn(20, 24), source / name)
    torch.save(torch.full((9, 24), torch.nan), source / "bad.pt")
    arguments = ("embed", source, "--model", model, "-o", tmp_path / "out")
    result = run_hiero(*arguments, check=False)
    assert result.returncode == 1
    assert "2 of 3 files" in result.stdout
    assert "bad.pt: NaN or infinite values in 9 of 9 segments" in result.stderr
    outputs = sorted(p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert outputs == ["a.safetensors", "kitchen/b.safetensors"]
    first_written = (tmp_path / "out/a.safetensors").stat().st_mtime_ns
    (tmp_path / "out/kitchen/b.safetensors").write_bytes(b"half a file")
    torch.save(torch.randn(9, 24), source / "bad.pt")
    run_hiero(*arguments)
    assert (tmp_path / "out/a.safetensors").stat().st_mtime_ns == first_written  # done before, not again
    assert load_file(tmp_path / "out/kitchen/b.safetensors")["level0"].shape == (20, 48)
    run_hiero(*arguments, "--levels", "1")
    assert set(load_file(tmp_path / "out/a.safetensors")) == {"level1", "projected1", "times1"}  # other settings: again


# hiero, which writes a fourth file and waits before it gives the file its name
WRITES_THREE = """
import sys, time
from pathlib import Path
from hiero.__main__ import main
replace, names = Path.replace, []
def replace_or_wait(self, target):
    if Path(target).suffix == ".safetensors":
        if len(names) == 3:
            print("waiting", flush=True)
            time.sleep(10_000)
        names.append(target)
    return replace(self, target)
Path.replace = replace_or_wait
sys.argv[0] = "hiero"
main()
"""


def test_interrupted_and_killed_runs_leave_only_whole_files(model, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    for i in range(8):
        torch.save(torch.randn(250, 24), source / f"{i}.pt")
    arguments = ["embed", source, "--model", model, "-o", tmp_path / "out"]
    for num_finished, stop_signal in ((3, signal.SIGINT), (6, signal.SIGKILL)):
        process = start_python(WRITES_THREE, *arguments)
        while (line := process.stdout.readline()) and line != "waiting\n":
            pass
        assert list((tmp_path / "out").glob(".*.part")), "nothing was being written"
        process.send_signal(stop_signal)
        _, stderr = process.communicate()
        assert process.returncode == (130 if stop_signal == signal.SIGINT else -9)
        if stop_signal == signal.SIGINT:
            assert "run the same command again" in stderr
            assert not list((tmp_path / "out").glob(".*.part"))
        finished = list((tmp_path / "out").glob("*.safetensors"))
        assert len(finished) == num_finished
        assert all(load_file(path)["level0"].shape == (250, 48) for path in finished)
    run_hiero(*arguments)
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 8


@pytest.mark.parametrize(
    ("file", "options", "fact"),
    [
        ("missing.pt", [], "missing.pt"),
        ("v.pt", ["--model", "{tmp}"], "config.json"),
        ("v.pt", ["--levels", "0,7"], "0, 1, 2"),
        ("v.pt", ["--levels", "all"], "--levels"),
        ("v.pt", ["--fps", "0"], "fps"),
        ("v.pt", ["--device", "abacus"], "--device abacus"),
        ("wide.pt", [], "wide.pt: features are 25 wide"),
        ("empty", [], "empty"),
    ],
)
def test_mistakes_get_one_clear_line(model, tmp_path, file, options, fact):
    torch.save(torch.randn(9, 24), tmp_path / "v.pt")
    torch.save(torch.randn(9, 25), tmp_path / "wide.pt")
    (tmp_path / "empty").mkdir()
    options = [option.format(tmp=tmp_path) for option in options]
    options += [] if "--model" in options else ["--model", model]
    result = run_hiero("embed", tmp_path / file, "-o", tmp_path / "o", *options, check=False)
    assert (result.returncode, fact in result.stderr, "Traceback" in result.stderr) == (2, True, False)
    assert not (tmp_path / "o").exists()


def test_a_full_disk_leaves_nothing_behind(model, tmp_path):
    """No file of this process may grow beyond 20 kB, which ends a write as a full disk does."""
    torch.save(torch.randn(900, 24), tmp_path / "v.pt")
    (tmp_path / "out").mkdir()
    arguments = ["embed", tmp_path / "v.pt", "--model", model, "-o", tmp_path / "out/v.safetensors"]
    result = run_hiero(*arguments, check=False, limit_bytes=20_000)
    assert result.returncode == 1
    assert "v.safetensors: File too large" in result.stderr
    assert "Traceback" not in result.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("out", ["in", "in/out", "in/a.safetensors"])
def test_outputs_never_replace_inputs(model, tmp_path, out):
    (tmp_path / "in").mkdir()
    save_file({"x": torch.randn(9, 24)}, tmp_path / "in/a.safetensors")
    before = (tmp_path / "in/a.safetensors").read_bytes()
    source = tmp_path / ("in/a.safetensors" if out == "in/a.safetensors" else "in")
    result = run_hiero("embed", source, "--model", model, "-o", tmp_path / out, check=False)
    assert result.returncode == 2
    assert "would mix with the input" in result.stderr
    assert (tmp_path / "in/a.safetensors").read_bytes() == before


def test_pack_names_files_that_cannot_be_used(tmp_path):
    command = ("pack", tmp_path / "in", tmp_path / "store")
    (tmp_path / "in").mkdir()
    torch.save(torch.randn(1125, 24), tmp_path / "in/a.pt")
    assert "1 video, 0.2 hours, 24-d, float16" in run_hiero(*command, "--backbone", "omnivore").stdout
    torch.save(torch.full((3, 24), torch.nan), tmp_path / "in/b.pt")
    for options, code, fact in (((), 2, "b.pt"), (("--skip-bad",), 1, "b.pt"), (("--fps", 0), 2, "fps")):
        result = run_hiero(*command, *options, check=False)
        assert (result.returncode, fact in result.stderr) == (code, True)


def test_an_interruption_while_it_starts_is_quiet(tmp_path):
    """Ctrl-C before the command line is even imported."""
    (tmp_path / "cyclopts.py").write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "time.sleep(9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for command in (["-m", "hiero", "--help"], ["-c", "from hiero.__main__ import main; main()"]):
        result = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
        assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_names_and_words_that_are_not_utf8(model, tmp_path):
    (tmp_path / "in").mkdir()
    odd = os.fsdecode(os.fsencode(tmp_path / "in") + b"/caf\xe9.pt")
    torch.save(torch.randn(9, 24), tmp_path / "v.pt")
    (tmp_path / "v.pt").rename(odd)
    run_hiero("pack", tmp_path / "in", tmp_path / "store")
    run_hiero("embed", tmp_path / "in", "--model", model, "-o", tmp_path / "out")
    assert [os.fsencode(path.name) for path in (tmp_path / "out").iterdir()] == [b"caf\xe9.safetensors"]
    result = run_hiero("ask", odd, os.fsdecode(b"caf\xe9"), check=False)
    assert result.returncode == 2
    assert r"'caf\udce9' is not UTF-8, and no file has this name" in result.stderr


def test_settings_beyond_reason_are_refused_before_anything_is_allocated(tmp_path):
    (tmp_path / "in").mkdir()
    torch.save(torch.randn(40, 24), tmp_path / "in/a.pt")
    run_hiero("pack", tmp_path / "in", tmp_path / "store")
    (tmp_path / "n.csv").write_text("video,text,time_s\na,x,1\n")
    command = ("train", tmp_path / "store", tmp_path / "n.csv", "-o", tmp_path / "m", "--set", "model.depth=1000")
    result = run_hiero(*command, check=False)
    assert (result.returncode, "depth must be at most 16" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", [None, "tea.mp4"])
def test_errors_of_a_disk_name_a_file(monkeypatch, capsys, tmp_path, name):
    import hiero.cli

    def fail(_):
        raise OSError(5, "Input/output error", name)

    (tmp_path / "v.mp4").touch()
    monkeypatch.setattr(hiero.cli, "app", fail)
    monkeypatch.setattr(sys, "argv", ["hiero", "steps", str(tmp_path / "v.mp4")])
    with pytest.raises(SystemExit, match="1"):
        hiero.cli.main()
    assert f"{name or tmp_path / 'v.mp4'}: Input/output error" in capsys.readouterr().err


# Videos


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory) -> Path:
    """Class scores of three minutes with four activities."""
    import numpy as np

    weights_or_skip("minilm")
    rng = np.random.default_rng(0)
    appearances = np.repeat(rng.normal(0, 2, (4, 400)), 45, axis=0)
    path = tmp_path_factory.mktemp("videos") / "kitchen.npy"
    np.save(path, (appearances + rng.normal(0, 1, appearances.shape)).astype(np.float32))
    return path


def test_json_documents_follow_their_schemas(kitchen, tmp_path):
    (tmp_path / "labels.txt").write_text("wash the dishes\n\ncut the onion\nmake tea\n", encoding="utf-8")
    steps = json.loads(run_hiero("steps", kitchen, "--json", "-k", "2,4").stdout)
    check_schema(steps, "steps")
    assert [len(level["steps"]) for level in steps["levels"]] == [2, 4]
    ask = json.loads(run_hiero("ask", kitchen, "cut the onion", "make tea", "--json").stdout)
    check_schema(ask, "ask")
    assert [answer["query"] for answer in ask["queries"]] == ["cut the onion", "make tea"]
    named = json.loads(run_hiero("steps", kitchen, "--labels", tmp_path / "labels.txt", "--json").stdout)
    labels = {step["label"] for level in named["levels"] for step in level["steps"]}
    assert labels <= {"wash the dishes", "cut the onion", "make tea", None}
    del ask["queries"][0]["matches"][0]["probability"]
    with pytest.raises(ValidationError):
        check_schema(ask, "ask")


def test_a_folder_of_outputs(kitchen, tmp_path):
    pytest.importorskip("pyarrow")
    out = run_hiero("steps", kitchen, "-k", "2,4", "-o", tmp_path / "out", "--export", "all").stdout
    assert "kitchen.npy: 3:00, 2 coarse, 4 fine steps" in out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    for file in ("steps.json", "report.html", *(find_exporter(name).file_name for name in exporter_names())):
        assert (tmp_path / "out" / file).exists(), file
    assert not any(name.startswith(".") for name in names)


def test_a_name_that_is_not_utf8_in_every_output(kitchen, tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.npy")
    shutil.copyfile(kitchen, odd)
    printed = run_hiero("steps", odd, "-k", "2", "--json", "-o", tmp_path / "out", "--export", "elan").stdout
    assert json.loads(printed)["video"] == odd
    for file in ("steps.eaf", "report.html", "steps.json"):
        (tmp_path / "out" / file).read_text(encoding="utf-8")


def test_labels_are_shown_as_they_are(kitchen, tmp_path):
    """Brackets mean something to the library that draws the table."""
    video = tmp_path / "kitchen.npy"
    shutil.copy(kitchen, video)
    step = Step("step-1", 0.0, 180.0, 0, label="[/b] fry [the] onion", origin="person")
    write_edits(video, None, Hierarchy("kitchen.npy", "hiero-k400", 180.0, ((step,),)))
    (tmp_path / "labels.txt").write_text("make tea\n")
    assert "[/b] fry [the] onion" in run_hiero("steps", video).stdout


def test_more_steps_than_a_video_has_are_refused(kitchen):
    result = run_hiero("steps", kitchen, "-k", "500", check=False)
    assert "at most 180 steps" in result.stderr
    assert not result.stdout


def test_a_recipe_gives_a_step_for_each_line(kitchen, tmp_path):
    (tmp_path / "recipe.txt").write_text("crack the eggs\nstir 1 min\ncrack the eggs\n")
    printed = run_hiero("steps", kitchen, "--labels", tmp_path / "recipe.txt", "--in-order", "--json").stdout
    steps = [step for step in json.loads(printed)["levels"][0]["steps"] if not step["background"]]
    assert [step["label"] for step in steps] == ["crack the eggs", "stir", "crack the eggs"]
    assert "--labels" in run_hiero("steps", kitchen, "--in-order", check=False).stderr


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["ask", "{v}"], "name something to look for"),
        (["ask", "{v}", "tea", "-n", "0"], "-n must be at least 1"),
        (["steps", "{v}", "-k", "4,x"], "-k"),
        (["steps", "{v}", "-k", "0"], "-k must be at least 1"),
        (["steps", "{v}", "--export", "vtt"], "-o OUT/"),
        (["steps", "{v}", "--export", "pdf", "-o", "out"], "pdf"),
        (["steps", "{v}", "--hz", "-1"], "--hz"),
        (["steps", "/nowhere/kitchen.mp4", "--method", "magic"], "--method"),  # before it is read
        (["steps", "{v}", "--threads", "0"], "--threads"),
        (["steps", "{v}", "--labels", "/nowhere/labels.txt"], "labels.txt"),
        (["steps", "/nowhere/kitchen.mp4"], "no such file"),
        (["steps", "{v}", "--model", "/nowhere"], "no such model"),
        (["steps", "{tmp}/empty.mp4"], "empty.mp4"),
        (["steps", "{tmp}/text.mp4"], "text.mp4"),
    ],
)
def test_mistakes_about_videos_get_one_clear_line(kitchen, tmp_path, arguments, fact):
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "text.mp4").write_text("this is no video")
    result = run_hiero(*(argument.format(v=kitchen, tmp=tmp_path) for argument in arguments), check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert fact in result.stderr
    assert "Traceback" not in result.stderr


def test_commands_print_only_through_the_console():
    """`echo`, `log`, `print_json` and `make_console` escape control characters; `print` and rich do not."""
    for file in Path(hiero.cli.__file__).parent.rglob("*.py"):
        if file.name != "console.py":
            assert not re.findall(r"(?<![\w.])print\(", file.read_text()), file
