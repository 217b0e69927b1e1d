"""`hiero train` as a process: killed, interrupted, resumed, and as several processes."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time

import torch

from hiero.storage.files import load_tensors
from hiero.training.loop import STATE_FILE
from tests.training.conftest import SMALL


def command(collection, out, *more, settings=()):
    arguments = [
        str(collection.store),
        str(collection.narrations),
        "-o",
        str(out),
        "--text-cache",
        str(collection.cache),
        "--device",
        "cpu",
    ]
    for setting in [*SMALL, *settings]:
        arguments += ["--set", setting]
    return ["-m", "hiero", "train", *arguments, *more]


def start(arguments, **environment):
    return subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell in the background ignores it
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def finish(process, expected=0):
    output, _ = process.communicate(timeout=240)
    assert process.returncode == expected, output
    return output


def wait_for_state(process, out):
    deadline = time.monotonic() + 120
    while not (out / STATE_FILE).is_file():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def state_pairs(a, b):
    first, second = load_tensors(a / STATE_FILE), load_tensors(b / STATE_FILE)
    assert first.keys() == second.keys()
    return [(name, first[name], second[name]) for name in first]


def test_killed_and_interrupted_runs_end_as_if_nothing_happened(collection, tmp_path):
    long = ["epochs=20"]  # some seconds, so that there is a middle to stop in
    finish(start(command(collection, tmp_path / "whole", settings=long)))
    out = tmp_path / "parts"
    process = start(command(collection, out, "--save-every-s", "0", settings=long))
    wait_for_state(process, out)
    os.killpg(process.pid, signal.SIGKILL)
    finish(process, expected=-signal.SIGKILL)
    process = start(command(collection, out, "--save-every-s", "1000", "--resume", settings=long))
    before = (out / STATE_FILE).stat().st_mtime_ns
    time.sleep(0.5)
    while process.poll() is None and "events" not in " ".join(p.name for p in out.iterdir() if p.stat().st_mtime_ns > before):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)  # Ctrl-C: the step ends, all is saved
    output = finish(process, expected=130) if process.poll() is None else process.communicate()[0]
    assert "resuming at step" in output
    finish(start(command(collection, out, "--resume", settings=long)))
    for name, a, b in state_pairs(tmp_path / "whole", out):
        assert torch.equal(a, b), name
    again = finish(start(command(collection, out, settings=long)), expected=2)
    assert "holds a run already; go on with it (--resume)" in again


def test_two_processes_are_one(collection, tmp_path):
    """The same global batch: negatives are gathered, dropout is the same, gradients add up to those of one process."""
    finish(start(command(collection, tmp_path / "one")))
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29617"]
    finish(start([*torchrun, *command(collection, tmp_path / "two")]))
    for name, a, b in state_pairs(tmp_path / "one", tmp_path / "two"):
        if name.startswith("objective."):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    assert not (tmp_path / "two" / "best").exists() or (tmp_path / "one" / "best").exists()
