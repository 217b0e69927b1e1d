"""How do time and memory of `hiero steps` and `hiero ask` grow from ten minutes to ten hours?

python -m benchmarks.hours [--hours 0.1667 1 3 10]

Each command reads a feature file of synthetic class scores in its own process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HOURS = (1 / 6, 0.5, 1.0, 3.0, 10.0)
NUM_CLASSES = 400  # of Kinetics, whose scores are the features of the default model
NUM_ACTIVITIES = 40
CLASS_SHARE = 0.05  # of the classes that an activity has scores for
ACTIVITY_S = (20, 120)  # shortest and longest


def write_scores(path: Path, num_seconds: int, seed: int = 0) -> None:
    """Write class scores at 1 Hz of recurring activities of about a minute, each of a few classes, with noise."""
    rng = np.random.default_rng(seed)
    shape = NUM_ACTIVITIES, NUM_CLASSES
    activities = rng.normal(0, 2, shape) * (rng.random(shape) < CLASS_SHARE)
    scores, row = np.empty((num_seconds, NUM_CLASSES), dtype=np.float32), 0
    while row < num_seconds:
        length = min(num_seconds - row, int(rng.integers(*ACTIVITY_S)))
        scores[row : row + length] = activities[rng.integers(NUM_ACTIVITIES)] + rng.normal(0, 1, (length, NUM_CLASSES))
        row += length
    np.save(path, scores)


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds that a command takes, and its peak memory in GiB."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - begin, usage.ru_maxrss / 2**20  # Linux counts in KiB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, nargs="+", default=list(HOURS))
    args = parser.parse_args()
    print("| hours | steps: s | GiB | ask, first: s | GiB | ask, again: s | GiB |\n" + "|---" * 7 + "|")
    for hours in args.hours:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "day.npy"
            # a new file each time, which is not in the cache
            write_scores(file, round(3600 * hours), seed=time.time_ns())
            hiero = [sys.executable, "-m", "hiero"]
            cells = [f"{hours:.2f}"]
            for command in (
                [*hiero, "steps", str(file), "--no-cache"],
                [*hiero, "ask", str(file), "cut the onion"],
                [
                    *hiero,
                    "ask",
                    str(file),
                    f"wash {time.time_ns()} dishes",
                ],  # only the video is cached
            ):
                spent_s, peak_gib = measure(command)
                cells += [f"{spent_s:.1f}", f"{peak_gib:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
