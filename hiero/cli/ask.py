"""hiero ask and hiero label: find moments by text, and label the parts of a video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import hiero
from hiero.cli.console import moment_cells, print_moments, reading_bars, results_console, speech_cells
from hiero.cli.inputs import find_inputs, path_exists, read_all
from hiero.cli.options import (
    Join,
    Json,
    NumResults,
    Repeated,
    StepCounts,
    VideoOptions,
    announce_edits,
    check_at_least,
    parse_numbers,
    read_labels,
)
from hiero.cli.sharing import ReelOptions, fetch_files, rank_across_videos
from hiero.errors import InputError
from hiero.types import ANSWER_THRESHOLD, VERSION, Answer, Match, Step, VideoFile, file_fields


@Parameter(name="*")
@dataclass(frozen=True)
class AnswerOptions:
    """Further videos, and the number and order of the moments.

    Parameters
    ----------
    video
        Another video, folder or pattern to search. Repeatable. The first argument is then a query
        unless it names an existing file.
    num
        Number of moments for each query.
    in_order
        Treat the queries as consecutive steps and find one moment for each, in this order.
    show_all
        Also show the moments of queries that are probably not in a video.
    """

    video: Repeated = None
    num: NumResults = 5
    in_order: bool = False
    show_all: Annotated[bool, Parameter(name="--all", negative="")] = False


def ask(
    source: str | None = None,
    /,
    *queries: str,
    answer_options: AnswerOptions = AnswerOptions(),
    reel: ReelOptions = ReelOptions(),
    join: Join = None,
    json_: Json = False,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Find moments by text: the best matches for each query in one or several videos.

    Each moment comes with the probability that it shows what the query says. Transcripts are searched as
    well; each moment shows whether it was found by speech, by pictures or by both.

    **Examples**

    * `hiero ask kitchen.mp4 "cut the onion" "wash the dishes"`
    * `hiero ask kitchen.mp4 --in-order "crack the eggs" "whisk" "pour into the pan"`
    * `hiero ask --video monday.mp4 --video tuesday.mp4 "cut the onion"`
    * `hiero ask kitchen.mp4 "cut the onion" "wash the dishes" --reel best.mp4`

    Parameters
    ----------
    source
        Video, feature file, folder, pattern such as '*.mp4', or address (https://, s3:// …).
    queries
        Descriptions of the moments to find.
    """
    num, in_order = answer_options.num, answer_options.in_order
    check_at_least("-n", num)
    paths, texts = split_queries([*([] if source is None else [source]), *queries], answer_options.video or [])
    if not texts:
        raise InputError('name something to look for: hiero ask VIDEO "cut the onion"')
    if not in_order:
        texts = list(dict.fromkeys(texts))
    inputs = find_inputs(paths, join)
    reel.check(inputs.paths)
    answered: dict[str, tuple[list[Answer], tuple[VideoFile, ...]]] = {}
    shown_files: dict[str, tuple[VideoFile, ...]] = {}

    def answer(name: str, video: hiero.Video) -> dict[str, Any]:
        """Find and print the answers of one video; returns its JSON document."""
        announce_edits(video)
        if video.transcript:
            with reading_bars() as progress:
                video.encode_speech(progress)
        answers = video.ask(texts, num=num, in_order=in_order)
        answered[name] = answers, video.files
        shown_files[name] = files = video.shown_files
        if not json_:
            _print_answers(answers, files, inputs.title_of(name), answer_options.show_all)
        queries = [{**answer.to_dict(), "matches": _to_dicts(answer.matches, files)} for answer in answers]
        return _document(video, queries=queries)

    results = read_all(inputs, options, options.load_engine(), "ask", answer)
    by_video = {name: answers for name, (answers, _) in answered.items()}
    best = {} if inputs.is_single or in_order else rank_across_videos(by_video, num)
    if json_:
        results.print_documents(best=_best_to_list(best, shown_files))
    elif best:
        _print_best(best, shown_files, answer_options.show_all)
    if reel.reel is not None:
        fetch_files([inputs.sources[name] for name in answered])
        reel.write(reel.reel, answered, num, options.stream)
    results.finish()


def split_queries(arguments: Sequence[str], videos: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of `hiero ask` into videos and queries.

    The first argument is a video unless `--video` is given and no such file exists. Arguments after it
    are videos as long as they name existing video or feature files, because a shell expands *.mp4.
    """
    from hiero.data.features import FEATURE_SUFFIXES
    from hiero.decoding.recordings import VIDEO_SUFFIXES
    from hiero.sources.addresses import is_address

    def exists(argument: str) -> bool:
        return (is_address(argument) and not any(map(str.isspace, argument))) or path_exists(argument)

    suffixes = (*VIDEO_SUFFIXES, *FEATURE_SUFFIXES)
    rest, paths = list(arguments), list(videos)
    if rest and (not paths or exists(rest[0])):
        paths = [rest.pop(0), *paths]
    listed: list[str] = []
    while rest and (rest[0].lower().endswith(suffixes) or is_address(rest[0])) and exists(rest[0]):
        listed.append(rest.pop(0))
    return [*paths[:1], *listed, *paths[1:]], rest


def _document(video: hiero.Video, **results: Any) -> dict[str, Any]:
    """The JSON document of one video, with its files if it consists of several."""
    files = video.shown_files
    named = {"files": [file.to_dict() for file in files]} if len(files) > 1 else {}
    return {"version": VERSION, "video": video.address, **named, **results}


def _to_dicts(moments: Sequence[Match | Step], files: Sequence[VideoFile]) -> list[dict[str, Any]]:
    return [{**moment.to_dict(), **file_fields(files, moment)} for moment in moments]


def _best_to_list(
    best: Mapping[str, Sequence[tuple[str, Match]]], files: Mapping[str, Sequence[VideoFile]]
) -> list[dict[str, Any]]:
    """`best` in the document of several videos."""
    return [
        {"query": query, "matches": [{"name": name, **_to_dicts([match], files[name])[0]} for name, match in found]}
        for query, found in best.items()
    ]


def label(
    *videos: str,
    labels: Path,
    k: StepCounts = None,
    join: Join = None,
    json_: Json = False,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Label every part of videos with names from a list (step localization).

    **Examples**

    * `hiero label kitchen.mp4 --labels taxonomy.txt`
    * `hiero label videos/ --labels taxonomy.txt --json > labels.json`

    Parameters
    ----------
    videos
        Videos, feature files, folders, patterns such as '*.mp4', or addresses (https://, s3:// …).
    labels
        Text file with one label per line.
    """
    vocabulary, num_steps = read_labels(labels), parse_numbers("-k", k)
    inputs = find_inputs(videos, join)

    def label_parts(name: str, video: hiero.Video) -> dict[str, Any]:
        """Label and print the parts of one video; returns its JSON document."""
        announce_edits(video, "" if num_steps is None else "-k cuts the video anew")
        labelled = video.label(vocabulary, num_steps=num_steps)
        files = video.shown_files
        if not json_:
            _print_labels(labelled, files, inputs.title_of(name))
        keys = ("start_s", "end_s", "label", "probability", "score", "file", "file_start_s")
        rows = _to_dicts(labelled, files)
        return _document(video, steps=[{key: row[key] for key in keys if key in row} for row in rows])

    read_all(inputs, options, options.load_engine(), "label", label_parts).finish(json_)


def _print_answers(answers: list[Answer], files: Sequence[VideoFile], title: str | None, show_all: bool) -> None:
    """Print the matches of each query, under the name of the video if there are several."""
    console = results_console(title)
    for answer in answers:
        console.print(f"{answer.query}{'' if answer.present else '   probably not in this video'}", style="bold")
        if answer.present or show_all:
            _print_matches([("", match) for match in answer.matches], {"": files})


def _print_best(
    best: Mapping[str, Sequence[tuple[str, Match]]], files: Mapping[str, Sequence[VideoFile]], show_all: bool
) -> None:
    """Print the best matches of each query in all videos."""
    console = results_console()
    for query, matches in best.items():
        shown = [pair for pair in matches if show_all or pair[1].probability >= ANSWER_THRESHOLD]
        note = "" if shown else "   probably not in these videos"
        console.print(f"\nbest of all videos: {query}{note}", style="bold")
        if shown:
            _print_matches(shown, files)


def _print_matches(matches: Sequence[tuple[str, Match]], files: Mapping[str, Sequence[VideoFile]]) -> None:
    """Print a table of matches with the names of their videos, if there are several."""
    rows = [
        {**moment_cells(match, files[name]), **({"video": name} if name else {}), **speech_cells(match, "words")}
        for name, match in matches
    ]
    print_moments(("from", "to", "sure", "video", "in file", "by", "words"), rows)


def _print_labels(steps: list[Step], files: Sequence[VideoFile], title: str | None) -> None:
    """Print a table of the labelled parts, under the name of the video if there are several."""
    rows = [{"label": step.shown_label or "", "sure": "", **moment_cells(step, files)} for step in steps]
    print_moments(("from", "to", "label", "sure", "in file"), rows, title)
