"""hiero report: compare many videos on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

import hiero
from hiero.cli.console import log, print_json
from hiero.cli.inputs import exit_if_failed, find_inputs
from hiero.cli.options import Flag, Join, Json, Out, VideoOptions, announce_edits, check_at_least, read_labels
from hiero.errors import InputError
from hiero.formatting import format_count
from hiero.types import Step

if TYPE_CHECKING:
    from hiero.corpus.folder_report import VideoSteps

NOTHING_SHARED = (
    "no activity occurs in two of these videos. Compare recordings of the same task, or look for broader activities: "
    "-n 8, --level 0, or --labels FILE --by-label"
)


@Parameter(name="*")
@dataclass(frozen=True)
class ActivityOptions:
    """Which steps are compared, and how activities are formed."""

    level: int | None = None
    """Level of the steps that are compared (0 is the coarsest). Defaults to the finest."""
    num: Annotated[int | None, Parameter(alias="-n")] = None
    """Number of activities. Chosen automatically by default."""
    labels: Path | None = None
    """Text file with one label per line, not for a corpus. Defaults to a bundled list of everyday phrases."""
    by_label: Flag = False
    """Group steps by their labels instead of by similarity."""

    def choose_level(self, video: str, num_levels: int) -> int:
        """The level that is compared."""
        if self.level is not None and self.level >= num_levels:
            raise InputError(f"{video} has {num_levels} levels; --level must be between 0 and {num_levels - 1}")
        return num_levels - 1 if self.level is None else self.level


def report(
    *videos: Path,
    out: Out,
    activities: ActivityOptions = ActivityOptions(),
    title: str | None = None,
    join: Join = None,
    json_: Json = False,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Compare many videos on one page: shared activities and the time spent on each.

    Similar steps of all videos form an activity. The page shows each video as a row of activities, and
    what is missing, out of order or slow. The numbers are also written as .csv and .json.

    **Examples**

    * `hiero report recordings/ -o page.html`
    * `hiero report corpus/ -o page.html --title "Making tea"`

    Parameters
    ----------
    videos
        Videos, feature files, folders or patterns, or one corpus. Corrected steps next to a video
        (from `hiero serve` or `hiero import-steps`) replace the computed ones.
    out
        Output file, such as page.html.
    title
        Title of the page. Defaults to the name of the folder.
    """
    from hiero.corpus.folder_report import MIN_LABEL_SCORE, build_report, write_folder_report
    from hiero.corpus.table import is_corpus

    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"-o {out}: must be an HTML file, such as page.html")
    check_at_least("-n", activities.num)
    check_at_least("--level", activities.level, 0)
    if len(videos) == 1 and is_corpus(str(videos[0])):
        if activities.labels is not None:
            raise InputError("--labels is for videos; the steps of a corpus are labelled already")
        described, model = _read_corpus(str(videos[0]), activities)
        failed: dict[str, str] = {}
    else:
        described, model, failed = _read_videos(videos, activities, join, options)
    result = build_report(
        described,
        title=title or (videos[0].resolve().name if len(videos) == 1 else f"{len(described)} videos"),
        model=model,
        num=activities.num,
        by_label=activities.by_label,
        min_label_score=MIN_LABEL_SCORE if activities.labels is None else 0.0,
    )
    files = write_folder_report(out, result)
    log(f"{len(described)} videos, {format_count(result.num_shared, 'shared activity')}")
    if not result.num_shared:
        log(NOTHING_SHARED)
    log(", ".join(map(str, files)))
    if json_:
        print_json(result.document)
    exit_if_failed(failed)


def _read_corpus(uri: str, activities: ActivityOptions) -> tuple[list[VideoSteps], str]:
    import numpy as np

    from hiero.corpus.folder_report import VideoSteps

    corpus = hiero.Corpus(uri)
    records = corpus.videos()
    out = []
    for record in records:
        rows = corpus.described_steps(record.video, activities.choose_level(record.video, len(record.levels)))
        steps = tuple(
            Step(hit.step, hit.start_s, hit.end_s, hit.thread, label=hit.label, origin=hit.origin) for hit, _, _ in rows
        )
        vectors = np.stack([vector for _, vector, _ in rows])
        pictures = tuple(picture for _, _, picture in rows)
        out.append(VideoSteps(record.video, record.duration_s, steps, vectors, pictures))
    return out, records[0].model if records else ""


def _read_videos(
    paths: Sequence[Path], activities: ActivityOptions, join: bool | None, options: VideoOptions
) -> tuple[list[VideoSteps], str, dict[str, str]]:
    from hiero.corpus.folder_report import describe_steps, select_corrected

    vocabulary = read_labels(activities.labels)
    run = find_inputs([str(path) for path in paths], options, "report", join)
    if len(run.sources) < 2:
        raise InputError("a report compares videos; give at least two, or a folder")
    described = []
    for name, source in run:
        with run.report_errors(name):
            video = run.read(source)
            announce_edits(video)
            if video.edits is not None:
                steps = select_corrected(video.edits, activities.level, video.duration_s)
            else:
                levels = video.steps(labels=vocabulary).levels
                steps = levels[activities.choose_level(name, len(levels))]
            described.append(describe_steps(name, video, steps))
    return described, run.engine.name, run.failed
