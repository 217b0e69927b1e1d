"""Features of many videos: a file for each, with a sidecar that describes the rows and their times.

    OUT/NAME.safetensors         (or .pt)  the rows
    OUT/NAME.safetensors.json    the sidecar with a hash of the rows; without it a video is not done

Repeated runs only read videos whose content, weights or settings have changed, and resume those that
were interrupted. A video that cannot be read is reported and does not stop the others.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import io
import json
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from safetensors.numpy import save

from hiero.devices import choose_device
from hiero.errors import InputError
from hiero.features.extractor import ExtractionOptions, LoadedBackbones, extract_features
from hiero.features.files import Sidecar, read_feature_array, read_sidecar, rows_key, sidecar_path
from hiero.media.addresses import failure_message
from hiero.media.decode import probe
from hiero.media.recordings import probe_duration
from hiero.media.source import SourceFile, VideoInput, VideoSource
from hiero.networks.registry import FPS, STRIDE, Backbone, Precision, fetch_weights, find_backbone
from hiero.storage.cache import content_key
from hiero.storage.checkpoints import find_checkpoint
from hiero.storage.files import atomic_path, is_disk_full, path_beside, write_text
from hiero.types import Clock, ProgressCallback, ProgressEvent, no_progress

KEY_LENGTH = 16  # hexadecimal digits of a SHA-256 in sidecars
_LOADING = threading.Lock()


@dataclass(frozen=True)
class ExtractionPlan:
    """How videos become feature files."""

    backbone: str
    out: Path
    clock: Literal["seconds", "frames"] = "seconds"
    spacing_s: float | None = None
    window: int | None = None
    num_frames: int | None = None
    format: Literal["safetensors", "pt"] = "safetensors"
    dtype: Literal["float16", "float32"] = "float16"
    weights: Path | None = None
    device: str = "auto"
    precision: Precision = "auto"
    batch_size: int | None = None
    stream: int = 0
    threads: int = 0

    def __post_init__(self) -> None:
        is_tower = self.is_tower  # first: an unknown backbone is an error, whatever the other settings are
        if self.spacing_s is not None and not 0 < self.spacing_s < float("inf"):
            raise InputError(f"--spacing must be a positive number of seconds, got {self.spacing_s}")
        if self.clock == "frames" and (self.spacing_s is not None or not is_tower):
            raise InputError("--clock frames needs a video backbone and cannot be combined with --spacing")
        if self.window is not None and (not is_tower or self.window < STRIDE or self.window % STRIDE):
            raise InputError(f"--window must be a multiple of {STRIDE} and needs a video backbone, got {self.window}")
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"--batch-size must be at least 1, got {self.batch_size}")
        if self.weights is not None and not is_tower:
            raise InputError(f"--weights needs a video backbone. For {self.backbone}, use hiero models get.")

    @property
    def backbone_info(self) -> Backbone:
        """The entry of the backbone in the registry."""
        return find_backbone(self.backbone)

    @property
    def is_tower(self) -> bool:
        """Whether the backbone is a video backbone, which sees all frames of a window at once."""
        return self.backbone_info.num_frames > 0

    @property
    def overlap(self) -> int:
        """Number of segments of a window."""
        return (self.window or STRIDE) // STRIDE

    @property
    def frames_per_segment(self) -> int | None:
        """Number of frames of a segment that a tower sees; None for other backbones."""
        return self.num_frames or self.backbone_info.num_frames or None

    @cached_property
    def weights_key(self) -> str:
        """Hash of the weights."""
        if self.weights is None and not self.backbone_info.needs_weights:
            return "none"
        folder = self.weights or fetch_weights(self.backbone_info)
        files = [find_checkpoint(folder)] if self.is_tower or folder.is_file() else sorted(folder.iterdir())
        keys = "".join(content_key(file) for file in files if file.is_file() and not file.name.startswith("."))
        return hashlib.sha256(keys.encode()).hexdigest()[:KEY_LENGTH]

    @cached_property
    def settings_key(self) -> str:
        """Hash of everything that the rows depend on, except the video."""
        settings = [
            self.backbone,
            self.weights_key,
            self.clock,
            self.spacing_s,
            self.overlap,
            self.frames_per_segment,
            self.dtype,
            self.precision,
            self.stream,
        ]
        if self.backbone_info.version > 1:  # files of version 1 stay valid
            settings.append(self.backbone_info.version)
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:KEY_LENGTH]

    def feature_file(self, name: str) -> Path:
        """The feature file of a video."""
        return path_beside(self.out / name, f".{self.format}")

    def partial_file(self, name: str, sha256: str) -> Path:
        """Where an interrupted extraction of this content is continued."""
        return path_beside(self.out / name, f"-{self.settings_key[:8]}{sha256[:8]}.partial", ".")

    def row_clock(self, path: Path) -> Clock:
        """The clock of the rows of a video."""
        if self.clock == "frames":
            fps = probe(path, self.stream).fps
            if fps is None:
                raise InputError(f"{path}: does not state its frame rate. Use --clock seconds.")
            return Clock(fps, STRIDE)
        if self.spacing_s is None and self.is_tower:
            return Clock(FPS, STRIDE)
        return Clock(1.0, self.spacing_s or self.backbone_info.spacing_s)

    def load_backbones(self) -> LoadedBackbones:
        """The network on its device, loaded by the first thread that calls this."""
        with _LOADING:
            return self._backbones

    @cached_property
    def _backbones(self) -> LoadedBackbones:
        device = choose_device(self.device)
        return LoadedBackbones.load(
            [self.backbone_info], device, self.precision, self.num_frames, self.weights, self.overlap
        )

    def prepare(self) -> None:
        """Create the output folder and find the weights, so that mistakes show before a video is read."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.out}: the folder cannot be created ({error.strerror})") from error
        self.weights_key  # noqa: B018


@dataclass(frozen=True)
class ExtractionResult:
    """The outcome for one video."""

    name: str
    status: Literal["done", "kept", "failed"]
    message: str = ""
    num_segments: int = 0
    duration_s: float = 0.0
    spent_s: float = 0.0


@dataclass
class ExtractionProgress:
    """Callbacks of an extraction; several threads may call them."""

    begin: Callable[[str, float | None], None] = lambda *_: None
    advance: Callable[[str, float], None] = lambda *_: None
    end: Callable[[ExtractionResult], None] = lambda _: None
    log: Callable[[str], None] = lambda _: None
    download: ProgressCallback = no_progress


Extract: TypeAlias = Callable[[str, SourceFile, Callable[[float], None], ProgressCallback], ExtractionResult]


def extract_all(
    videos: Mapping[str, VideoInput],
    plan: ExtractionPlan,
    jobs: int = 1,
    progress: ExtractionProgress | None = None,
    extract: Extract | None = None,
) -> list[ExtractionResult]:
    """Extract the features of videos with a number of threads, by default on this machine with one network."""
    progress = progress or ExtractionProgress()
    if extract is None:
        plan.prepare()
        choose_device(plan.device)  # a missing device is an error now, not in a thread
        extract = functools.partial(extract_video, plan)
    stop = threading.Event()

    def check_stop() -> None:
        if stop.is_set():  # another video was interrupted or filled the disk
            raise KeyboardInterrupt

    def run(name: str, video: VideoInput) -> ExtractionResult:
        file = VideoSource.of(video).files[0]

        def advance(done_s: float) -> None:
            check_stop()
            progress.advance(name, done_s)

        def download(event: ProgressEvent) -> None:
            check_stop()
            progress.download(event)

        # A video whose copy was evicted is most likely done, so it is not even probed.
        is_evicted = file.was_downloaded and not file.path.is_file()
        progress.begin(name, None if is_evicted else probe_duration(file, plan.stream))
        result = extract(name, file, advance, download)
        progress.end(result)
        return result

    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(jobs) as pool:
        warnings.simplefilter("always", UserWarning)
        futures = [pool.submit(run, name, video) for name, video in videos.items()]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for warning in caught:  # of decoders, such as a broken end of a file
        progress.log(str(warning.message))
    return [future.result() for future in futures]


def extract_video(
    plan: ExtractionPlan,
    name: str,
    video: SourceFile,
    advance: Callable[[float], None] = lambda _: None,
    download: ProgressCallback = no_progress,
) -> ExtractionResult:
    """Extract the features of one video to its file, unless that is already done."""
    begin_s, begun_at, file = time.monotonic(), time.time(), plan.feature_file(name)

    def failed(error: Exception) -> ExtractionResult:
        return ExtractionResult(name, "failed", failure_message(video.name, error), spent_s=time.monotonic() - begin_s)

    try:
        if not video.exists():
            raise InputError(f"{video.path}: no such file")
        if video.known_key() is None:
            video.fetch(download)
        state, sha256 = video.state(), video.key()
        if (sidecar := finished_sidecar(plan, name, sha256)) is not None:
            return ExtractionResult(name, "kept", "", sidecar.num_segments, sidecar.duration_s)
        if file.exists() and not sidecar_path(file).exists():
            raise InputError(f"{file}: exists, but hiero extract did not write it. Remove it, or choose another -o.")
        video.fetch(download)
        clock = plan.row_clock(video.path)
    except (InputError, OSError) as error:
        return failed(error)
    backbones = plan.load_backbones()  # outside of any try: its errors are not the video's
    partial = plan.partial_file(name, sha256)
    try:
        rows, duration_s = _extract_rows(plan, backbones, video.path, clock, partial, advance)
        if video.state() != state:
            _remove_leftovers(file, partial, begun_at)
            raise InputError(f"{video.name}: changed while it was read; extract it again when it is complete")
        _write(plan, file, video.path, clock, rows, duration_s, sha256)
        _remove_leftovers(file, partial, begun_at)
    except Exception as error:  # the other videos go on
        if is_disk_full(error):
            raise
        return failed(error)
    return ExtractionResult(name, "done", "", len(rows), duration_s, time.monotonic() - begin_s)


def finished_sidecar(plan: ExtractionPlan, name: str, sha256: str) -> Sidecar | None:
    """The sidecar of a complete feature file with the same content, weights and settings; else None."""
    file = plan.feature_file(name)
    try:
        sidecar = read_sidecar(file)
        if sidecar is None or not file.is_file() or sidecar.sha256 != sha256 or sidecar.settings != plan.settings_key:
            return None
        return sidecar if rows_key(read_feature_array(file, sidecar.width)) == sidecar.rows else None
    except InputError:
        return None


def _extract_rows(
    plan: ExtractionPlan,
    backbones: LoadedBackbones,
    path: Path,
    clock: Clock,
    partial: Path,
    advance: Callable[[float], None],
) -> tuple[np.ndarray, float]:
    """Rows (T, D) in the precision of the plan, and the length of the video in seconds."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    options = ExtractionOptions(
        spacing_s=clock.spacing_s,
        overlap=plan.overlap,
        batch_size=plan.batch_size,
        stream=plan.stream,
        threads=plan.threads,
        thumbnails=False,
    )
    source = extract_features(path, backbones, options, partial, advance)
    rows = source.features[plan.backbone]
    if not np.isfinite(rows).all():
        partial.unlink(missing_ok=True)  # it contains such rows too
        raise InputError(f"{path}: {plan.backbone} produced values that are not finite. Try --precision float32.")
    if np.abs(rows).max() > np.finfo(plan.dtype).max:
        raise InputError(f"{path}: values up to {np.abs(rows).max():.3g} do not fit {plan.dtype}. Use --dtype float32.")
    return rows.astype(plan.dtype), source.duration_s


def _write(
    plan: ExtractionPlan, file: Path, path: Path, clock: Clock, rows: np.ndarray, duration_s: float, sha256: str
) -> None:
    """Write the feature file and its sidecar."""
    sidecar = Sidecar(
        plan.backbone,
        plan.weights_key,
        plan.settings_key,
        rows.shape[1],
        clock.fps,
        clock.stride,
        # A tower sees a window of its own; other networks see two segments.
        (plan.overlap if plan.is_tower else 2) * clock.stride,
        plan.frames_per_segment or 0,
        str(rows.dtype),
        len(rows),
        duration_s,
        path.name,
        sha256,
        rows_key(rows),
    )
    # The rows are on the disk, under a temporary name, before the sidecar: if they do not fit, nothing changes.
    data = io.BytesIO()
    if plan.format == "pt":
        torch.save(torch.from_numpy(rows), data)
    else:
        data.write(save({"features": rows}))
    with atomic_path(file) as temporary:
        temporary.write_bytes(data.getvalue())
        write_text(sidecar_path(file), json.dumps(asdict(sidecar), indent=1) + "\n")


def _remove_leftovers(file: Path, partial: Path, begun_at: float) -> None:
    """Remove what this extraction, and interrupted ones before it, left beside a feature file."""
    partial.unlink(missing_ok=True)
    name, stem = glob.escape(file.name), glob.escape(file.stem)
    for pattern in (f".{stem}-{16 * '?'}.partial", f".{name}.{8 * '?'}.part", f".{name}.json.{8 * '?'}.part"):
        for leftover in file.parent.glob(pattern):
            with suppress(FileNotFoundError):
                if leftover.suffix == ".partial" or leftover.stat().st_mtime < begun_at:
                    leftover.unlink()
