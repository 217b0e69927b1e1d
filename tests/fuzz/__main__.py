"""Fuzz the whole program: damaged files of every kind, odd values, commands and requests, several writers, kills.

python -m tests.fuzz                                         20,000 cases of all suites
python -m tests.fuzz features requests --cases 500           500 cases of two suites
python -m tests.fuzz features --seed 0 --first 17 --cases 1  one case again, as a failure says

The exit code is 1 if a case ends with a traceback, hangs for more than 10 seconds, takes more than
1 GiB of memory, gives a wrong result or loses an acknowledged edit. Only temporary folders and
127.0.0.1 are touched.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.all_suites import SUITES
from tests.fuzz.suite import FAILURES, Outcome, run_suite
from tests.processes import FORKSERVER, PRELOADED


def show(outcome: Outcome) -> None:
    if sys.stderr.isatty():
        print(f"\r{describe(outcome)}", end="  ", file=sys.stderr, flush=True)


def describe(outcome: Outcome) -> str:
    num_failures = sum(outcome.counts[kind] for kind in FAILURES)
    return f"{outcome.name}: {outcome.num_cases} cases, {num_failures} failures"


def print_table(outcomes: list[Outcome]) -> None:
    rows = [["suite", "cases", "refused", *(f"{kind}s" for kind in FAILURES), "seconds"]]
    for each in outcomes:
        counts = (each.num_cases, *(each.counts[kind] for kind in ("refused", *FAILURES)), round(each.seconds))
        rows.append([each.name, *map(str, counts)])
    rows.append(["all", *(str(sum(map(int, column))) for column in list(zip(*rows[1:], strict=True))[1:])])
    for name, *cells in rows:
        print(f"{name:<12}", *(f"{cell:>13}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"all by default: {', '.join(SUITES)}")
    parser.add_argument("--cases", type=int, default=20_000, help="number of cases (default: 20,000)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    args = parser.parse_args()
    if unknown := set(args.suites) - set(SUITES):
        parser.error(f"unknown suite {', '.join(unknown)}; choose from {', '.join(SUITES)}")
    FORKSERVER.set_forkserver_preload([*PRELOADED, "tests.fuzz.all_suites"])
    names = args.suites or list(SUITES)
    total = sum(SUITES[name].share for name in names)
    outcomes: list[Outcome] = []
    for number, name in enumerate(names):
        num_cases = max(1, round(args.cases * SUITES[name].share / total))
        max_s = (args.seconds - sum(outcome.seconds for outcome in outcomes)) / (len(names) - number)
        outcomes.append(run_suite(name, num_cases, seed=args.seed, first=args.first, max_s=max_s, progress=show))
        print("\n".join([f"\r{describe(outcomes[-1])}", *outcomes[-1].failures.values()]), flush=True)
    print_table(outcomes)
    sys.exit(any(outcome.failures for outcome in outcomes))


if __name__ == "__main__":
    main()
