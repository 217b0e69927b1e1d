"""hiero ask: find moments of videos by text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cyclopts import Parameter

import hiero
from hiero.cli.console import moment_cells, print_moments, reading_bars, results_console, speech_cells
from hiero.cli.inputs import find_inputs, path_exists
from hiero.cli.options import Join, Json, NumResults, Repeated, ShowAll, VideoOptions, announce_edits, check_at_least
from hiero.errors import InputError
from hiero.formatting import format_percent, format_time
from hiero.types import ANSWER_THRESHOLD, VERSION, Answer, Match, Step, VideoFile, file_fields


@Parameter(name="*")
@dataclass(frozen=True)
class AnswerOptions:
    """Further videos, and the number and order of the moments."""

    video: Repeated = None
    """Another video, folder or pattern to search. Repeatable. The first argument is then a query unless it names an
    existing file."""
    num: NumResults = 5
    """Number of moments for each query."""
    in_order: bool = False
    """Treat the queries as consecutive steps and find one moment for each, in this order."""
    show_all: ShowAll = False


def ask(
    source: str | None = None,
    /,
    *queries: str,
    answer_options: AnswerOptions = AnswerOptions(),
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
    run = find_inputs(paths, options, "ask", join)
    answered: dict[str, list[Answer]] = {}
    files: dict[str, tuple[VideoFile, ...]] = {}
    for name, source_ in run:
        with run.report_errors(name):
            video = run.read(source_)
            announce_edits(video)
            if video.transcript:
                with reading_bars() as progress:
                    video.encode_speech(progress)
            answers = video.ask(texts, num=num, in_order=in_order)
            answered[name], files[name] = answers, video.shown_files
            if not json_:
                _print_answers(answers, files[name], run.title_of(name), answer_options.show_all or in_order)
            queries_ = [{**answer.to_dict(), "matches": _to_dicts(answer.matches, files[name])} for answer in answers]
            run.done[name] = _document(video, queries=queries_)
    best = {} if run.is_single or in_order else rank_across_videos(answered, num)
    if best and not json_:
        _print_best(best, files, answer_options.show_all)
    run.finish(json_, best=_best_to_list(best, files))


def rank_across_videos(answers: Mapping[str, Sequence[Answer]], num: int) -> dict[str, list[tuple[str, Match]]]:
    """The best matches of each query in all videos. Scores are probabilities, so they are comparable."""
    best: dict[str, list[tuple[str, Match]]] = {}
    for name, video_answers in answers.items():
        for answer in video_answers:
            best.setdefault(answer.query, []).extend((name, match) for match in answer.matches)
    return {query: sorted(matches, key=lambda pair: -pair[1].probability)[:num] for query, matches in best.items()}


def split_queries(arguments: Sequence[str], videos: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of `hiero ask` into videos and queries.

    The first argument is a video unless `--video` is given and no such file exists. Arguments after it
    are videos as long as they name existing video or feature files, because a shell expands *.mp4.
    """
    from hiero.features.files import FEATURE_SUFFIXES
    from hiero.media.addresses import is_address
    from hiero.media.recordings import VIDEO_SUFFIXES

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


def _print_answers(answers: list[Answer], files: Sequence[VideoFile], title: str | None, show_all: bool) -> None:
    """Print the matches of each query, under the name of the video if there are several."""
    console = results_console(title)
    for answer in answers:
        note = "" if answer.present else "   probably not in this video"
        closest = "" if answer.present or show_all else describe_closest(answer)
        console.print(f"{answer.query}{note}{closest}", style="bold")
        if answer.present or show_all:
            _print_matches([("", match) for match in answer.matches], {"": files})


def describe_closest(answer: Answer) -> str:
    """The best of the moments that are not shown, as a guess."""
    if not answer.matches:
        return ""
    best = answer.matches[0]
    return f"; closest: {format_time(best.start_s)}–{format_time(best.end_s)}, {format_percent(best.probability)}"


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
    print_moments(("from", "to", "probability", "video", "in file", "by", "words"), rows)
