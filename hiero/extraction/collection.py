"""Features of many videos: one file each, with a sidecar that says where its rows come from and when they are.

    OUT/NAME.safetensors         (or .pt)  the rows
    OUT/NAME.safetensors.json    the sidecar, which names these rows: a video without it, or with other rows, is not done

What is done is kept: a video is read again only when its content, the weights or the settings have changed. What was begun goes
on. A video that cannot be read is reported and does not stop the others.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import json
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hiero.data.features import FEATURE_SUFFIXES, Sidecar, read_feature_array, read_sidecar, sidecar_path
from hiero.devices import choose_device
from hiero.errors import InputError
from hiero.storage.cache import content_key
from hiero.storage.checkpoints import find_checkpoint
from hiero.storage.files import atomic_path, write_text
from hiero.types import Clock
from hiero.video.registry import FPS, STRIDE, Backbone, Precision, fetch_weights, find_backbone

if TYPE_CHECKING:
    from hiero.extraction.extractor import LoadedBackbones

VIDEO_SUFFIXES = (
    ".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg", ".wmv", ".flv", ".3gp", ".gif",
)  # fmt: skip
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@dataclass(frozen=True)
class ExtractionPlan:
    """How videos become feature files.

    clock: `seconds`, a row every `spacing_s`; `frames`, every 16 frames of each video's own rate.
    """

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
        tower = self.spec.num_frames > 0
        if self.spacing_s is not None and not 0 < self.spacing_s < float("inf"):
            raise InputError(f"--spacing is a positive number of seconds, got {self.spacing_s}")
        if self.clock == "frames" and (self.spacing_s is not None or not tower):
            raise InputError("--clock frames is for towers for video, which step by 16 frames; --spacing goes with --clock seconds")
        if self.window is not None and (not tower or self.window < STRIDE or self.window % STRIDE):
            raise InputError(f"--window is a multiple of {STRIDE} frames, for towers for video; got {self.window}")
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"--batch-size is at least 1, got {self.batch_size}")
        if self.weights is not None and not tower:
            raise InputError(f"--weights is for towers for video; {self.backbone} takes what hiero weights get brings")

    @property
    def spec(self) -> Backbone:
        return find_backbone(self.backbone)

    @property
    def overlap(self) -> int:
        """Segments that a window spans."""
        return (self.window or STRIDE) // STRIDE

    @property
    def frames(self) -> int | None:
        """Frames of a segment that a tower looks at."""
        return self.num_frames or self.spec.num_frames or None

    @cached_property
    def weights_key(self) -> str:
        """Names the weights by their content."""
        folder = self.weights or fetch_weights(self.spec)
        files = [find_checkpoint(folder)] if self.spec.num_frames or folder.is_file() else sorted(folder.iterdir())
        keys = "".join(content_key(file) for file in files if file.is_file() and not file.name.startswith("."))
        return hashlib.sha256(keys.encode()).hexdigest()[:16]

    @cached_property
    def key(self) -> str:
        """Names all that the rows depend on, but for the video."""
        clock = [self.clock, self.spacing_s, self.overlap, self.frames]
        spec = [self.backbone, self.weights_key, *clock, self.dtype, self.precision, self.stream]
        return hashlib.sha256(json.dumps(spec).encode()).hexdigest()[:16]

    def file(self, name: str) -> Path:
        return self.out / f"{name}.{self.format}"

    def rate(self, path: Path) -> Clock:
        """When the rows of a video are."""
        if self.clock == "frames":
            from hiero.video.decode import probe

            fps = probe(path, self.stream).fps
            if fps is None:
                raise InputError(f"{path}: does not say its frame rate; use --clock seconds")
            return Clock(fps, STRIDE)
        if self.spacing_s is None and self.spec.num_frames:
            return Clock(FPS, STRIDE)
        return Clock(1.0, self.spacing_s or self.spec.spacing_s)

    def networks(self) -> LoadedBackbones:
        from hiero.extraction.extractor import LoadedBackbones

        device = choose_device(self.device)
        return LoadedBackbones.load([self.backbone], device, self.precision, self.num_frames, self.weights, self.overlap)

    def prepare(self) -> None:
        """What is wrong with the command is said before any video is touched."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.out}: cannot be made a folder ({error.strerror})") from error
        self.weights_key  # noqa: B018

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class LazyBackbones:
    """A plan's networks, loaded by the first thread that needs them."""

    def __init__(self, plan: ExtractionPlan) -> None:
        self.plan, self.lock = plan, threading.Lock()
        self.loaded: LoadedBackbones | None = None

    def __call__(self) -> LoadedBackbones:
        with self.lock:
            if self.loaded is None:
                self.loaded = self.plan.networks()
            return self.loaded


@dataclass(frozen=True)
class ExtractionResult:
    """What became of a video. kept: it was done before."""

    name: str
    status: Literal["done", "kept", "failed"]
    message: str = ""
    num_segments: int = 0
    duration_s: float = 0.0
    spent_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class ExtractionProgress:
    """How a display follows: a video begins, moves on in seconds, and ends."""

    begin: Callable[[str, float | None], None] = lambda *_: None
    advance: Callable[[str, float], None] = lambda *_: None
    end: Callable[[ExtractionResult], None] = lambda _: None
    log: Callable[[str], None] = lambda _: None


def find_videos(paths: Iterable[Path]) -> dict[str, Path]:
    """Videos by name: files by theirs, those in folders by their path inside. Two of one name are an error."""
    return _by_name(paths, VIDEO_SUFFIXES, "videos")


def find_files(paths: Iterable[Path]) -> dict[str, Path]:
    """Videos and feature files by name, as `find_videos`."""
    return _by_name(paths, (*VIDEO_SUFFIXES, *FEATURE_SUFFIXES), "videos or feature files")


def _by_name(paths: Iterable[Path], suffixes: tuple[str, ...], what: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            files = files_in(path, suffixes)
            if not files:
                raise InputError(f"{path}: no {what} in this folder (looked for {', '.join(suffixes)})")
            named = {file.relative_to(path).with_suffix("").as_posix(): file for file in files}
            if len(named) < len(files):
                raise InputError(f"{path}: two files differ only in their suffix; keep one, or give them one by one")
        else:
            named = {path.stem: path}
        for name, file in named.items():
            if found.setdefault(name, file).resolve() != file.resolve():
                raise InputError(f"{found[name]} and {file} would both be named {name}; rename one, or run them apart")
    if not found:
        raise InputError(f"give at least one file or folder of {what}")
    return found


def files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files of some kinds below a folder, in order; hidden ones are left out."""
    return sorted(f for f in folder.rglob("*") if f.suffix.lower() in suffixes and f.name[0] != "." and f.is_file())


def is_done(plan: ExtractionPlan, name: str, sha256: str) -> Sidecar | None:
    """The sidecar of a video that needs no reading: same content, weights and settings, and its file is whole."""
    file = plan.file(name)
    said = read_sidecar(file)
    if said is None or not file.is_file() or said.sha256 != sha256 or said.settings != plan.key:
        return None
    try:
        return said if _digest(read_feature_array(file, said.width)) == said.rows else None
    except InputError:
        return None


def extract_video(
    plan: ExtractionPlan,
    networks: Callable[[], LoadedBackbones],
    name: str,
    path: Path,
    advance: Callable[[float], None] = lambda _: None,
) -> ExtractionResult:
    """One video, to its file. What is wrong with it is in the outcome; a full disk, which ends everything, is raised."""
    begin = time.monotonic()
    try:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        sha256 = content_key(path)
        if (said := is_done(plan, name, sha256)) is not None:
            return ExtractionResult(name, "kept", "", said.num_segments, said.duration_s)
        if plan.file(name).exists() and not sidecar_path(plan.file(name)).exists():
            raise InputError(f"{plan.file(name)}: is there, and hiero extract did not write it; remove it, or choose another -o")
        clock = plan.rate(path)
    except (InputError, OSError) as error:
        return ExtractionResult(name, "failed", _reason(path, error), spent_s=time.monotonic() - begin)
    loaded = networks()  # what is wrong with them is not the video's fault
    try:
        rows, duration_s = _read(plan, loaded, name, path, clock, sha256, advance)
        _write(plan, name, path, clock, rows, duration_s, sha256)
    except Exception as error:  # whatever it is, the other videos go on
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        return ExtractionResult(name, "failed", _reason(path, error), spent_s=time.monotonic() - begin)
    return ExtractionResult(name, "done", "", len(rows), duration_s, time.monotonic() - begin)


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, InputError):
        return str(error) if str(path) in str(error) else f"{path}: {error}"
    if isinstance(error, OSError):
        return f"{error.filename or path}: {error.strerror or error}"
    return f"{path}: {type(error).__name__}: {error}"


def _write(plan: ExtractionPlan, name: str, path: Path, clock: Clock, rows: np.ndarray, duration_s: float, sha256: str) -> None:
    """Rows and sidecar, one right after the other; then what was kept for an interruption is not needed any more.

    The rows are on the disk, under another name, before the sidecar is: what does not fit leaves everything as it was.
    """
    file = plan.file(name)
    window = (plan.overlap if plan.spec.num_frames else 2) * clock.stride
    said = Sidecar(
        plan.backbone, plan.weights_key, plan.key, rows.shape[1], clock.fps, clock.stride, window, plan.frames or 0,
        str(rows.dtype), len(rows), duration_s, path.name, sha256, _digest(rows),
    )  # fmt: skip
    with atomic_path(file) as temporary:
        temporary.write_bytes(_content(rows, plan.format))
        write_text(sidecar_path(file), json.dumps(said.to_dict(), indent=1) + "\n")
    for old in file.parent.glob(f".{glob.escape(file.stem)}-*.partial"):
        old.unlink(missing_ok=True)


def _content(rows: np.ndarray, format: str) -> bytes:
    if format == "pt":
        import torch

        out = io.BytesIO()
        torch.save(torch.from_numpy(rows), out)
        return out.getvalue()
    from safetensors.numpy import save

    return save({"features": rows})


def _digest(rows: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows, dtype=np.float32).tobytes()).hexdigest()[:16]


def _read(
    plan: ExtractionPlan,
    networks: LoadedBackbones,
    name: str,
    path: Path,
    clock: Clock,
    sha256: str,
    advance: Callable[[float], None],
) -> tuple[np.ndarray, float]:
    from hiero.extraction.extractor import extract_features

    partial = _partial(plan, name, sha256)
    partial.parent.mkdir(parents=True, exist_ok=True)
    found = extract_features(
        path, networks=networks, spacing_s=clock.spacing_s, overlap=plan.overlap, batch_size=plan.batch_size, stream=plan.stream,
        threads=plan.threads, pictures=False, partial=partial, progress=advance,
    )  # fmt: skip
    rows = found.features[plan.backbone]
    if not np.isfinite(rows).all():
        partial.unlink(missing_ok=True)  # it holds such rows too
        raise InputError(f"{path}: {plan.backbone} gives values that are not finite; try --precision float32")
    if np.abs(rows).max() > np.finfo(plan.dtype).max:
        raise InputError(f"{path}: values up to {np.abs(rows).max():.3g} do not fit {plan.dtype}; use --dtype float32")
    return rows.astype(plan.dtype), found.duration_s


def _partial(plan: ExtractionPlan, name: str, sha256: str) -> Path:
    """What is done of a video so far; of another content or other settings it is another file."""
    file = plan.file(name)
    return file.parent / f".{file.stem}-{plan.key[:8]}{sha256[:8]}.partial"


def extract_all(
    videos: dict[str, Path], plan: ExtractionPlan, jobs: int = 1, following: ExtractionProgress | None = None
) -> list[ExtractionResult]:
    """All videos on this machine, `jobs` at a time: they decode side by side and take turns on the networks."""
    following = following or ExtractionProgress()
    plan.prepare()
    choose_device(plan.device)
    stop, networks = threading.Event(), LazyBackbones(plan)

    def run(name: str, path: Path) -> ExtractionResult:
        def advance(done_s: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            following.advance(name, done_s)

        following.begin(name, length_of(path, plan.stream))
        outcome = extract_video(plan, networks, name, path, advance)
        following.end(outcome)
        return outcome

    with _said(following.log), ThreadPoolExecutor(jobs) as pool:
        waiting = iter(videos.items())
        running: set[Future[ExtractionResult]] = set()
        outcomes: list[ExtractionResult] = []
        try:
            while True:
                while len(running) < jobs and (item := next(waiting, None)) is not None:
                    running.add(pool.submit(run, *item))
                if not running:
                    break
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                outcomes += [future.result() for future in ended]
        except BaseException:
            stop.set()
            raise
    order = {name: i for i, name in enumerate(videos)}
    return sorted(outcomes, key=lambda outcome: order[outcome.name])


def length_of(path: Path, stream: int = 0) -> float | None:
    """Seconds that a video says it has; None where it cannot be told."""
    from hiero.video.decode import probe

    try:
        return probe(path, stream).duration_s
    except (InputError, OSError):
        return None


@contextmanager
def _said(log: Callable[[str], None]) -> Iterator[None]:
    """What decoders warn of, a broken tail, as lines at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        log(str(warning.message))
