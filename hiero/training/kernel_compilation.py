"""Our own GPU kernels are compiled by another process, while the compiler of the network is busy in this one.

Triton compiles a kernel when it is first called, which is some ten seconds for all of ours unless
its cache has them. The other process takes one plain step of a network with the same settings, so
that the cache has them when they are needed here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from hiero.config import LossConfig, ModelConfig
from hiero.data.narrated_windows import TrainingBatch
from hiero.decoding.decode_worker import python_command
from hiero.devices import num_usable_cores
from hiero.model.hiero import HiERO
from hiero.training.half_weights import HalfWeights
from hiero.training.step import Objective, make_adam

MIN_CORES = 4  # with fewer the two processes would wait for each other
MIN_FREE_BYTES = 4 * 2**30  # on the GPU: the other process takes one for a while
NUM_NODES = 64  # of the plain step; kernels are the same for any number


@contextmanager
def kernels_compiled_beside(objective: Objective, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """While this is open, another process compiles the kernels of a captured step."""
    device = next(objective.parameters()).device
    if num_usable_cores() < MIN_CORES or not sys.executable or _free_bytes(device) < MIN_FREE_BYTES:
        yield
        return
    settings = {
        "config": objective.model.config.to_dict(),
        "spacing_s": objective.spacing_s,
        "device": str(device),
        "precision": None if objective.precision is None else str(objective.precision).removeprefix("torch."),
        "optimizer": "adamw" if isinstance(optimizer, torch.optim.AdamW) else "adam",
    }
    process = None
    with suppress(OSError):  # then they are compiled here
        process = subprocess.Popen(
            python_command("hiero.training.kernel_compilation", json.dumps(settings)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


def main(arguments: list[str]) -> None:
    """Take one plain step, which compiles all kernels."""
    values = json.loads(arguments[0])
    config, device = ModelConfig.from_dict(values["config"]), torch.device(values["device"])
    torch.cuda.set_device(device)
    from hiero.kernels.adam_triton import ClippedAdam  # here, where Triton is known to be installed

    network = HiERO(config).to(device).train()
    precision = None if values["precision"] is None else getattr(torch, values["precision"])
    objective = Objective(network, LossConfig(), values["spacing_s"], precision=precision)
    half = HalfWeights(objective, precision) if precision == torch.bfloat16 else None  # as in `CapturedStep`
    adam = ClippedAdam(make_adam(network, kind=values["optimizer"]), {} if half is None else half.copies, 1.0)
    mask = torch.ones(1, NUM_NODES, dtype=torch.bool, device=device)
    times = values["spacing_s"] * torch.arange(NUM_NODES, device=device)[None]
    features = torch.randn(1, NUM_NODES, config.input_size, device=device)
    texts = torch.randn(1, NUM_NODES, config.text_size, device=device)
    losses = (objective if half is None else half.module)(TrainingBatch(features, mask, times, texts, times, mask))
    losses.total.backward()
    adam.step()
    torch.cuda.synchronize()
