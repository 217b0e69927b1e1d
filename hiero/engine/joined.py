"""Several files as one video: rows of each are put on one clock, so that the model sees one recording.

Each file begins where the one before it ends by its own length, which is seldom a whole number of
segments. The clock of the joined video is uniform and begins at 0; a row of it is the row of the
file that its middle falls in. So no time is lost or gained from file to file, however many there
are, and a recording that was cut between two segments gives the rows of the uncut one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hiero.errors import InputError
from hiero.extraction.video_features import VideoFeatures
from hiero.types import TIME_GRAIN_S, Clock, VideoFile


@dataclass(frozen=True)
class FileRows:
    """What was read of one file."""

    path: Path
    rows: np.ndarray
    clock: Clock
    source: VideoFeatures
    duration_s: float


@dataclass(frozen=True)
class JoinedRows:
    """Files on one timeline."""

    files: tuple[VideoFile, ...]
    rows: np.ndarray
    clock: Clock
    source: VideoFeatures


def place_files(paths: Sequence[Path], durations_s: Sequence[float]) -> tuple[VideoFile, ...]:
    """Files one after the other."""
    starts_s = np.concatenate([[0.0], np.cumsum(durations_s)])
    return tuple(
        VideoFile(str(path), float(s), float(d)) for path, s, d in zip(paths, starts_s, durations_s, strict=False)
    )


def row_origins(
    durations_s: Sequence[float], clocks: Sequence[Clock], num_rows: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Where each row of a joined video comes from."""
    spacing_s = clocks[0].spacing_s
    ends_s = np.cumsum(np.asarray(durations_s, dtype=np.float64))
    middles_s = (np.arange(max(1, round(ends_s[-1] / spacing_s))) + 0.5) * spacing_s
    # A moment at which one file ends belongs to the next; sums of lengths are rounded, hence the grain.
    file = np.minimum(np.searchsorted(ends_s - TIME_GRAIN_S, middles_s, side="right"), len(ends_s) - 1)
    starts_s = np.concatenate([[0.0], ends_s[:-1]])[file]
    begin_s = np.array([clock.start_s for clock in clocks])[file]
    row = np.floor((middles_s - starts_s - begin_s) / spacing_s + TIME_GRAIN_S).astype(int)
    return file, np.clip(row, 0, np.asarray(num_rows)[file] - 1)


def join_rows(parts: Sequence[FileRows]) -> JoinedRows:
    """Put files on one timeline."""
    first = parts[0]
    for part in parts[1:]:
        _check_fits(first, part)
    file, row = row_origins(
        [part.duration_s for part in parts], [part.clock for part in parts], [len(part.rows) for part in parts]
    )

    def gather(arrays: Sequence[np.ndarray]) -> np.ndarray:
        offsets = np.cumsum([0, *(len(array) for array in arrays[:-1])])
        return np.concatenate(arrays)[offsets[file] + row]

    files = place_files([part.path for part in parts], [part.duration_s for part in parts])
    features = {name: gather([part.source.features[name] for part in parts]) for name in first.source.features}
    times_s = [
        placed.start_s + time_s
        for placed, part in zip(files, parts, strict=True)
        for time_s in part.source.thumbnail_times
    ]
    thumbnails = [thumbnail for part in parts for thumbnail in part.source.thumbnails]
    clock = Clock(first.clock.fps, first.clock.stride)
    source = VideoFeatures(features, files[-1].end_s, clock.spacing_s, times_s, thumbnails)
    return JoinedRows(files, gather([part.rows for part in parts]), clock, source)


def _check_fits(first: FileRows, other: FileRows) -> None:
    if set(first.source.features) != set(other.source.features):
        raise InputError(
            f"{first.path} and {other.path} cannot be joined: one is a video, the other has features alone"
        )
    if first.rows.shape[1] != other.rows.shape[1]:
        widths = (
            f"features of {first.path} have {first.rows.shape[1]} numbers, those of {other.path} {other.rows.shape[1]}"
        )
        raise InputError(f"{widths}: they cannot be joined; --no-join reads each by itself")
    if not math.isclose(first.clock.spacing_s, other.clock.spacing_s, rel_tol=1e-6):
        spacings = (
            f"{first.path} has a row every {first.clock.spacing_s:g} s, {other.path} every {other.clock.spacing_s:g} s"
        )
        raise InputError(f"{spacings}: they cannot be joined; --no-join reads each by itself")
