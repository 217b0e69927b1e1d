"""hiero steps: find the steps of videos."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import hiero
from hiero.cli.console import log, reading_bars, results_console
from hiero.cli.inputs import find_inputs
from hiero.cli.moments import Cells, moment_cells, print_moments
from hiero.cli.options import (
    Join,
    Json,
    LevelOptions,
    OptionalOut,
    Repeated,
    Sources,
    VideoOptions,
    announce_edits,
    check_at_least,
)
from hiero.errors import InputError
from hiero.formatting import format_count, format_percent, format_time
from hiero.steps.recipes import RecipeLine
from hiero.storage.files import read_lines
from hiero.types import Hierarchy, Step

if TYPE_CHECKING:
    from hiero.engine.namer import Namer


@Parameter(name="*")
@dataclass(frozen=True)
class FileOptions:
    """Which files are written."""

    out: OptionalOut = None
    """Output folder for steps.json, report.html, the exports and a picture of each step. Each of several videos gets a
    subfolder."""
    export: Repeated = None
    """Also write this format: vtt, srt, ffmetadata, youtube, otio, edl, elan, csv, parquet, activitynet, labelstudio,
    fiftyone, a plug-in, or all. Repeatable."""

    def formats(self) -> list[str]:
        """The names of the export formats, without repetitions."""
        from hiero.formats.registry import NO_PARQUET, exporter_names

        names = [name for part in self.export or [] for name in part.split(",")]
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
        if names and self.out is None:
            raise InputError("--export needs an output folder: -o OUT/")
        return list(dict.fromkeys(names))


@Parameter(name="*")
@dataclass(frozen=True)
class RecipeOptions:
    """Whether `--labels` is a recipe: the steps of the video in their order."""

    in_order: bool = False
    """The lines of `--labels` are the steps of the video in this order: each becomes one step. A line may end with its
    duration, as in "boil the pasta 8 min"."""
    optional: Annotated[bool, Parameter(negative="")] = False
    """With --in-order: lines that do not fit may be left out."""

    def read_lines(self, levels: LevelOptions, method: str) -> list[str] | None:
        """The lines of the recipe, or None if the labels are none."""
        if not self.in_order:
            if self.optional:
                raise InputError("--optional needs --in-order")
            return None
        if levels.labels is None:
            raise InputError("--in-order needs the steps of the recipe, one in each line: --labels recipe.txt")
        if levels.k is not None or method != "contiguous":
            raise InputError("--in-order makes one step of each line; leave out -k and --method")
        levels.read_labels()  # says so if there are none
        return read_lines(levels.labels)


@Parameter(name="*")
@dataclass(frozen=True)
class NamerOptions:
    """A vision-language model that names the steps."""

    namer: Annotated[str | None, Parameter(env_var="HIERO_NAMER")] = None
    """Address of a vision-language model that names the steps from a few pictures of each, such as
    http://localhost:11434/v1 (Ollama). The pictures are sent there."""
    namer_model: Annotated[str, Parameter(env_var="HIERO_NAMER_MODEL")] = ""
    """Name of that model."""
    namer_jobs: int = 2
    """Number of steps that it names at the same time."""

    def name_steps(self, video: hiero.Video, hierarchy: Hierarchy) -> Hierarchy:
        """The steps with the names that the model gives, if there is one."""
        if self.namer is None:
            return hierarchy
        with reading_bars() as progress:
            return self.load(self.namer).name_steps(video, hierarchy, progress)

    def load(self, address: str) -> Namer:
        """Check the options."""
        from hiero.engine.namer import Namer

        check_at_least("--namer-jobs", self.namer_jobs)
        return Namer(address, self.namer_model, os.environ.get("HIERO_NAMER_KEY", ""), self.namer_jobs)


def steps(
    *videos: Sources,
    method: str = "contiguous",
    levels: LevelOptions = LevelOptions(),
    recipe: RecipeOptions = RecipeOptions(),
    files: FileOptions = FileOptions(),
    namer: NamerOptions = NamerOptions(),
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
    * `hiero steps kitchen.mp4 --labels recipe.txt --in-order`
    * `hiero steps kitchen.mp4 --namer http://localhost:11434/v1 --namer-model qwen2.5vl`
    * `hiero steps s3://bucket/videos/ -o archive/`

    Parameters
    ----------
    method
        How steps are found: `contiguous` (each step once), `spectral` (the paper's threads, which may
        recur), k-means, k-means-cosine, tw-finch, equal-parts, random, or a plug-in.
    """
    from hiero.steps.clustering import clustering_names

    formats = files.formats()
    if method not in clustering_names():
        raise InputError(f"--method must be one of {', '.join(clustering_names())}; got {method}")
    num_steps, vocabulary = levels.num_steps, levels.read_labels()
    lines = recipe.read_lines(levels, method)
    if namer.namer is not None:
        namer.load(namer.namer)  # reports mistakes before hours of video are read
    uses_edits = num_steps is None and method == "contiguous" and lines is None
    run = find_inputs(videos, options, "steps", join)
    for name, source in run:
        with run.report_errors(name):
            video = run.read(source)
            announce_edits(video, "" if uses_edits else "-k, --method and --in-order cut the video again")
            if lines is None:
                hierarchy = namer.name_steps(video, video.steps(num_steps, method=method, labels=vocabulary))
            else:
                hierarchy = video.follow(lines, is_optional=recipe.optional)
                log_left_out(lines, hierarchy)
            num_found = len(hierarchy.levels[-1])
            if num_steps and method == "contiguous" and num_found < num_steps[-1]:
                raise InputError(f"{name}: can be divided into at most {num_found} steps; -k asks for {num_steps[-1]}")
            if files.out is not None:
                write_files(video, hierarchy, vocabulary, run.folder_of(name, files.out), formats)
            if not json_:
                print_steps(hierarchy, run.title_of(name))
            run.done[name] = hierarchy.to_dict()
    run.finish(json_)


def log_left_out(lines: list[str], hierarchy: Hierarchy) -> None:
    """Say which lines of a recipe have no step."""
    found = [step.label for step in hierarchy if step.label]
    for line in lines:
        if RecipeLine.parse(line).text in found:
            found.remove(RecipeLine.parse(line).text)
        else:
            log(f"left out, because it does not fit: {line}")


def write_files(
    video: hiero.Video, hierarchy: Hierarchy, labels: list[str] | None, folder: Path, formats: list[str]
) -> None:
    """`-o`: write the files of one video, and list them in a message."""
    from hiero.engine.html_report import write_results

    write_results(video, hierarchy, labels, folder, formats)
    log(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir() if not path.name.startswith('.')))}")


def print_steps(hierarchy: Hierarchy, title: str | None = None) -> None:
    """Print a table of the steps, under the name of the video if there are several."""
    by_id = {step.id: step for step in hierarchy}
    rows: list[Cells] = []
    finest = hierarchy.levels[-1]
    num_threads = len({step.thread for step in finest})
    has_threads = num_threads < len(finest)  # otherwise their numbers say nothing

    def add_rows(step: Step, level: int = 0) -> None:
        """Add a row for the step, then indented rows for its children."""
        name = "  " * level + hierarchy.shown_titles[step.id]
        style = "bold" if level == 0 and len(hierarchy.levels) > 1 else ""
        cells = moment_cells(step, hierarchy.files)
        if step.words and not step.label:
            cells["probability"] = format_percent(step.name_probability)
        rows.append(
            {**cells, **({"thread": str(step.thread + 1)} if has_threads else {}), "step": name, "style": style}
        )
        for child in step.children:
            add_rows(by_id[child], level + 1)

    for step in hierarchy.levels[0]:
        add_rows(step)
    levels = [f"{len(level)} {name}" for level, name in zip(hierarchy.levels, hierarchy.level_names, strict=True)]
    num_steps = ", ".join(levels) + " steps" if len(levels) > 1 else format_count(len(hierarchy.levels[0]), "step")
    threads = f", {format_count(num_threads, 'thread')}" if has_threads else ""
    console = results_console()
    if title is not None:
        console.print()
    files = f", {len(hierarchy.files)} files" if hierarchy.files else ""
    name = f"{title or Path(hierarchy.video).name}{files}"
    console.print(f"{name}: {format_time(hierarchy.duration_s)}, {num_steps}{threads}")
    print_moments(("from", "to", "thread", "step", "probability", "in file"), rows)
