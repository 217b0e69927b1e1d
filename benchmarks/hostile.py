"""A hostile test of the whole program: damaged files of every kind, odd requests and names, forged
headers of proxies, damaged states of servers, kills, disks that are full, several writers.

python -m benchmarks.hostile [--cases 250]                    this many of each kind that is quick,
and a tenth of the slow ones python -m benchmarks.hostile --kind features --first 17 --cases 1
one case again, as a failure says

A case behaves where it ends within its limit with a result or with a clear message (InputError,
exit code 1 or 2, 4xx); it does not where something else is raised, a process prints a traceback, or
the result differs from an undisturbed run. Every case follows from its kind and number alone. Only
temporary folders and 127.0.0.1 are touched.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import hostile_commands, hostile_files, hostile_server, hostile_videos
from hiero.errors import InputError

LIMIT_S = 60.0  # of a case within this process
SLOW_LIMIT_S = 360.0
MAX_BYTES = 16 * 2**30  # address space of this process
SLOW = hostile_commands.SLOW_KINDS  # a tenth as many of these
KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    **hostile_files.KINDS,
    **hostile_videos.KINDS,
    **hostile_server.KINDS,
    **hostile_commands.KINDS,
    **SLOW,
}


class OverLimit(BaseException):
    """A case takes too long. The program catches an OSError or Exception, but not this."""


@dataclass
class Outcome:
    """What became of the cases of a kind: how many there were, and what is wrong with those that did not behave."""

    kind: str
    num_cases: int
    failures: list[str]


def run_kind(kind: str, first: int, num_cases: int, log: Callable[[str], None] = print) -> Outcome:
    """Run some cases of a kind."""
    failures = []
    for number in range(first, first + num_cases):
        rng = random.Random(f"{kind} {number}")
        with tempfile.TemporaryDirectory(prefix="hostile-") as name:
            problem = _run_case(KINDS[kind], Path(name), rng, SLOW_LIMIT_S if kind in SLOW else LIMIT_S)
        if problem:
            failures.append(f"python -m benchmarks.hostile --kind {kind} --first {number} --cases 1    # {problem}")
            log(failures[-1])
    return Outcome(kind, num_cases, failures)


def _run_case(case: Callable[[Path, random.Random], None], folder: Path, rng: random.Random, limit_s: float) -> str:
    """What is wrong, or nothing."""

    def interrupt(*_: object) -> None:
        raise OverLimit(f"over its limit of {limit_s:.0f} s")

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case(folder, rng)
    except InputError as error:
        return "" if str(error).strip() else "an error without a message"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also a panic in Rust, which is no Exception
        return f"{type(error).__name__}: {str(error)[:160]!r}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return ""


@contextmanager
def own_home() -> Iterator[None]:
    """Caches of the cases in a folder of their own; weights that were fetched stay in reach."""
    from hiero.storage.files import home

    before = os.environ.get("HIERO_HOME")
    weights = home() / "weights"
    folder = tempfile.mkdtemp(prefix="hostile-home-")
    if weights.is_dir():
        (Path(folder) / "weights").symlink_to(weights)
    os.environ["HIERO_HOME"] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if before is None:
            del os.environ["HIERO_HOME"]
        else:
            os.environ["HIERO_HOME"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), help="only this kind")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=250)
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))  # a case that wants more fails
    outcomes = []
    with own_home():
        for kind in [args.kind] if args.kind else KINDS:
            num = args.cases if args.kind or kind not in SLOW else max(1, args.cases // 10)
            outcomes.append(run_kind(kind, args.first, num))
            print(f"{kind}: {num - len(outcomes[-1].failures)} of {num} behaved", flush=True)
    num_failures = sum(len(outcome.failures) for outcome in outcomes)
    print(f"{sum(outcome.num_cases for outcome in outcomes)} cases, {num_failures} did not behave")
    sys.exit(bool(num_failures))


if __name__ == "__main__":
    main()
