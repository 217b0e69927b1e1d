"""`hiero train` as a process: killed, interrupted, resumed, and as several processes."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from hiero.storage.files import load_tensors
from hiero.training.loop import STATE_FILE
from tests.processes import start_hiero
from tests.training.conftest import SMALL
from tests.waiting import free_port, wait_until

pytestmark = pytest.mark.slow


def start(collection, out, *more, settings=(), **environment):
    sources = [collection.store, collection.narrations, "-o", out, "--text-cache", collection.cache, "--device", "cpu"]
    settings = [argument for setting in [*SMALL, *settings] for argument in ("--set", setting)]
    return start_hiero("train", *sources, *settings, *more, env={**os.environ, **environment})


def finish(process, expected=0):
    output = "".join(process.communicate())
    assert process.returncode == expected, output
    return output


def wait_for_state(process, out):
    wait_until(lambda: (out / STATE_FILE).is_file() or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def changed_files(folder, since_ns):
    return [path for path in folder.iterdir() if path.stat().st_mtime_ns > since_ns]


def state_pairs(a, b):
    first, second = load_tensors(a / STATE_FILE), load_tensors(b / STATE_FILE)
    assert first.keys() == second.keys()
    return [(name, first[name], second[name]) for name in first]


@pytest.mark.slow
def test_killed_and_interrupted_runs_end_as_if_nothing_happened(collection, tmp_path):
    long = ["epochs=8"]  # a second or more, so that there is a middle to stop in
    finish(start(collection, tmp_path / "whole", settings=long))
    out = tmp_path / "parts"
    process = start(collection, out, "--save-every-s", "0", settings=long)
    wait_for_state(process, out)
    os.killpg(process.pid, signal.SIGKILL)
    finish(process, expected=-signal.SIGKILL)
    process = start(collection, out, "--save-every-s", "1000", "--resume", settings=long)
    before = (out / STATE_FILE).stat().st_mtime_ns
    wait_until(lambda: process.poll() is not None or any("events" in path.name for path in changed_files(out, before)))
    process.send_signal(signal.SIGINT)  # Ctrl-C: the step ends, all is saved
    output, errors = process.communicate()
    assert process.returncode in (130, 0), errors  # 0 where it came to its end before the signal
    assert "resuming at step" in output + errors
    finish(start(collection, out, "--resume", settings=long))
    for name, a, b in state_pairs(tmp_path / "whole", out):
        assert torch.equal(a, b), name
    again = finish(start(collection, out, settings=long), expected=2)
    assert "already contains a run; resume it (--resume)" in again


@pytest.mark.slow
def test_two_processes_are_one(collection, tmp_path):
    """The same global batch: negatives are gathered, dropout is the same, gradients add up to those
    of one process.
    """
    finish(start(collection, tmp_path / "one"))
    as_torchrun = {"TORCHELASTIC_RUN_ID": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    as_torchrun |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [start(collection, tmp_path / "two", **as_torchrun, RANK=rank, LOCAL_RANK=rank) for rank in ("0", "1")]
    for process in ranks:
        finish(process)
    for name, a, b in state_pairs(tmp_path / "one", tmp_path / "two"):
        if name.startswith("objective."):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    assert not (tmp_path / "two" / "best").exists() or (tmp_path / "one" / "best").exists()
