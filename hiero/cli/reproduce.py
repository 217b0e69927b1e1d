"""hiero reproduce: all tables of the paper from the files that the authors released."""

from __future__ import annotations

import itertools
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hiero
from hiero.cli.console import log, make_console, plain_table, results_console
from hiero.cli.options import Device, Out, Repeated, check_at_least
from hiero.cli.tables import FILE_WIDTH
from hiero.errors import InputError
from hiero.storage.files import write_text
from hiero.storage.locks import hold_lock
from hiero.types import format_count, format_time

if TYPE_CHECKING:
    from hiero.evaluation.reproduction import Reproduction

CELL_WIDTH = 15  # characters of a cell with both numbers


def reproduce(
    data: Path,
    /,
    *,
    only: Repeated = None,
    out: Out = Path("reproduced"),
    seeds: int = 1,
    device: Device = "auto",
) -> None:
    """Compute all tables of the paper from the files that the authors released.

    It names missing files, computes the rows that do not need them, and writes summary.html and summary.json.
    Run it again to continue.

    **Examples**

    * `hiero reproduce HiERO/`
    * `hiero reproduce HiERO/ --only mcq --only egoprocel --device cuda`

    Parameters
    ----------
    data
        Folder with these files, laid out as in the authors' repository.
    only
        Compute only this table, such as mcq or egoprocel. Repeatable.
    out
        Output folder for models, reports and the summary.
    seeds
        Heads to train for each supervised row (8 in the paper); 0 leaves out these tables.
    """
    from hiero.evaluation.released_files import ReleasedFiles
    from hiero.evaluation.reproduction import Reproduction, reproducible_tables

    check_at_least("--seeds", seeds, 0)
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; give the folder that holds the released files")
    names = reproducible_tables(seeds > 0)
    if unknown := [name for name in only or [] if name not in names]:
        raise InputError(f"--only {unknown[0]}: no such table; choose from {', '.join(names)}")
    tables = [name for name in names if not only or name in only]
    with hold_lock(out / ".lock", str(out), wait_s=0):
        reproduction = Reproduction(ReleasedFiles(data, out, seeds), device)
        print_plan(reproduction, tables)
        run_jobs(reproduction, tables)
    summary = write_summary(reproduction, tables)
    print_summary(summary)
    log(f"{out / 'summary.html'} and summary.json: {format_count(len(summary['tables']), 'table')}")
    if any(row["failed"] for table in summary["tables"] for row in table["rows"]):
        sys.exit(1)


def print_plan(reproduction: Reproduction, tables: list[str]) -> None:
    """Print which rows of each table can be computed, and which files the others need."""
    from hiero.evaluation.paper_tables import definitions, own_rows

    plan = plain_table("table", "", "can be computed")
    missing: dict[str, dict[str, list[str]]] = {}  # tables by place, by source
    for name in tables:
        files = [reproduction.missing(row) for row in own_rows(name)]
        for place, source in map(reproduction.files.describe, dict.fromkeys(itertools.chain(*files))):
            missing.setdefault(source, {}).setdefault(place, []).append(name)
        num_ready = sum(not of_row for of_row in files)
        plan.add_row(name, definitions()["tables"][name]["title"], f"{num_ready} of {format_count(len(files), 'row')}")
    make_console(stderr=True, highlight=False, markup=False, emoji=False).print(plan)
    if missing:
        log("\nMissing files, without which rows are left out:")
    for source, places in missing.items():
        log(f"  {source}")
        for place, names in places.items():
            log(f"    {place} ({', '.join(names)})")
    if not reproduction.jobs(tables):
        data = reproduction.files.data
        raise InputError(f"{data}: no table can be computed; add the missing files that are listed above")


def run_jobs(reproduction: Reproduction, tables: list[str]) -> None:
    """Run what is not finished, and update the summary after each job."""
    from hiero.evaluation.commands import run_hiero

    jobs = reproduction.jobs(tables)
    waiting = [job for job in jobs if not reproduction.is_finished(job)]
    log(f"{format_count(len(jobs), 'job')}, {len(jobs) - len(waiting)} finished before")
    start_s = time.monotonic()
    for number, job in enumerate(waiting):
        elapsed_s = time.monotonic() - start_s
        left = f", about {format_time(elapsed_s / number * (len(waiting) - number))} left" if number else ""
        command = shlex.join(["hiero", *job.arguments]) if job.arguments else f"join the parts of {job.target}"
        log(f"\n{number + 1} of {len(waiting)}{left}: {command}")
        reproduction.perform(job, run_hiero)
        write_summary(reproduction, tables)


def write_summary(reproduction: Reproduction, tables: list[str]) -> dict[str, Any]:
    """Write summary.json and summary.html; returns the content of both."""
    from hiero.evaluation.reproduction import reproducible_tables
    from hiero.formats.html_page import write_page
    from hiero.formats.rows import to_json

    files = reproduction.files
    every = map(reproduction.table, reproducible_tables(files.num_seeds > 0))
    shown = [table for table in every if table["name"] in tables or table["runs"]]  # also those of earlier runs
    summary = {"version": 1, "hiero": hiero.__version__, "data": str(files.data), "tables": shown}
    write_text(files.out / "summary.json", to_json(summary))
    write_page(files.out / "summary.html", "reproduction.html", ("style.css",), summary)
    return summary


def print_summary(summary: dict[str, Any]) -> None:
    """Print our numbers beside those of the paper, as many columns as the terminal has room for."""
    console = results_console(file_width=FILE_WIDTH)
    for table in summary["tables"]:
        rows = [row for row in table["rows"] if row["ours"] or row["failed"]]
        if not rows:
            continue
        columns = [column for column in table["columns"] if any(column in row["ours"] for row in rows)]
        num_shown = max(1, (console.width - max(len(row["method"]) for row in rows)) // CELL_WIDTH)
        console.print(f"\n{table['title']}, ours / paper", style="bold")
        drawn = plain_table("", *columns[:num_shown], right=columns)
        for row in rows:
            cells = [format_pair(row, column) for column in columns[:num_shown]]
            drawn.add_row(row["method"], *(cells if row["ours"] else ["failed"]))
        console.print(drawn)
        if num_shown < len(columns):
            console.print(f"summary.html has {format_count(len(columns) - num_shown, 'more column')}.", style="dim")
        for note in table["notes"]:
            console.print(note, style="dim")
        for reason in dict.fromkeys(reason for row in rows for reason in row["failed"]):
            console.print(f"failed: {reason}", style="red")


def format_pair(row: dict[str, Any], column: str) -> str:
    """Our number and the paper's."""
    numbers = [row[side].get(column) for side in ("ours", "published")]
    return " / ".join("–" if number is None else f"{number:.2f}" for number in numbers)
