"""Training throughput: the real step on synthetic data of a given size, and the time that a whole run would take."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from hiero.config import LossConfig, ModelConfig, TrainConfig
from hiero.data.narrated_windows import ResidentWindows, align
from hiero.model.hiero import HiERO
from hiero.training.captured_step import CapturedStep
from hiero.training.schedule import learning_rate
from hiero.training.step import Objective, TrainStep, make_adam, set_learning_rate
from hiero.types import Clock

MIN_STEPS = 20  # that are timed, however slow they are
NUM_PROFILED = 20  # steps
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


def measure(
    scale: Scale, device: torch.device, *, seconds: float = 60.0, log: Callable[[str], None] = lambda _: None
) -> Throughput:
    """Train on synthetic windows, with the schedule and the random order of a real run."""
    cuda = device.type == "cuda"
    if cuda and device.index is not None:
        torch.cuda.set_device(device)
    log("making the data")
    data = synthetic_windows(scale, device)
    torch.manual_seed(0)
    network = HiERO(_model_config(scale)).to(device).train()
    objective = Objective(network, LossConfig(), data.spacing_s, precision=torch.bfloat16 if cuda else None)
    optimizer = make_adam(network)
    order = torch.randperm(len(data), device=device)
    start_s = time.perf_counter()
    if cuda:
        log("compiling and recording the step")
        train_step: Callable[[Tensor], object] = CapturedStep(
            objective, optimizer, order[: scale.batch_size], read_batch=data.read
        )
        torch.cuda.synchronize()
    else:
        plain_step = TrainStep(objective, optimizer)
        train_step = lambda index: plain_step(data.read(index))  # noqa: E731
    setup_s = time.perf_counter() - start_s

    step_number = 0
    schedule = TrainConfig(_model_config(scale), epochs=scale.epochs)

    def run_steps(num_steps: int) -> float:
        nonlocal step_number
        start_s = time.perf_counter()
        for _ in range(num_steps):
            set_learning_rate(optimizer, learning_rate(step_number, scale.num_steps, schedule))
            first = step_number % (len(data) // scale.batch_size) * scale.batch_size
            train_step(order[first : first + scale.batch_size])
            step_number += 1
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start_s

    run_steps(10 if cuda else 1)  # warm up
    chunk = 100 if cuda else 5  # steps between two looks at the clock
    log("training")
    total_s = num_done = 0.0
    while total_s < seconds or num_done < MIN_STEPS:
        total_s += run_steps(chunk)
        num_done += chunk
    kernels, busy_share = _profile(lambda: run_steps(NUM_PROFILED), NUM_PROFILED) if cuda else ([], None)
    memory = torch.cuda.max_memory_allocated() if cuda else 0
    # last: the plain step would compile kernels that are part of the set-up
    with FlopCounterMode(display=False) as counter:
        objective(data.read(order[: scale.batch_size])).total.backward()
    return Throughput(
        torch.cuda.get_device_name() if cuda else f"{torch.get_num_threads()} CPU threads",
        cuda,
        int(num_done),
        total_s,
        setup_s,
        scale.num_steps * total_s / num_done,
        memory,
        float(counter.get_total_flops()),
        _peak_flops(device),
        kernels,
        busy_share,
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
