"""A packed collection of features: one memory-mapped file of rows and a sidecar that says whose they are.

    OUT/store.json             backbone, width, fps, stride, window, dtype, and for each video its first row, length and source hash
    OUT/features-HASH.bin      all rows, one video after the other

Reading a window touches only that window. The sidecar is written last and names its data file, so a store is always whole:
an interrupted or repeated pack leaves the old one or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hiero.data.features import Sidecar, find_features, read_features, read_sidecar
from hiero.errors import InputError
from hiero.storage.files import atomic_path
from hiero.types import Clock

SIDECAR = "store.json"
VERSION = 1
StoreDtype = Literal["float16", "float32"]


@dataclass(frozen=True)
class Packed:
    """One video in a store: rows [offset, offset + length) and where they came from."""

    id: str
    offset: int
    length: int
    source: str
    sha256: str


class FeatureStore:
    """A store opened for reading. Cheap to open, safe to share between processes."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        sidecar = self.folder / SIDECAR
        if not sidecar.is_file():
            raise InputError(
                f"{self.folder}: not a feature store, {SIDECAR} is missing; make one of feature files: hiero pack FOLDER STORE"
            )
        try:
            info = json.loads(sidecar.read_text())
            if info["version"] != VERSION:
                raise InputError(f"{sidecar}: version {info['version']}, this program reads {VERSION}; pack the features again")
            self.backbone: str | None = info["backbone"]
            self.width: int = info["width"]
            self.window: float = info["window"]
            self.clock = Clock(info["fps"], info["stride"])
            self.precision: StoreDtype = info["dtype"]
            self.digest: str = info["source_sha256"]
            self.videos = {video["id"]: Packed(**video) for video in info["videos"]}
            data = self.folder / Path(info["data"]).name  # a name, never a way out of the folder
            dtype = np.dtype(self.precision)
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{sidecar}: damaged ({error}); pack the features again") from error
        rows = sum(video.length for video in self.videos.values())
        if not data.is_file() or data.stat().st_size != rows * self.width * dtype.itemsize:
            raise InputError(f"{data}: missing or cut short; pack the features again")
        self._rows = np.memmap(data, dtype=dtype, mode="r", shape=(rows, self.width))

    def __len__(self) -> int:
        return len(self.videos)

    def __contains__(self, video: object) -> bool:
        return video in self.videos

    def __iter__(self) -> Iterator[str]:
        return iter(self.videos)

    def num_segments(self, video: str) -> int:
        return self._find(video).length

    def read(self, video: str, start: int = 0, end: int | None = None) -> Tensor:
        """Segments [start, end) of a video as (n, D) float32."""
        found = self._find(video)
        end = found.length if end is None else end
        if not 0 <= start <= end <= found.length:
            raise InputError(f"{video} has segments 0 to {found.length}; asked for {start} to {end}")
        return torch.from_numpy(self._rows[found.offset + start : found.offset + end].astype(np.float32))

    def first_row(self, video: str) -> int:
        """Where a video begins among all rows of the store."""
        return self._find(video).offset

    def rows(self, places: np.ndarray) -> np.ndarray:
        """Segments by their places among all rows: (…) of integers → (…, D) float32."""
        return self._rows[places].astype(np.float32)

    def _find(self, video: str) -> Packed:
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
    """Pack a folder of one feature file a video; its path without suffix is the video's id. → the store, and what was left out.

    All bad files are found before anything is said; with `skip_bad` the good ones are packed all the same. What is not given
    is taken from the sidecars of `hiero extract`, where there are any.
    """
    files = find_features(source)
    said = _sidecar(files, clock is None)
    if said is not None:
        backbone, clock, window = backbone or said.backbone, clock or said.clock, said.window if window is None else window
    window = 16 if window is None else window
    out.mkdir(parents=True, exist_ok=True)
    width = _usual_width(files)
    problems: list[str] = []
    videos: list[Packed] = []
    digest = hashlib.sha256(f"{width} {precision}".encode())
    temporary = out / f".features-{os.getpid()}.part"
    try:
        with temporary.open("wb") as data:
            for file in files:
                name = file.relative_to(source).with_suffix("").as_posix()
                try:
                    rows = _read_rows(file, width, precision)
                except InputError as error:
                    problems.append(str(error))
                else:
                    with file.open("rb") as raw:
                        sha256 = hashlib.file_digest(raw, "sha256").hexdigest()
                    digest.update(f"{name} {sha256}".encode())
                    videos.append(Packed(name, _next_row(videos), len(rows), file.name, sha256))
                    data.write(rows.tobytes())
                progress(name)
            os.fsync(data.fileno())
        if problems and not (skip_bad and videos):
            listed = "\n  ".join(problems)
            raise InputError(
                f"{source}: {len(problems)} of {len(files)} files cannot be used\n  {listed}\nmend them, or skip them (--skip-bad)"
            )
        final = out / f"features-{digest.hexdigest()[:16]}.bin"
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    clock = clock or Clock()
    info: dict[str, Any] = {
        "version": VERSION, "backbone": backbone, "width": width, "fps": clock.fps, "stride": clock.stride, "window": window,
        "dtype": precision, "data": final.name, "source_sha256": digest.hexdigest(), "videos": [asdict(video) for video in videos],
    }  # fmt: skip
    with atomic_path(out / SIDECAR) as path:
        path.write_text(json.dumps(info, indent=1) + "\n")
    for old in set(out.glob("features-*.bin")) - {final}:
        old.unlink()
    return FeatureStore(out), problems


def _sidecar(files: list[Path], one_clock: bool) -> Sidecar | None:
    """What the sidecars of feature files agree on. Other backbones, or other clocks where they count, are an error."""
    found = {file: said for file in files if (said := read_sidecar(file)) is not None}
    if not found:
        return None
    (first, said), *others = found.items()
    for file, other in others:
        if (other.backbone, other.weights) != (said.backbone, said.weights):
            raise InputError(
                f"{first.name} is from {said.backbone}, {file.name} from {other.backbone} or other weights; pack them apart"
            )
        if one_clock and abs(other.clock.spacing_s / said.clock.spacing_s - 1) > 1e-6:
            raise InputError(
                f"{first.name} has a row every {said.clock.spacing_s:.4f} s, {file.name} every {other.clock.spacing_s:.4f} s, and "
                "a store has one clock; extract with --clock seconds, or say which clock to take: --fps and --stride"
            )
    return said


def _next_row(videos: list[Packed]) -> int:
    """The first free row."""
    return videos[-1].offset + videos[-1].length if videos else 0


def _usual_width(files: list[Path]) -> int:
    """The width that most of the first files agree on; a single odd file must not make all others look wrong."""
    widths: Counter[int] = Counter()
    first: InputError | None = None
    for file in files:
        try:
            widths[read_features(file).shape[1]] += 1
        except InputError as error:
            first = first or error
        if sum(widths.values()) == 5:
            break
    if not widths:
        raise first or InputError("no feature files")
    return widths.most_common(1)[0][0]


def _read_rows(file: Path, width: int, precision: StoreDtype) -> np.ndarray[Any, Any]:
    features = read_features(file, width)
    limit = np.finfo(precision).max
    if features.abs().max() > limit:
        raise InputError(
            f"{file}: values up to {float(features.abs().max()):.3g} do not fit {precision}; pack with --dtype float32"
        )
    return features.numpy().astype(precision)
