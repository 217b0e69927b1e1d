"""How fast a video is read, against real time, and what cheaper settings of I3D cost in quality.

python -m benchmarks.video [VIDEO] [--seconds 120]          `hiero steps` in its own process, without a cache
python -m benchmarks.video [VIDEO] --parts --device cuda    decoding and each network, alone and together
python -m benchmarks.video --extraction --device cuda       seconds of video per second: decoding by threads,
                                                            processes or the GPU, networks alone (with random
                                                            weights), and all together
python -m benchmarks.video --uhd --seconds 20               the same for 3840 × 2160 at 60 frames per second
python -m benchmarks.video --compare VIDEO…                 class scores with other frame sizes and numbers
                                                            of frames, compared with 64 frames
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.features import extractor
from hiero.features.extractor import (
    GPU_BATCH_SIZE,
    NUM_FRAMES,
    ExtractionOptions,
    LoadedBackbones,
    choose_precision,
    decoding_processes,
    extract_features,
    run_network,
    stack_frames,
)
from hiero.media.decode import Sampling, Segment, probe, read_segments
from hiero.media.parallel_decode import read_segments_parallel
from hiero.networks import i3d
from hiero.networks.i3d_int8 import FAST_FLAGS, has_integer_products, use_integers
from hiero.networks.registry import centre_crop, find_backbone
from hiero.storage import weights

WINDOW_S = 2.0  # of a window of I3D
MIN_MEASURE_S = 3.0  # how long a measurement runs at least
ENCODED_S = 20.0  # of a longer video, which repeats them
MAX_FRAMES = 64  # of a window, for the scores that others are compared with
SETTINGS = (  # frames of a window, pixels
    (32, 224),
    (24, 192),
    (20, 192),
    (16, 224),
    (16, 208),
    (24, 160),
    (16, 192),
    (12, 224),
    (16, 176),
    (16, 160),
    (8, 224),
)


def make_video(
    path: Path, seconds: float, width: int = 1280, height: int = 720, fps: int = 30, codec: str = "libx264"
) -> None:
    """Coloured noise that drifts: as hard to decode as a real recording, and of no other use."""
    import av

    rng = np.random.default_rng(0)
    scene = np.kron(
        rng.integers(0, 255, (height // 8, width // 4, 3), dtype=np.uint8), np.ones((8, 8, 1), dtype=np.uint8)
    )
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.bit_rate = 8_000_000 * width * height * fps // (1280 * 720 * 30)
        if codec == "libx265":
            stream.options = {"preset": "ultrafast", "x265-params": "log-level=error"}
        for i in range(round(seconds * fps)):
            left = (3 * i) % width
            for packet in stream.encode(
                av.VideoFrame.from_ndarray(np.ascontiguousarray(scene[:, left : left + width]), "rgb24")
            ):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)


def measure_end_to_end(video: Path) -> None:
    """How much faster than real time `hiero steps` is, in a process of its own."""
    info = probe(video)
    duration_s = info.duration_s or 0.0
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "hiero", "steps", str(video), "--no-cache"], check=True, stdout=subprocess.DEVNULL
    )
    spent_s = time.perf_counter() - start
    print(
        f"{info.codec} {info.width}×{info.height}, {duration_s:.0f} s: in {spent_s:.1f} s, "
        f"{duration_s / spent_s:.2f} × real time"
    )
    precision = "int8" if has_integer_products(FAST_FLAGS) else choose_precision(torch.device("cpu"))
    print(f"{torch.get_num_threads()} threads, I3D in {precision}")


def measure_parts(video: Path, device: str) -> None:
    """Seconds of video a second: decoded alone, through the networks alone, and read as `hiero steps` does."""
    names = ("i3d-k400", "dinov2-text")
    _prepare_weights(names)
    dtype = choose_precision(torch.device(device))
    backbones = [find_backbone(name) for name in names]
    start = time.perf_counter()
    windows = list(
        read_segments(
            video,
            Sampling(
                spacing_s=WINDOW_S,
                num_frames=NUM_FRAMES,
                short_side=backbones[0].short_side,
                min_share=0.0,
                skip_unreferenced=True,
            ),
        )
    )
    decoding_s = time.perf_counter() - start
    duration_s = windows[-1].end_s
    batch_size = 16 if device == "cuda" else 1
    batches = [windows[i : i + batch_size] for i in range(0, len(windows), batch_size)]
    networks = extractor.LoadedBackbones.load(backbones, device).modules
    spent_s = {"decoding": decoding_s}
    with torch.inference_mode():
        for backbone, network in zip(backbones, networks, strict=True):
            for used in (batches[:2], batches):  # the first warms up
                start = time.perf_counter()
                for batch in used:
                    run_network(backbone, network, stack_frames(batch, torch.device(device)))
                spent_s[backbone.name] = time.perf_counter() - start
    start = time.perf_counter()
    extract_features(video, backbones, ExtractionOptions(device=device))
    spent_s["all together"] = time.perf_counter() - start
    info = probe(video)
    print(
        f"{info.codec} {info.width}×{info.height}, {duration_s:.0f} s, {device}, {dtype}; seconds for a second of "
        "video:"
    )
    print(", ".join(f"{name} {part_s / duration_s:.3f}" for name, part_s in spent_s.items()))


def repeat_video(source: Path, out: Path, num: int) -> None:
    """The packets of a video, one time after the other."""
    import av

    with av.open(str(source)) as container, av.open(str(out), "w") as target:
        video = container.streams.video[0]
        stream = target.add_stream_from_template(video)
        packets = [packet for packet in container.demux(video) if packet.size]
        length = sum(packet.duration for packet in packets)
        for number in range(num):
            container.seek(0)
            for packet in container.demux(video):
                if packet.size:
                    packet.pts, packet.dts, packet.stream = (
                        packet.pts + number * length,
                        packet.dts + number * length,
                        stream,
                    )
                    target.mux(packet)


def measure_extraction(video: Path, device: str, processes: int) -> None:
    """Seconds of video a second: decoding alone in all ways that are here, networks alone, and both."""
    names = ("i3d-k400", "dinov2-text")
    torch_device = torch.device(device)
    dtype = choose_precision(torch_device)
    backbones = [find_backbone(name) for name in names]
    info = probe(video)
    duration_s = info.duration_s or 0.0
    print(f"{info.codec} {info.width}×{info.height}, {duration_s:.0f} s; {os.cpu_count()} cores, {device}, {dtype}")
    options: dict[str, Any] = {
        "spacing_s": WINDOW_S,
        "num_frames": NUM_FRAMES,
        "short_side": backbones[0].short_side,
        "min_share": 0.0,
        "skip_unreferenced": True,
    }

    def report(name: str, num_s: float, spent_s: float) -> None:
        print(f"{name}: {num_s / spent_s:.1f} s of video a second", flush=True)

    def measure_decoding(name: str, windows: Iterator[Segment], max_windows: int | None = None) -> list[Segment]:
        start, num_windows, first = time.perf_counter(), 0, []
        for window in itertools.islice(windows, max_windows):
            first += [window] if len(first) < GPU_BATCH_SIZE else []
            num_windows += 1
        report(f"decoding by {name}", min(duration_s, num_windows * WINDOW_S), time.perf_counter() - start)
        return first

    batch = measure_decoding("threads", read_segments(video, Sampling(**options)), max_windows=60)
    ways = {"processes": (processes, None), "the GPU": decoding_processes(torch_device)}
    if ways["the GPU"][1] is None:
        del ways["the GPU"]
    for name, (num, gpu) in ways.items():
        for suffix in (", with their start", ""):
            first = measure_decoding(
                f"{name} ({num}){suffix}", read_segments_parallel(video, Sampling(**options), processes=num, gpu=gpu)
            )
        print(
            f"the same pictures: {all(np.array_equal(a.frames, b.frames) for a, b in zip(batch, first, strict=True))}"
        )

    modules = [
        backbone.untrained().to(torch_device, dtype if backbone.allows_half or device != "cpu" else torch.float32)
        for backbone in backbones
    ]
    networks = LoadedBackbones(backbones, modules, torch_device, NUM_FRAMES, 2)
    windows = batch if device != "cpu" else batch[:1]
    num_s = len(windows) * WINDOW_S

    def measure_repeated(name: str, work: Callable[[], object]) -> None:
        work()  # warms up
        num, start = 0, time.perf_counter()
        while time.perf_counter() - start < MIN_MEASURE_S:
            work()
            num += 1
        report(name, num * num_s, time.perf_counter() - start)

    frames = stack_frames(windows, torch_device)
    measure_repeated("frames to the device", lambda: stack_frames(windows, torch_device).sum().item())
    with torch.inference_mode():
        for backbone, module in zip(backbones, modules, strict=True):
            measure_repeated(f"{backbone.name} alone", partial(run_network, backbone, module, frames))
        measure_repeated("networks alone", lambda: networks.run_frames(frames))
    for (name, way), thumbnails in itertools.product(ways.items(), (False, True)):
        start = time.perf_counter()
        with patch.object(extractor, "decoding_processes", lambda _, way=way: way):
            extract_features(video, networks, ExtractionOptions(thumbnails=thumbnails))
        report(
            f"decoding by {name}, and networks{', with thumbnails' if thumbnails else ''}",
            duration_s,
            time.perf_counter() - start,
        )


def _prepare_weights(names: tuple[str, ...]) -> None:
    """Fetch weights; a machine that is offline measures with random ones, which are as fast."""
    try:
        for name in names:
            weights.get(name)
    except InputError:
        print("weights cannot be fetched here; random ones are as fast")
        extractor.load_backbone = lambda backbone, device, dtype, *_: backbone.untrained().to(device, dtype)  # type: ignore[assignment]


@torch.inference_mode()
def compare(videos: list[Path]) -> None:
    """Class scores of I3D with fewer frames and pixels, against those with most: what is lost, and what it costs."""
    dtype = choose_precision(torch.device("cpu"))
    model = i3d.load(weights.get("i3d-k400")).to(dtype)
    windows = [
        segment.frames
        for video in videos
        for segment in read_segments(video, Sampling(spacing_s=WINDOW_S, num_frames=MAX_FRAMES, short_side=256))
    ]

    def score(num_frames: int, size: int) -> tuple[torch.Tensor, float]:
        """Scores of all windows, and seconds of computing for a second of video."""
        indices = [int((i + 0.5) * MAX_FRAMES / num_frames) for i in range(num_frames)]
        rows, spent_s = [], 0.0
        for frames in windows:
            x = (centre_crop(torch.from_numpy(frames)[indices], size)[None] / 127.5 - 1).to(dtype)
            start = time.perf_counter()
            rows.append(model(x)[0].float())
            spent_s += time.perf_counter() - start
        return torch.stack(rows), spent_s / (WINDOW_S * len(windows))

    reference, cost = score(MAX_FRAMES, 224)
    print(f"{len(windows)} windows of 2 s, {dtype}")
    print("| frames, pixels | s a second of video | cosine of centred scores with 64 × 224 |\n|---|---|---|")
    print(f"| 64, 224 | {cost:.2f} | 1 |")
    for num_frames, size in SETTINGS:
        scores, cost = score(num_frames, size)
        similarity = F.cosine_similarity(scores - scores.mean(0), reference - reference.mean(0), dim=1).mean()
        print(f"| {num_frames}, {size} | {cost:.2f} | {similarity:.2f} |", flush=True)
    if not has_integer_products():
        return
    same, _ = score(NUM_FRAMES, i3d.SIZE)
    use_integers(model, NUM_FRAMES)
    scores, cost = score(NUM_FRAMES, i3d.SIZE)
    similarity = F.cosine_similarity(scores - scores.mean(0), same - same.mean(0), dim=1)
    print(
        f"{NUM_FRAMES}, {i3d.SIZE} in integers: {cost:.2f} s a second of video; cosine with {dtype} at the same size: ",
        end="",
    )
    print(f"mean {similarity.mean():.4f}, lowest {similarity.min():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path, nargs="*")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--uhd", action="store_true")
    parser.add_argument("--extraction", action="store_true")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="that decode, with --extraction")
    args = parser.parse_args()
    if args.compare:
        compare(args.videos)
        return
    with tempfile.TemporaryDirectory() as folder:
        if not args.videos:
            large = {"width": 3840, "height": 2160, "fps": 60, "codec": "libx265"} if args.uhd else {}
            if args.extraction:
                make_video(Path(folder) / "part.mp4", min(ENCODED_S, args.seconds), **large)
                repeat_video(
                    Path(folder) / "part.mp4", Path(folder) / "made.mp4", max(1, round(args.seconds / ENCODED_S))
                )
            else:
                make_video(Path(folder) / "made.mp4", args.seconds, **large)
        video = args.videos[0] if args.videos else Path(folder) / "made.mp4"
        if args.extraction:
            measure_extraction(video, args.device, args.processes)
            return
        measure_parts(video, args.device) if args.parts else measure_end_to_end(video)


if __name__ == "__main__":
    main()
