"""Commands that people wait for, against an earlier version in the same run: time, processor time
and memory of each.

    git worktree add ../before COMMIT
    python -m benchmarks.commands --against ../before [--work WORK] [--videos 12] [--only own label spectral]

own        `hiero eval own`, all tasks and baselines; WORK is a folder of `python -m
benchmarks.captaincook4d prepare` and `export` label      `hiero label` with 20,000 labels on an
hour of features: with new labels, and again spectral   `hiero steps --method spectral` on three
hours of features

Each command is a process of its own with an empty home, so that nothing is cached. What both
versions print is compared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hours import write_scores
from hiero.storage.files import ASSETS, weights_folders

HERE = Path(__file__).parent.parent
NUM_LABELS, LABEL_HOURS, SPECTRAL_HOURS = 20_000, 1, 3


def write_labels(path: Path, num: int) -> None:
    """Different short labels: each verb of the bundled vocabulary with each thing, in random order."""
    lines = [
        line.split("|")
        for line in (ASSETS / "vocabulary.txt").read_text().splitlines()
        if "|" in line and line[0] != "#"
    ]
    verbs, things = (dict.fromkeys(word.strip() for line in lines for word in line[i].split(",")) for i in (0, 1))
    labels = [f"{verb} {thing}" for verb, thing in itertools.product(verbs, things)]
    path.write_text("\n".join(labels[i] for i in np.random.default_rng(0).permutation(len(labels))[:num]) + "\n")


def measure(tree: Path, home: Path, arguments: list[str]) -> tuple[str, float, float, float]:
    """What a command of a version prints, its seconds, seconds of all its threads, and peak memory in GiB."""
    environment = {**os.environ, "HIERO_HOME": str(home), "HIERO_WEIGHTS": str(weights_folders()[-1])}
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "hiero", *arguments],
            cwd=tree,
            env=environment,
            stdout=printed,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"hiero {' '.join(arguments)} failed in {tree}")
        printed.seek(0)
        return printed.read(), time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def numbers_of(document: Any) -> list[float]:
    """All numbers of a JSON document in their order; a text counts as its hash, so that another one is
    a large difference.
    """
    if isinstance(document, dict):
        return [number for key, value in document.items() if key != "command" for number in numbers_of(value)]
    if isinstance(document, list):
        return [number for value in document for number in numbers_of(value)]
    if isinstance(document, bool | int | float):
        return [float(document)]
    return [] if document is None else [float(int.from_bytes(str(document).encode()[:6]))]


def largest_difference(before: str, after: str) -> float:
    """Between the numbers of two outputs in JSON; infinite where they do not have the same fields."""
    first, second = (numbers_of([json.loads(line) for line in output.splitlines()]) for output in (before, after))
    return (
        max((abs(a - b) for a, b in zip(first, second, strict=True)), default=0.0)
        if len(first) == len(second)
        else np.inf
    )


def list_commands(folder: Path, args: argparse.Namespace) -> dict[str, list[str]]:
    """The commands by what they are called; their files are written into the folder."""
    commands: dict[str, list[str]] = {}
    if "own" in args.only and args.work is not None:
        own = args.work / "own"
        names = [*(own / "k400-test-seen.txt").read_text().split(), *(own / "k400-test-unseen.txt").read_text().split()]
        (folder / "names.txt").write_text("\n".join(names[:: max(1, len(names) // args.videos)][: args.videos]))
        commands[f"eval own, {args.videos} recordings"] = [
            "eval",
            "own",
            "--features",
            str(own / "k400"),
            "--annotations",
            str(own / "annotations.json"),
            "--only",
            str(folder / "names.txt"),
            "--json",
        ]
    if "label" in args.only:
        write_scores(folder / "label.npy", 3600 * LABEL_HOURS)
        write_labels(folder / "labels.txt", NUM_LABELS)
        label = ["label", str(folder / "label.npy"), "--labels", str(folder / "labels.txt"), "--json"]
        commands |= {f"label, {NUM_LABELS} new labels": label, "label, the same again": label}
    if "spectral" in args.only:
        write_scores(folder / "long.npy", 3600 * SPECTRAL_HOURS)
        commands[f"steps --method spectral, {SPECTRAL_HOURS} h"] = [
            "steps",
            str(folder / "long.npy"),
            "--method",
            "spectral",
            "--no-cache",
            "--json",
        ]
    return commands


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True, help="a checkout of an earlier version")
    parser.add_argument("--work", type=Path, help="for `own`")
    parser.add_argument("--videos", type=int, default=12, help="of `own`")
    parser.add_argument(
        "--model", type=Path, help="a model folder; by default the one that came with the earlier version"
    )
    parser.add_argument("--only", nargs="+", default=["own", "label", "spectral"], choices=["own", "label", "spectral"])
    args = parser.parse_args()
    print(
        "| command | before: s | s of CPU | GiB | now: s | s of CPU | GiB | ratio | of CPU | largest difference |\n"
        + "|---" * 10
        + "|"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, command in list_commands(folder, args).items():
            arguments = [*command, "--model", str(args.model or args.against.resolve() / "hiero/assets/hiero-k400")]
            before, now = (
                measure(tree, folder / home, arguments) for tree, home in ((args.against, "before"), (HERE, "now"))
            )
            cells = [
                f"{value:.1f}" if i < 2 else f"{value:.2f}"
                for part in (before, now)
                for i, value in enumerate(part[1:])
            ]
            ratios = [f"{before[i] / now[i]:.1f}×" for i in (1, 2)]
            difference = f"{largest_difference(before[0], now[0]):.2g}"
            print(f"| {title} | {' | '.join([*cells, *ratios, difference])} |", flush=True)


if __name__ == "__main__":
    main()
