"""How fast are the paper's backbones, compared with the arithmetic limit of the machine?

python -m benchmarks.backbones [--device cuda] [--names egovlp lavila-l …] [--batch 16]
python -m benchmarks.backbones --extract [--device cuda] [--names egovlp] [--jobs 1 4 8]    whole
videos, with decoding

The networks have full size and random weights, which are as fast as the released ones. The limit is
the speed of a large matrix product in the same run and precision. The share of the limit counts
matrix products and attention (torch's FLOP counter).
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
from hiero.features.extractor import ExtractionOptions, LoadedBackbones, extract_features
from hiero.media.decode import Sampling, probe, read_segments
from hiero.networks.registry import FPS, STRIDE, backbones, find_backbone

TOWERS = [name for name, backbone in backbones().items() if backbone.num_frames and name != "egovlp-768"]
SIZE = 224  # pixels of a frame, in all towers


def mean_time_s(run: Callable[[], object], device: str, min_s: float = 1.0) -> float:
    """Mean time of a call, after a warm-up, over calls that together take `min_s`."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    run()
    synchronize()
    num_calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < min_s or num_calls < 2:
        run()
        num_calls += 1
        if device == "cuda" and num_calls % 4 == 0:  # calls return before they are done: wait now and then
            synchronize()
    synchronize()
    return (time.perf_counter() - start) / num_calls


def measure_peak_flops(device: str, dtype: torch.dtype) -> float:
    """FLOP/s of a large matrix product."""
    size = 8192 if device == "cuda" else 2048
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / mean_time_s(lambda: a @ b, device)


@torch.inference_mode()
def measure(
    name: str,
    device: str,
    dtype: torch.dtype,
    batch_sizes: list[int],
    peak_flops: float,
    num_frames: int | None,
) -> None:
    """Print a row of the table for each batch size."""
    backbone = find_backbone(name)
    num_frames = num_frames or backbone.num_frames
    network = backbone.untrained(num_frames).to(device, dtype)
    for batch_size in batch_sizes:
        x = torch.randn(batch_size, num_frames, 3, SIZE, SIZE, device=device, dtype=dtype)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        # gradients: torch's own kernels, which it can count
        with torch.enable_grad(), FlopCounterMode(display=False) as counter:
            network(x[:1])
        window_flop = counter.get_total_flops()
        call_s = mean_time_s(lambda: network(x), device)  # noqa: B023
        flops = batch_size * window_flop / call_s
        video_s = batch_size * STRIDE / FPS / call_s
        memory = f"{torch.cuda.max_memory_allocated() / 2**30:.1f}" if device == "cuda" else ""
        cells = [
            name,
            num_frames,
            batch_size,
            f"{window_flop / 1e9:.0f}",
            f"{batch_size / call_s:.2f}",
            f"{batch_size * num_frames / call_s:.1f}",
            f"{video_s:.2f}",
            f"{flops / 1e12:.2f}",
            f"{100 * flops / peak_flops:.0f} %",
            memory,
        ]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def measure_extraction(names: list[str], device: str, job_counts: list[int], seconds: float) -> None:
    """Print seconds of video per second of `hiero extract` and of decoding alone."""
    with tempfile.TemporaryDirectory() as folder:
        videos = [Path(folder) / f"{i}.mp4" for i in range(max(job_counts))]
        make_video(videos[0], seconds, 960, 540)
        for video in videos[1:]:
            shutil.copyfile(videos[0], video)
        duration_s = probe(videos[0]).duration_s or seconds
        print(
            f"{len(videos)} videos of {duration_s:.0f} s, h264 960×540, 30 a second; {os.cpu_count()} CPU cores; "
            "seconds of video a second"
        )
        print("| videos at a time | decoding alone | " + " | ".join(names) + " |")
        print("|---" * (2 + len(names)) + "|")
        for num_jobs in job_counts:
            times_s = [_parallel_time_s(_decode, videos[:num_jobs])]
            for name in names:
                backbone = find_backbone(name)
                networks = LoadedBackbones([backbone], [], torch.device(device), backbone.num_frames, 1)
                dtype = torch.bfloat16 if device == "cuda" else torch.float32
                networks.modules = [backbone.untrained().to(device, dtype)]
                run = functools.partial(
                    extract_features, networks=networks, options=ExtractionOptions(thumbnails=False)
                )
                run(videos[0])  # warms up
                times_s.append(_parallel_time_s(run, videos[:num_jobs]))
            print(
                f"| {num_jobs} | " + " | ".join(f"{duration_s * num_jobs / time_s:.1f}" for time_s in times_s) + " |",
                flush=True,
            )


def _decode(video: Path) -> None:
    for _ in read_segments(video, Sampling(spacing_s=STRIDE / FPS)):
        pass


def _parallel_time_s(run: Callable[[Path], object], videos: list[Path]) -> float:
    """Time of a call for each video, all at once."""
    start = time.perf_counter()
    with ThreadPoolExecutor(len(videos)) as pool:
        list(pool.map(run, videos))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--names", nargs="+", default=TOWERS, choices=TOWERS)
    parser.add_argument("--batch", type=int, nargs="+", help="windows at a time")
    parser.add_argument("--frames", type=int, help="frames of a window, where not the default")
    parser.add_argument("--extract", action="store_true")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    if args.extract:
        measure_extraction(args.names, args.device, args.jobs, args.seconds)
        return
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    batch_sizes = args.batch or ([16, 32, 64] if args.device == "cuda" else [1])
    peak_flops = measure_peak_flops(args.device, dtype)
    machine = torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{machine}, {dtype}, torch {torch.__version__}: a large product reaches {peak_flops / 1e12:.2f} TFLOP/s")
    columns = (
        "backbone",
        "frames",
        "batch",
        "GFLOP a window",
        "windows/s",
        "frames/s",
        "seconds of video a second",
        "TFLOP/s",
    )
    print("| " + " | ".join([*columns, "of the limit", "GiB"]) + " |")
    print("|---" * 10 + "|")
    for name in args.names:
        measure(name, args.device, dtype, batch_sizes, peak_flops, args.frames)


if __name__ == "__main__":
    main()
