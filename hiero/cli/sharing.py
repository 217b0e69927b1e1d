"""`hiero steps --split` and `hiero ask --reel`: a clip of each step, and a reel of the best moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

import hiero
from hiero.cli.console import log, progress_bar, reading_bars
from hiero.cli.options import Flag
from hiero.errors import InputError
from hiero.storage.files import real_path
from hiero.types import Answer, Hierarchy, Match, VideoFile, format_count, format_time

if TYPE_CHECKING:
    from hiero.sources.source import VideoSource

MIN_REEL_SHARE = 0.5  # minimum score of a moment in a reel, relative to the best moment of its query
MAX_REEL_OVERLAP = 0.5  # maximum overlap of two moments in a reel, relative to the shorter one


@Parameter(name="*")
@dataclass(frozen=True)
class SplitOptions:
    """`--split`.

    Parameters
    ----------
    split
        Folder for a clip of each step, encoded and exact to the frame. Existing complete clips are kept.
    level
        Level to split at (0 is the coarsest). Defaults to the finest.
    copy
        Cut without encoding. This is faster and lossless, but each clip starts at a keyframe at or
        before the start of its step.
    """

    split: Path | None = None
    level: int | None = None
    copy: Flag = False

    def check(self, sources: Sequence[Path], num_levels: int | None) -> None:
        """Report mistakes before hours of video are read; `num_levels` follows from `-k`."""
        if self.split is None:
            for option, is_given in (("--level", self.level is not None), ("--copy", self.copy)):
                if is_given:
                    raise InputError(f"{option} is for --split; name a folder for the clips: --split clips/")
            return
        if self.split.is_file():
            raise InputError(f"{self.split}: is a file; --split takes a folder")
        if self.level is not None and self.level < 0:
            raise InputError(f"--level must be at least 0 (the coarsest), got {self.level}")
        if num_levels is not None:
            self._check_level(num_levels)
        _check_videos(sources, "--split")

    def _check_level(self, num_levels: int) -> None:
        if self.level is not None and self.level >= num_levels:
            raise InputError(f"--level must be between 0 (the coarsest) and {num_levels - 1}, got {self.level}")

    def write(self, video: hiero.Video, hierarchy: Hierarchy, folder: Path, stream: int) -> None:
        """Write a clip of each step, with a progress bar and a summary."""
        from hiero.decoding.splitting import split_video

        self._check_level(len(hierarchy.levels))
        steps = hierarchy.levels[-1 if self.level is None else self.level]
        spans = [(step.start_s, step.end_s) for step in steps]
        labels = [step.label for step in steps]
        with progress_bar("cut", len(steps)) as advance:
            result = split_video(video.files, spans, labels, folder, stream=stream, copy=self.copy, progress=advance)
        parts = [f"{format_count(result.num_written, 'clip')} written"]
        if num_kept := len(result.clips) - result.num_written:
            parts.append(f"{format_count(num_kept, 'existing clip')} kept")
        if result.removed:
            parts.append(f"{format_count(len(result.removed), 'clip')} of other steps removed")
        log(f"{folder}: {', '.join(parts)}")


def _check_videos(sources: Sequence[Path], option: str) -> None:
    """Refuse feature files, which have no pictures to cut."""
    from hiero.data.features import FEATURE_SUFFIXES

    for source in sources:
        if source.suffix.lower() in FEATURE_SUFFIXES:
            raise InputError(f"{source}: is a feature file; {option} needs the video")


def fetch_files(sources: Sequence[VideoSource]) -> None:
    """Download remote videos that are about to be cut: their features may have come from the cache."""
    with reading_bars() as progress:
        for source in sources:
            source.fetch(progress)


@Parameter(name="*")
@dataclass(frozen=True)
class ReelOptions:
    """`--reel`.

    Parameters
    ----------
    reel
        Video file for a reel of the best moments of all queries, such as best.mp4.
    copy
        Cut the reel without encoding. Each moment then starts at a keyframe at or before its start.
    """

    reel: Path | None = None
    copy: Flag = False

    def check(self, sources: Sequence[Path]) -> None:
        """Report mistakes before hours of video are read."""
        if self.reel is None:
            if self.copy:
                raise InputError("--copy is for --reel; name a file for the moments: --reel best.mp4")
            return
        from hiero.decoding.cutting import CONTAINERS

        if self.reel.suffix.lower() not in CONTAINERS:
            raise InputError(f"--reel {self.reel}: must be a video file that ends in one of {', '.join(CONTAINERS)}")
        _check_videos(sources, "--reel")
        if real_path(self.reel) in (real_path(source) for source in sources):
            raise InputError(f"--reel {self.reel}: is the video itself; name another file")

    def write(
        self, reel: Path, answered: Mapping[str, tuple[Sequence[Answer], tuple[VideoFile, ...]]], num: int, stream: int
    ) -> None:
        """Join the best moments of all queries, at most `num` for each, in one file, and list them."""
        from hiero.decoding.splitting import join_moments

        moments = choose_moments({name: answers for name, (answers, _) in answered.items()}, num)
        if not moments:
            raise InputError("no moments for the reel: the videos probably show none of the queries; try other ones")
        spans = [(answered[name][1], match.start_s, match.end_s) for _, name, match in moments]
        with progress_bar("cut", len(moments)) as advance:
            written = join_moments(reel, spans, stream, copy=self.copy, progress=advance)
        for position_s, (query, name, match) in zip(written.starts_s, moments, strict=True):
            log(f"{format_time(position_s):>7}  {query}  ({name} {format_time(match.start_s)})")
        log(f"{reel}: {format_count(len(moments), 'moment')}, {format_time(written.duration_s)}")


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
