"""hiero ask: find moments of videos by text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cyclopts import Parameter

from hiero.cli.console import path_exists, print_json, reading_bars
from hiero.cli.inputs import find_inputs
from hiero.cli.moments import Found, Moment, print_found
from hiero.cli.options import Join, Json, NumResults, Repeated, ShowAll, VideoOptions, announce_edits, check_at_least
from hiero.errors import InputError
from hiero.types import VERSION


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
    found = [Found(text) for text in texts]
    for name, source_ in run:
        with run.report_errors(name):
            video = run.read(source_)
            announce_edits(video)
            if video.transcript:
                with reading_bars() as progress:
                    video.encode_speech(progress)
            for query, answer in zip(found, video.ask(texts, num=num, in_order=in_order), strict=True):
                query.probability = max(query.probability, answer.probability)
                query.moments += [Moment(name, match, video.shown_files) for match in answer.matches]
            run.done[name] = {}
    if not in_order:
        for query in found:
            query.moments = sorted(query.moments, key=lambda moment: -moment.found.probability)[:num]
    if json_:
        print_json({"version": VERSION, "queries": [query.to_dict() for query in found], **run.failures()})
    elif run.done:
        place = "this video" if run.is_single else "these videos"
        print_found(found, place, names_videos=not run.is_single, show_all=answer_options.show_all or in_order)
    run.finish()


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
