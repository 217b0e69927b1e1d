"""Commands of hiero in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

MAX_MESSAGE_BYTES = 4000  # the end of the output of a command, which holds its error message
Execute = Callable[[list[str], dict[str, str]], str]
"""Runs hiero with arguments and environment variables; returns the reason if it fails, else an empty text."""
TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours and movements of the cursor


def run_hiero(arguments: list[str], environment: dict[str, str]) -> str:
    """Run a command of hiero in its own process and show its progress; returns the reason if it fails."""
    if sys.stderr.isatty():
        environment = {**environment, "FORCE_COLOR": "1"}  # draws progress bars although the output is read here
    command, end, is_interrupted = [sys.executable, "-m", "hiero", *arguments], b"", False
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **environment}
    ) as process:
        assert process.stderr is not None
        while True:
            try:
                chunk = os.read(process.stderr.fileno(), MAX_MESSAGE_BYTES)
            except KeyboardInterrupt:
                if is_interrupted:
                    raise
                is_interrupted = True  # the command got the signal, too: wait until it has saved its state
                continue
            if not chunk:
                break
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
            end = (end + chunk)[-MAX_MESSAGE_BYTES:]
    if is_interrupted:
        raise KeyboardInterrupt
    if process.returncode < 0:
        return f"ended by signal {-process.returncode}; it may have run out of memory"
    if process.returncode == 0:
        return ""
    lines = TERMINAL_CODES.sub("", end.decode(errors="replace")).strip().splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("hiero: ")), len(lines) - 1)
    return "\n".join(lines[start:]).removeprefix("hiero: ")
