"""hiero steps: find the steps of videos."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cyclopts import Parameter

import hiero
from hiero.cli.console import Cells, log, moment_cells, plain_table, print_moments, results_console
from hiero.cli.inputs import Inputs, Results, find_inputs, read_all
from hiero.cli.options import Flag, Join, Json, LevelOptions, OptionalOut, Repeated, VideoOptions, announce_edits
from hiero.cli.sharing import SplitOptions, fetch_files
from hiero.errors import InputError
from hiero.types import Hierarchy, Step, format_count, format_time, numbered_title


@Parameter(name="*")
@dataclass(frozen=True)
class StepOptions:
    """How a video is divided, and which files are written.

    Parameters
    ----------
    method
        How steps are found: `pieces` (contiguous steps), `spectral` (the paper's threads,
        which may recur), k-means, k-means-cosine, tw-finch, equal-parts, random, or a plug-in.
    out
        Output folder for steps.json, report.html, the exports and a picture of each step. Each of
        several videos gets a subfolder.
    export
        Also write this format: vtt, srt, ffmetadata, youtube, otio, edl, elan, csv, parquet,
        activitynet, labelstudio, fiftyone, a plug-in, or all. Repeatable.
    together
        The videos show the same task: the same step gets the same number and name in all.
    """

    method: str = "pieces"
    out: OptionalOut = None
    export: Repeated = None
    together: Flag = False


def steps(
    *videos: str,
    levels: LevelOptions = LevelOptions(),
    step_options: StepOptions = StepOptions(),
    split: SplitOptions = SplitOptions(),
    join: Join = None,
    json_: Json = False,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Find the steps of videos: a hierarchy from coarse to fine, with a label and a score for each step.

    Each video gets its own result. If one cannot be read, the others are still processed and the exit
    code is 1. Chapters of one camera recording are read as one video.

    **Examples**

    * `hiero steps kitchen.mp4`
    * `hiero steps kitchen.mp4 -k 4,8,16 -o kitchen/ --export vtt --export elan`
    * `hiero steps kitchen.mp4 --labels recipe.txt --json > steps.json`
    * `hiero steps kitchen.mp4 --split clips/`
    * `hiero steps monday.mp4 tuesday.mp4 --together`
    * `hiero steps s3://bucket/videos/ -o archive/`

    Parameters
    ----------
    videos
        Videos, feature files (.pt, .npy, .npz, .safetensors), folders, patterns such as '*.mp4', or
        addresses (https://, s3:// and others supported by fsspec).
    """
    from hiero.steps.clustering import clustering_names

    formats = parse_formats(step_options.export, step_options.out)
    if step_options.method not in clustering_names():
        raise InputError(f"--method must be one of {', '.join(clustering_names())}; got {step_options.method}")
    num_steps, vocabulary = levels.num_steps, levels.read_labels()
    uses_edits = num_steps is None and step_options.method == "pieces"
    inputs = find_inputs(videos, join)
    if step_options.together and split.split is not None:
        raise InputError("--together cannot be combined with --split")
    split.check(inputs.paths, None if num_steps is None else len(num_steps))
    if step_options.together:
        find_together(inputs, options, num_steps, vocabulary, step_options, formats, json_)
        return

    def find_steps(name: str, video: hiero.Video) -> dict[str, Any]:
        """Find, write and print the steps of one video; returns its JSON document."""
        announce_edits(video, "" if uses_edits else "-k and --method cut the video anew")
        hierarchy = video.steps(num_steps, method=step_options.method, labels=vocabulary)
        num_found = len(hierarchy.levels[-1])
        if num_steps and step_options.method == "pieces" and num_found < num_steps[-1]:
            log(f"this video can be divided into at most {num_found} steps; -k asked for {num_steps[-1]}")
        if step_options.out is not None:
            write_files(video, hierarchy, vocabulary, inputs.folder_of(name, step_options.out), formats)
        if not json_:
            print_steps(hierarchy, inputs.title_of(name))
        if split.split is not None:
            fetch_files([inputs.sources[name]])
            split.write(video, hierarchy, inputs.folder_of(name, split.split), options.stream)
        return hierarchy.to_dict()

    read_all(inputs, options, options.load_engine(), "steps", find_steps).finish(json_)


def find_together(
    inputs: Inputs,
    options: VideoOptions,
    num_steps: list[int] | None,
    vocabulary: list[str] | None,
    step_options: StepOptions,
    formats: list[str],
    is_json: bool,
) -> None:
    """`--together`: find, write and print the steps that several videos share."""
    from hiero.engine.together import steps_together

    if step_options.method != "pieces" or (num_steps is not None and len(num_steps) > 1):
        raise InputError("--together finds one level of contiguous steps; give -k one number and leave out --method")
    if len(inputs.sources) < 2:
        raise InputError(f"--together needs at least two videos of one task, got {len(inputs.sources)}")

    def read(name: str, video: hiero.Video) -> hiero.Video:
        announce_edits(video, "--together cuts the videos anew")
        return video

    videos = read_all(inputs, options, options.load_engine(), "steps", read)
    found = steps_together(list(videos.done.values()), None if num_steps is None else num_steps[0], vocabulary)
    hierarchies = dict(zip(videos.done, found, strict=True))
    if step_options.out is not None:
        for name, hierarchy in hierarchies.items():
            folder = inputs.folder_of(name, step_options.out)
            write_files(videos.done[name], hierarchy, vocabulary, folder, formats)
    if not is_json:
        print_shared_steps(hierarchies)
    documents = {name: hierarchy.to_dict() for name, hierarchy in hierarchies.items()}
    Results(inputs, documents, videos.failed).finish(is_json)


def print_shared_steps(hierarchies: dict[str, Hierarchy]) -> None:
    """Print a table of the shared steps, with their times in each video."""
    table = plain_table("", "step", *hierarchies, right=("",))
    levels = {name: {step.thread: step for step in hierarchy.levels[0]} for name, hierarchy in hierarchies.items()}
    numbers = sorted({number for level in levels.values() for number in level})
    for number in numbers:
        members = [level.get(number) for level in levels.values()]
        label = next(step.label for step in members if step is not None) or numbered_title(number + 1, number + 1)
        cells = ["" if s is None else f"{format_time(s.start_s)}-{format_time(s.end_s)}" for s in members]
        table.add_row(str(number + 1), label, *cells)
    console = results_console()
    console.print(f"{format_count(len(numbers), 'step')} of {format_count(len(hierarchies), 'video')}")
    console.print(table)


def write_files(
    video: hiero.Video,
    hierarchy: Hierarchy,
    labels: list[str] | None,
    folder: Path,
    formats: list[str],
    say: Callable[[str], None] = log,
) -> None:
    """`-o`: write the files of one video, and list them in a message."""
    from hiero.report.page import write_results

    write_results(video, hierarchy, labels, folder, formats)
    say(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir() if not path.name.startswith('.')))}")


def parse_formats(export: list[str] | None, out: Path | None) -> list[str]:
    """`--export`: the names of the formats, without repetitions."""
    from hiero.formats.registry import NO_PARQUET, exporter_names

    names = [name for part in export or [] for name in part.split(",")]
    registered = exporter_names()
    has_parquet = find_spec("pyarrow") is not None
    if "all" in names:
        if not has_parquet:
            log("parquet is skipped because it needs pyarrow; run: pip install 'hiero-video[export]'")
        names = [name for name in registered if name != "parquet" or has_parquet]
    elif "parquet" in names and not has_parquet:
        raise InputError(NO_PARQUET)
    if unknown := [name for name in names if name not in registered]:
        raise InputError(f"--export must be one of {', '.join(registered)} or all; got {', '.join(unknown)}")
    if names and out is None:
        raise InputError("--export needs an output folder: -o OUT/")
    return list(dict.fromkeys(names))


def print_steps(hierarchy: Hierarchy, title: str | None = None) -> None:
    """Print a table of the steps, under the name of the video if there are several."""
    by_id = {step.id: step for step in hierarchy}
    rows: list[Cells] = []

    def add_rows(step: Step, level: int = 0) -> None:
        """Add a row for the step, then indented rows for its children."""
        name = "  " * level + hierarchy.shown_titles[step.id]
        style = "bold" if level == 0 and len(hierarchy.levels) > 1 else ""
        cells = moment_cells(step, hierarchy.files)
        rows.append({**cells, "thread": str(step.thread + 1), "step": name, "style": style})
        for child in step.children:
            add_rows(by_id[child], level + 1)

    for step in hierarchy.levels[0]:
        add_rows(step)
    levels = [f"{len(level)} {name}" for level, name in zip(hierarchy.levels, hierarchy.level_names, strict=True)]
    num_steps = ", ".join(levels) + " steps" if len(levels) > 1 else format_count(len(hierarchy.levels[0]), "step")
    threads = format_count(len({step.thread for step in hierarchy.levels[-1]}), "thread")
    console = results_console()
    if title is not None:
        console.print()
    files = f", {len(hierarchy.files)} files" if hierarchy.files else ""
    name = f"{title or Path(hierarchy.video).name}{files}"
    console.print(f"{name}: {format_time(hierarchy.duration_s)}, {num_steps}, {threads}")
    print_moments(("from", "to", "thread", "step", "sure", "in file"), rows)
