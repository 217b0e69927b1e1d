"""Many runs of a benchmark, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

MAX_ERROR_SIZE = 2000  # characters of a failed run that are printed


def run_modules(commands: Sequence[Sequence[str]], num_at_once: int, limit_s: float = float("inf")) -> None:
    """Run `python -m` with each of some arguments, and print what it prints, or the end of its errors.

    Args:
        commands: Module and arguments of each run.
        num_at_once: Processes at the same time; each has one thread, or all cores where there is only one.
        limit_s: No run begins after so many seconds.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1" if num_at_once > 1 else str(os.cpu_count())}
    end = time.perf_counter() + limit_s

    def run(command: Sequence[str]) -> None:
        if time.perf_counter() > end:
            return
        process = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=environment)
        print(process.stdout.strip() or f"{' '.join(command)} failed:\n{process.stderr[-MAX_ERROR_SIZE:]}", flush=True)

    with ThreadPoolExecutor(num_at_once) as pool:
        list(pool.map(run, commands))
