"""The commands, as a user runs them: in a process of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from jsonschema import ValidationError
from safetensors.torch import load_file, save_file

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
    assert "24-d" in out
    return folder


def test_embed_equals_the_release(model, tmp_path):
    data, source, out = load("forward"), tmp_path / "v.safetensors", tmp_path / "out.safetensors"
    save_file({"x": data["offset/x"]}, source)
    clock = ("--fps", 30, "--stride", 16, "--start-s", 562 * 16 / 30)
    run_hiero("embed", source, "--model", model, "-o", out, *clock, "--levels", "0,1,2", "--no-threads")
    expected = {f"level{i}": data[f"offset/out_depth{i}"] for i in range(3)}
    expected |= {f"projected{i}": data[f"offset/proj_depth{i}"] for i in range(3)}
    expected |= {f"times{i}": data[f"offset/pos_depth{i}"] for i in range(3)}
    tensors = load_file(out)
    assert set(tensors) == set(expected)
    for name, tensor in expected.items():
        close(tensors[name], tensor)


def test_embed_with_threads_and_fewer_levels(model, tmp_path):
    source, out = tmp_path / "v.pt", tmp_path / "out.safetensors"
    torch.save(torch.randn(64, 24), source)
    run_hiero("embed", source, "--model", model, "-o", out, "--levels", "2,0", "--threads")
    tensors = load_file(out)
    assert {name[-1] for name in tensors} == {"0", "2"}
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
    assert "bad.pt" in result.stderr
    outputs = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
    assert outputs == {"a.safetensors", "kitchen/b.safetensors"}
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
        ("wide.pt", [], "wide.pt"),
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
    assert str(tmp_path / out) in result.stderr
    assert (tmp_path / "in/a.safetensors").read_bytes() == before


def test_pack_names_files_that_cannot_be_used(tmp_path):
    command = ("pack", tmp_path / "in", tmp_path / "store")
    (tmp_path / "in").mkdir()
    torch.save(torch.randn(1125, 24), tmp_path / "in/a.pt")
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
    odd = os.fsdecode(os.fsencode(tmp_path / "in") + b"/caf\xe9.npy")
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(9, 24)))
    (tmp_path / "v.npy").rename(odd)
    run_hiero("pack", tmp_path / "in", tmp_path / "store")
    run_hiero("embed", tmp_path / "in", "--model", model, "-o", tmp_path / "out")
    assert [os.fsencode(path.name) for path in (tmp_path / "out").iterdir()] == [b"caf\xe9.safetensors"]
    export = ("--json", "-o", tmp_path / "steps", "--export", "elan")
    printed = run_hiero("steps", odd, "--model", "raw", "-k", "2", *export).stdout
    assert json.loads(printed)["video"] == odd
    for file in ("steps.eaf", "report.html", "steps.json"):
        (tmp_path / "steps" / file).read_text(encoding="utf-8")
    result = run_hiero("ask", odd, os.fsdecode(b"caf\xe9"), check=False)
    assert (result.returncode, r"'caf\udce9'" in result.stderr) == (2, True)


def test_settings_beyond_reason_are_refused_before_anything_is_allocated(tmp_path):
    (tmp_path / "in").mkdir()
    torch.save(torch.randn(40, 24), tmp_path / "in/a.pt")
    run_hiero("pack", tmp_path / "in", tmp_path / "store")
    (tmp_path / "n.csv").write_text("video,text,time_s\na,x,1\n")
    command = ("train", tmp_path / "store", tmp_path / "n.csv", "-o", tmp_path / "m", "--set", "model.depth=1000")
    result = run_hiero(*command, check=False)
    assert (result.returncode, "depth" in result.stderr) == (2, True)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that cannot be read, as Linux has one")
def test_errors_of_a_disk_name_a_file(tmp_path):
    (tmp_path / "v.npy").symlink_to("/proc/self/mem")
    result = run_hiero("steps", tmp_path / "v.npy", "--model", "raw", check=False)
    assert result.returncode == 1
    assert f"{tmp_path / 'v.npy'}: Input/output error" in result.stderr


# Videos


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory) -> Path:
    """Class scores of three minutes with four activities."""
    weights_or_skip("minilm")
    rng = np.random.default_rng(0)
    appearances = np.repeat(rng.normal(0, 2, (4, 400)), 45, axis=0)
    path = tmp_path_factory.mktemp("videos") / "kitchen.npy"
    np.save(path, (appearances + rng.normal(0, 1, appearances.shape)).astype(np.float32))
    return path


def test_json_documents_follow_their_schemas(kitchen, tmp_path):
    (tmp_path / "labels.txt").write_text("wash the dishes\n\ncut the onion\nmake tea\n", encoding="utf-8")
    options = ("--labels", tmp_path / "labels.txt", "-k", "2,4")
    steps = json.loads(run_hiero("steps", kitchen, "--json", *options).stdout)
    check_schema(steps, "steps")
    assert [len(level["steps"]) for level in steps["levels"]] == [2, 4]
    labels = {step["label"] for level in steps["levels"] for step in level["steps"]}
    assert labels <= {"wash the dishes", "cut the onion", "make tea", None}
    ask = json.loads(run_hiero("ask", kitchen, "cut the onion", "make tea", "--json").stdout)
    check_schema(ask, "ask")
    assert [answer["query"] for answer in ask["queries"]] == ["cut the onion", "make tea"]
    del ask["queries"][0]["matches"][0]["probability"]
    with pytest.raises(ValidationError):
        check_schema(ask, "ask")


def test_a_folder_of_outputs_has_every_format(kitchen, tmp_path):
    pytest.importorskip("pyarrow")
    run_hiero("steps", kitchen, "-k", "2,4", "-o", tmp_path / "out", "--export", "all")
    for file in ("steps.json", "report.html", *(find_exporter(name).file_name for name in exporter_names())):
        assert (tmp_path / "out" / file).exists(), file
    assert not list((tmp_path / "out").glob(".*"))


def test_labels_are_shown_as_they_are(tmp_path):
    """Brackets mean something to the library that draws the table."""
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(9, 24)))
    step = Step("step-1", 0.0, 9.0, 0, label="[/b] fry [the] onion", origin="person")
    write_edits(tmp_path / "v.npy", None, Hierarchy("v.npy", "raw", 9.0, ((step,),)))
    assert "[/b] fry [the] onion" in run_hiero("steps", tmp_path / "v.npy", "--model", "raw").stdout


def test_a_recipe_gives_a_step_for_each_line(kitchen, tmp_path):
    (tmp_path / "recipe.txt").write_text("crack the eggs\nstir 1 min\ncrack the eggs\n")
    printed = run_hiero("steps", kitchen, "--labels", tmp_path / "recipe.txt", "--in-order", "--json").stdout
    steps = [step for step in json.loads(printed)["levels"][0]["steps"] if not step["background"]]
    assert [step["label"] for step in steps] == ["crack the eggs", "stir", "crack the eggs"]
    assert "--labels" in run_hiero("steps", kitchen, "--in-order", check=False).stderr


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["ask", "{v}"], "look for"),
        (["ask", "{v}", "tea", "-n", "0"], "-n"),
        (["steps", "{v}", "-k", "4,x"], "-k"),
        (["steps", "{v}", "-k", "0"], "-k"),
        (["steps", "{v}", "-k", "500"], "180"),  # as many as it has segments
        (["steps", "{v}", "--export", "vtt"], "-o OUT/"),
        (["steps", "{v}", "--export", "pdf", "-o", "out"], "pdf"),
        (["steps", "{v}", "--hz", "-1"], "--hz"),
        (["steps", "/nowhere/kitchen.mp4", "--method", "magic"], "--method"),  # before it is read
        (["steps", "{v}", "--threads", "0"], "--threads"),
        (["steps", "{v}", "--labels", "/nowhere/labels.txt"], "labels.txt"),
        (["steps", "/nowhere/kitchen.mp4"], "/nowhere/kitchen.mp4"),
        (["steps", "{v}", "--model", "/nowhere"], "/nowhere"),
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
