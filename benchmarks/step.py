"""How fast is a training step at paper size, compared with the method on edge lists?

python -m benchmarks.step                 # on the CPU in float32, and on the GPU if there is one
python -m benchmarks.step --device cuda   # only the GPU: bf16, compiled and captured; memory at batch 64
python -m benchmarks.step --convergence   # trains the plain and the captured step side by side, on the GPU
"""

from __future__ import annotations

import argparse
import copy
import time

import torch

from examples.hiero_in_150_lines import Level, decode, encode
from hiero.config import LossConfig, ModelConfig
from hiero.model.hiero import HiERO
from hiero.model.losses import Losses
from hiero.model.unet import cut_threads
from hiero.training.captured_step import CapturedStep
from hiero.training.narrated_windows import TrainingBatch
from hiero.training.step import Objective, TrainStep, make_adam, parameter_groups
from tests.oracle import losses as oracle_losses

SPACING_S = 16 / 30
TARGET_MS = {8: 5.0, 64: 2.5}  # per 8 windows on an H200


def make_inputs(
    batch: int, device: str, num_nodes: int = 562, num_texts: int = 110, width: int = 256, seed: int = 0
) -> TrainingBatch:
    """Random windows of 300 s with their narrations' vectors."""
    generator = torch.Generator(device).manual_seed(seed)
    times = (torch.arange(num_nodes, device=device) + 0.5) * SPACING_S
    return TrainingBatch(
        features=torch.randn(batch, num_nodes, width, device=device, generator=generator),
        mask=torch.ones(batch, num_nodes, dtype=torch.bool, device=device),
        times=times.expand(batch, -1).contiguous(),
        texts=torch.randn(batch, num_texts, 768, device=device, generator=generator),
        text_times=(torch.rand(batch, num_texts, device=device, generator=generator) * 300).sort(1).values,
        text_mask=torch.ones(batch, num_texts, dtype=torch.bool, device=device),
    )


class EdgeListObjective(Objective):
    """The same objective with network and losses on edge lists and dense masks, and with our cut."""

    def forward(self, x: TrainingBatch, tokens=None):  # type: ignore[no-untyped-def]
        batch, length = x.mask.shape
        video = torch.arange(batch, device=x.features.device).repeat_interleave(length)

        def cut(features, config):  # type: ignore[no-untyped-def]
            mask = torch.ones(1, len(features), dtype=torch.bool, device=features.device)
            return cut_threads(features.detach()[None], mask, config)[0]

        weights, config = dict(self.model.named_parameters()), self.model.config
        nodes = Level(x.features.flatten(0, 1), x.times.flatten(), video)
        levels = decode(weights, config, encode(weights, config, nodes), cut)
        text_video = torch.arange(batch, device=video.device).repeat_interleave(x.texts.shape[1])
        texts = self.model.text_head(x.texts.flatten(0, 1))
        # the release projects all levels
        projected = self.model.video_head(torch.cat([level.x for level in levels]))
        alignment = oracle_losses.alignment(
            projected[: len(video)], levels[0].time_s, video, texts, x.text_times.flatten(), text_video, self.losses
        )
        cut_levels = levels[1:]
        nodes = Level(*(torch.cat(parts) for parts in zip(*cut_levels, strict=True)))
        depth = torch.cat([torch.full_like(level.video, i) for i, level in enumerate(cut_levels)])
        threads = oracle_losses.threads(nodes.x, nodes.video, depth, nodes.thread, self.losses.temperature)
        return Losses(alignment, threads, alignment + threads)


def verdict(met: bool, target: str) -> str:
    return f"target {target} {'met' if met else 'MISSED'}"


def plain_adam(model: HiERO) -> torch.optim.Adam:
    """torch's default, as the release calls it."""
    return torch.optim.Adam(parameter_groups(model, 1e-5), lr=1e-5)


def median_ms(step, inputs: TrainingBatch, num_repeats: int, device: str) -> float:  # type: ignore[no-untyped-def]
    """Median milliseconds of a step, after one to warm up."""
    seconds = []
    for i in range(num_repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        step(inputs)
        if device == "cuda":
            torch.cuda.synchronize()
        if i:
            seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[len(seconds) // 2] * 1e3


def make_model(device: str, seed: int = 0, dropout: float = 0.1) -> HiERO:
    """At paper size, with random weights."""
    torch.manual_seed(seed)
    return HiERO(ModelConfig(input_size=256, dropout=dropout)).to(device).train()


def measure_cpu(batch: int, num_repeats: int) -> None:
    """The edge list against ours, in float32."""
    inputs = make_inputs(batch, "cpu")
    results = {}
    for name, kind, adam in (("edge list", EdgeListObjective, plain_adam), ("ours", Objective, make_adam)):
        model = make_model("cpu")
        results[name] = median_ms(
            TrainStep(kind(model, LossConfig(), SPACING_S), adam(model)), inputs, num_repeats, "cpu"
        )
        print(f"{name:>10}: {results[name]:8.0f} ms a step of {batch} windows", flush=True)
    ratio = results["edge list"] / results["ours"]
    print(f"     ratio: {ratio:.2f}x ({torch.get_num_threads()} threads, float32); {verdict(ratio >= 1.8, '1.8x')}")


def measure_gpu(batches: list[int], num_repeats: int) -> None:
    """The edge list, our plain step, its memory, and the captured step."""
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    inputs = make_inputs(8, "cuda")
    baselines = {}
    for name, kind, adam, precision in (
        ("edge list, float32", EdgeListObjective, plain_adam, None),
        ("edge list, bf16", EdgeListObjective, plain_adam, torch.bfloat16),
        ("plain, bf16", Objective, make_adam, torch.bfloat16),
    ):
        model = make_model("cuda")
        objective = kind(model, LossConfig(), SPACING_S, precision=precision)
        baselines[name] = median_ms(TrainStep(objective, adam(model)), inputs, 10, "cuda")
        print(f"{name:>20}: {baselines[name]:8.2f} ms a step of 8 windows", flush=True)
    for precision in (None, torch.bfloat16):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        model = make_model("cuda")
        TrainStep(Objective(model, LossConfig(), SPACING_S, precision=precision), make_adam(model))(
            make_inputs(64, "cuda")
        )
        peak = torch.cuda.max_memory_allocated() / 2**30
        name = "plain, bf16" if precision else "plain, float32"
        print(f"{name:>20}: peak {peak:.1f} GiB in a step of 64 windows; {verdict(peak <= 16, '16 GiB')}", flush=True)
    for batch in batches:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        model = make_model("cuda")
        inputs = make_inputs(batch, "cuda")
        begin = time.perf_counter()
        step = CapturedStep(
            Objective(model, LossConfig(), SPACING_S, precision=torch.bfloat16), make_adam(model), inputs
        )
        torch.cuda.synchronize()
        capture_s = time.perf_counter() - begin
        ms = median_ms(step, inputs, num_repeats, "cuda")
        per_8 = ms * 8 / batch
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(
            f"{'captured, bf16':>20}: {ms:8.2f} ms a step of {batch} windows, {per_8:.2f} ms per 8, "
            f"{baselines['edge list, float32'] / per_8:.0f}x the edge list, peak {peak:.1f} GiB, "
            f"ready after {capture_s:.0f} s; {verdict(per_8 <= TARGET_MS[batch], f'{TARGET_MS[batch]} ms per 8')}",
            flush=True,
        )


def convergence(num_steps: int = 288) -> None:
    """Train the plain float32 step and the captured bf16 step on the same 16 batches, without dropout."""
    data = [make_inputs(8, "cuda", seed=i) for i in range(16)]
    plain_model = make_model("cuda", dropout=0.0)
    captured_model = copy.deepcopy(plain_model)
    plain = TrainStep(Objective(plain_model, LossConfig(), SPACING_S), make_adam(plain_model, lr=1e-4))
    half = Objective(captured_model, LossConfig(), SPACING_S, precision=torch.bfloat16)
    captured = CapturedStep(half, make_adam(captured_model, lr=1e-4), data[0])
    print("step   plain float32 (L_vna, L_ft)   captured bf16 (L_vna, L_ft)")
    curves: list[tuple[float, float]] = []
    for i in range(num_steps):
        a, b = plain(data[i % 16]), captured(data[i % 16])
        curves.append((a.alignment.item(), b.alignment.item()))
        if i < 3 or (i + 1) % 48 == 0:
            row = [loss.item() for loss in (a.alignment, a.threads, b.alignment, b.threads)]
            print(
                f"{i + 1:4d}" + "      {:8.4f} {:8.4f}".format(*row[:2]) + "        {:8.4f} {:8.4f}".format(*row[2:]),
                flush=True,
            )
    passes = torch.tensor(curves).view(-1, 16, 2).mean(1)  # over the 16 batches
    worst = float((passes[:, 0] / passes[:, 1] - 1).abs().max())
    print(f"largest difference in L_vna, averaged over each pass: {100 * worst:.1f} %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="all", choices=["all", "cpu", "cuda"])
    parser.add_argument(
        "--convergence", action="store_true", help="only train the plain and the captured step side by side (GPU)"
    )
    args = parser.parse_args()
    if args.convergence:
        convergence()
    else:
        if args.device != "cuda":
            measure_cpu(batch=8, num_repeats=3)
        if args.device == "cuda" or (args.device == "all" and torch.cuda.is_available()):
            measure_gpu(batches=[8, 64], num_repeats=100)
