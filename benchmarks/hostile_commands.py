"""Commands for `benchmarks.hostile`: killed, on full disks, several at once."""

from __future__ import annotations

import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PROCESS_LIMIT_S = 120.0
KILL_AFTER_S = (0.2, 3.0)  # of a process that starts from nothing


def kill_command(folder: Path, rng: random.Random) -> None:
    """A long command is killed at some moment; run again, its result is that of an undisturbed run."""
    features = folder / "features"
    features.mkdir()
    for i in range(4):
        np.save(features / f"v{i}.npy", np.random.default_rng(i).normal(size=(80, 16)).astype(np.float32))
    commands = {
        "pack": ["pack", str(features), "OUT", "--fps", "1", "--stride", "1"],
        "index": ["index", str(features), "--to", "OUT", "--model", "raw"],
    }
    name = rng.choice(sorted(commands))
    outs = []
    for disturbed in (False, True):
        out = folder / ("disturbed" if disturbed else "whole")
        command = [str(out) if part == "OUT" else part for part in commands[name]]
        if disturbed:
            process = _start(command)
            time.sleep(rng.uniform(*KILL_AFTER_S))
            process.send_signal(rng.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM)))
            process.communicate(timeout=PROCESS_LIMIT_S)
        _run(command)
        outs.append(_content(name, out))
    assert outs[0] == outs[1], f"{name}: the result after a kill differs"


def fill_disk(folder: Path, rng: random.Random) -> None:
    """No file can grow beyond a size: a clear message, no traceback, and the old result still there."""
    features = folder / "features"
    features.mkdir()
    np.save(features / "v.npy", np.random.default_rng(0).normal(size=(200, 64)).astype(np.float32))
    out, limit = folder / "out", rng.choice((0, 100, 4096, 20_000))
    command = rng.choice(
        (
            ["pack", str(features), str(out), "--fps", "1", "--stride", "1"],
            ["steps", str(features / "v.npy"), "--model", "raw", "-o", str(out)],
            ["index", str(features), "--to", str(out), "--model", "raw"],
        )
    )
    _run(command, limit_bytes=limit, codes=(0, 1, 2))


def write_at_once(folder: Path, rng: random.Random) -> None:
    """Several processes index the same files: each video once, all steps."""
    features = folder / "features"
    features.mkdir()
    for i in range(6):
        np.save(features / f"v{i}.npy", np.random.default_rng(i).normal(size=(60, 16)).astype(np.float32))
    corpus = str(folder / "corpus")
    processes = [_start(["index", str(features), "--to", corpus, "--model", "raw"]) for _ in range(rng.choice((2, 3)))]
    for process in processes:
        _, errors = process.communicate(timeout=PROCESS_LIMIT_S)
        _check(process.returncode, errors, (0,))
    names = sorted(video["video"] for video in json.loads(_run(["corpus", "list", corpus, "--json"]))["videos"])
    assert names == [f"v{i}" for i in range(6)], names
    _run(["corpus", "check", corpus])


def _start(arguments: list[str], limit_bytes: int | None = None) -> subprocess.Popen[str]:
    def limit() -> None:
        if limit_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.Popen(
        [sys.executable, "-m", "hiero", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )


def _run(arguments: list[str], limit_bytes: int | None = None, codes: tuple[int, ...] = (0,)) -> str:
    process = _start(arguments, limit_bytes)
    output, errors = process.communicate(timeout=PROCESS_LIMIT_S)
    _check(process.returncode, errors, codes)
    return output


def _check(code: int, errors: str, codes: tuple[int, ...]) -> None:
    assert "Traceback" not in errors, errors[-300:]
    assert code in codes, f"exit code {code}: {errors[-300:]}"


def _content(name: str, out: Path) -> Any:
    """What a command made, without what differs from run to run."""
    if name == "pack":
        return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.is_file()}
    videos = json.loads(_run(["corpus", "list", str(out), "--json"]))["videos"]
    return [(video["video"], video["sha256"], video["levels"]) for video in videos]


# Each takes seconds.
SLOW_KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "kills": kill_command,
    "disks": fill_disk,
    "writers": write_at_once,
}
