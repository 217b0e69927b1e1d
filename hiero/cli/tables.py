"""hiero table: the paper's tables, ours beside the published numbers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from hiero.cli.console import log, print_json
from hiero.cli.options import Flag, Json
from hiero.cli.reports import print_table

app = App(name="data", help="The paper's data: what is there, what is missing.")


@Parameter(name="*")
@dataclass(frozen=True)
class PaperFolders:
    """Folders that tables read and write.

    Parameters
    ----------
    data
        Folder with annotations and features; without it, the table says what to put where.
    models
        Folder with model folders. NAME-seed0, NAME-seed1 … are seeds of one, and are averaged.
    runs
        Folder for the reports of the runs; those that are there are read.
    """

    data: Path = Path("data")
    models: Path = Path("models")
    runs: Path = Path("runs")


PAPER_FOLDERS = PaperFolders()


def table(
    name: str = "",
    /,
    *,
    folders: PaperFolders = PAPER_FOLDERS,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    seeds: int = 0,
    markdown: Flag = False,
    latex: Flag = False,
    json_: Json = False,
) -> None:
    """A table of the paper, ours beside the published numbers; what it needs is run once and kept.

    **Examples**

    `hiero table` lists the tables.

    `hiero table grounding --data data/ --models models/`

    `hiero table grounding-supervised --seeds 8 --latex`

    `hiero table --all --markdown > tables.md`

    Parameters
    ----------
    name
        mcq, egoprocel, grounding, localization, ablation, clustering-grounding,
        clustering-egoprocel, context, window, text, classification, nlq, grounding-supervised,
        localization-supervised or egoprocel-statistics.
    all_
        All tables.
    seeds
        Train models that are missing with this many seeds, which are averaged; 0 trains none, and
        says how.
    markdown
        Print Markdown.
    latex
        Print LaTeX (booktabs).
    """
    from hiero.evaluation.paper_tables import definitions, make_table, table_names
    from hiero.evaluation.results import as_latex, as_markdown

    if not name and not all_:
        for table_name in table_names():
            print(f"{table_name:25} {definitions()['tables'][table_name]['title']}")
        return
    results = [
        make_table(each, folders.data, folders.models, folders.runs, log, seeds)
        for each in (table_names() if all_ else [name])
    ]
    if json_:
        # A score that could not be computed is null.
        documents = [{"version": 1, **_without_nan(asdict(result))} for result in results]
        print_json({"version": 1, "tables": documents} if all_ else documents[0])
        return
    for result in results:
        if markdown or latex:
            print(as_latex(result.table) if latex else as_markdown(result.table))
            for command in result.commands:
                print(f"% {command}" if latex else f"\n`{command}`")
            print()
        else:
            print_table(result.table)
            for command in result.commands:
                print(f"  {command}")
    if wanted := list(dict.fromkeys(line for result in results for line in result.wanted)):
        log("\nNot here, so only published numbers are shown for the rows that need it:")
        for line in wanted:
            log(f"  {line}")


def _without_nan(value: Any) -> Any:
    """The same with None for numbers that are none."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


@app.command
def check(data: Path = Path("data"), /, *, models: Path = Path("models"), json_: Json = False) -> None:
    """Say what of the paper's data is in a folder, what is missing and where to get it, and which
    tables can be made.

    **Example**: `hiero data check data/ --models models/`

    Parameters
    ----------
    data
        Folder with annotations and features, laid out as docs/benchmarks.md says.
    models
        Folder with model folders.
    """
    from hiero.evaluation.paper_tables import check_data

    report = check_data(data, models)
    if json_:
        inputs = [{**asdict(item), "path": str(item.path)} for item in report.inputs]
        rows = {name: {"ready": ready, "rows": total} for name, (ready, total) in report.rows.items()}
        print_json({"version": 1, "inputs": inputs, "tables": rows})
        return
    for item in report.inputs:
        print(f"{'here   ' if item.found else 'missing'}  {item.path}: {item.found or item.source}")
    print("\nRows of ours that can be made now:")
    for name, (ready, total) in report.rows.items():
        print(
            f"  {name:25} {ready} of {total}"
            + (f"    hiero table {name} --data {data} --models {models}" if ready else "")
        )
