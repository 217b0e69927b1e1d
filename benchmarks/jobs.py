"""Run a benchmark many times, each time in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

MAX_ERROR_SIZE = 2000  # characters of a failed run that are printed


def run_modules(commands: Sequence[Sequence[str]], num_at_once: int) -> None:
    """Run `python -m` with each of some arguments, and print the output of each, or the end of its errors.

    Args:
        commands: Module and arguments of each run.
        num_at_once: Number of processes at the same time. One alone uses all cores; several use one each.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1" if num_at_once > 1 else str(os.cpu_count())}

    def run(command: Sequence[str]) -> None:
        process = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=environment)
        print(process.stdout.strip() or f"{' '.join(command)} failed:\n{process.stderr[-MAX_ERROR_SIZE:]}", flush=True)

    with ThreadPoolExecutor(num_at_once) as pool:
        list(pool.map(run, commands))
