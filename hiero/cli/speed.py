"""hiero bench: how fast training is on this machine."""

from __future__ import annotations

from cyclopts import App

from hiero.cli.console import log
from hiero.devices import choose_device
from hiero.errors import InputError

bench_app = App(name="bench", help="How fast it is here.")


@bench_app.command(name="train")
def bench_train(*, scale: str = "egoclip", seconds: float = 60.0, device: str = "auto") -> None:
    """Measure training on synthetic data of a given size, and project the time of a whole run.

    The data is made on the device and the step is the real one (captured on a GPU), with its schedule and random order.

    **Example**: `hiero bench train --scale egoclip`

    Parameters
    ----------
    scale
        egoclip: 35,100 windows of 562 nodes, 256-d, 3.8 M narrations, 768-d, 15 epochs at batch 8. small: for a laptop.
    seconds
        How long to train.
    device
        auto, cpu, cuda …
    """
    import torch

    from hiero.training.throughput import SCALES, measure

    if scale not in SCALES:
        raise InputError(f"--scale is one of {', '.join(SCALES)}, got {scale}")
    kind = choose_device(device)
    size = SCALES[scale]
    found = measure(size, torch.device(kind), seconds=seconds, log=log)
    print(f"{found.device}, torch {torch.__version__}, {'captured' if found.captured else 'plain'} steps")
    print(f"  data      {size.num_windows} windows of {size.num_nodes} nodes, {size.width}-d; {size.num_narrations} narrations")
    print(
        f"  speed     {found.steps_per_s:.1f} steps/s of {size.batch_size} windows ({found.steps} steps in {found.seconds:.1f} s)"
    )
    print(f"  set-up    {found.ready_s:.0f} s once (compiling, recording)")
    whole = found.projected_s + found.ready_s
    print(f"  whole run {size.num_steps} steps: {found.projected_s / 60:.2f} min, with set-up {whole / 60:.2f} min")
    if found.memory:
        print(f"  memory    {found.memory / 2**30:.1f} GiB")
    share = found.flops * found.steps_per_s / found.peak_flops
    print(
        f"  limit     {found.flops / 1e9:.0f} GFLOP a step; {100 * share:.1f} % of the {found.peak_flops / 1e12:.2f} TFLOP/s "
        "of a large matrix product in the same run"
    )
    if found.busy is not None:
        num = sum(calls for _, calls, _ in found.kernels)
        spent = sum(ms for _, _, ms in found.kernels)
        rest = f"one runs {100 * found.busy:.0f} % of the time"
        print(f"  bound by  {num:.0f} kernels a step of {1e3 * spent / num:.1f} µs on average; {rest}")
        for name, calls, ms in found.kernels[:12]:
            print(f"            {ms:6.3f} ms  {calls:5.1f} × {name[:90]}")
