"""Reports of benchmarks: written to a file, printed as tables or as JSON."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hiero.cli.console import log, print_json
from hiero.cli.options import Json

if TYPE_CHECKING:
    from hiero.evaluation.results import Report, Table

# Characters: of a table that goes to a file or a pipe, of the column of methods, and of a score with its interval.
FILE_WIDTH, METHOD_WIDTH, INTERVAL_WIDTH = 240, 34, 18
MAX_MISSING = 3  # videos without features that are named


@Parameter(name="*")
@dataclass(frozen=True)
class ReportOptions:
    """What becomes of the results of a benchmark."""

    json_: Json = False
    out: Annotated[Path | None, Parameter(alias="-o", help="Also write the report to this JSON file.")] = None

    def output(self, report: Report, num_tables: int | None = None) -> None:
        """Write a report to a file, if one is named, and print it; `num_tables` leaves out the last ones."""
        report.command = shlex.join(["hiero", *sys.argv[1:]])
        if self.out is not None:
            report.save(self.out)
            log(f"{self.out}: written")
        if self.json_:
            print_json(report.to_dict())
            return
        if report.missing:
            names = ", ".join(report.missing[:MAX_MISSING])
            log(f"{len(report.missing)} videos of the benchmark have no features here: {names} …")
        for table in report.tables[:num_tables]:
            print_table(table)
        print(f"\n{', '.join(f'{name} {value}' for name, value in report.settings.items() if value not in ([], None))}")
        print(report.command)


PRINT_ONLY = ReportOptions()


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
