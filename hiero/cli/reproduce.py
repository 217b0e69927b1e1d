"""hiero reproduce: the tables of the paper from released files and your own models."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

import hiero
from hiero.cli.console import echo, log, make_console, plain_table, print_json
from hiero.cli.evaluation import print_table
from hiero.cli.options import Device, Flag, Json, Out, check_at_least
from hiero.errors import InputError
from hiero.formatting import format_count, format_time
from hiero.storage.files import write_text
from hiero.storage.locks import hold_lock

if TYPE_CHECKING:
    from hiero.evaluation.reproduction import Reproduction


@Parameter(name="*")
@dataclass(frozen=True)
class TableFormat:
    """How tables are printed."""

    markdown: Flag = False
    """Print Markdown."""
    latex: Flag = False
    """Print LaTeX (booktabs)."""
    json_: Json = False

    def output(self, summary: dict[str, Any]) -> None:
        """Print our numbers beside those of the paper, and the commands that produced them."""
        from hiero.evaluation.paper_tables import as_table
        from hiero.evaluation.results import as_latex, as_markdown

        if self.json_:
            print_json(summary)
            return
        for compared in summary["tables"]:
            table, commands = as_table(compared), compared["runs"]
            if self.latex:
                echo("\n".join([as_latex(table), *(f"% {command}" for command in commands), ""]))
            elif self.markdown:
                echo("\n".join([as_markdown(table), *(f"\n`{command}`" for command in commands), ""]))
            elif any(row["ours"] or row["failed"] for row in compared["rows"]) or compared["is_quoted"]:
                print_table(table)


@Parameter(name="*")
@dataclass(frozen=True)
class ModelOptions:
    """Which models are scored."""

    models: Path | None = None
    """Folder with your own model folders, used instead of released or trained ones. NAME-seed0, NAME-seed1 … are
    averaged."""
    seeds: int = 1
    """Models to train for each row that needs it (8 in the paper); 0 trains none."""
    edges: Literal["released", "corrected"] = "released"
    """Edges with which the models of ablations are trained and tested: those of the authors' code, as in the paper, or
    without its defects."""
    device: Device = "auto"


def reproduce(
    data: Path,
    /,
    *tables: str,
    out: Out = Path("reproduced"),
    options: ModelOptions = ModelOptions(),
    check: Flag = False,
    show: TableFormat = TableFormat(),
) -> None:
    """Compute the tables of the paper, with our numbers beside the published ones.

    It says which files are there, which are missing and where to get them, computes the rows that do not
    need the missing ones, and writes summary.html and summary.json. Run it again to continue.

    **Examples**

    * `hiero reproduce HiERO/ --check`
    * `hiero reproduce HiERO/ --device cuda`
    * `hiero reproduce HiERO/ mcq grounding --models models/ --latex`

    Parameters
    ----------
    data
        Folder with the released files, laid out as in the authors' repository or as in docs/reproduction.md.
    tables
        Compute only these tables. Defaults to all that need no models except released ones and heads.
    out
        Output folder for models, reports and the summary.
    check
        Only say what is there and what is missing.
    """
    from hiero.evaluation.paper_tables import default_tables, table_names
    from hiero.evaluation.released_files import ReleasedFiles
    from hiero.evaluation.reproduction import Reproduction

    check_at_least("--seeds", options.seeds, 0)
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; give the folder that holds the released files")
    if unknown := [name for name in tables if name not in table_names()]:
        raise InputError(f"{unknown[0]}: no such table; choose from {', '.join(table_names())}")
    files = ReleasedFiles(data, out, options.seeds, options.models, options.edges)
    if check:
        survey = Reproduction(files).survey(tables or table_names())
        if show.json_:
            print_json(survey)
        else:
            print_survey(survey)
        return
    names = tables or tuple(default_tables(options.seeds > 0))
    with hold_lock(out / ".lock", str(out), wait_s=0):
        reproduction = Reproduction(files, options.device)
        survey = reproduction.survey(names)
        print_survey(survey, stderr=True)
        counts = survey["tables"].values()
        if any(count["rows"] for count in counts) and not any(count["ready"] for count in counts):
            raise InputError(f"{data}: no table can be computed; add the missing files that are listed above")
        run_jobs(reproduction, names)
        summary = write_summary(reproduction, names)
    show.output(summary)
    log(f"{out / 'summary.html'} and summary.json: {format_count(len(summary['tables']), 'table')}")
    if any(row["failed"] for table in summary["tables"] for row in table["rows"]):
        sys.exit(1)


def print_survey(survey: dict[str, Any], *, stderr: bool = False) -> None:
    """Print how many rows of each table can be computed, and which files are there or missing."""
    from hiero.evaluation.paper_tables import definitions

    console = make_console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
    counts = plain_table("table", "", "can be computed")
    for name, count in survey["tables"].items():
        ready = f"{count['ready']} of {format_count(count['rows'], 'row')}" if count["rows"] else "not reproduced"
        counts.add_row(name, definitions()["tables"][name]["title"], ready)
    console.print(counts)
    missing: dict[str, list[str]] = {}  # lines by source
    for file in survey["inputs"]:
        if file["present"]:
            console.print(f"present  {file['path']}: {file['found']}")
        else:
            missing.setdefault(file["source"], []).append(f"    {file['path']} ({', '.join(file['tables'])})")
    if missing:
        console.print("\nMissing files, without which rows are left out:")
    for source, lines in missing.items():
        console.print("\n".join([f"  {source}", *lines]))


def run_jobs(reproduction: Reproduction, tables: tuple[str, ...]) -> None:
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


def write_summary(reproduction: Reproduction, tables: tuple[str, ...]) -> dict[str, Any]:
    """Write summary.json and summary.html, with the tables of earlier runs; returns those of this run."""
    from hiero.formats.html_page import write_page
    from hiero.formats.rows import to_json

    files = reproduction.files
    head = {"version": 1, "hiero": hiero.__version__, "data": str(files.data)}
    shown = [reproduction.table(name) for name in reproduction.add_tables(tables)]
    summary = {**head, "tables": shown}
    write_text(files.out / "summary.json", to_json(summary))
    write_page(files.out / "summary.html", "reproduction.html", ("style.css",), summary)
    return {**head, "tables": [table for table in shown if table["name"] in tables]}
