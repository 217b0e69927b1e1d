"""hiero steps: the steps of videos, or of features of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from hiero.cli.console import file_cells, file_columns, log, plain_table, results_console
from hiero.cli.inputs import find_inputs, read_all
from hiero.cli.options import (
    DEFAULTS,
    Join,
    Json,
    OptionalOut,
    Repeated,
    StepCounts,
    VideoOptions,
    parse_step_counts,
    read_labels,
)
from hiero.cli.sharing import NO_SPLIT, SplitOptions, fetch_files
from hiero.errors import InputError
from hiero.types import format_time

if TYPE_CHECKING:
    from hiero.engine import Video
    from hiero.types import Hierarchy, Step


@Parameter(name="*")
@dataclass(frozen=True)
class StepOptions:
    """How a video is divided.

    Parameters
    ----------
    k
        Numbers of steps of each level, separated by commas; by default three levels that follow
        from the length.
    method
        pieces: contiguous steps; spectral: the paper's threads, which may come back; or any other
        clustering: k-means, k-means-cosine, tw-finch, equal-parts, random, and those of other
        packages.
    labels
        A file with one label a line, instead of the bundled everyday phrases.
    """

    k: StepCounts = None
    method: str = "pieces"
    labels: Path | None = None

    def check_method(self) -> None:
        """Report a mistake before hours of video are read."""
        from hiero.steps.clustering import clustering_names

        if self.method not in clustering_names():
            raise InputError(f"--method is one of {', '.join(clustering_names())}; got {self.method}")


@Parameter(name="*")
@dataclass(frozen=True)
class ResultFiles:
    """Files that are written.

    Parameters
    ----------
    out
        Folder for steps.json, report.html, the exports and a small picture of each step; of several
        videos each has a folder in it.
    export
        Also write a file for other tools; may be repeated: vtt, srt, ffmetadata, youtube, otio,
        edl, elan, csv, parquet, activitynet, labelstudio, fiftyone, cvat, via, coco, those of other
        packages, or all.
    """

    out: OptionalOut = None
    export: Repeated = None


STEP_DEFAULTS, NO_FILES = StepOptions(), ResultFiles()


def steps(
    *videos: str,
    step_options: StepOptions = STEP_DEFAULTS,
    files: ResultFiles = NO_FILES,
    split: SplitOptions = NO_SPLIT,
    join: Join = None,
    json_: Json = False,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Find the steps of videos: a hierarchy, coarse to fine, each step with a label and a score.

    Of several videos each has its own result; one that cannot be read does not stop the others, the
    exit code is then 1. Chapters of a camera are read as one video, and results say which file a
    moment is in.

    **Examples**

    `hiero steps kitchen.mp4`

    `hiero steps kitchen.mp4 -k 4,8,16 -o kitchen/ --export vtt --export elan`

    `hiero steps kitchen.mp4 --labels recipe.txt --json > steps.json`

    `hiero steps card/DCIM -o archive/`

    `hiero steps before.mp4 after.mp4 --join`

    `hiero steps kitchen.mp4 --split clips/`

    `hiero steps kitchen.mp4 --split clips/ --copy`

    `hiero steps s3://bucket/videos/ -o archive/`

    Parameters
    ----------
    videos
        Video files that FFmpeg reads, feature files (.pt, .npy, .npz, .safetensors), folders of
        them, or patterns ('*.mp4'); also addresses: https://, s3:// and what else fsspec opens.
    """
    formats = parse_formats(files.export, files.out)
    step_options.check_method()
    num_steps, vocabulary = parse_step_counts(step_options.k), read_labels(step_options.labels)
    inputs = find_inputs(videos, join)
    split.check(inputs.paths, None if num_steps is None else len(num_steps))

    def find_steps(name: str, video: Video) -> dict[str, Any]:
        """The steps of one video: written to its folder, printed, and as a document."""
        hierarchy = video.steps(num_steps, method=step_options.method, labels=vocabulary)
        num_found = len(hierarchy.levels[-1])
        if num_steps and step_options.method == "pieces" and num_found < num_steps[-1]:
            log(f"{num_found} steps are the most that fit into this video; -k asked for {num_steps[-1]}")
        if files.out is not None:
            write_files(video, hierarchy, vocabulary, inputs.folder_of(name, files.out), formats)
        if not json_:
            print_steps(hierarchy, inputs.title_of(name))
        if split.split is not None:
            fetch_files([inputs.sources[name]])
            split.write(video, hierarchy, inputs.folder_of(name, split.split), options.stream)
        return hierarchy.to_dict()

    results = read_all(inputs, options, options.load_engine(), "steps", find_steps)
    if json_:
        results.print_documents()
    results.finish()


def write_files(video: Video, hierarchy: Hierarchy, labels: list[str] | None, folder: Path, formats: list[str]) -> None:
    """`-o`: the files of one video, and a line that names them."""
    from hiero.report.page import write_results

    write_results(video, hierarchy, labels, folder, formats)
    log(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir() if not path.name.startswith('.')))}")


def parse_formats(export: list[str] | None, out: Path | None) -> list[str]:
    """`--export`: the names of formats, each once."""
    from hiero.formats.registry import exporter_names
    from hiero.formats.tables import NO_PARQUET

    names = [name for part in export or [] for name in part.split(",")]
    registered = exporter_names()
    has_parquet = find_spec("pyarrow") is not None
    if "all" in names:
        if not has_parquet:
            log("parquet is left out; it needs pyarrow: pip install 'hiero-video[export]'")
        names = [name for name in registered if name != "parquet" or has_parquet]
    elif "parquet" in names and not has_parquet:
        raise InputError(NO_PARQUET)
    if unknown := [name for name in names if name not in registered]:
        raise InputError(f"--export knows {', '.join(registered)} and all, not {', '.join(unknown)}")
    if names and out is None:
        raise InputError("--export needs a folder to write to: -o OUT/")
    return list(dict.fromkeys(names))


def print_steps(hierarchy: Hierarchy, title: str | None = None) -> None:
    """A table of the steps. `title` is the name of one of several videos."""
    depth = {step.id: number for number, level in enumerate(hierarchy.levels) for step in level}
    by_id = {step.id: step for step in hierarchy}
    columns = ("from", "to", "thread", "step", "score", *file_columns(hierarchy.files))
    table = plain_table(*columns, right=("from", "to", "thread", "score"))

    def add_rows(step: Step) -> None:
        """The step, and below it, indented, those inside it."""
        level = depth[step.id]
        name = "  " * level + (step.label or f"step {step.id}")
        score = "" if step.score is None else f"{step.score:.2f}"
        style = "bold" if level == 0 and len(hierarchy.levels) > 1 else None
        times = format_time(step.start_s), format_time(step.end_s)
        cells = (*times, str(step.thread), name, score, *file_cells(hierarchy.files, step.start_s))
        table.add_row(*cells, style=style)
        for child in step.children:
            add_rows(by_id[child])

    for step in hierarchy.levels[0]:
        add_rows(step)
    num_steps = ", ".join(str(len(level)) for level in hierarchy.levels)
    num_threads = max(step.thread for step in hierarchy.levels[-1]) + 1
    console = results_console()
    if title is not None:
        console.print()
    files = f", {len(hierarchy.files)} files" if hierarchy.files else ""
    name = f"{title or Path(hierarchy.video).name}{files}"
    console.print(f"{name}: {format_time(hierarchy.duration_s)}, {num_steps} steps, {num_threads} threads")
    console.print(table)
