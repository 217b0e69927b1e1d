"""hiero steps, ask, label: the steps of videos, or of features of them, answers to questions, and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hiero.cli.console import log, plain_table, reading_bars
from hiero.cli.inputs import find_inputs, print_documents, read_all
from hiero.cli.options import (
    DEFAULTS,
    Join,
    Json,
    NumResults,
    OptionalOut,
    Repeated,
    StepCounts,
    VideoOptions,
    parse_step_counts,
    read_labels,
)
from hiero.cli.sharing import ReelFile, SplitFolder, SplitLevel, check_reel, check_split, write_reel, write_split
from hiero.errors import InputError
from hiero.types import file_fields, format_time, locate_time

if TYPE_CHECKING:
    from rich.text import Text

    from hiero.engine import Video
    from hiero.types import Answer, Hierarchy, Match, Step, VideoFile

# a text whose probability is below this was in the video in 16 % of the cases (docs/results.md)
PRESENCE_THRESHOLD = 0.3


def steps(
    *videos: str,
    k: StepCounts = None,
    method: str = "pieces",
    labels: Path | None = None,
    out: OptionalOut = None,
    export: Repeated = None,
    split: SplitFolder = None,
    level: SplitLevel = None,
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

    `hiero steps s3://bucket/videos/ -o archive/`

    Parameters
    ----------
    videos
        Video files that FFmpeg reads, feature files (.pt, .npy, .npz, .safetensors), folders of them, or
        patterns ('*.mp4'); also
        addresses: https://, s3:// and what else fsspec opens.
    k
        Numbers of steps of each level, separated by commas; by default three levels that follow from the length.
    method
        pieces: contiguous steps; spectral: the paper's threads, which may come back; or any other
        clustering: k-means,
        k-means-cosine, tw-finch, equal-parts, random, and those of other packages.
    labels
        A file with one label a line, instead of the bundled everyday phrases.
    out
        Folder for steps.json, report.html, the exports and a small picture of each step; of several videos each
        has a folder in it.
    export
        Also write a file for other tools; may be repeated: vtt, srt, ffmetadata, youtube, otio, edl, elan, csv,
        parquet,
        activitynet, labelstudio, fiftyone, cvat, via, coco, those of other packages, or all.
    """
    from hiero.steps.clustering import clustering_names

    formats = parse_formats(export or [])
    if formats and out is None:
        raise InputError("--export needs a folder to write to: -o OUT/")
    if method not in clustering_names():  # said before hours of video are read
        raise InputError(f"--method is one of {', '.join(clustering_names())}; got {method}")
    num_steps = parse_step_counts(k)
    vocabulary = read_labels(labels) if labels is not None else None
    inputs = find_inputs(videos, join)
    check_split(split, level, inputs.paths, None if num_steps is None else len(num_steps))

    def cut(name: str, video: Video) -> dict[str, Any]:
        """The steps of one video: written to its folder, printed, and as a document."""
        hierarchy = video.steps(num_steps, method=method, labels=vocabulary)
        if num_steps and method == "pieces" and len(hierarchy.levels[-1]) < num_steps[-1]:
            log(
                f"{len(hierarchy.levels[-1])} steps are the most that fit into this video; -k asked for {num_steps[-1]}"
            )
        if out is not None:
            _write_steps(video, hierarchy, vocabulary, out if inputs.is_single else out / name, formats)
        if not json_:
            print_steps(hierarchy, None if inputs.is_single else name)
        if split is not None:
            _fetch_files(video.files)
            write_split(video, hierarchy, level, split if inputs.is_single else split / name, options.stream)
        return hierarchy.to_dict()

    results = read_all(inputs, options, options.load_engine(), "steps", cut)
    if json_:
        print_documents(inputs, results)
    if not inputs.is_single:
        results.finish()


def _fetch_files(files: Sequence[VideoFile]) -> None:
    """Bring remote videos that are cut now, and were not needed before: what was computed from them was here."""
    from hiero.sources.remote import fetch_copy

    with reading_bars() as progress:
        for file in files:
            fetch_copy(Path(file.path), progress)


def _write_steps(
    video: Video, hierarchy: Hierarchy, labels: list[str] | None, folder: Path, formats: list[str]
) -> None:
    """`-o`: the files of one video, and a line that names them."""
    from hiero.report.page import write_results

    write_results(video, hierarchy, labels, folder, formats)
    log(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir() if not path.name.startswith('.')))}")


def ask(
    source: str | None = None,
    /,
    *queries: str,
    video: Annotated[list[str] | None, Parameter(negative="")] = None,
    num: NumResults = 5,
    in_order: bool = False,
    reel: ReelFile = None,
    join: Join = None,
    json_: Json = False,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Find moments in words: for each query the best stretches of the video, or of each of several.

    A score is how likely the query is in the video at all, times how the stretch compares with the
    best one. Of several videos the best moments of all follow at the end.

    Where a transcript lies beside a video, or is given, also what is said is searched; each stretch
    tells whether it rests on speech, on pictures or on both.

    **Examples**

    `hiero ask kitchen.mp4 "cut the onion" "wash the dishes"`

    `hiero ask kitchen.mp4 --in-order "crack the eggs" "whisk" "pour into the pan"`

    `hiero ask videos/ "cut the onion"`

    `hiero ask kitchen.mp4 "grandmother's recipe" --transcript kitchen.srt`

    `hiero ask --video monday.mp4 --video tuesday.mp4 "cut the onion"`

    `hiero ask kitchen.mp4 "cut the onion" "wash the dishes" --reel best.mp4`

    Parameters
    ----------
    source
        A video file, a feature file, a folder of them, a pattern ('*.mp4'), or an address (https://, s3:// …).
    queries
        What to look for.
    video
        Another video, folder or pattern; may be repeated. With it the first argument is a query, unless such a
        file is there.
    num
        Matches for each query.
    in_order
        The queries are steps that follow each other: one stretch for each, in that order.
    """
    if num < 1:
        raise InputError(f"-n is at least 1, got {num}")
    paths, texts = split_queries([*([] if source is None else [source]), *queries], video or [])
    if not texts:
        raise InputError('say what to look for: hiero ask VIDEO "cut the onion"')
    inputs = find_inputs(paths, join)
    check_reel(reel, inputs.paths)
    answered: dict[str, tuple[list[Answer], tuple[VideoFile, ...]]] = {}
    shown_files: dict[str, tuple[VideoFile, ...]] = {}

    def answer(name: str, video: Video) -> dict[str, Any]:
        """The answers of one video: printed, and as a document."""
        if video.transcript:
            with reading_bars() as progress:
                video.encode_speech(progress)
        answers = video.ask(texts, num=num, in_order=in_order)
        answered[name] = answers, video.files
        shown_files[name] = video.shown_files
        if not json_:
            _print_answers(answers, video.shown_files, None if inputs.is_single else name)
        return {"version": 1, "video": video.address, **_answers_to_dict(answers, video.shown_files)}

    results = read_all(inputs, options, options.load_engine(), "ask", answer)
    by_video = {name: answers for name, (answers, _) in answered.items()}
    best = {} if inputs.is_single or in_order else rank_across_videos(by_video, num)
    if json_:
        rows = [
            {
                "query": query,
                "matches": [
                    {"name": name, **match.to_dict(), **file_fields(shown_files[name], match.start_s)}
                    for name, match in matches
                ],
            }
            for query, matches in best.items()
        ]
        print_documents(inputs, results, best=rows)
    elif best:
        _print_best(best, shown_files)
    if reel is not None:
        _fetch_files([file for _, files in answered.values() for file in files])
        write_reel(reel, answered, num, options.stream)
    if not inputs.is_single:
        results.finish()


def split_queries(arguments: Sequence[str], videos: Sequence[Path | str]) -> tuple[list[Path | str], list[str]]:
    """The arguments of `hiero ask`: which are videos, and which are queries.

    The first argument is a video, unless videos were given by `--video` and no such file is there.
    Those that follow are videos as long as they are files of videos or features: a shell writes
    *.mp4 out.

    Args:
        arguments: In their order.
        videos: Of `--video`.

    Returns:
        Videos, and queries.
    """
    from hiero.data.features import FEATURE_SUFFIXES
    from hiero.extraction.collection import VIDEO_SUFFIXES
    from hiero.sources.remote_origins import is_address

    suffixes = (*VIDEO_SUFFIXES, *FEATURE_SUFFIXES)
    rest, paths = list(arguments), list(videos)
    if rest and (not paths or _is_there(rest[0])):
        paths = [_source(rest.pop(0)), *paths]
    listed: list[Path | str] = []
    while rest and (rest[0].lower().endswith(suffixes) or is_address(rest[0])) and _is_there(rest[0]):
        listed.append(_source(rest.pop(0)))
    return [*paths[:1], *listed, *paths[1:]], rest


def _source(argument: str) -> Path | str:
    """A path, or an address as it is: a path would lose one of its slashes."""
    from hiero.sources.remote_origins import is_address

    return argument if is_address(argument) else Path(argument)


def _is_there(argument: str) -> bool:
    """Whether an argument is the name of a file or folder, or an address. A text may be too long for a name."""
    from hiero.sources.remote_origins import is_address

    if is_address(argument) and not any(map(str.isspace, argument)):
        return True
    try:
        return Path(argument).exists()
    except OSError:
        return False


def rank_across_videos(answers: Mapping[str, Sequence[Answer]], num: int) -> dict[str, list[tuple[str, Match]]]:
    """The best matches of each query in all videos; scores are probabilities, so those of two
    videos can be compared.

    Args:
        answers: Of the same queries, by name of the video.
        num: How many for each query.

    Returns:
        For each query names of videos and matches, best first.
    """
    best: dict[str, list[tuple[str, Match]]] = {}
    for name, video_answers in answers.items():
        for answer in video_answers:
            best.setdefault(answer.query, []).extend((name, match) for match in answer.matches)
    return {query: sorted(matches, key=lambda pair: -pair[1].score)[:num] for query, matches in best.items()}


def _answers_to_dict(answers: list[Answer], files: tuple[VideoFile, ...]) -> dict[str, Any]:
    rows = []
    for answer in answers:
        row = answer.to_dict()
        matches = [
            {**shown, **file_fields(files, match.start_s)}
            for shown, match in zip(row["matches"], answer.matches, strict=True)
        ]
        rows.append({**row, "matches": matches})
    return {**_files_to_dict(files), "queries": rows}


def _files_to_dict(files: tuple[VideoFile, ...]) -> dict[str, Any]:
    """`files` of a document, where several were read as one video."""
    return {"files": [file.to_dict() for file in files]} if len(files) > 1 else {}


def label(
    *videos: str,
    labels: Path,
    k: StepCounts = None,
    join: Join = None,
    json_: Json = False,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Name every part of videos from a taxonomy (step localization).

    **Examples**

    `hiero label kitchen.mp4 --labels taxonomy.txt`

    `hiero label videos/ --labels taxonomy.txt --json > labels.json`

    Parameters
    ----------
    videos
        Video files, feature files, folders of them, patterns ('*.mp4'), or addresses (https://, s3:// …).
    labels
        A file with one label a line.
    k
        Number of parts to begin with; neighbours with the same label are joined.
    """
    vocabulary, num_steps = read_labels(labels), parse_step_counts(k)
    inputs = find_inputs(videos, join)

    def name_parts(name: str, video: Video) -> dict[str, Any]:
        """The named parts of one video: printed, and as a document."""
        labelled = video.label(vocabulary, num_steps=num_steps)
        if not json_:
            _print_labels(labelled, video.shown_files, None if inputs.is_single else name)
        rows = [
            {
                **{key: step.to_dict()[key] for key in ("start_s", "end_s", "label", "score")},
                **file_fields(video.shown_files, step.start_s),
            }
            for step in labelled
        ]
        return {"version": 1, "video": video.address, **_files_to_dict(video.shown_files), "steps": rows}

    results = read_all(inputs, options, options.load_engine(), "label", name_parts)
    if json_:
        print_documents(inputs, results)
    if not inputs.is_single:
        results.finish()


def parse_formats(export: list[str]) -> list[str]:
    """`--export`: the names of formats, each once."""
    from hiero.formats.exports import NO_PARQUET, exporter_names

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


def print_steps(hierarchy: Hierarchy, video_name: str | None = None) -> None:
    """A table of the steps. video_name: of one of several videos."""
    from rich.console import Console
    from rich.text import Text

    depth = {step.id: number for number, level in enumerate(hierarchy.levels) for step in level}
    by_id = {step.id: step for level in hierarchy.levels for step in level}
    table = plain_table(
        "from",
        "to",
        "thread",
        "step",
        "score",
        *_file_columns(hierarchy.files),
        right=("from", "to", "thread", "score"),
    )

    def add_rows(step: Step) -> None:
        """The step, and below it, indented, those inside it."""
        level = depth[step.id]
        name = "  " * level + (step.label or f"step {step.id}")
        score = "" if step.score is None else f"{step.score:.2f}"
        style = "bold" if level == 0 and len(hierarchy.levels) > 1 else None
        # Text shows a label as it is: rich reads [brackets] in a plain string as markup.
        times = format_time(step.start_s), format_time(step.end_s)
        table.add_row(
            *times, str(step.thread), Text(name), score, *_file_cells(hierarchy.files, step.start_s), style=style
        )
        for child in step.children:
            add_rows(by_id[child])

    for step in hierarchy.levels[0]:
        add_rows(step)
    num_steps = ", ".join(str(len(level)) for level in hierarchy.levels)
    num_threads = max(step.thread for step in hierarchy.levels[-1]) + 1
    console = Console(highlight=False, markup=False)
    if video_name is not None:
        console.print()
    files = f", {len(hierarchy.files)} files" if hierarchy.files else ""
    title = f"{video_name or Path(hierarchy.video).name}{files}"
    console.print(f"{title}: {format_time(hierarchy.duration_s)}, {num_steps} steps, {num_threads} threads")
    console.print(table)


def _file_columns(files: Sequence[VideoFile]) -> list[str]:
    """The column that says which file a row is in, where several were read as one video."""
    return ["in file"] if len(files) > 1 else []


def _file_cells(files: Sequence[VideoFile], time_s: float) -> list[Text]:
    """The cell of `_file_columns`: the file, and the time in it."""
    from rich.text import Text

    if len(files) < 2:
        return []
    file, file_time_s = locate_time(files, time_s)
    return [Text(f"{Path(file.path).name} {format_time(file_time_s)}")]


def _print_answers(answers: list[Answer], files: Sequence[VideoFile], video_name: str | None = None) -> None:
    """For each query its matches. video_name: of one of several videos."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if video_name is not None:
        console.print(f"\n{video_name}", style="bold underline", markup=False)
    for answer in answers:
        note = "" if answer.present >= PRESENCE_THRESHOLD else "   probably not in this video"
        console.print(f"{answer.query}{note}", style="bold", markup=False)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
        for match in answer.matches:
            times = f"{format_time(match.start_s):>7}", f"{format_time(match.end_s):>7}"
            table.add_row("", *times, f"{match.score:.2f}", *_file_cells(files, match.start_s), *_speech_cells(match))
        console.print(table)


def _speech_cells(match: Match) -> list[Text]:
    """What a match rests on, and what is said there; nothing where the video has no transcript."""
    from rich.text import Text

    if match.rests_on is None:
        return []
    return [Text(match.rests_on, style="cyan"), Text("" if match.quote is None else f"“{match.quote}”", style="dim")]


def _print_best(best: Mapping[str, Sequence[tuple[str, Match]]], files: Mapping[str, Sequence[VideoFile]]) -> None:
    """For each query the best matches of all videos. files: of each video, by name."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for query, matches in best.items():
        console.print(f"\nbest of all videos: {query}", style="bold", markup=False)
        columns = next((_file_columns(files[name]) for name, _ in matches if len(files[name]) > 1), [])
        table = plain_table("from", "to", "score", "video", *columns, right=("from", "to", "score"))
        for name, match in matches:
            times = format_time(match.start_s), format_time(match.end_s)
            table.add_row(*times, f"{match.score:.2f}", Text(name), *_file_cells(files[name], match.start_s))
        console.print(table)


def _print_labels(steps: list[Step], files: Sequence[VideoFile], video_name: str | None = None) -> None:
    """A table of the named parts. video_name: of one of several videos."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if video_name is not None:
        console.print(f"\n{video_name}", style="bold underline", markup=False)
    table = plain_table("from", "to", "label", "score", *_file_columns(files), right=("from", "to", "score"))
    for step in steps:
        times = format_time(step.start_s), format_time(step.end_s)
        table.add_row(*times, Text(step.label or ""), f"{step.score or 0:.2f}", *_file_cells(files, step.start_s))
    console.print(table)
