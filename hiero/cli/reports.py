"""Reports of benchmarks: written to a file, printed as tables or as JSON."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hiero.cli.console import log, print_json

if TYPE_CHECKING:
    from hiero.evaluation.results import Report, Table

# Characters: of a table that goes to a file or a pipe, of the column of methods, and of a score with its interval.
FILE_WIDTH, METHOD_WIDTH, INTERVAL_WIDTH = 240, 34, 18
MAX_MISSING = 3  # videos without features that are named


def command_line() -> str:
    """The command that is running, as one would type it."""
    return shlex.join(["hiero", *sys.argv[1:]])


def output_report(report: Report, as_json: bool, out: Path | None, num_tables: int | None = None) -> None:
    """Write a report to a file, if one is named, and print it.

    Args:
        report: What was measured.
        as_json: Print one JSON document instead of tables.
        out: The file.
        num_tables: Print only the first ones, where the rest is detail; by default all.
    """
    if out is not None:
        report.save(out)
        log(f"{out}: written")
    if as_json:
        print_json(report.to_dict())
        return
    if report.missing:
        log(
            f"{len(report.missing)} videos of the benchmark have no features here: "
            f"{', '.join(report.missing[:MAX_MISSING])} …"
        )
    for table in report.tables[:num_tables]:
        print_table(table)
    print(f"\n{', '.join(f'{name} {value}' for name, value in report.settings.items() if value not in ([], None))}")
    print(report.command)


def print_table(table: Table) -> None:
    """A table of results; intervals where the terminal is wide enough."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from hiero.evaluation.results import format_cell

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(f"\n{table.title}", style="bold")
    drawn = RichTable(box=None, pad_edge=False)
    drawn.add_column("")
    for name in table.columns:
        drawn.add_column(name, justify="right")
    is_wide = console.width >= METHOD_WIDTH + INTERVAL_WIDTH * len(table.columns)
    for row in table.rows:
        drawn.add_row(Text(row.method), *(format_cell(row, name, intervals=is_wide) for name in table.columns))
    console.print(drawn)
    if not is_wide and any(row.intervals for row in table.rows):
        console.print("Intervals: in a wider terminal, or with --json.", style="dim")
    for note in table.notes:
        console.print(note)
