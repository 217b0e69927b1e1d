"""How time and memory grow from ten minutes to ten hours: `hiero steps` and `hiero ask` on feature files, each in its own process.

python -m benchmarks.hours [--hours 0.1667 1 3 10]
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


def make_scores(path: Path, seconds: int, seed: int = 0) -> None:
    """Class scores of a long day: activities of about a minute that come back, each a mixture of a few classes, with noise."""
    rng = np.random.default_rng(seed)
    activities = rng.normal(0, 2, (40, 400)) * (rng.random((40, 400)) < 0.05)
    out, done = np.empty((seconds, 400), dtype=np.float32), 0
    while done < seconds:
        length = min(seconds - done, int(rng.integers(20, 120)))
        out[done : done + length] = activities[rng.integers(40)] + rng.normal(0, 1, (length, 400))
        done += length
    np.save(path, out)


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds and peak memory in GiB of a command."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - begin, usage.ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, nargs="+", default=list(HOURS))
    args = parser.parse_args()
    print("| hours | steps: s | GiB | ask, first: s | GiB | ask, again: s | GiB |\n" + "|---" * 7 + "|")
    for hours in args.hours:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "day.npy"
            make_scores(file, round(3600 * hours), seed=time.time_ns())  # nothing of it was kept before
            hiero = [sys.executable, "-m", "hiero"]
            cells = [f"{hours:.2f}"]
            for command in (
                [*hiero, "steps", str(file), "--no-cache"], [*hiero, "ask", str(file), "cut the onion"],
                [*hiero, "ask", str(file), f"wash {time.time_ns()} dishes"],
            ):  # fmt: skip
                seconds, memory = measure(command)
                cells += [f"{seconds:.1f}", f"{memory:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
