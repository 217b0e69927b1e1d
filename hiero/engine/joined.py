"""Several files as one video: the rows of all files on one clock, so that the model sees one recording.

Each file begins where the one before it ends by its exact length, which is seldom a whole number of
segments. The clock of the joined video is uniform and begins at 0; each row comes from the file that
its middle falls into. So times do not drift, however many files there are, and a recording that was
cut between two segments has the same rows as the uncut one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hiero.errors import InputError
from hiero.features.video_features import VideoFeatures
from hiero.types import TIME_GRAIN_S, Clock, VideoFile


@dataclass(frozen=True)
class FileRows:
    """Features of one file, or of several on one timeline."""

    path: Path
    rows: np.ndarray
    clock: Clock
    source: VideoFeatures
    duration_s: float


def place_files(paths: Sequence[Path], durations_s: Sequence[float]) -> tuple[VideoFile, ...]:
    """Place files one after the other."""
    starts_s = np.concatenate([[0.0], np.cumsum(durations_s)])
    return tuple(
        VideoFile(str(path), float(s), float(d)) for path, s, d in zip(paths, starts_s, durations_s, strict=False)
    )


def row_origins(
    durations_s: Sequence[float], clocks: Sequence[Clock], num_rows: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The file, and the row in it, of each row of a joined video."""
    ends_s = np.cumsum(np.asarray(durations_s, dtype=np.float64))
    clock = Clock(clocks[0].fps, clocks[0].stride)
    middles_s = np.array([clock.time_s(i) for i in range(max(1, round(ends_s[-1] / clock.spacing_s)))])
    # The end of a file belongs to the next one; sums of lengths are rounded.
    file = np.minimum(np.searchsorted(ends_s - TIME_GRAIN_S, middles_s, side="right"), len(ends_s) - 1)
    times_s = middles_s - np.concatenate([[0.0], ends_s[:-1]])[file] + TIME_GRAIN_S
    row = [clocks[i].index(time_s) for i, time_s in zip(file, times_s, strict=True)]
    return file, np.clip(row, 0, np.asarray(num_rows)[file] - 1)


def join_rows(parts: Sequence[FileRows]) -> tuple[tuple[VideoFile, ...], FileRows]:
    """Put files on one timeline; returns where each file is on it, and the joined rows."""
    first = parts[0]
    for part in parts[1:]:
        _check_same_kind(first, part)
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
    return files, FileRows(first.path, gather([part.rows for part in parts]), clock, source, source.duration_s)


def _check_same_kind(first: FileRows, other: FileRows) -> None:
    paths = f"{first.path} and {other.path} cannot be joined"
    if set(first.source.features) != set(other.source.features):
        raise InputError(f"{paths}: one is a video, the other a feature file")
    widths, spacings_s = zip(*((part.rows.shape[1], part.clock.spacing_s) for part in (first, other)), strict=True)
    if widths[0] != widths[1]:
        raise InputError(f"{paths}: their features are {widths[0]} and {widths[1]} wide. Read each with --no-join.")
    if not math.isclose(*spacings_s, rel_tol=1e-6):
        every = f"one has a row every {spacings_s[0]:g} s, the other every {spacings_s[1]:g} s"
        raise InputError(f"{paths}: {every}. Read each with --no-join.")
