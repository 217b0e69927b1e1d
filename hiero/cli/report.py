"""hiero report: one page over many videos."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hiero.cli.console import log, print_json
from hiero.cli.inputs import find_inputs, read_all
from hiero.cli.options import DEFAULTS, Flag, Join, Json, Out, VideoOptions, read_labels
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.engine import Video
    from hiero.report.folder_report import VideoSteps

MIN_LABEL_SCORE = 0.5  # of a bundled label of a step, to name an activity on the page


@Parameter(name="*")
@dataclass(frozen=True)
class ActivityOptions:
    """Which steps are compared, and what an activity is.

    Parameters
    ----------
    level
        Of the steps that are compared, 0 the coarsest; by default the finest.
    num
        How many activities; by default that follows from the videos.
    labels
        A file with one label a line, to name activities with, instead of the bundled everyday
        phrases. Not for a corpus, whose steps have their labels.
    by_label
        Activities are the labels of the steps, in place of what is alike: for steps that were
        corrected.
    """

    level: int | None = None
    num: Annotated[int | None, Parameter(alias="-n")] = None
    labels: Path | None = None
    by_label: Flag = False

    def check(self) -> None:
        """Report a mistake before hours of video are read."""
        if self.num is not None and self.num < 1:
            raise InputError(f"-n is at least 1, got {self.num}")
        if self.level is not None and self.level < 0:
            raise InputError(f"--level is 0 (the coarsest) or more, got {self.level}")

    def choose_level(self, video: str, num_levels: int) -> int:
        """The level that is compared, of a video with so many."""
        if self.level is not None and self.level >= num_levels:
            raise InputError(f"{video} has {num_levels} levels; --level is 0 to {num_levels - 1}")
        return num_levels - 1 if self.level is None else self.level


ACTIVITY_DEFAULTS = ActivityOptions()


def report(
    *videos: Path,
    out: Out,
    activities: ActivityOptions = ACTIVITY_DEFAULTS,
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
        Videos, feature files, folders of them, or patterns; or one corpus, made by `hiero index`.
        Steps that were corrected on the page of `hiero serve`, or brought by `hiero import-steps`,
        are used where they lie beside a video.
    out
        The page, such as page.html.
    title
        Of the page; by default the name of the folder.
    """
    from hiero.report.folder_report import build_report, write_folder_report

    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"-o {out}: the page is an HTML file; name it such as page.html")
    activities.check()
    if len(videos) == 1 and _is_corpus(videos[0]):
        if activities.labels is not None:
            raise InputError("the steps of a corpus have their labels; --labels is for videos")
        described, model = _read_corpus(str(videos[0]), activities)
        failed: dict[str, str] = {}
    else:
        described, model, failed = _read_videos(videos, activities, join, options)
    name = title or (videos[0].resolve().name if len(videos) == 1 else f"{len(described)} videos")
    least = MIN_LABEL_SCORE if activities.labels is None else 0.0  # who brings labels wants them
    result = build_report(
        described, title=name, model=model, num=activities.num, by_label=activities.by_label, min_label_score=least
    )
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
    from hiero.corpus.table import is_corpus_folder

    return is_corpus_folder(path)


def _read_corpus(uri: str, activities: ActivityOptions) -> tuple[list[VideoSteps], str]:
    import numpy as np

    from hiero.corpus.corpus import Corpus
    from hiero.report.folder_report import VideoSteps
    from hiero.types import Step

    corpus = Corpus(uri)
    records = corpus.videos()
    out = []
    for record in records:
        rows = corpus.described_steps(record.video, activities.choose_level(record.video, len(record.levels)))
        steps = tuple(Step(hit.step, hit.start_s, hit.end_s, hit.thread, label=hit.label) for hit, _, _ in rows)
        vectors = np.stack([vector for _, vector, _ in rows])
        pictures = tuple(picture for _, _, picture in rows)
        out.append(VideoSteps(record.video, record.duration_s, steps, vectors, pictures))
    return out, records[0].model if records else ""


def _read_videos(
    paths: Sequence[Path], activities: ActivityOptions, join: bool | None, options: VideoOptions
) -> tuple[list[VideoSteps], str, dict[str, str]]:
    from hiero.formats.hiero_json import read_edits
    from hiero.report.folder_report import describe_steps, select_corrected

    vocabulary = read_labels(activities.labels)
    inputs = find_inputs(paths, join)
    if len(inputs.sources) < 2:
        raise InputError("a report compares videos with each other: give at least two, or a folder of them")
    engine = options.load_engine()
    corrected: list[str] = []

    def describe(name: str, video: Video) -> VideoSteps:
        """The steps of one video, or the corrected ones beside it, with what they are compared by."""
        edits = read_edits(Path(video.files[0].path))
        if edits is not None:
            corrected.append(name)
            return describe_steps(name, video, select_corrected(edits, activities.level, video.duration_s))
        levels = video.steps(labels=vocabulary).levels
        return describe_steps(name, video, levels[activities.choose_level(name, len(levels))])

    results = read_all(inputs, options, engine, "report", describe)
    if corrected:
        log(f"{len(corrected)} of {len(inputs.sources)} videos have corrected steps beside them, which are used")
    return list(results.done.values()), engine.name, results.failed
