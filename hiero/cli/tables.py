"""Tables of results: reports of benchmarks, hiero table and hiero data."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Group, Parameter

from hiero.cli.console import echo, log, plain_table, print_json, results_console
from hiero.cli.options import OPTIONS, Flag, Json
from hiero.types import format_count

if TYPE_CHECKING:
    from hiero.evaluation.results import Report, Table

# Widths in characters: a table in a file or pipe, the column of methods, a score with its interval.
FILE_WIDTH, METHOD_WIDTH, INTERVAL_WIDTH = 240, 34, 18
MAX_MISSING = 3  # number of videos without features that are named

app = App(name="data", help="Check which data of the paper is present.", group_parameters=OPTIONS)


@Parameter(name="*", group=Group("Report options", sort_key=12))
@dataclass(frozen=True)
class ReportOptions:
    """Output of a benchmark."""

    json_: Json = False
    out: Annotated[Path | None, Parameter(alias="-o", help="Also write the report to this JSON file.")] = None

    def output(self, report: Report, num_tables: int | None = None) -> None:
        """Write and print a report; at most `num_tables` tables are printed."""
        report.command = shlex.join(["hiero", *sys.argv[1:]])
        if self.out is not None:
            report.save(self.out)
            log(f"{self.out}: report of {report.benchmark} written, {format_count(len(report.tables), 'table')}")
        if self.json_:
            print_json(report.to_dict())
            return
        log_missing(report.missing)
        for table in report.tables[:num_tables]:
            print_table(table)
        echo(f"\n{', '.join(f'{name} {value}' for name, value in report.settings.items() if value not in ([], None))}")
        echo(report.command)


def log_missing(videos: list[str]) -> None:
    """Name some of the videos without features, if there are any."""
    if videos:
        log(f"{len(videos)} videos have no feature file: {', '.join(videos[:MAX_MISSING])} …")


def print_table(table: Table) -> None:
    """Print a table of results, with intervals if the terminal is wide enough."""
    from hiero.evaluation.results import format_cell

    console = results_console(file_width=FILE_WIDTH)
    console.print(f"\n{table.title}", style="bold")
    drawn = plain_table("", *table.columns, right=table.columns)
    is_wide = console.width >= METHOD_WIDTH + INTERVAL_WIDTH * len(table.columns)
    for row in table.rows:
        drawn.add_row(row.method, *(format_cell(row, name, intervals=is_wide) for name in table.columns))
    console.print(drawn)
    if not is_wide and any(row.intervals for row in table.rows):
        console.print("A wider terminal, or --json, also shows intervals.", style="dim")
    for note in table.notes:
        console.print(note)


@Parameter(name="*")
@dataclass(frozen=True)
class PaperFolders:
    """Folders that tables read and write.

    Parameters
    ----------
    data
        Folder with annotations and features; see `hiero data check`.
    models
        Folder with model folders. NAME-seed0, NAME-seed1 … are averaged.
    runs
        Folder for reports, which are reused.
    """

    data: Path = Path("data")
    models: Path = Path("models")
    runs: Path = Path("runs")


def table(
    name: str = "",
    /,
    *,
    folders: PaperFolders = PaperFolders(),
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    seeds: int = 0,
    markdown: Flag = False,
    latex: Flag = False,
    json_: Json = False,
) -> None:
    """Print a table of the paper with our numbers next to the published ones.

    Missing runs are computed once and kept. Without a name, the tables are listed.

    **Examples**

    * `hiero table grounding --data data/ --models models/`
    * `hiero table grounding-supervised --seeds 8 --latex`

    Parameters
    ----------
    name
        Name of the table, such as grounding.
    all_
        Print all tables.
    seeds
        Seeds to train for each missing model; 0 only prints the commands.
    markdown
        Print Markdown.
    latex
        Print LaTeX (booktabs).
    """
    from hiero.evaluation.paper_tables import PaperTables, definitions, table_names
    from hiero.evaluation.results import as_latex, as_markdown

    if not name and not all_:
        for table_name in table_names():
            echo(f"{table_name:25} {definitions()['tables'][table_name]['title']}")
        return
    before = set(folders.runs.glob("*.json"))
    tables = PaperTables(folders.data, folders.models, folders.runs, log, seeds)
    results = [tables.make(each) for each in (table_names() if all_ else [name])]
    failed = [reason for result in results for reason in result.failed]
    reports = set(folders.runs.glob("*.json"))
    log(f"{folders.runs}: {format_count(len(reports - before), 'new report')}, {len(before)} from earlier runs")
    if json_:
        text = json.dumps([{"version": 1, **asdict(result)} for result in results])
        documents = json.loads(text, parse_constant=lambda _: None)  # NaN is a score that could not be computed
        print_json({"version": 1, "tables": documents} if all_ else documents[0])
    for result in results if not json_ else ():
        if markdown or latex:
            echo(as_latex(result.table) if latex else as_markdown(result.table))
            for command in result.commands:
                echo(f"% {command}" if latex else f"\n`{command}`")
            echo()
        else:
            print_table(result.table)
            for command in result.commands:
                echo(f"  {command}")
    wanted = list(dict.fromkeys(line for result in results for line in result.wanted))
    if wanted and not json_:
        log("\nMissing, so the rows that need it show only published numbers:\n  " + "\n  ".join(wanted))
    if failed:
        log(f"\n{format_count(len(failed), 'row')} failed; the same command tries again")
        sys.exit(1)


@app.command
def check(data: Path = Path("data"), /, *, models: Path = Path("models"), json_: Json = False) -> None:
    """List which data of the paper is present, and where to get the rest.

    **Example**

    * `hiero data check data/ --models models/`

    Parameters
    ----------
    data
        Folder with annotations and features; see docs/benchmarks.md.
    models
        Folder with model folders.
    """
    from hiero.evaluation.paper_tables import check_data

    found, num_rows = check_data(data, models)
    if json_:
        inputs = [{**asdict(item), "path": str(item.path)} for item in found]
        rows = {name: {"ready": ready, "rows": total} for name, (ready, total) in num_rows.items()}
        print_json({"version": 1, "inputs": inputs, "tables": rows})
        return
    for item in found:
        echo(f"{'present' if item.found else 'missing'}  {item.path}: {item.found or item.source}")
    echo("\nRows that can be computed now:")
    for name, (ready, total) in num_rows.items():
        command = f"    hiero table {name} --data {data} --models {models}" if ready else ""
        echo(f"  {name:25} {ready} of {total}{command}")
