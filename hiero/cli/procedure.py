"""hiero procedure: the steps that several videos of one task share."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

import hiero
from hiero.cli.console import plain_table, results_console
from hiero.cli.inputs import find_inputs
from hiero.cli.options import Join, Json, Labels, Sources, VideoOptions, announce_edits, read_labels
from hiero.cli.steps import FileOptions, write_files
from hiero.errors import InputError
from hiero.formatting import format_count, format_time
from hiero.types import Hierarchy


def procedure(
    *videos: Sources,
    k: Annotated[int | None, Parameter(alias="-k", help="Number of steps. Chosen by the length by default.")] = None,
    labels: Labels = None,
    files: FileOptions = FileOptions(),
    join: Join = None,
    json_: Json = False,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Find the steps that several videos of one task share: the same step gets the same number and name in all.

    **Examples**

    * `hiero procedure monday.mp4 tuesday.mp4 wednesday.mp4`
    * `hiero procedure salads/ -k 8 -o out/ --export csv`
    """
    from hiero.engine.together import steps_together

    formats, vocabulary = files.formats(), read_labels(labels)
    run = find_inputs(videos, options, "read", join)
    if len(run.sources) < 2:
        raise InputError(f"a procedure needs at least two videos of one task, got {len(run.sources)}")
    read: dict[str, hiero.Video] = {}
    for name, source in run:
        with run.report_errors(name):
            read[name] = run.read(source)
            announce_edits(read[name], "hiero procedure cuts the videos again")
    hierarchies = dict(zip(read, steps_together(list(read.values()), k, vocabulary), strict=True))
    for name, hierarchy in hierarchies.items():
        if files.out is not None:
            write_files(read[name], hierarchy, vocabulary, run.folder_of(name, files.out), formats)
        run.done[name] = hierarchy.to_dict()
    if not json_:
        print_procedure(hierarchies)
    run.finish(json_)


def print_procedure(hierarchies: dict[str, Hierarchy]) -> None:
    """Print a table of the shared steps, with their times in each video."""
    table = plain_table("", "step", *hierarchies, right=("",))
    levels = {name: {step.thread: step for step in hierarchy.levels[0]} for name, hierarchy in hierarchies.items()}
    numbers = sorted({number for level in levels.values() for number in level})
    for number in numbers:
        members = [level.get(number) for level in levels.values()]
        label = next(step.label for step in members if step is not None) or f"Step {number + 1}"
        cells = ["" if s is None else f"{format_time(s.start_s)}-{format_time(s.end_s)}" for s in members]
        table.add_row(str(number + 1), label, *cells)
    console = results_console()
    console.print(f"{format_count(len(numbers), 'step')} of {format_count(len(hierarchies), 'video')}")
    console.print(table)
