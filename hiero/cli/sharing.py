"""hiero report, and what `steps --split` and `ask --reel` write: clips, a reel, one page over many videos."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hiero.cli.console import log, print_json, progress_bar
from hiero.cli.options import DEFAULTS, Flag, Join, Json, Out, VideoOptions, read_labels
from hiero.errors import InputError
from hiero.types import format_time

if TYPE_CHECKING:
    from hiero.engine import Video
    from hiero.report.folder_report import VideoSteps
    from hiero.types import Answer, Hierarchy, Match, VideoFile

SplitFolder = Annotated[
    Path | None,
    Parameter(
        help="Also cut the video: a file for each step in this folder, exact to the frame. Frames are copied but "
        "for a few at the "
        "edges. Files that are there and whole stay."
    ),
]
SplitLevel = Annotated[
    int | None, Parameter(help="Of --split: the level of the steps, 0 the coarsest; by default the finest.")
]
ReelFile = Annotated[
    Path | None,
    Parameter(help="Also join the best moments of all queries in this video file, such as best.mp4; in their order."),
]
MIN_REEL_SHARE = 0.5  # of the score of a query's best moment, that another needs to be in a reel
MIN_LABEL_SCORE = 0.5  # of a bundled label of a step, to name an activity on the page
MAX_REEL_OVERLAP = 0.5  # of a moment, with one that is in the reel already


def check_split(split: Path | None, level: int | None, sources: Sequence[Path], num_levels: int | None) -> None:
    """Say what is wrong with `--split` before hours of video are read.

    Args:
        split: The folder.
        level: Of the steps.
        sources: Files that will be read.
        num_levels: That `-k` asks for, if it does.
    """
    if split is None:
        if level is not None:
            raise InputError("--level is for --split; say where clips go: --split clips/")
        return
    from hiero.data.features import FEATURE_SUFFIXES

    if split.is_file():
        raise InputError(f"{split}: is a file; --split takes a folder")
    if level is not None and (level < 0 or (num_levels is not None and level >= num_levels)):
        raise InputError(f"--level is 0 (the coarsest) to {(num_levels or 3) - 1}, got {level}")
    for source in sources:
        if source.suffix.lower() in FEATURE_SUFFIXES:
            raise InputError(f"{source}: has features alone; --split needs the video")


def write_split(video: Video, hierarchy: Hierarchy, level: int | None, folder: Path, stream: int) -> None:
    """`--split`: a file for each step, with a bar, and a line that says how they were cut.

    Args:
        video: That was read.
        hierarchy: Its steps.
        level: Of the steps; by default the finest.
        folder: Where clips go.
        stream: Number of the video stream.
    """
    from hiero.decoding.splitting import split_video

    if level is not None and level >= len(hierarchy.levels):
        raise InputError(
            f"--level is 0 (the coarsest) to {len(hierarchy.levels) - 1} for {Path(hierarchy.video).name}, got {level}"
        )
    steps = hierarchy.levels[-1 if level is None else level]
    spans = [(step.start_s, step.end_s) for step in steps]
    with progress_bar("cut", len(steps)) as advance:
        result = split_video(
            video.files, spans, folder, labels=[step.label for step in steps], stream=stream, progress=advance
        )
    num_copied, num_encoded = (
        sum(clip.num_copied for clip in result.clips),
        sum(clip.num_encoded for clip in result.clips),
    )
    unchanged = len(result.clips) - result.num_written
    parts = [f"{result.num_written} clips written", *([f"{unchanged} were there"] if unchanged else [])]
    parts += [f"{len(result.removed)} of other steps removed"] if result.removed else []
    log(f"{folder}: {', '.join(parts)}; {_share_copied(num_copied, num_encoded)}")
    for note in sorted({clip.note for clip in result.clips if clip.note}):
        names = [clip.file for clip in result.clips if clip.note == note]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        log(f"encoded as a whole: {names[0]}{more}: {note}")


def _share_copied(num_copied: int, num_encoded: int) -> str:
    share = 100 * num_copied / max(1, num_copied + num_encoded)
    return f"{share:.0f} % of the frames copied as they were, {num_encoded} encoded anew"


def check_reel(reel: Path | None, sources: Sequence[Path]) -> None:
    """Say what is wrong with `--reel` before hours of video are read.

    Args:
        reel: The file.
        sources: Files that will be read.
    """
    if reel is None:
        return
    from hiero.data.features import FEATURE_SUFFIXES
    from hiero.decoding.cutting import CONTAINERS

    if reel.suffix.lower() not in CONTAINERS:
        raise InputError(f"--reel {reel}: a video file ends in one of {', '.join(CONTAINERS)}")
    for source in sources:
        if source.suffix.lower() in FEATURE_SUFFIXES:
            raise InputError(f"{source}: has features alone; --reel needs the video")
        if source.resolve() == reel.resolve():
            raise InputError(f"--reel {reel}: is the video itself; name another file")


def write_reel(
    reel: Path, answered: Mapping[str, tuple[Sequence[Answer], tuple[VideoFile, ...]]], num: int, stream: int
) -> None:
    """`--reel`: the best moments of all queries in one file, and a line for each.

    Args:
        reel: The file.
        answered: Answers to the same queries, and files, by name of the video.
        num: Moments of each query at most.
        stream: Number of the video stream.

    Raises:
        InputError: No query is likely to be in any of the videos.
    """
    from hiero.decoding.splitting import join_moments

    moments = choose_moments({name: answers for name, (answers, _) in answered.items()}, num)
    if not moments:
        raise InputError(
            "nothing to join: none of this is likely in these videos; ask for something else, or leave --reel out"
        )
    written = join_moments(
        reel, [(answered[name][1], match.start_s, match.end_s) for _, name, match in moments], stream
    )
    position_s = 0.0
    for query, name, match in moments:
        log(f"{format_time(position_s):>7}  {query}  ({name} {format_time(match.start_s)})")
        position_s += match.end_s - match.start_s
    note = f"; all encoded: {written.note}" if written.note else ""
    length = format_time(written.duration_s)
    log(f"{reel}: {len(moments)} moments, {length}; {_share_copied(written.num_copied, written.num_encoded)}{note}")


def choose_moments(answers: Mapping[str, Sequence[Answer]], num: int) -> list[tuple[str, str, Match]]:
    """What belongs into a reel: query by query, each in the order of videos and time.

    Args:
        answers: To the same queries, by name of the video.
        num: Moments of each query at most.

    Returns:
        Query, name of the video and moment. A query that is probably in none of the videos has
        none, a moment that is far less likely than the best of its query is left out, and so is one
        that another query has brought already.
    """
    from hiero.cli.videos import PRESENCE_THRESHOLD

    out: list[tuple[str, str, Match]] = []
    order = {name: i for i, name in enumerate(answers)}
    for query in dict.fromkeys(answer.query for video_answers in answers.values() for answer in video_answers):
        matches = [
            (name, match)
            for name, video_answers in answers.items()
            for answer in video_answers
            if answer.query == query
            for match in answer.matches
            if answer.present >= PRESENCE_THRESHOLD
        ]
        matches.sort(key=lambda pair: -pair[1].score)
        chosen: list[tuple[str, str, Match]] = []
        for name, match in matches[:num]:
            is_repeated = any(
                other == name and _overlap(match, seen) > MAX_REEL_OVERLAP for _, other, seen in (*out, *chosen)
            )
            if match.score >= MIN_REEL_SHARE * matches[0][1].score and not is_repeated:
                chosen.append((query, name, match))
        out += sorted(chosen, key=lambda moment: (order[moment[1]], moment[2].start_s))
    return out


def _overlap(match: Match, other: Match) -> float:
    """Which share of the shorter moment the other one covers."""
    shorter_s = min(match.end_s - match.start_s, other.end_s - other.start_s)
    return max(0.0, min(match.end_s, other.end_s) - max(match.start_s, other.start_s)) / max(1e-9, shorter_s)


def report(
    *videos: Path,
    out: Out,
    level: int | None = None,
    num: Annotated[int | None, Parameter(alias="-n")] = None,
    labels: Path | None = None,
    by_label: Flag = False,
    title: str | None = None,
    join: Join = None,
    json_: Json = False,
    options: VideoOptions = DEFAULTS,
) -> None:
    """One page over many videos: the activities that they share, time spent on each, what differs from the others.

    Steps of all videos that are alike become one activity. The page has a row for each video,
    coloured by activity; the usual order of the activities; for each video what is not seen that
    most others have, what comes at an unusual place, and what took long; and a table of times. It
    is one file that works offline. Beside it are the same numbers as .csv and .json.

    **Examples**

    `hiero report recordings/ -o page.html`

    `hiero report corpus/ -o page.html --title "Making tea"`

    Parameters
    ----------
    videos
        Videos, feature files, folders of them, or patterns; or one corpus, made by `hiero index`. Steps that
        were corrected on
        the page of `hiero serve`, or brought by `hiero import-steps`, are used where they lie beside a video.
    out
        The page, such as page.html.
    level
        Of the steps that are compared, 0 the coarsest; by default the finest.
    num
        How many activities; by default that follows from the videos.
    labels
        A file with one label a line, to name activities with, instead of the bundled everyday phrases. Not for
        a corpus, whose
        steps have their labels.
    by_label
        Activities are the labels of the steps, in place of what is alike: for steps that were corrected.
    title
        Of the page; by default the name of the folder.
    """
    from hiero.report.folder_report import build_report, write_folder_report

    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"-o {out}: the page is an HTML file; name it such as page.html")
    if num is not None and num < 1:
        raise InputError(f"-n is at least 1, got {num}")
    if level is not None and level < 0:
        raise InputError(f"--level is 0 (the coarsest) or more, got {level}")
    if len(videos) == 1 and _is_corpus(videos[0]):
        if labels is not None:
            raise InputError("the steps of a corpus have their labels; --labels is for videos")
        described, model = _read_corpus(str(videos[0]), level)
        failed: dict[str, str] = {}
    else:
        described, model, failed = _read_videos(videos, level, labels, join, options)
    name = title or (videos[0].resolve().name if len(videos) == 1 else f"{len(described)} videos")
    least = MIN_LABEL_SCORE if labels is None else 0.0  # who brings labels wants them
    result = build_report(described, title=name, model=model, num=num, by_label=by_label, min_label_score=least)
    files = write_folder_report(out, result)
    num_notes = sum(len(video.omissions) + len(video.displacements) for video in result.videos)
    log(f"{len(result.videos)} videos, {result.num_shared} shared activities, {num_notes} departures from the usual")
    log(", ".join(map(str, files)))
    if json_:
        print_json(result.to_dict())
    for message in failed.values():
        log(f"failed: {message}")
    if failed:
        sys.exit(1)


def _is_corpus(path: Path) -> bool:
    """Whether a folder is a corpus."""
    return (path / "steps.lance").is_dir()


def _read_corpus(uri: str, level: int | None) -> tuple[list[VideoSteps], str]:
    import numpy as np

    from hiero.corpus.corpus import Corpus
    from hiero.report.folder_report import VideoSteps
    from hiero.types import Step

    corpus = Corpus(uri)
    records = corpus.videos()
    out = []
    for record in records:
        chosen = len(record.levels) - 1 if level is None else level
        if chosen >= len(record.levels):
            raise InputError(
                f"{record.video} has {len(record.levels)} levels; --level is 0 to {len(record.levels) - 1}"
            )
        rows = corpus.described_steps(record.video, chosen)
        steps = tuple(Step(hit.step, hit.start_s, hit.end_s, hit.thread, label=hit.label) for hit, _, _ in rows)
        vectors = np.stack([vector for _, vector, _ in rows])
        out.append(
            VideoSteps(record.video, record.duration_s, steps, vectors, tuple(picture for _, _, picture in rows))
        )
    return out, records[0].model if records else ""


def _read_videos(
    paths: Sequence[Path], level: int | None, labels: Path | None, join: bool | None, options: VideoOptions
) -> tuple[list[VideoSteps], str, dict[str, str]]:
    from hiero.cli.inputs import find_inputs, read_all
    from hiero.formats.edits import read_edits
    from hiero.report.folder_report import describe_steps, select_corrected

    vocabulary = read_labels(labels) if labels is not None else None
    inputs = find_inputs(paths, join)
    if len(inputs.sources) < 2:
        raise InputError("a report compares videos with each other: give at least two, or a folder of them")
    engine = options.load_engine()

    corrected: list[str] = []

    def describe(name: str, video: Video) -> VideoSteps:
        """The steps of one video with what they are compared by: the corrected ones, where there
        are some beside it.
        """
        edits = read_edits(Path(video.files[0].path))
        if edits is not None:
            steps = select_corrected(edits, level, video.duration_s)
            corrected.append(name)
            return describe_steps(name, video, steps)
        hierarchy = video.steps(labels=vocabulary)
        if level is not None and level >= len(hierarchy.levels):
            raise InputError(f"{name} has {len(hierarchy.levels)} levels; --level is 0 to {len(hierarchy.levels) - 1}")
        return describe_steps(name, video, hierarchy.levels[-1 if level is None else level])

    results = read_all(inputs, options, engine, "report", describe)
    if corrected:
        log(f"{len(corrected)} of {len(inputs.sources)} videos have corrected steps beside them, which are used")
    return list(results.done.values()), engine.name, results.failed
