"""hiero bench: how fast training is on this machine."""

from __future__ import annotations

from cyclopts import App

from hiero.cli.console import log
from hiero.cli.options import Device
from hiero.devices import choose_device
from hiero.errors import InputError

NUM_KERNELS = 12  # that are listed, those that take longest
MAX_NAME = 90  # characters of a kernel's name

app = App(name="bench", help="How fast it is here.")


@app.command(name="train")
def bench_train(*, scale: str = "egoclip", seconds: float = 60.0, device: Device = "auto") -> None:
    """Measure training on synthetic data of a given size, and project the time of a whole run.

    The data is made on the device and the step is the real one (captured on a GPU), with its
    schedule and random order.

    **Example**: `hiero bench train --scale egoclip`

    Parameters
    ----------
    scale
        egoclip: 35,100 windows of 562 nodes, 256-d, 3.8 M narrations, 768-d, 15 epochs at batch 8.
        small: for a laptop.
    seconds
        How long to train.
    """
    import torch

    from hiero.training.throughput import SCALES, measure

    if scale not in SCALES:
        raise InputError(f"--scale is one of {', '.join(SCALES)}, got {scale}")
    size = SCALES[scale]
    result = measure(size, torch.device(choose_device(device)), seconds=seconds, log=log)
    print(f"{result.device}, torch {torch.__version__}, {'captured' if result.captured else 'plain'} steps")
    print(
        f"  data      {size.num_windows} windows of {size.num_nodes} nodes, {size.width}-d; {size.num_narrations} "
        "narrations"
    )
    measured = f"{result.steps} steps in {result.seconds:.1f} s"
    print(f"  speed     {result.steps_per_s:.1f} steps/s of {size.batch_size} windows ({measured})")
    print(f"  set-up    {result.setup_s:.0f} s once (compiling, recording)")
    total_s = result.projected_s + result.setup_s
    print(f"  whole run {size.num_steps} steps: {result.projected_s / 60:.2f} min, with set-up {total_s / 60:.2f} min")
    if result.memory:
        print(f"  memory    {result.memory / 2**30:.1f} GiB")
    utilisation = result.flops * result.steps_per_s / result.peak_flops
    print(
        f"  limit     {result.flops / 1e9:.0f} GFLOP a step; {100 * utilisation:.1f} % of the "
        f"{result.peak_flops / 1e12:.2f} TFLOP/s of a large matrix product in the same run"
    )
    if result.busy_share is not None:
        num_calls = sum(calls for _, calls, _ in result.kernels)
        total_ms = sum(ms for _, _, ms in result.kernels)
        busy_share = f"one runs {100 * result.busy_share:.0f} % of the time"
        print(
            f"  bound by  {num_calls:.0f} kernels a step of {1e3 * total_ms / num_calls:.1f} µs on average; "
            f"{busy_share}"
        )
        for name, calls, ms in result.kernels[:NUM_KERNELS]:
            print(f"            {ms:6.3f} ms  {calls:5.1f} × {name[:MAX_NAME]}")
