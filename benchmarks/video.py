"""How fast a video is read, against real time, and what cheaper settings of I3D cost in quality.

python -m benchmarks.video [VIDEO] [--seconds 120]        end to end: `hiero steps` in a process of its own, nothing cached
python -m benchmarks.video [VIDEO] --parts --device cuda  what decoding and the networks take, alone and together
python -m benchmarks.video --compare VIDEO…               class scores at other sizes and numbers of frames against 64 frames
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.extraction import extractor as reading
from hiero.extraction.extractor import NUM_FRAMES, choose_precision, extract_features, run_backbone
from hiero.storage import weights
from hiero.video import i3d
from hiero.video.decode import probe, read_segments
from hiero.video.frames import centre_crop
from hiero.video.registry import find_backbone

SETTINGS = ((32, 224), (24, 192), (20, 192), (16, 224), (16, 208), (24, 160), (16, 192), (12, 224), (16, 176), (16, 160), (8, 224))


def make_video(path: Path, seconds: float, width: int = 1280, height: int = 720, rate: int = 30) -> None:
    """Coloured noise that drifts: as hard to decode as a real recording, and of no other use."""
    import av

    rng = np.random.default_rng(0)
    scene = np.kron(rng.integers(0, 255, (height // 8, width // 4, 3), dtype=np.uint8), np.ones((8, 8, 1), dtype=np.uint8))
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", 8_000_000
        for i in range(round(seconds * rate)):
            left = (3 * i) % width
            for packet in stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(scene[:, left : left + width]), "rgb24")):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)


def end_to_end(video: Path) -> None:
    info = probe(video)
    duration_s = info.duration_s or 0.0
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "hiero", "steps", str(video), "--no-cache"], check=True, stdout=subprocess.DEVNULL)
    spent = time.perf_counter() - begin
    print(f"{info.codec} {info.width}×{info.height}, {duration_s:.0f} s: in {spent:.1f} s, {duration_s / spent:.2f} × real time")
    print(f"{torch.get_num_threads()} threads, I3D in {choose_precision(torch.device('cpu'))}")


def parts(video: Path, device: str) -> None:
    """Seconds of video a second: decoded alone, through the networks alone, and read as `hiero steps` does."""
    names = ("i3d-k400", "lite2-imagenet")
    _networks_here(names)
    kind = choose_precision(torch.device(device))
    chosen = [find_backbone(name) for name in names]
    begin = time.perf_counter()
    windows = list(read_segments(video, spacing_s=2.0, num_frames=NUM_FRAMES, short_side=chosen[0].short_side, min_share=0.0))
    decoded = time.perf_counter() - begin
    duration_s = windows[-1].end_s
    size = 16 if device == "cuda" else 1
    batches = [windows[i : i + size] for i in range(0, len(windows), size)]
    networks = [reading.load_backbone(backbone, torch.device(device), kind) for backbone in chosen]
    with torch.inference_mode():
        for attempt in range(2):  # the first warms up
            begin = time.perf_counter()
            for batch in batches[: len(batches) if attempt else 2]:
                for backbone, network in zip(chosen, networks, strict=True):
                    run_backbone(backbone, network, batch, torch.device(device))
            spent = time.perf_counter() - begin
    begin = time.perf_counter()
    extract_features(video, device=device)
    together = time.perf_counter() - begin
    info = probe(video)
    print(f"{info.codec} {info.width}×{info.height}, {duration_s:.0f} s, {device}, {kind}; seconds of video a second:")
    print(
        f"decoding alone {duration_s / decoded:.0f}, networks alone {duration_s / spent:.0f}, together {duration_s / together:.0f}"
    )


def _networks_here(names: tuple[str, ...]) -> None:
    """A machine without a network measures with random weights: they are as fast."""
    try:
        for name in names:
            weights.get(name)
    except InputError:
        print("weights cannot be fetched here; random ones are as fast")
        reading.load_backbone = lambda backbone, device, kind, *_: backbone.untrained().to(device, kind)  # type: ignore[assignment]


@torch.inference_mode()
def compare(videos: list[Path]) -> None:
    kind = choose_precision(torch.device("cpu"))
    model = i3d.load(weights.get("i3d-k400")).to(kind)
    windows = [s.frames for v in videos for s in read_segments(v, spacing_s=2.0, num_frames=64, short_side=256)]

    def scores(num: int, size: int) -> tuple[torch.Tensor, float]:
        at = [int((i + 0.5) * 64 / num) for i in range(num)]
        rows, spent = [], 0.0
        for frames in windows:
            x = (centre_crop(torch.from_numpy(frames)[at], size)[None] / 127.5 - 1).to(kind)
            begin = time.perf_counter()
            rows.append(model(x)[0].float())
            spent += time.perf_counter() - begin
        return torch.stack(rows), spent / (2 * len(windows))

    best, spent = scores(64, 224)
    print(f"{len(windows)} windows of 2 s, {kind}")
    print("| frames, pixels | s a second of video | cosine of centred scores with 64 × 224 |\n|---|---|---|")
    print(f"| 64, 224 | {spent:.2f} | 1 |")
    for num, size in SETTINGS:
        found, spent = scores(num, size)
        same = F.cosine_similarity(found - found.mean(0), best - best.mean(0), dim=1).mean()
        print(f"| {num}, {size} | {spent:.2f} | {same:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path, nargs="*")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.compare:
        compare(args.videos)
        return
    with tempfile.TemporaryDirectory() as folder:
        if not args.videos:
            make_video(Path(folder) / "made.mp4", args.seconds)
        video = args.videos[0] if args.videos else Path(folder) / "made.mp4"
        parts(video, args.device) if args.parts else end_to_end(video)


if __name__ == "__main__":
    main()
