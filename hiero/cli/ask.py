"""hiero ask, label: moments of videos in words, and names for their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hiero.cli.console import (
    file_cells,
    file_columns,
    plain_table,
    reading_bars,
    results_console,
    speech_cells,
)
from hiero.cli.inputs import find_inputs, read_all
from hiero.cli.options import (
    DEFAULTS,
    Join,
    Json,
    NumResults,
    StepCounts,
    VideoOptions,
    parse_step_counts,
    read_labels,
)
from hiero.cli.sharing import NO_REEL, ReelOptions, fetch_files
from hiero.errors import InputError
from hiero.types import PRESENCE_THRESHOLD, file_fields, format_time

if TYPE_CHECKING:
    from hiero.engine import Video
    from hiero.types import Answer, Match, Step, VideoFile


@Parameter(name="*")
@dataclass(frozen=True)
class AnswerOptions:
    """Where else to look, and how many moments.

    Parameters
    ----------
    video
        Another video, folder or pattern; may be repeated. With it the first argument is a query,
        unless such a file is there.
    num
        Matches for each query.
    in_order
        The queries are steps that follow each other: one stretch for each, in that order.
    """

    video: Annotated[list[str] | None, Parameter(negative="")] = None
    num: NumResults = 5
    in_order: bool = False


ANSWER_DEFAULTS = AnswerOptions()


def ask(
    source: str | None = None,
    /,
    *queries: str,
    answer_options: AnswerOptions = ANSWER_DEFAULTS,
    reel: ReelOptions = NO_REEL,
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
        A video file, a feature file, a folder of them, a pattern ('*.mp4'), or an address
        (https://, s3:// …).
    queries
        What to look for.
    """
    num, in_order = answer_options.num, answer_options.in_order
    if num < 1:
        raise InputError(f"-n is at least 1, got {num}")
    paths, texts = split_queries([*([] if source is None else [source]), *queries], answer_options.video or [])
    if not texts:
        raise InputError('say what to look for: hiero ask VIDEO "cut the onion"')
    inputs = find_inputs(paths, join)
    reel.check(inputs.paths)
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
            _print_answers(answers, video.shown_files, inputs.title_of(name))
        return _document(video, queries=[_answer_to_dict(answer, video.shown_files) for answer in answers])

    results = read_all(inputs, options, options.load_engine(), "ask", answer)
    by_video = {name: answers for name, (answers, _) in answered.items()}
    best = {} if inputs.is_single or in_order else rank_across_videos(by_video, num)
    if json_:
        results.print_documents(best=_best_to_list(best, shown_files))
    elif best:
        _print_best(best, shown_files)
    if reel.reel is not None:
        fetch_files([inputs.sources[name] for name in answered])
        reel.write(reel.reel, answered, num, options.stream)
    results.finish()


def split_queries(arguments: Sequence[str], videos: Sequence[Path | str]) -> tuple[list[Path | str], list[str]]:
    """The arguments of `hiero ask`: which are videos, and which are queries.

    The first argument is a video, unless videos were given by `--video` and no such file is there.
    Those that follow are videos as long as they are files of videos or features: a shell writes
    *.mp4 out.

    """
    from hiero.data.features import FEATURE_SUFFIXES
    from hiero.decoding.recordings import VIDEO_SUFFIXES
    from hiero.sources.addresses import is_address

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
    from hiero.sources.addresses import is_address

    return argument if is_address(argument) else Path(argument)


def _is_there(argument: str) -> bool:
    """Whether an argument is the name of a file or folder, or an address. A text may be too long for a name."""
    from hiero.sources.addresses import is_address

    if is_address(argument) and not any(map(str.isspace, argument)):
        return True
    try:
        return Path(argument).exists()
    except OSError:
        return False


def rank_across_videos(answers: Mapping[str, Sequence[Answer]], num: int) -> dict[str, list[tuple[str, Match]]]:
    """The best matches of each query in all videos; scores are probabilities, so those of two
    videos can be compared.

    """
    best: dict[str, list[tuple[str, Match]]] = {}
    for name, video_answers in answers.items():
        for answer in video_answers:
            best.setdefault(answer.query, []).extend((name, match) for match in answer.matches)
    return {query: sorted(matches, key=lambda pair: -pair[1].score)[:num] for query, matches in best.items()}


def _document(video: Video, **results: Any) -> dict[str, Any]:
    """The JSON document of one video; `files` where several were read as one video."""
    files = video.shown_files
    named = {"files": [file.to_dict() for file in files]} if len(files) > 1 else {}
    return {"version": 1, "video": video.address, **named, **results}


def _answer_to_dict(answer: Answer, files: Sequence[VideoFile]) -> dict[str, Any]:
    matches = [{**match.to_dict(), **file_fields(files, match.start_s)} for match in answer.matches]
    return {**answer.to_dict(), "matches": matches}


def _best_to_list(
    best: Mapping[str, Sequence[tuple[str, Match]]], files: Mapping[str, Sequence[VideoFile]]
) -> list[dict[str, Any]]:
    """`best` of the document over several videos."""
    rows = []
    for query, found in best.items():
        matches = [
            {"name": name, **match.to_dict(), **file_fields(files[name], match.start_s)} for name, match in found
        ]
        rows.append({"query": query, "matches": matches})
    return rows


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
        Video files, feature files, folders of them, patterns ('*.mp4'), or addresses (https://,
        s3:// …).
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
            _print_labels(labelled, video.shown_files, inputs.title_of(name))
        return _document(video, steps=[_label_to_dict(step, video.shown_files) for step in labelled])

    results = read_all(inputs, options, options.load_engine(), "label", name_parts)
    if json_:
        results.print_documents()
    results.finish()


def _label_to_dict(step: Step, files: Sequence[VideoFile]) -> dict[str, Any]:
    document = step.to_dict()
    return {
        **{key: document[key] for key in ("start_s", "end_s", "label", "score")},
        **file_fields(files, step.start_s),
    }


def _print_answers(answers: list[Answer], files: Sequence[VideoFile], title: str | None) -> None:
    """For each query its matches. `title` is the name of one of several videos."""
    from rich.table import Table

    console = results_console(title)
    for answer in answers:
        note = "" if answer.present >= PRESENCE_THRESHOLD else "   probably not in this video"
        console.print(f"{answer.query}{note}", style="bold")
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
        for match in answer.matches:
            times = f"{format_time(match.start_s):>7}", f"{format_time(match.end_s):>7}"
            speech = speech_cells(match.rests_on, match.quote)
            table.add_row("", *times, f"{match.score:.2f}", *file_cells(files, match.start_s), *speech)
        console.print(table)


def _print_best(best: Mapping[str, Sequence[tuple[str, Match]]], files: Mapping[str, Sequence[VideoFile]]) -> None:
    """For each query the best matches of all videos. `files` are those of each video, by name."""
    console = results_console()
    for query, matches in best.items():
        console.print(f"\nbest of all videos: {query}", style="bold")
        columns = next((file_columns(files[name]) for name, _ in matches if len(files[name]) > 1), [])
        table = plain_table("from", "to", "score", "video", *columns, right=("from", "to", "score"))
        for name, match in matches:
            times = format_time(match.start_s), format_time(match.end_s)
            table.add_row(*times, f"{match.score:.2f}", name, *file_cells(files[name], match.start_s))
        console.print(table)


def _print_labels(steps: list[Step], files: Sequence[VideoFile], title: str | None) -> None:
    """A table of the named parts. `title` is the name of one of several videos."""
    console = results_console(title)
    table = plain_table("from", "to", "label", "score", *file_columns(files), right=("from", "to", "score"))
    for step in steps:
        times = format_time(step.start_s), format_time(step.end_s)
        table.add_row(*times, step.label or "", f"{step.score or 0:.2f}", *file_cells(files, step.start_s))
    console.print(table)
