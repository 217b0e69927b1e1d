"""Feature stores: the features of many videos packed into one memory-mapped file, with an index.

OUT/store.json             backbone, width, fps, stride, window, dtype, and the first row, length and
                           source hash of each video
OUT/features-HASH.bin      all rows, one video after the other
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hiero.errors import InputError
from hiero.features.files import Sidecar, find_features, read_features, read_sidecar
from hiero.storage.files import atomic_path, parse_json
from hiero.types import Clock

INDEX_FILE = "store.json"
VERSION = 1  # version of the index
DEFAULT_WINDOW = 16  # frames that a row covers
NUM_WIDTH_VOTES = 5  # files whose most frequent width becomes that of the store
CLOCK_TOLERANCE = 1e-6  # relative difference of two equal spacings, from rounding
# files of earlier stores and of interrupted runs
LEFTOVERS = ("features-*.bin", ".features-*.part", f".{INDEX_FILE}.*.part")
StoreDtype = Literal["float16", "float32"]


@dataclass(frozen=True)
class PackedVideo:
    """One video of a store."""

    id: str
    offset: int
    length: int
    source: str
    sha256: str


class FeatureStore:
    """A packed collection of features, opened for reading. Reading a window only touches its rows on disk.

    A store is cheap to open and can be shared between processes. It iterates over the ids of its videos.

    Examples:
        >>> store = FeatureStore("features.store")                       # doctest: +SKIP
        >>> store.read("kitchen", 0, 100).shape                          # doctest: +SKIP
        torch.Size([100, 256])
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        index_file = self.folder / INDEX_FILE
        if not index_file.is_file():
            raise InputError(f"{self.folder}: not a feature store; pack feature files first: hiero pack FOLDER STORE")
        try:
            info = parse_json(index_file.read_text(encoding="utf-8"))
            if info["version"] != VERSION:
                raise ValueError(f"version {info['version']}, expected {VERSION}")
            self.backbone: str | None = info["backbone"]
            self.width: int = info["width"]
            self.window: float = info["window"]
            self.clock = Clock(info["fps"], info["stride"])
            self.precision: StoreDtype = info["dtype"]
            self.digest: str = info["source_sha256"]
            self.videos = {video["id"]: PackedVideo(**video) for video in info["videos"]}
            data = self.folder / Path(info["data"]).name  # never a file outside the folder
            dtype = np.dtype(self.precision)
            _check_index(self.width, self.videos)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{index_file}: damaged ({error}); pack the features again") from error
        num_rows = sum(video.length for video in self.videos.values())
        try:
            is_whole = data.stat().st_size == num_rows * self.width * dtype.itemsize
        except OSError:  # also a name that is too long
            is_whole = False
        if not is_whole:
            raise InputError(f"{data}: missing or cut short; pack the features again")
        self._rows = np.memmap(data, dtype=dtype, mode="r", shape=(num_rows, self.width))

    def __len__(self) -> int:
        return len(self.videos)

    def __contains__(self, video: object) -> bool:
        return video in self.videos

    def __iter__(self) -> Iterator[str]:
        return iter(self.videos)

    def num_segments(self, video: str) -> int:
        """Number of segments of a video."""
        return self._find(video).length

    def read(self, video: str, start: int = 0, end: int | None = None) -> Tensor:
        """Features of the segments [start, end) of a video."""
        packed = self._find(video)
        end = packed.length if end is None else end
        if not 0 <= start <= end <= packed.length:
            raise InputError(f"{video} has segments 0 to {packed.length}; asked for {start} to {end}")
        return torch.from_numpy(self._rows[packed.offset + start : packed.offset + end].astype(np.float32))

    def first_row(self, video: str) -> int:
        """Index of a video's first segment among all rows of the store."""
        return self._find(video).offset

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """Features at indices (…) among all rows of the store, (…, D) float32."""
        return self._rows[indices].astype(np.float32)

    def _find(self, video: str) -> PackedVideo:
        try:
            return self.videos[video]
        except KeyError:
            raise InputError(f"{video}: not in the store {self.folder} ({len(self)} videos)") from None


def pack(
    source: Path,
    out: Path,
    *,
    backbone: str | None = None,
    clock: Clock | None = None,
    window: float | None = None,
    precision: StoreDtype = "float16",
    skip_bad: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[FeatureStore, list[str]]:
    """Pack a folder of feature files, one for each video, into a store.

    Missing arguments come from the sidecars of `hiero extract`. An interrupted run leaves the old
    store unchanged. Returns the store, and the problems of the files that were left out (`skip_bad`).
    """
    files = find_features(source)
    sidecar = _common_sidecar(files, check_clocks=clock is None)
    if sidecar is not None:
        backbone, clock = backbone or sidecar.backbone, clock or sidecar.clock
        window = sidecar.window if window is None else window
    clock, window = clock or Clock(), DEFAULT_WINDOW if window is None else window
    out.mkdir(parents=True, exist_ok=True)
    width = _usual_width(files)
    temporary = out / f".features-{os.getpid()}.part"
    try:
        videos, problems, digest = _write_rows(temporary, files, source, width, precision, progress)
        if problems and not (skip_bad and videos):
            count = f"{len(problems)} of {len(files)} files cannot be used"
            raise InputError("\n  ".join([f"{source}: {count}", *problems]) + "\nrepair or skip them (--skip-bad)")
        final = out / f"features-{digest[:16]}.bin"
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    info: dict[str, Any] = {
        "version": VERSION,
        "backbone": backbone,
        "width": width,
        "fps": clock.fps,
        "stride": clock.stride,
        "window": window,
        "dtype": precision,
        "data": final.name,
        "source_sha256": digest,
        "videos": [asdict(video) for video in videos],
    }
    # The index names its data file and is written last, so that the folder always holds a complete store.
    with atomic_path(out / INDEX_FILE) as path:
        path.write_text(json.dumps(info, indent=1) + "\n")
    for pattern in LEFTOVERS:
        for old in set(out.glob(pattern)) - {final}:
            old.unlink(missing_ok=True)
    return FeatureStore(out), problems


def _write_rows(
    target: Path, files: list[Path], source: Path, width: int, precision: StoreDtype, progress: Callable[[str], None]
) -> tuple[list[PackedVideo], list[str], str]:
    """Write the rows of all usable files. Returns their videos, the problems of the others, and a hash."""
    videos: list[PackedVideo] = []
    problems: list[str] = []
    next_row = 0
    digest = hashlib.sha256(f"{width} {precision}".encode())
    with target.open("wb") as data:
        for file in files:
            name = file.relative_to(source).with_suffix("").as_posix()
            try:
                rows = _read_rows(file, width, precision)
            except InputError as error:
                problems.append(str(error))
            else:
                with file.open("rb") as raw:
                    sha256 = hashlib.file_digest(raw, "sha256").hexdigest()
                digest.update(f"{name} {sha256}".encode("utf-8", "surrogatepass"))  # file names may contain any bytes
                videos.append(PackedVideo(name, next_row, len(rows), file.name, sha256))
                next_row += len(rows)
                data.write(rows.tobytes())
            progress(name)
        os.fsync(data.fileno())
    return videos, problems, digest.hexdigest()


def _check_index(width: int, videos: dict[str, PackedVideo]) -> None:
    """Raise ValueError if the rows of the videos do not follow each other."""
    if not isinstance(width, int) or width < 1:
        raise ValueError(f"width cannot be {width}")
    next_row = 0
    for video in videos.values():
        if not isinstance(video.length, int) or video.length < 1 or video.offset != next_row:
            raise ValueError(f"the rows of {video.id} cannot be {video.length} from {video.offset} on")
        next_row += video.length


def _common_sidecar(files: list[Path], check_clocks: bool) -> Sidecar | None:
    """The first sidecar of feature files. All must have the same backbone, weights and clock."""
    sidecars = {file: sidecar for file in files if (sidecar := read_sidecar(file)) is not None}
    if not sidecars:
        return None
    (first_file, first), *others = sidecars.items()
    for file, other in others:
        if (other.backbone, other.weights) != (first.backbone, first.weights):
            differ = f"{first_file.name} is from {first.backbone}, {file.name} from {other.backbone} or other weights"
            raise InputError(f"{differ}; pack them into separate stores")
        spacing_s, other_spacing_s = first.clock.spacing_s, other.clock.spacing_s
        if check_clocks and abs(other_spacing_s / spacing_s - 1) > CLOCK_TOLERANCE:
            raise InputError(
                f"{first_file.name} has a row every {spacing_s:.4f} s, {file.name} every {other_spacing_s:.4f} s, and "
                "a store has one clock; extract with --clock seconds, or choose a clock: --fps and --stride"
            )
    return first


def _usual_width(files: list[Path]) -> int:
    """The most frequent width of the first files, so that one odd file is reported and not all others."""
    widths: list[int] = []
    for file in files:
        with suppress(InputError):
            widths.append(read_features(file).shape[1])
        if len(widths) == NUM_WIDTH_VOTES:
            break
    return statistics.mode(widths or [read_features(files[0]).shape[1]])  # which raises what is wrong with it


def _read_rows(file: Path, width: int, precision: StoreDtype) -> np.ndarray[Any, Any]:
    features = read_features(file, width)
    if features.abs().max() > np.finfo(precision).max:
        largest = float(features.abs().max())
        raise InputError(f"{file}: values up to {largest:.3g} do not fit {precision}; pack with --dtype float32")
    return features.numpy().astype(precision)
