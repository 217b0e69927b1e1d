"""The command for the paper's tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hiero.cli.console import log
from hiero.cli.evaluation import print_table
from hiero.cli.options import Flag, Json


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
    json_
        Print one JSON document.
    """
    from dataclasses import asdict

    from hiero.evaluation.paper_tables import definitions, make_table, table_names
    from hiero.evaluation.results import as_markdown

    if not name:
        for one in table_names():
            print(f"{one:25} {definitions()['tables'][one]['title']}")
        return
    found = make_table(name, data, models, runs, log)
    if json_:
        sys.stdout.write(json.dumps({"version": 1, **asdict(found)}, ensure_ascii=False) + "\n")
    elif markdown:
        print(as_markdown(found.table))
        for command in found.commands:
            print(f"\n`{command}`")
    else:
        print_table(found.table)
        for command in found.commands:
            print(f"  {command}")
    if found.wanted:
        log("\nNot here, so only published numbers are shown for the rows that need it:")
        for line in found.wanted:
            log(f"  {line}")
