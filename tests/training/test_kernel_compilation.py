"""Our kernels are compiled by another process beside the compiler of the network."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from hiero.config import LossConfig, ModelConfig
from hiero.decoding import decode_worker
from hiero.model.hiero import HiERO
from hiero.training import captured_step
from hiero.training.captured_step import compiling_kernels
from hiero.training.step import Objective, make_adam


def make_objective(device="cpu"):
    network = HiERO(ModelConfig(6, 32, 8, 768, gate_size=8, num_threads=3)).to(device)
    return Objective(network, LossConfig(), 0.5, precision=torch.bfloat16), make_adam(network)


@pytest.fixture
def processes(monkeypatch):
    """All that are started."""
    started, popen = [], subprocess.Popen

    def start(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(captured_step, "num_usable_cores", lambda: 4)
    monkeypatch.setattr(captured_step, "_free_bytes", lambda _: captured_step.MIN_FREE_BYTES)
    return started


def test_the_process_does_not_outlive_the_set_up(processes, monkeypatch):
    monkeypatch.setattr(decode_worker, "PROGRAM", "import time; time.sleep(60)")
    with compiling_kernels(*make_objective()):
        assert processes[0].poll() is None
    assert processes[0].poll() is not None


def test_a_process_that_fails_or_does_not_start_is_no_error(processes, monkeypatch):
    monkeypatch.setattr(decode_worker, "PROGRAM", "raise SystemExit(1)")
    with compiling_kernels(*make_objective()):
        assert processes[0].wait(30) == 1
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with compiling_kernels(*make_objective()):
        assert len(processes) == 1


@pytest.mark.parametrize("missing", ["cores", "memory", "python"])
def test_where_it_would_not_pay(processes, monkeypatch, missing):
    if missing == "cores":
        monkeypatch.setattr(captured_step, "num_usable_cores", lambda: 2)
    elif missing == "memory":
        monkeypatch.setattr(captured_step, "_free_bytes", lambda _: 2**30)
    else:
        monkeypatch.setattr(sys, "executable", None)
    with compiling_kernels(*make_objective()):
        assert not processes


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_what_it_compiles_is_what_a_step_needs(processes, monkeypatch, tmp_path):
    """The step that is captured afterwards, in a process of its own, adds no kernel of ours to Triton's cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with compiling_kernels(*make_objective("cuda")):
        assert processes[0].wait(120) == 0
    names = ("_forward", "_backward", "_backward_hidden", "_add_rows", "_kernel", "_update", "_sum_squares")

    def compiled():
        return sorted(path.stem for path in tmp_path.rglob("*.cubin") if path.stem in names)

    before = compiled()
    assert set(before) == set(names)
    code = (
        "import torch; from tests.training.test_kernel_compilation import make_objective; from benchmarks.step "
        "import make_inputs; "
        "from hiero.training.captured_step import CapturedStep; torch._inductor.config.compile_threads = 1; "
        "CapturedStep(*make_objective('cuda'), make_inputs(2, 'cuda', num_nodes=64, num_texts=8, width=6))"
    )
    subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=True)
    assert compiled() == before
