"""How long does a whole training run take?

    python -m benchmarks.train [--scale egoclip|small] [--seconds 60] [--device auto]

The step is the real one (captured on a GPU), with its schedule and random order, on synthetic data.
`egoclip`: 35,100 windows of 562 nodes, 256-d, 3.8 M narrations, 768-d, 15 epochs at batch 8. `small` is
for a laptop.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from hiero.config import LossConfig, ModelConfig, TrainConfig
from hiero.devices import choose_device
from hiero.model.hiero import HiERO
from hiero.training.captured_step import CapturedStep
from hiero.training.narrated_windows import ResidentWindows, align
from hiero.training.step import Objective, TrainStep, learning_rate, make_adam, set_learning_rate
from hiero.types import Clock

MIN_STEPS = 20  # that are timed, however slow they are
NUM_PROFILED = 20  # steps
NUM_LISTED = 12  # kernels, those that take longest
MAX_NAME = 90  # characters of a kernel's name
CHUNK_SIZE = 2**20  # rows that are drawn at a time, so that their float32 copy stays small


@dataclass(frozen=True)
class Scale:
    """The size of a training set and of its run."""

    num_windows: int
    num_nodes: int
    width: int
    num_narrations: int
    text_size: int
    hidden_size: int = 768
    epochs: int = 15
    batch_size: int = 8

    @property
    def num_steps(self) -> int:
        return self.epochs * (self.num_windows // self.batch_size)


SCALES = {
    "egoclip": Scale(35_100, 562, 256, 3_800_000, 768),  # the paper's training set, EgoVLP features
    "small": Scale(64, 300, 64, 2_000, 64, hidden_size=128, epochs=2),
}


@dataclass(frozen=True)
class Throughput:
    """What was measured."""

    device: str
    captured: bool
    steps: int
    seconds: float
    setup_s: float
    projected_s: float
    memory: int
    flops: float
    peak_flops: float
    kernels: list[tuple[str, float, float]]
    busy_share: float | None

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.seconds


def synthetic_windows(scale: Scale, device: torch.device, seed: int = 0) -> ResidentWindows:
    """Random features and text vectors, drawn on the device. The number of narrations in a window is
    Poisson-distributed.
    """
    generator = torch.Generator(device).manual_seed(seed)
    num_rows = scale.num_windows * scale.num_nodes
    rows = torch.empty(num_rows + 2 * scale.num_nodes, scale.width, dtype=torch.float16, device=device)
    table = torch.empty(scale.num_narrations, scale.text_size, dtype=torch.float16, device=device)
    for tensor in (rows, table):
        for part in tensor.split(CHUNK_SIZE):
            part.copy_(torch.randn(part.shape, device=device, generator=generator))
    mean = torch.full((scale.num_windows,), scale.num_narrations / scale.num_windows, device=device)
    num_texts = torch.poisson(mean, generator=generator).long().clamp_min(1)
    num_nodes, max_texts = align((scale.num_nodes, int(num_texts.max())))
    clock = Clock()
    first = torch.arange(scale.num_windows, device=device) * scale.num_nodes
    text_times = (
        torch.rand(scale.num_windows, max_texts, device=device, generator=generator) * scale.num_nodes * clock.spacing_s
    )
    texts = torch.randint(scale.num_narrations, (scale.num_windows, max_texts), device=device, generator=generator)
    return ResidentWindows(
        rows,
        first,
        torch.full_like(first, scale.num_nodes),
        torch.full_like(first, clock.time_s(0), dtype=torch.float64),
        texts,
        text_times.sort(1).values,
        num_texts,
        table,
        clock.spacing_s,
        num_nodes,
    )


class Run:
    """A training run on synthetic windows, with the schedule and the random order of a real one."""

    def __init__(self, scale: Scale, device: torch.device) -> None:
        self.scale, self.cuda = scale, device.type == "cuda"
        self.data = synthetic_windows(scale, device)
        torch.manual_seed(0)
        network = HiERO(_model_config(scale)).to(device).train()
        precision = torch.bfloat16 if self.cuda else None
        self.objective = Objective(network, LossConfig(), self.data.spacing_s, precision=precision)
        self.optimizer = make_adam(network)
        self.order = torch.randperm(len(self.data), device=device)
        self.schedule = TrainConfig(_model_config(scale), epochs=scale.epochs)
        self.step_number = 0
        start_s = time.perf_counter()
        self.train_step: Callable[[Tensor], object]
        if self.cuda:
            print("compiling the training step", flush=True)
            first = self.order[: scale.batch_size]
            self.train_step = CapturedStep(self.objective, self.optimizer, first, read_batch=self.data.read)
            torch.cuda.synchronize()
        else:
            plain_step = TrainStep(self.objective, self.optimizer)
            self.train_step = lambda index: plain_step(self.data.read(index))
        self.setup_s = time.perf_counter() - start_s

    def run_steps(self, num_steps: int) -> float:
        """Seconds that some steps take."""
        batch_size = self.scale.batch_size
        start_s = time.perf_counter()
        for _ in range(num_steps):
            lr = learning_rate(self.step_number, self.scale.num_steps, self.schedule)
            set_learning_rate(self.optimizer, lr)
            first = self.step_number % (len(self.data) // batch_size) * batch_size
            self.train_step(self.order[first : first + batch_size])
            self.step_number += 1
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start_s

    def count_flops(self) -> float:
        """Operations of a step."""
        with FlopCounterMode(display=False) as counter:
            self.objective(self.data.read(self.order[: self.scale.batch_size])).total.backward()
        return float(counter.get_total_flops())


def measure(scale: Scale, device: torch.device, seconds: float = 60.0) -> Throughput:
    """Train on synthetic windows for some seconds."""
    cuda = device.type == "cuda"
    if cuda and device.index is not None:
        torch.cuda.set_device(device)
    print("making the data", flush=True)
    run = Run(scale, device)
    run.run_steps(10 if cuda else 1)  # warm up
    chunk = 100 if cuda else 5  # steps between two looks at the clock
    print("training", flush=True)
    total_s = num_done = 0.0
    while total_s < seconds or num_done < MIN_STEPS:
        total_s += run.run_steps(chunk)
        num_done += chunk
    kernels, busy_share = _profile(lambda: run.run_steps(NUM_PROFILED), NUM_PROFILED) if cuda else ([], None)
    return Throughput(
        device=torch.cuda.get_device_name() if cuda else f"{torch.get_num_threads()} CPU threads",
        captured=cuda,
        steps=int(num_done),
        seconds=total_s,
        setup_s=run.setup_s,
        projected_s=scale.num_steps * total_s / num_done,
        memory=torch.cuda.max_memory_allocated() if cuda else 0,
        flops=run.count_flops(),  # last: the plain step would compile kernels that are part of the set-up
        peak_flops=_peak_flops(device),
        kernels=kernels,
        busy_share=busy_share,
    )


def _model_config(scale: Scale) -> ModelConfig:
    return ModelConfig(scale.width, scale.hidden_size, scale.hidden_size, scale.text_size)


def _peak_flops(device: torch.device, num_rounds: int = 5, num_products: int = 10) -> float:
    """Operations a second in a large matrix product, in the precision of the step; the best of some rounds."""
    cuda = device.type == "cuda"
    size = 8192 if cuda else 1024
    matrix = torch.randn(size, size, device=device, dtype=torch.bfloat16 if cuda else torch.float32)
    best_s = float("inf")
    for _ in range(num_rounds):
        start_s = time.perf_counter()
        for _ in range(num_products):
            matrix @ matrix
        if cuda:
            torch.cuda.synchronize()
        best_s = min(best_s, (time.perf_counter() - start_s) / num_products)
    return 2 * size**3 / best_s


def _profile(run: Callable[[], float], num_steps: int) -> tuple[list[tuple[str, float, float]], float]:
    """Name, calls and milliseconds a step of each kernel, and the share of the time in which any runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
        wall_s = run()
    num_calls: dict[str, int] = defaultdict(int)
    kernel_s: dict[str, float] = defaultdict(float)
    for event in profiler.events():
        if "CUDA" in str(event.device_type):
            num_calls[event.name] += 1
            kernel_s[event.name] += event.device_time / 1e6
    ranked = sorted(kernel_s, key=lambda name: -kernel_s[name])
    rows = [(name, num_calls[name] / num_steps, 1e3 * kernel_s[name] / num_steps) for name in ranked]
    return rows, sum(kernel_s.values()) / wall_s


def print_throughput(size: Scale, result: Throughput) -> None:
    print(f"{result.device}, torch {torch.__version__}, {'captured' if result.captured else 'plain'} steps")
    print(f"  data      {size.num_windows} windows of {size.num_nodes} nodes, {size.width}-d")
    print(f"            {size.num_narrations} narrations, {size.text_size}-d")
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
    if result.busy_share is None:
        return
    num_calls = sum(calls for _, calls, _ in result.kernels)
    mean_us = 1e3 * sum(ms for _, _, ms in result.kernels) / num_calls
    busy = f"one runs {100 * result.busy_share:.0f} % of the time"
    print(f"  bound by  {num_calls:.0f} kernels a step of {mean_us:.1f} µs on average; {busy}")
    for name, calls, ms in result.kernels[:NUM_LISTED]:
        print(f"            {ms:6.3f} ms  {calls:5.1f} × {name[:MAX_NAME]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="egoclip")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to train")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    size = SCALES[args.scale]
    print_throughput(size, measure(size, torch.device(choose_device(args.device)), args.seconds))


if __name__ == "__main__":
    main()
