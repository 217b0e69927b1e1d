"""The paper's backbones: windows and frames a second, against the arithmetic limit of the machine.

python -m benchmarks.backbones [--device cuda] [--names egovlp lavila-l …] [--batch 16] [--profile]
python -m benchmarks.backbones --extract [--device cuda] [--names egovlp] [--jobs 1 4 8]    whole videos, with decoding

Networks of full size with random weights (as fast as the released ones) on random frames. The limit is what a large matrix product
reaches in the same run and precision; the share is the network's products and attention (torch's FLOP counter) against it.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.video import make_video
from hiero.extraction.extractor import LoadedBackbones, extract_features
from hiero.video.decode import probe, read_segments
from hiero.video.registry import STRIDE, backbones, find_backbone

TOWERS = [name for name, backbone in backbones().items() if backbone.num_frames and name != "egovlp-768"]


def _seconds(run, device: str, least_s: float = 1.0) -> float:
    """Mean time of a call, after a warm-up."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    run()
    wait()
    num, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < least_s or num < 2:
        run()
        num += 1
        if device == "cuda" and num % 4 == 0:
            wait()
    wait()
    spent = time.perf_counter() - begin
    return spent / num


def limit(device: str, kind: torch.dtype) -> float:
    """FLOP/s of a large matrix product."""
    size = 8192 if device == "cuda" else 2048
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    return 2 * size**3 / _seconds(lambda: a @ b, device)


@torch.inference_mode()
def measure(
    name: str, device: str, kind: torch.dtype, sizes: list[int], peak: float, num_frames: int | None, compiled: bool
) -> None:
    backbone = find_backbone(name)
    frames = num_frames or backbone.num_frames
    network = backbone.untrained(frames).to(device, kind)
    run = torch.compile(network) if compiled else network
    for size in sizes:
        x = torch.randn(size, frames, 3, 224, 224, device=device, dtype=kind)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with torch.enable_grad(), FlopCounterMode(display=False) as counter:  # gradients: torch's own kernels, which it can count
            network(x[:1])
        flops = size * counter.get_total_flops()
        spent = _seconds(lambda: run(x), device)  # noqa: B023
        rate = flops / spent
        video = size * STRIDE / 30 / spent
        memory = f"{torch.cuda.max_memory_allocated() / 2**30:.1f}" if device == "cuda" else ""
        cells = [
            f"{name}, compiled" if compiled else name, frames, size, f"{flops / size / 1e9:.0f}",
            f"{size / spent:.2f}", f"{size * frames / spent:.1f}", f"{video:.2f}", f"{rate / 1e12:.2f}",
            f"{100 * rate / peak:.0f} %", memory,
        ]  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def profile(name: str, device: str, kind: torch.dtype, size: int) -> None:
    """Where the time goes, by kind of kernel."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    backbone = find_backbone(name)
    network = backbone.untrained().to(device, kind)
    x = torch.randn(size, backbone.num_frames, 3, 224, 224, device=device, dtype=kind)
    with torch.inference_mode():
        network(x)
        activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
        with record(activities=[activity, ProfilerActivity.CPU]) as found:
            network(x)
    sort = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=sort, row_limit=14, max_name_column_width=60))


def extraction(names: list[str], device: str, numbers: list[int], seconds: float) -> None:
    """Seconds of video a second that `hiero extract` reaches, against decoding alone."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "0.mp4"
        make_video(made, seconds, 960, 540)
        most = max(numbers)
        videos = {str(i): made.with_name(f"{i}.mp4") for i in range(most)}
        for video in videos.values():
            if video != made:
                shutil.copyfile(made, video)
        length_s = probe(made).duration_s or seconds
        print(
            f"{most} videos of {length_s:.0f} s, h264 960×540, 30 a second; {os.cpu_count()} CPU cores; seconds of video a second"
        )
        print("| videos at a time | decoding alone | " + " | ".join(names) + " |")
        print("|---" * (2 + len(names)) + "|")
        for jobs in numbers:
            cells = [_through(lambda path: [0 for _ in read_segments(path, spacing_s=16 / 30)], list(videos.values())[:jobs], jobs)]
            for name in names:
                networks = LoadedBackbones([find_backbone(name)], [], torch.device(device), find_backbone(name).num_frames, 1)
                kind = torch.bfloat16 if device == "cuda" else torch.float32
                networks.modules = [find_backbone(name).untrained().to(device, kind)]
                extract_features(made, networks=networks, pictures=False)  # warms up
                run = functools.partial(extract_features, networks=networks, pictures=False)
                cells.append(_through(run, list(videos.values())[:jobs], jobs))
            print(f"| {jobs} | " + " | ".join(f"{length_s * jobs / spent:.1f}" for spent in cells) + " |", flush=True)


def _through(run: Callable[[Path], object], videos: list[Path], jobs: int) -> float:
    begin = time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, videos))
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--names", nargs="+", default=TOWERS, choices=TOWERS)
    parser.add_argument("--batch", type=int, nargs="+", help="windows at a time")
    parser.add_argument("--frames", type=int, help="frames of a window, where not the default")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--extract", action="store_true")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    if args.extract:
        extraction(args.names, args.device, args.jobs, args.seconds)
        return
    kind = torch.bfloat16 if args.device == "cuda" else torch.float32
    sizes = args.batch or ([16, 32, 64] if args.device == "cuda" else [1])
    peak = limit(args.device, kind)
    where = torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{where}, {kind}, torch {torch.__version__}: a large product reaches {peak / 1e12:.2f} TFLOP/s")
    names = ("backbone", "frames", "batch", "GFLOP a window", "windows/s", "frames/s", "seconds of video a second", "TFLOP/s")
    print("| " + " | ".join([*names, "of the limit", "GiB"]) + " |")
    print("|---" * 10 + "|")
    for name in args.names:
        measure(name, args.device, kind, sizes, peak, args.frames, False)
        if args.compile:
            measure(name, args.device, kind, sizes, peak, args.frames, True)
        if args.profile:
            profile(name, args.device, kind, sizes[-1])


if __name__ == "__main__":
    main()
