"""How fast is a video read, compared with real time?

python -m benchmarks.video [VIDEO] [--seconds 120]          `hiero steps` in its own process, without a cache
python -m benchmarks.video [VIDEO] --parts --device cuda    decoding and each network, alone and together
python -m benchmarks.video --extraction --device cuda       decoding by threads, processes or the GPU, the
                                                            networks alone (random weights), and all together
python -m benchmarks.video --uhd --seconds 20               the same for 3840 × 2160 at 60 frames per second
python -m benchmarks.video --compare VIDEO…                 class scores of I3D in 8 bits and in float
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


def make_video(
    path: Path, seconds: float, width: int = 1280, height: int = 720, fps: int = 30, codec: str = "libx264"
) -> None:
    """Drifting coloured noise, which is as hard to decode as a real recording."""
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
    """Print how much faster than real time `hiero steps` is, in its own process."""
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
    """Print seconds per second of video for decoding, for each network, and for both together."""
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
    """Write the packets of a video several times, one copy after the other."""
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
    """Print seconds of video per second for each way of decoding, for the networks alone, and for both."""
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
    """Download weights; use random ones, which are as fast, on a machine that is offline."""
    try:
        for name in names:
            weights.get(name)
    except InputError:
        print("the weights cannot be downloaded; random ones are as fast")
        extractor.load_backbone = lambda backbone, device, dtype, *_: backbone.untrained().to(device, dtype)  # type: ignore[assignment]


@torch.inference_mode()
def compare(videos: list[Path]) -> None:
    """Print how close the class scores of I3D in 8 bits are to those in float."""
    dtype = choose_precision(torch.device("cpu"))
    model = i3d.load(weights.get("i3d-k400")).to(dtype)
    sampling = Sampling(spacing_s=WINDOW_S, num_frames=NUM_FRAMES, short_side=256)
    segments = [segment for video in videos for segment in read_segments(video, sampling)]
    windows = [centre_crop(torch.from_numpy(segment.frames), i3d.SIZE)[None] / 127.5 - 1 for segment in segments]

    def score() -> tuple[torch.Tensor, float]:
        """Scores of all windows, and seconds per second of video."""
        start = time.perf_counter()
        rows = torch.cat([model(window.to(dtype)).float() for window in windows])
        return rows - rows.mean(0), (time.perf_counter() - start) / (WINDOW_S * len(windows))

    exact, float_s = score()
    use_integers(model, NUM_FRAMES)
    rounded, integer_s = score()
    similarity = F.cosine_similarity(rounded, exact, dim=1)
    print(f"{len(windows)} windows of 2 s; seconds per second of video: {dtype} {float_s:.2f}, 8 bits {integer_s:.2f}")
    print(f"cosine of centred scores: mean {similarity.mean():.4f}, lowest {similarity.min():.4f}")


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
