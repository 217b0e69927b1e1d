"""hiero table: the paper's tables, ours beside the published numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hiero.cli.console import log
from hiero.cli.options import Flag, Json
from hiero.cli.reports import print_table


def table(
    name: str = "",
    /,
    *,
    data: Path = Path("data"),
    models: Path = Path("models"),
    runs: Path = Path("runs"),
    markdown: Flag = False,
    json_: Json = False,
) -> None:
    """A table of the paper, ours beside the published numbers; what it needs is run once and kept.

    **Examples**

    `hiero table` lists the tables.

    `hiero table grounding --data data/ --models models/`

    Parameters
    ----------
    name
        mcq, egoprocel, grounding, localization, ablation, clustering-grounding, clustering-egoprocel, context, window, text,
        classification, nlq, grounding-supervised or localization-supervised.
    data
        Folder with annotations and features; without it, the table says what to put where.
    models
        Folder with model folders. NAME-seed0, NAME-seed1 … are seeds of one, and are averaged.
    runs
        Folder for the reports of the runs; those that are there are read.
    markdown
        Print Markdown.
    """
    from dataclasses import asdict

    from hiero.evaluation.paper_tables import definitions, make_table, table_names
    from hiero.evaluation.results import as_markdown

    if not name:
        for table_name in table_names():
            print(f"{table_name:25} {definitions()['tables'][table_name]['title']}")
        return
    result = make_table(name, data, models, runs, log)
    if json_:
        # Not `print_json`: a score that could not be computed is NaN here.
        sys.stdout.write(json.dumps({"version": 1, **asdict(result)}, ensure_ascii=False) + "\n")
    elif markdown:
        print(as_markdown(result.table))
        for command in result.commands:
            print(f"\n`{command}`")
    else:
        print_table(result.table)
        for command in result.commands:
            print(f"  {command}")
    if result.wanted:
        log("\nNot here, so only published numbers are shown for the rows that need it:")
        for line in result.wanted:
            log(f"  {line}")
