"""hiero steps, ask, label: the steps of a video, or of features of one, answers to questions, and labels."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hiero.cli.console import log, plain_table, print_json
from hiero.cli.options import (
    DEFAULTS,
    Json,
    NumResults,
    OptionalOut,
    Repeated,
    StepCounts,
    VideoOptions,
    parse_step_counts,
    read_labels,
)
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.types import Answer, Hierarchy, Step

PRESENCE_THRESHOLD = 0.3  # a text whose probability is below this was in the video in 16 % of the cases (docs/results.md)


def steps(
    video: Path,
    /,
    *,
    k: StepCounts = None,
    method: str = "pieces",
    labels: Path | None = None,
    out: OptionalOut = None,
    export: Repeated = None,
    json_: Json = False,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Find the steps of a video: a hierarchy, coarse to fine, each step with a label and a score.

    **Examples**

    `hiero steps kitchen.mp4`

    `hiero steps kitchen.mp4 -k 4,8,16 -o kitchen/ --export vtt --export elan`

    `hiero steps kitchen.mp4 --labels recipe.txt --json > steps.json`

    Parameters
    ----------
    video
        A video file that FFmpeg reads, or a feature file (.pt, .npy, .npz, .safetensors).
    k
        Numbers of steps of each level, separated by commas; by default three levels that follow from the length.
    method
        pieces: contiguous steps; spectral: the paper's threads, which may come back; or any other clustering: k-means,
        k-means-cosine, tw-finch, equal-parts, random, and those of other packages.
    labels
        A file with one label a line, instead of the bundled everyday phrases.
    out
        Folder for steps.json, report.html, the exports and a small picture of each step.
    export
        Also write a file for other tools; may be repeated: vtt, srt, ffmetadata, youtube, otio, edl, elan, csv, parquet,
        activitynet, labelstudio, coco, those of other packages, or all.
    """
    from hiero.report.page import write_results
    from hiero.steps.clustering import clustering_names

    formats = _parse_formats(export or [])
    if formats and out is None:
        raise InputError("--export needs a folder to write to: -o OUT/")
    if method not in clustering_names():  # said before hours of video are read
        raise InputError(f"--method is one of {', '.join(clustering_names())}; got {method}")
    num_steps = parse_step_counts(k)
    vocabulary = read_labels(labels) if labels is not None else None
    opened = options.read_video(video)
    hierarchy = opened.steps(num_steps, method=method, labels=vocabulary)
    if num_steps and method == "pieces" and len(hierarchy.levels[-1]) < num_steps[-1]:
        log(f"{len(hierarchy.levels[-1])} steps are the most that fit into this video; -k asked for {num_steps[-1]}")
    if out is not None:
        write_results(opened, hierarchy, vocabulary, out, formats)
        log(f"{out}: {', '.join(sorted(path.name for path in out.iterdir() if not path.name.startswith('.')))}")
    if json_:
        print_json(hierarchy.to_dict())
    else:
        _print_steps(hierarchy)


def ask(
    video: Path,
    /,
    *queries: str,
    num: NumResults = 5,
    in_order: bool = False,
    json_: Json = False,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Find moments in words: for each query the best stretches of the video.

    A score is how likely the query is in the video at all, times how the stretch compares with the best one.

    **Examples**

    `hiero ask kitchen.mp4 "cut the onion" "wash the dishes"`

    `hiero ask kitchen.mp4 --in-order "crack the eggs" "whisk" "pour into the pan"`

    Parameters
    ----------
    video
        A video file, or a feature file.
    queries
        What to look for.
    num
        Matches for each query.
    in_order
        The queries are steps that follow each other: one stretch for each, in that order.
    """
    if num < 1:
        raise InputError(f"-n is at least 1, got {num}")
    if not queries:
        raise InputError('say what to look for: hiero ask VIDEO "cut the onion"')
    answers = options.read_video(video).ask(queries, num=num, in_order=in_order)
    if json_:
        print_json({"version": 1, "video": str(video), "queries": [answer.to_dict() for answer in answers]})
    else:
        _print_answers(answers)


def label(
    video: Path,
    /,
    *,
    labels: Path,
    k: StepCounts = None,
    json_: Json = False,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Name every part of a video from a taxonomy (step localization).

    **Example**: `hiero label kitchen.mp4 --labels taxonomy.txt`

    Parameters
    ----------
    video
        A video file, or a feature file.
    labels
        A file with one label a line.
    k
        Number of parts to begin with; neighbours with the same label are joined.
    """
    vocabulary = read_labels(labels)
    labelled = options.read_video(video).label(vocabulary, num_steps=parse_step_counts(k))
    if json_:
        rows = [{name: step.to_dict()[name] for name in ("start_s", "end_s", "label", "score")} for step in labelled]
        print_json({"version": 1, "video": str(video), "steps": rows})
    else:
        _print_labels(labelled)


def _parse_formats(export: list[str]) -> list[str]:
    """`--export`: the names of formats, each once."""
    from hiero.report.exports import NO_PARQUET, exporter_names

    names = [name for part in export for name in part.split(",")]
    registered = exporter_names()
    has_parquet = find_spec("pyarrow") is not None
    if "all" in names:
        if not has_parquet:
            log("parquet is left out; it needs pyarrow: pip install 'hiero-video[export]'")
        return [name for name in registered if name != "parquet" or has_parquet]
    if "parquet" in names and not has_parquet:
        raise InputError(NO_PARQUET)
    if unknown := [name for name in names if name not in registered]:
        raise InputError(f"--export knows {', '.join(registered)} and all, not {', '.join(unknown)}")
    return list(dict.fromkeys(names))


def _print_steps(hierarchy: Hierarchy) -> None:
    from rich.console import Console
    from rich.text import Text

    from hiero.types import format_time

    depth = {step.id: number for number, level in enumerate(hierarchy.levels) for step in level}
    by_id = {step.id: step for level in hierarchy.levels for step in level}
    table = plain_table("from", "to", "thread", "step", "score", right=("from", "to", "thread", "score"))

    def add_rows(step: Step) -> None:
        """The step, and below it, indented, those inside it."""
        level = depth[step.id]
        name = "  " * level + (step.label or f"step {step.id}")
        score = "" if step.score is None else f"{step.score:.2f}"
        style = "bold" if level == 0 and len(hierarchy.levels) > 1 else None
        # Text shows a label as it is: rich reads [brackets] in a plain string as markup.
        table.add_row(format_time(step.start_s), format_time(step.end_s), str(step.thread), Text(name), score, style=style)
        for child in step.children:
            add_rows(by_id[child])

    for step in hierarchy.levels[0]:
        add_rows(step)
    num_steps = ", ".join(str(len(level)) for level in hierarchy.levels)
    num_threads = max(step.thread for step in hierarchy.levels[-1]) + 1
    console = Console(highlight=False, markup=False)
    console.print(f"{Path(hierarchy.video).name}: {format_time(hierarchy.duration_s)}, {num_steps} steps, {num_threads} threads")
    console.print(table)


def _print_answers(answers: list[Answer]) -> None:
    from rich.console import Console
    from rich.table import Table

    from hiero.types import format_time

    console = Console(highlight=False)
    for answer in answers:
        note = "" if answer.present >= PRESENCE_THRESHOLD else "   probably not in this video"
        console.print(f"{answer.query}{note}", style="bold", markup=False)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
        for match in answer.matches:
            table.add_row("", f"{format_time(match.start_s):>7}", f"{format_time(match.end_s):>7}", f"{match.score:.2f}")
        console.print(table)


def _print_labels(steps: list[Step]) -> None:
    from rich.console import Console
    from rich.text import Text

    from hiero.types import format_time

    table = plain_table("from", "to", "label", "score", right=("from", "to", "score"))
    for step in steps:
        table.add_row(format_time(step.start_s), format_time(step.end_s), Text(step.label or ""), f"{step.score or 0:.2f}")
    Console(highlight=False).print(table)
