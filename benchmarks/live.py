"""hiero watch, measured: how late steps are, how much of the machine it takes, and memory over hours.

python -m benchmarks.live delay --video VIDEO [--seconds 120]     a file that grows in real time, by
the default model python -m benchmarks.live memory [--hours 2]                      a made film, by
a backbone without weights of the same width
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

WIDTH = 2704  # of I3D's and DINOv2's features together
STOP_AFTER_S = 8.0
MADE_FPS, SCENE_S = 5, 50
BACKBONE = f"""
import hiero
MADE = hiero.Backbone(
    "made", "random projection", {WIDTH}, __name__, per_frame=True, allows_half=False, scores=False, needs_weights=False
)

def prepare(frames):
    return frames.permute(0, 3, 1, 2).float() / 255

def load(folder):
    import torch
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, {WIDTH}))
"""


def grow(video: Path, target: Path, seconds: float, written: dict[float, float]) -> None:
    """Copy the packets of a video into an MPEG-TS file in real time; notes when each moment was written."""
    import av

    with (
        av.open(str(video)) as source,
        av.open(str(target), "w", format="mpegts", options={"flush_packets": "1"}) as out,
    ):
        stream = source.streams.video[0]
        copied = out.add_stream_from_template(stream)
        begin_s = first_s = None
        for packet in source.demux(stream):
            if packet.dts is None:
                continue
            time_s = float(packet.dts * packet.time_base)
            if begin_s is None or first_s is None:
                begin_s, first_s = time.monotonic(), time_s
            if time_s - first_s > seconds:
                break
            time.sleep(max(0.0, begin_s + time_s - first_s - time.monotonic()))
            packet.stream = copied
            out.mux(packet)
            written[time_s - first_s] = time.monotonic()


def measure_delay(video: Path, seconds: float) -> None:
    """Print how long after a moment was written it was part of what is shown, and what that took."""
    with tempfile.TemporaryDirectory() as folder:
        target, written = Path(folder) / "growing.ts", {}
        target.touch()
        process = subprocess.Popen(
            [sys.executable, "-m", "hiero", "watch", str(target), "--json", "--step-s", "20", "--idle-s", "60"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        time.sleep(15.0)  # networks are loaded before the recording begins, as somebody would
        loaded_s = _cpu_s(process.pid)
        begin_s = time.monotonic()
        writer = threading.Thread(target=grow, args=(video, target, seconds, written), daemon=True)
        writer.start()
        # Ctrl-C shortly after the end: what was skipped is not computed now.
        threading.Timer(seconds + STOP_AFTER_S, process.send_signal, [signal.SIGINT]).start()
        delays_s, closing_s, messages, cpu_s, total_s, video_s = [], [], [], 0.0, 0.0, 1.0
        for line in process.stdout:
            event, now_s = json.loads(line), time.monotonic()
            if event["event"] == "update":
                moments = [when_s for time_s, when_s in written.items() if time_s <= event["end_s"]]
                delays_s.append(now_s - moments[-1])
                if writer.is_alive():
                    cpu_s = (_cpu_s(process.pid) - loaded_s) / (now_s - begin_s)
            elif event["event"] == "step":
                closing_s.append(
                    now_s - max(when_s for time_s, when_s in written.items() if time_s <= event["step"]["end_s"])
                )
            elif event["event"] == "message":
                messages.append(event["text"])
            else:
                total_s, video_s = _cpu_s(process.pid) - loaded_s, event["hierarchy"]["duration_s"]
                messages += event["differences"]
                break
        _, _, usage = os.wait4(process.pid, 0)
        load = os.getloadavg()[0]
    delays = np.array(delays_s)
    print(f"load of the machine {load:.1f}, {os.cpu_count()} cores; {len(delays)} updates in {seconds:.0f} s")
    print(f"from written to shown: median {np.median(delays):.1f} s, 95 % within {np.percentile(delays, 95):.1f} s")
    print(f"from the end of a step to its line: {', '.join(f'{delay_s:.0f}' for delay_s in closing_s)} s")
    print(f"CPU while it was written: {cpu_s:.2f} cores; in all {total_s / video_s:.2f} s for a second of video")
    print(f"peak memory {usage.ru_maxrss / 2**20:.2f} GiB")
    print("\n".join(messages))


def measure_memory(hours: float) -> None:
    """Print the memory of the process as a made film gets longer, and at its end."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HIERO_HOME"] = str(Path(folder) / "home")
        site = Path(folder) / "site"
        (site / "made-1.dist-info").mkdir(parents=True)
        (site / "made_backbone.py").write_text(BACKBONE)
        (site / "made-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: made\nVersion: 1\n")
        (site / "made-1.dist-info" / "entry_points.txt").write_text("[hiero.backbones]\nmade = made_backbone:MADE\n")
        sys.path.insert(0, str(site))
        from hiero.engine import load
        from hiero.engine.live import LiveReader
        from hiero.sources.live_source import GrowingFile

        film = Path(folder) / "film.ts"
        _write_film(film, round(3600 * hours))
        begin_s = time.monotonic()
        reader = LiveReader(load("raw", backbone="made", device="cpu"), GrowingFile(film, 1.0))
        print("| video | memory, MB | log, MB | steps closed |\n|---|---|---|---|")
        next_s, spent = 600.0, []
        for update in reader.updates():
            if update is not None and update.end_s >= next_s:
                log_mb = reader.log.path.stat().st_size / 1e6
                print(
                    f"| {update.end_s / 3600:.2f} h | {_memory_mb():.0f} | {log_mb:.0f} | {len(reader.steps.closed)} |",
                    flush=True,
                )
                spent.append((update.end_s, time.monotonic() - begin_s))
                next_s = max(2 * next_s, update.end_s)
        result = reader.finish()
        print(
            f"end: {result.video.duration_s / 3600:.2f} h, {_memory_mb():.0f} MB, "
            f"{result.num_confirmed} of {result.num_shown} ends confirmed"
        )
        print("seconds of video a second: " + ", ".join(f"{end_s / wall_s:.0f}" for end_s, wall_s in spent))


def _write_film(path: Path, seconds: int) -> None:
    """Scenes of plain colours with noise, very small."""
    import av

    rng = np.random.default_rng(0)
    noise = rng.integers(-20, 20, (16, 32, 32, 3), dtype=np.int16)
    colours = rng.integers(20, 235, (40, 2, 2, 3), dtype=np.int16).repeat(16, 1).repeat(16, 2)
    with av.open(str(path), "w") as out:
        # MPEG-2 knows no fewer frames a second: each is shown five times as long
        stream = out.add_stream("mpeg2video", rate=25)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for i in range(seconds * MADE_FPS):
            picture = np.clip(colours[i // (MADE_FPS * SCENE_S) % len(colours)] + noise[i % 16], 0, 255).astype(
                np.uint8
            )
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = i * 25 // MADE_FPS
            for packet in stream.encode(frame):
                out.mux(packet)
        for packet in stream.encode(None):
            out.mux(packet)


def _memory_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _cpu_s(process: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["delay", "memory"])
    parser.add_argument("--video", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--hours", type=float, default=2.0)
    args = parser.parse_args()
    if args.part == "memory":
        measure_memory(args.hours)
    elif args.video is None:
        parser.error("delay needs --video")
    else:
        measure_delay(args.video, args.seconds)


if __name__ == "__main__":
    main()
