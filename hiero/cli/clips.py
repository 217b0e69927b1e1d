"""hiero clips: a clip of each step, or the best moments of some queries in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cyclopts import Parameter

import hiero
from hiero.cli.ask import split_queries
from hiero.cli.console import log, progress_bar, reading_bars
from hiero.cli.inputs import Run, find_inputs
from hiero.cli.options import (
    Flag,
    Join,
    LevelOptions,
    NumResults,
    OptionalOut,
    VideoOptions,
    announce_edits,
    check_at_least,
)
from hiero.errors import InputError
from hiero.formatting import format_count, format_time
from hiero.storage.files import real_path
from hiero.types import Answer, Hierarchy, Match, VideoFile

MIN_REEL_SHARE = 0.5  # minimum probability of a moment in a reel, relative to the best moment of its query
MAX_REEL_OVERLAP = 0.5  # maximum overlap of two moments in a reel, relative to the shorter one


@Parameter(name="*")
@dataclass(frozen=True)
class ClipOptions:
    """What is cut, and how."""

    level: int | None = None
    """Level of the steps (0 is the coarsest). Defaults to the finest."""
    num: NumResults = 5
    """Number of moments for each query."""
    copy: Flag = False
    """Cut without encoding. This is faster and lossless, but each clip starts at a keyframe at or before its start."""
    chapters: Flag = False
    """Write each video once more with its steps as chapters, without encoding. By default the new file is called
    kitchen.chapters.mp4; its steps are of the middle level."""

    def check_level(self, num_levels: int) -> None:
        if self.level is not None and self.level >= num_levels:
            raise InputError(f"--level must be between 0 (the coarsest) and {num_levels - 1}, got {self.level}")


def clips(
    source: str,
    /,
    *queries: str,
    out: OptionalOut = None,
    levels: LevelOptions = LevelOptions(),
    clip_options: ClipOptions = ClipOptions(),
    join: Join = None,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Cut videos into a clip of each step, or join the best moments of some queries in one file.

    Clips are encoded and exact to the frame. Existing complete clips are kept.

    **Examples**

    * `hiero clips kitchen.mp4 -o clips/`
    * `hiero clips kitchen.mp4 -o clips/ --level 0 --copy`
    * `hiero clips kitchen.mp4 "cut the onion" "wash the dishes" -o best.mp4`
    * `hiero clips kitchen.mp4 --chapters`

    Parameters
    ----------
    source
        Video, folder, pattern such as '*.mp4', or address. Further videos may follow.
    queries
        Descriptions of the moments that are joined.
    out
        Folder for the clips of the steps or the videos with chapters, or the file for the moments.
    """
    check_at_least("-n", clip_options.num)
    check_at_least("--level", clip_options.level, 0)
    paths, texts = split_queries([source, *queries], [])
    run = find_inputs(paths, options, "read", join)
    if clip_options.chapters and (texts or clip_options.copy):
        raise InputError("--chapters copies whole videos; leave out the queries and --copy")
    if out is None and not clip_options.chapters:
        raise InputError("name where the clips go: -o clips/ for those of the steps, -o best.mp4 for moments")
    out = out or Path()
    _check_output(out, run.paths, is_file=bool(texts))
    if not texts:
        num_steps, labels = levels.num_steps, levels.read_labels()
        if num_steps is not None:
            clip_options.check_level(len(num_steps))
        for name, source_ in run:
            with run.report_errors(name):
                video = run.read(source_)
                announce_edits(video, "" if num_steps is None else "-k cuts the video again")
                hierarchy = video.steps(num_steps, labels=labels)
                _fetch(run, [name])
                if clip_options.chapters:
                    write_chapters(video, hierarchy, run.folder_of(name, out), clip_options, options.stream)
                else:
                    write_clips(video, hierarchy, run.folder_of(name, out), clip_options, options.stream)
                run.done[name] = {}
        run.finish()
        return
    answered: dict[str, list[Answer]] = {}
    files = {}
    for name, source_ in run:
        with run.report_errors(name):
            video = run.read(source_)
            answered[name], files[name] = video.ask(texts, num=clip_options.num), video.files
            run.done[name] = {}
    _fetch(run, list(answered))
    write_reel(out, answered, files, clip_options, options.stream)
    run.finish()


def _check_output(out: Path, sources: Sequence[Path], is_file: bool) -> None:
    """Report mistakes before hours of video are read."""
    from hiero.features.files import FEATURE_SUFFIXES
    from hiero.media.cutting import CONTAINERS

    for source in sources:
        if source.suffix.lower() in FEATURE_SUFFIXES:
            raise InputError(f"{source}: is a feature file; hiero clips needs the video")
    if is_file and out.suffix.lower() not in CONTAINERS:
        raise InputError(f"-o {out}: must be a video file that ends in one of {', '.join(CONTAINERS)}")
    if is_file and real_path(out) in (real_path(source) for source in sources):
        raise InputError(f"-o {out}: is the video itself; name another file")
    if not is_file and out.is_file():
        raise InputError(f"-o {out}: is a file; name a folder for the clips of the steps")


def _fetch(run: Run, names: Sequence[str]) -> None:
    """Download remote videos that are about to be cut: their features may have come from the cache."""
    with reading_bars() as progress:
        for name in names:
            run.sources[name].fetch(progress)


def write_clips(video: hiero.Video, hierarchy: Hierarchy, folder: Path, options: ClipOptions, stream: int = 0) -> None:
    """Write a clip of each step, with a progress bar and a summary."""
    from hiero.media.splitting import split_video

    options.check_level(len(hierarchy.levels))
    steps = hierarchy.levels[-1 if options.level is None else options.level]
    spans, labels = [(step.start_s, step.end_s) for step in steps], [step.label for step in steps]
    with progress_bar("cut", len(steps)) as advance:
        result = split_video(video.files, spans, labels, folder, stream=stream, copy=options.copy, progress=advance)
    parts = [f"{format_count(result.num_written, 'clip')} written"]
    if num_kept := len(result.clips) - result.num_written:
        parts.append(f"{format_count(num_kept, 'existing clip')} kept")
    if result.removed:
        parts.append(f"{format_count(len(result.removed), 'clip')} of other steps removed")
    log(f"{folder}: {', '.join(parts)}")


def write_chapters(
    video: hiero.Video, hierarchy: Hierarchy, folder: Path, options: ClipOptions, stream: int = 0
) -> None:
    """Write a video once more with the steps of a level as chapters."""
    from hiero.formats.subtitles import chapters
    from hiero.media.cutting import CONTAINERS, NamedSpan, write_clip
    from hiero.media.splitting import OTHER_SUFFIX, file_spans

    options.check_level(len(hierarchy.levels))
    level = chapters(hierarchy) if options.level is None else hierarchy.levels[options.level]
    named = [NamedSpan(step.start_s, step.end_s, hierarchy.shown_titles[step.id]) for step in level]
    suffix = video.path.suffix.lower()
    file = folder / f"{Path(hierarchy.video).stem}.chapters{suffix if suffix in CONTAINERS else OTHER_SUFFIX}"
    spans = file_spans(video.files, 0.0, video.duration_s, stream)
    with progress_bar("copy", len(spans)) as advance:
        write_clip(file, spans, chapters=named, copy=True, progress=advance)
    log(f"{file}: {format_count(len(named), 'chapter')}")


def write_reel(
    out: Path,
    answered: Mapping[str, Sequence[Answer]],
    files: Mapping[str, tuple[VideoFile, ...]],
    options: ClipOptions,
    stream: int = 0,
) -> None:
    """Join the best moments of all queries in one file, and list them."""
    from hiero.media.splitting import join_moments

    moments = choose_moments(answered, options.num)
    if not moments:
        raise InputError(f"{out}: no moments to join; the videos probably show none of the queries, so try others")
    spans = [(files[name], match.start_s, match.end_s) for _, name, match in moments]
    with progress_bar("cut", len(moments)) as advance:
        written = join_moments(out, spans, stream, copy=options.copy, progress=advance)
    for position_s, (query, name, match) in zip(written.starts_s, moments, strict=True):
        log(f"{format_time(position_s):>7}  {query}  ({name} {format_time(match.start_s)})")
    log(f"{out}: {format_count(len(moments), 'moment')}, {format_time(written.duration_s)}")


def rank_across_videos(answers: Mapping[str, Sequence[Answer]], num: int) -> dict[str, list[tuple[str, Match]]]:
    """The best matches of each query in all videos. Scores are probabilities, so they are comparable."""
    best: dict[str, list[tuple[str, Match]]] = {}
    for name, video_answers in answers.items():
        for answer in video_answers:
            best.setdefault(answer.query, []).extend((name, match) for match in answer.matches)
    return {query: sorted(matches, key=lambda pair: -pair[1].probability)[:num] for query, matches in best.items()}


def choose_moments(answers: Mapping[str, Sequence[Answer]], num: int) -> list[tuple[str, str, Match]]:
    """The query, video and moment of each part of a reel: query by query, each in the order of videos and time.

    Queries that probably occur in no video, moments far below the best of their query, and moments
    that an earlier query already selected are left out.
    """
    out: list[tuple[str, str, Match]] = []
    order = {name: i for i, name in enumerate(answers)}
    present = {
        name: [answer if answer.present else replace(answer, matches=()) for answer in video_answers]
        for name, video_answers in answers.items()
    }
    for query, matches in rank_across_videos(present, num).items():
        chosen: list[tuple[str, str, Match]] = []
        for name, match in matches:
            is_repeated = any(
                other == name and _overlap(match, seen) > MAX_REEL_OVERLAP for _, other, seen in (*out, *chosen)
            )
            if match.probability >= MIN_REEL_SHARE * matches[0][1].probability and not is_repeated:
                chosen.append((query, name, match))
        out += sorted(chosen, key=lambda moment: (order[moment[1]], moment[2].start_s))
    return out


def _overlap(match: Match, other: Match) -> float:
    """The share of the shorter moment that the other one covers."""
    shorter_s = min(match.end_s - match.start_s, other.end_s - other.start_s)
    return max(0.0, min(match.end_s, other.end_s) - max(match.start_s, other.start_s)) / max(1e-9, shorter_s)
