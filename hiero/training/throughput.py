"""How fast training goes: synthetic data of a given size on the device, the real step, and the time that a whole run would take."""

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
from hiero.training.step import Objective, TrainStep, make_adam, set_rate
from hiero.types import Clock


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
    ready_s: float
    projected_s: float
    memory: int
    flops: float
    peak_flops: float
    kernels: list[tuple[str, float, float]]
    """Name, calls a step and milliseconds a step, the largest first."""
    busy: float | None
    """Share of the time in which the GPU runs a kernel."""

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.seconds


def synthetic_windows(scale: Scale, device: torch.device, seed: int = 0) -> ResidentWindows:
    """Random features and text vectors, made on the device. The number of narrations varies from window to window (Poisson)."""
    generator = torch.Generator(device).manual_seed(seed)
    num_rows = scale.num_windows * scale.num_nodes
    rows = torch.empty(num_rows + 2 * scale.num_nodes, scale.width, dtype=torch.float16, device=device)
    table = torch.empty(scale.num_narrations, scale.text_size, dtype=torch.float16, device=device)
    for tensor in (rows, table):
        for part in tensor.split(2**20):
            part.copy_(torch.randn(part.shape, device=device, generator=generator))
    mean = torch.full((scale.num_windows,), scale.num_narrations / scale.num_windows, device=device)
    counts = torch.poisson(mean, generator=generator).long().clamp_min(1)
    num_nodes, most = align((scale.num_nodes, int(counts.max())))
    clock = Clock()
    first = torch.arange(scale.num_windows, device=device) * scale.num_nodes
    times = torch.rand(scale.num_windows, most, device=device, generator=generator) * scale.num_nodes * clock.spacing_s
    places = torch.randint(scale.num_narrations, (scale.num_windows, most), device=device, generator=generator)
    return ResidentWindows(
        rows, first, torch.full_like(first, scale.num_nodes), torch.full_like(first, clock.time_s(0), dtype=torch.float64),
        places, times.sort(1).values, counts, table, clock.spacing_s, num_nodes,
    )  # fmt: skip


def measure(
    scale: Scale, device: torch.device, *, seconds: float = 60.0, log: Callable[[str], None] = lambda _: None
) -> Throughput:
    """Train on synthetic windows for about `seconds`, at least 20 steps, with the schedule and the order of a real run."""
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
    with FlopCounterMode(display=False) as counter:
        objective(data.read(order[: scale.batch_size])).total.backward()
    optimizer.zero_grad(set_to_none=True)
    begin = time.perf_counter()
    if cuda:
        log("compiling and recording the step")
        captured = CapturedStep(objective, optimizer, order[: scale.batch_size], read=data.read)
        take: Callable[[Tensor], object] = captured
        torch.cuda.synchronize()
    else:
        plain = TrainStep(objective, optimizer)
        take = lambda index: plain(data.read(index))  # noqa: E731
    ready_s = time.perf_counter() - begin
    position = 0
    schedule = TrainConfig(_model_config(scale), epochs=scale.epochs)

    def steps(num: int) -> float:
        nonlocal position
        begin = time.perf_counter()
        for _ in range(num):
            set_rate(optimizer, learning_rate(position, scale.num_steps, schedule))
            start = position % (len(data) // scale.batch_size) * scale.batch_size
            take(order[start : start + scale.batch_size])
            position += 1
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    steps(10 if cuda else 1)
    chunk = 100 if cuda else 5
    log("training")
    total = done = 0.0
    while total < seconds or done < 20:
        total += steps(chunk)
        done += chunk
    kernels, busy = _profile(lambda: steps(20), 20) if cuda else ([], None)
    return Throughput(
        torch.cuda.get_device_name() if cuda else f"{torch.get_num_threads()} CPU threads", cuda, int(done), total, ready_s,
        scale.num_steps * total / done, torch.cuda.max_memory_allocated() if cuda else 0, float(counter.get_total_flops()),
        _peak(device), kernels, busy,
    )  # fmt: skip


def _model_config(scale: Scale) -> ModelConfig:
    return ModelConfig(scale.width, scale.hidden_size, scale.hidden_size, scale.text_size)


def _peak(device: torch.device) -> float:
    """Multiplications and additions a second in one large matrix product, in the precision of the step."""
    cuda = device.type == "cuda"
    size = 8192 if cuda else 1024
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16 if cuda else torch.float32)
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(10):
            a @ a
        if cuda:
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / 10)
    return 2 * size**3 / best


def _profile(run: Callable[[], float], num: int) -> tuple[list[tuple[str, float, float]], float]:
    """Kernels by time, and the share of the time that any runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
        seconds = run()
    calls: dict[str, int] = defaultdict(int)
    spent: dict[str, float] = defaultdict(float)
    for event in profiler.events():
        if "CUDA" in str(event.device_type):
            calls[event.name] += 1
            spent[event.name] += event.device_time / 1e6
    ranked = sorted(spent, key=lambda name: -spent[name])
    rows = [(name, calls[name] / num, 1e3 * spent[name] / num) for name in ranked]
    return rows, sum(spent.values()) / seconds
