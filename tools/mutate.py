"""Mutation testing: change one place of the source at a time and count the changes that a test notices.

    python -m tools.mutate out.jsonl --workers 16
    python -m tools.mutate out.jsonl --only serve=110 storage=60 --tree ../another-checkout --minutes 9

Each worker has a private copy of the tree. The tests of a package first run without a mutation; those that
fail are listed and left out. Each mutant then runs the others until the first failure, beginning with the
files that import the mutated module. A run that takes four times the CPU time of one without a mutation is
stopped and counts as killed. out.jsonl gets one line per mutant, and a second call continues an interrupted one.
Mutants with the operator "none" change nothing: if one is killed, a test is flaky.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

from tools.mutants import PACKAGES, Mutant, find_mutants, find_tests

OPTIONS = "-q -m 'not slow' -p _hypothesis_pytestplugin --hypothesis-seed=0 --tb=no -rfE --basetemp=tmp/pytest"
SETTINGS = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}
SETTINGS |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # importing them takes a third of a short run
COMMAND = f'ulimit -d 12582912 -t $LIMIT; exec "$0" -m pytest {OPTIONS} "$@" >log 2>&1'  # 12 GiB of memory
OUTCOMES = {0: "survived", 5: "survived", -signal.SIGKILL: "timeout"}  # by exit code
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)

Copies = queue.Queue[Path]  # of the tree, one for each worker
Record = dict[str, Any]


def copy_tree(tree: Path, copy: Path) -> Path:
    """A copy with bytecode, whose plug-ins are found although it is not installed."""
    for name in ("hiero", "tests", "benchmarks", "examples"):
        shutil.copytree(tree / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    shutil.copy2(tree / "pyproject.toml", copy)
    (info := copy / "hiero_video-0.1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hiero-video\nVersion: 0.1.0\n")
    groups = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [line for group in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in groups[group].items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))
    subprocess.run([sys.executable, "-m", "compileall", "-q", copy / "hiero", copy / "tests"], check=False)
    return copy


def run_tests(copy: Path, arguments: list[str], limit: int = 600) -> tuple[str, list[str], int]:
    """The outcome, the tests that failed and the CPU seconds, which may be up to the limit."""
    for folder in (copy / "tmp", copy / ".hypothesis"):
        shutil.rmtree(folder, ignore_errors=True)
    (copy / "tmp").mkdir()
    folders = {"PYTHONPATH": str(copy), "TMPDIR": str(copy / "tmp"), "HIERO_HOME": str(copy / "tmp" / "home")}
    settings = os.environ | SETTINGS | folders | {"LIMIT": str(limit)}
    command = ["bash", "-c", COMMAND, sys.executable, *arguments]
    deadline = time.monotonic() + 5 * limit  # others may use the machine, and a mutant may wait forever
    process = subprocess.Popen(command, cwd=copy, env=settings, start_new_session=True)
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.1)
    with suppress(ProcessLookupError):  # also programs that tests have left
        os.killpg(process.pid, signal.SIGKILL)
    _, status, usage = ended if ended[0] else os.wait4(process.pid, 0)
    process.returncode, log = os.waitstatus_to_exitcode(status), (copy / "log").read_text(errors="replace")
    return OUTCOMES.get(process.returncode, "killed"), FAILED.findall(log), round(usage.ru_utime + usage.ru_stime)


def measure(copies: Copies, package: str) -> tuple[int, list[str]]:
    """The CPU seconds that the tests of a package take without a mutation, and the tests to leave out."""
    copy, left_out = copies.get(), list[str]()
    while True:
        tests = find_tests(copy, package, left_out)
        outcome, failed, seconds = run_tests(copy, ["--continue-on-collection-errors", *tests])
        if outcome == "survived":
            copies.put(copy)
            return seconds, left_out
        if not failed:
            raise SystemExit(f"the tests of {package} do not run:\n{(copy / 'log').read_text()[-2000:]}")
        left_out += failed


def try_mutant(copies: Copies, package: str, left_out: list[str], limit: int, mutant: Mutant) -> Record:
    path = (copy := copies.get()) / mutant.file
    original, times, tests = path.read_bytes(), path.stat(), find_tests(copy, package, left_out, mutant.file)
    path.write_bytes(mutant.source)
    outcome, failed, seconds = run_tests(copy, ["-x", *tests], limit)
    path.write_bytes(original)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # its bytecode is valid again
    copies.put(copy)
    record = {"package": package, **vars(mutant), "outcome": outcome, "seconds": seconds, "killed_by": failed}
    return {key: value for key, value in record.items() if key != "source"}


def print_table(records: list[Record]) -> None:
    print("| package | mutants | killed | of these by time | share | red without a mutation |\n|---|" + "---:|" * 5)
    for package in [*PACKAGES, "all"]:
        own = [record for record in records if package in (record["package"], "all")]
        controls = [record["outcome"] for record in own if record["operator"] == "none"]
        outcomes = [record["outcome"] for record in own if record["operator"] != "none"]
        killed, late = len(outcomes) - outcomes.count("survived"), outcomes.count("timeout")
        red = f"{len(controls) - controls.count('survived')} of {len(controls)}"
        print(f"| {package} | {len(outcomes)} | {killed} | {late} | {killed / max(len(outcomes), 1):.1%} | {red} |")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="file for one JSON line per mutant")
    parser.add_argument("--tree", type=Path, default=Path(), help="checkout to measure")
    parser.add_argument("--only", nargs="+", default=list(PACKAGES), metavar="PACKAGE[=COUNT]", help="packages to try")
    for option, default in (("--workers", 1), ("--seed", 0)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--minutes", type=float, default=1e6, help="start no mutant after this time")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    deadline = time.monotonic() + 60 * options.minutes
    records = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done, copies = {record["id"] for record in records}, Copies()
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder, ThreadPoolExecutor(options.workers) as pool:
        copies.put(first := copy_tree(options.tree.resolve(), Path(folder, "0")))
        for i in range(1, options.workers):
            copies.put(shutil.copytree(first, Path(folder, str(i))))
        runs: list[Future[Record]] = []
        counts = dict(item.split("=") if "=" in item else (item, PACKAGES[item][2]) for item in options.only)
        baselines = {pool.submit(measure, copies, package): package for package in counts}
        for baseline in as_completed(baselines):
            package, (seconds, left_out) = baselines[baseline], baseline.result()
            print(f"{package}: {seconds} s without a mutation; tests left out: {left_out}", flush=True)
            mutants = find_mutants(first, package, int(counts[package]), options.seed)
            limit = max(20, 4 * seconds)
            new = (mutant for mutant in mutants if mutant.id not in done)
            runs += [pool.submit(try_mutant, copies, package, left_out, limit, mutant) for mutant in new]
        with options.out.open("a") as file:
            for finished in as_completed(runs):
                if not finished.cancelled():
                    records.append(finished.result())
                    file.write(json.dumps(records[-1]) + "\n")
                    file.flush()
                if time.monotonic() > deadline:
                    for future in runs:
                        future.cancel()
    print_table(records)


if __name__ == "__main__":
    main()
