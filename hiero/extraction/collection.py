"""Features of many videos: a file for each, with a sidecar that says where its rows come from and when they are.

    OUT/NAME.safetensors         (or .pt)  the rows
    OUT/NAME.safetensors.json    the sidecar with a hash of these rows; a video without it is not done

A run can be repeated: a video is read again only when its content, the weights or the settings have
changed, and one that was interrupted is resumed. A video that cannot be read is reported and does
not stop the others.
"""

from __future__ import annotations

import glob
import io
import itertools
import json
import threading
import time
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hiero.data.features import FEATURE_SUFFIXES, Sidecar, read_feature_array, read_sidecar, rows_key, sidecar_path
from hiero.devices import choose_device
from hiero.errors import InputError
from hiero.extraction.plan import ExtractionPlan as ExtractionPlan  # callers find it here, beside what takes it
from hiero.extraction.plan import LazyBackbones
from hiero.sources.addresses import display_addresses, is_address, public_address
from hiero.sources.chapters import group_chapters
from hiero.sources.remote import list_remote, remote_exists
from hiero.sources.source import SourceFile, VideoInput, VideoSource
from hiero.storage.files import atomic_path, is_disk_full, write_text
from hiero.types import Clock, ProgressCallback, ProgressEvent, no_progress

if TYPE_CHECKING:
    from hiero.decoding.decode import VideoInfo
    from hiero.extraction.extractor import LoadedBackbones

VIDEO_SUFFIXES = (
    ".mp4",
    ".mkv",
    ".mov",
    ".avi",
    ".webm",
    ".m4v",
    ".ts",
    ".mts",
    ".m2ts",
    ".mpg",
    ".mpeg",
    ".wmv",
    ".flv",
    ".3gp",
    ".gif",
)
CORPUS_TABLE = "steps.lance"  # the folder that LanceDB makes in a corpus


@dataclass(frozen=True)
class ExtractionResult:
    """What became of a video."""

    name: str
    status: Literal["done", "kept", "failed"]
    message: str = ""
    num_segments: int = 0
    duration_s: float = 0.0
    spent_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of `hiero extract`."""
        return asdict(self)


@dataclass
class ExtractionProgress:
    """Callbacks of an extraction, which may come from several threads."""

    begin: Callable[[str, float | None], None] = lambda *_: None
    advance: Callable[[str, float], None] = lambda *_: None
    end: Callable[[ExtractionResult], None] = lambda _: None
    log: Callable[[str], None] = lambda _: None
    download: ProgressCallback = no_progress


class NoFilesError(InputError):
    """A folder, pattern or remote folder holds nothing that could be read."""


def find_videos(paths: Iterable[Path | str]) -> dict[str, VideoSource]:
    """Videos by name."""
    return _files_by_name(paths, VIDEO_SUFFIXES, "videos")


def find_files(paths: Iterable[Path | str], *, resolve_clashes: bool = False) -> dict[str, VideoSource]:
    """Videos and feature files by name, as `find_videos`."""
    return _files_by_name(paths, (*VIDEO_SUFFIXES, *FEATURE_SUFFIXES), "videos or feature files", resolve_clashes)


def find_recordings(
    paths: Iterable[Path | str],
    join: bool | None = None,
    *,
    resolve_clashes: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> dict[str, VideoSource]:
    """Videos and feature files by name; files that are one video have the name of the first."""
    return join_chapters(find_files(paths, resolve_clashes=resolve_clashes), join, log)


def join_chapters(
    files: Mapping[str, VideoSource], join: bool | None = None, log: Callable[[str], None] = lambda _: None
) -> dict[str, VideoSource]:
    """Files by name, those that are one video under the name of the first."""
    if join is False or not files:
        return dict(files)
    names = {source.path: name for name, source in files.items()}
    recordings = group_chapters(names)
    if join:
        ordered = [names[path] for recording in recordings for path in recording.paths]
        return {ordered[0]: VideoSource.join([files[name] for name in ordered])}
    out: dict[str, VideoSource] = {}
    for recording in recordings:
        chapters = {names[path]: files[names[path]] for path in recording.paths}
        joined = VideoSource.join(list(chapters.values()))
        if len(chapters) == 1:
            out.update(chapters)
        elif have_one_format(joined):
            log(
                f"one {recording.camera} recording, read as one video (--no-join: each by itself): "
                f"{recording.describe()}"
            )
            out[names[recording.paths[0]]] = joined
        else:
            log(f"read each by itself, since size or frame rate differ (--join: as one video): {recording.describe()}")
            out.update(chapters)
    return out


def have_one_format(source: VideoSource) -> bool:
    """Whether the videos of a source have one size and frame rate, as chapters do. Files that cannot be read
    are left out.
    """
    formats = set()
    for file in source.files:
        if file.path.suffix.lower() in VIDEO_SUFFIXES and (info := probe_file(file)) is not None:
            formats.add((info.width, info.height, None if info.fps is None else round(info.fps)))
    return len(formats) <= 1


def is_collection(path: Path | str) -> bool:
    """Whether a path or address stands for any number of files: a folder or a pattern."""
    if isinstance(path, str) and is_address(path):
        name = public_address(path).lower()
        return not name.startswith(("http://", "https://")) and (
            glob.has_magic(name) or not name.endswith((*VIDEO_SUFFIXES, *FEATURE_SUFFIXES))
        )
    path = Path(path)
    return path.is_dir() or (not path.exists() and glob.has_magic(str(path)))


def is_video_address(address: str) -> bool:
    """Whether an address is of videos or feature files, not of a corpus. A folder is asked whether it is one."""
    name = public_address(address).lower()
    if (
        name.startswith(("http://", "https://"))
        or name.endswith((*VIDEO_SUFFIXES, *FEATURE_SUFFIXES))
        or glob.has_magic(name)
    ):
        return True
    return remote_exists(address) and not remote_exists(f"{address.rstrip('/')}/{CORPUS_TABLE}")


def _files_by_name(
    paths: Iterable[Path | str], suffixes: tuple[str, ...], description: str, resolve_clashes: bool = False
) -> dict[str, VideoSource]:
    by_name: dict[str, VideoSource] = {}
    resolved: set[str] = set()
    for given in paths:
        if isinstance(given, str) and is_address(given):
            path, named = Path(given), _named_remote_files(given, suffixes, description)
        else:
            path = Path(given)
            named = [(name, VideoSource.of(file)) for name, file in _named_files(path, suffixes, description)]
        videos = {source.path.with_suffix("") for _, source in named if source.path.suffix.lower() in VIDEO_SUFFIXES}
        for name, source in named:
            file = source.path
            if resolve_clashes and file.suffix.lower() in FEATURE_SUFFIXES and file.with_suffix("") in videos:
                continue
            if source.identity in resolved:
                continue
            resolved.add(source.identity)
            if name in by_name and not resolve_clashes:
                if path.is_dir() and by_name[name].path.with_suffix("") == file.with_suffix(""):
                    raise InputError(
                        f"{path}: two files differ only in their suffix; keep one, or give them one by one"
                    )
                clash = f"{by_name[name].name} and {source.name}"
                raise InputError(f"{clash} would both be named {name}; rename one, or run them apart")
            by_name[_free_name(name, by_name)] = source
    if not by_name:
        raise InputError(f"give at least one file or folder of {description}")
    return by_name


def _free_name(name: str, used: Container[str]) -> str:
    """A name that is not used: with a number where it is."""
    numbered = (f"{name} ({number})" for number in itertools.count(2))
    return next(candidate for candidate in itertools.chain([name], numbered) if candidate not in used)


def _named_remote_files(address: str, suffixes: tuple[str, ...], description: str) -> list[tuple[str, VideoSource]]:
    """The files that an address stands for, each with its name. Only a listing is read."""
    entries = list_remote(address, suffixes)
    if not entries:
        raise NoFilesError(f"{public_address(address)}: no {description} there (looked for {', '.join(suffixes)})")
    return [(str(PurePosixPath(entry.name).with_suffix("")), VideoSource.of(entry.address)) for entry in entries]


def _named_files(path: Path, suffixes: tuple[str, ...], description: str) -> list[tuple[str, Path]]:
    """The files that a path stands for, each with its name."""
    if path.is_dir():
        files = list_files(path, suffixes)
        if not files:
            raise NoFilesError(f"{path}: no {description} in this folder (looked for {', '.join(suffixes)})")
        return [(file.relative_to(path).with_suffix("").as_posix(), file) for file in files]
    if not is_collection(path):
        return [(path.stem, path)]
    num_plain = next(i for i, part in enumerate(path.parts) if glob.has_magic(part))
    root, pattern = Path(*path.parts[:num_plain]), str(Path(*path.parts[num_plain:]))
    try:
        matches = sorted(match for match in root.glob(pattern) if match.name[0] != ".")
    except ValueError as error:
        raise InputError(f"{path}: not a pattern of file names ({error})") from error
    files = [file for match in matches for file in (list_files(match, suffixes) if match.is_dir() else [match])]
    files = [file for file in files if file.suffix.lower() in suffixes and file.is_file()]
    if not files:
        raise NoFilesError(f"{path}: no {description} match (looked for {', '.join(suffixes)})")
    relative = [file.relative_to(root).with_suffix("") for file in files]
    # A pattern may go up again (a/*/../b): then the file's own name.
    return [
        ((Path(name.name) if ".." in name.parts else name).as_posix(), file)
        for name, file in zip(relative, files, strict=True)
    ]


def list_files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files with one of these suffixes below a folder, sorted; hidden ones are left out."""
    return sorted(f for f in folder.rglob("*") if f.suffix.lower() in suffixes and f.name[0] != "." and f.is_file())


def probe_file(file: SourceFile, stream: int = 0) -> VideoInfo | None:
    """What a video says about itself, without downloading a remote one; None where it cannot be read."""
    from hiero.decoding.decode import probe

    try:
        return probe(file.path, stream, file.reader())
    except (InputError, OSError):
        return None


def probe_duration(file: SourceFile, stream: int = 0) -> float | None:
    """Seconds that a video says it has; None where it cannot be told."""
    info = probe_file(file, stream)
    return None if info is None else info.duration_s


def extract_all(
    videos: Mapping[str, VideoInput], plan: ExtractionPlan, jobs: int = 1, progress: ExtractionProgress | None = None
) -> list[ExtractionResult]:
    """Extract the features of videos on this machine. Videos decode in parallel and take turns on the network."""
    progress = progress or ExtractionProgress()
    plan.prepare()
    choose_device(plan.device)  # a device that is not there is an error now, not in a thread
    stop, backbones = threading.Event(), LazyBackbones(plan)

    def run(name: str, video: VideoInput) -> ExtractionResult:
        file = VideoSource.of(video).files[0]

        def advance(done_s: float) -> None:
            if stop.is_set():  # another video was interrupted or met a full disk: end this thread too
                raise KeyboardInterrupt
            progress.advance(name, done_s)

        def download(event: ProgressEvent) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            progress.download(event)

        # A copy that was evicted is most likely done: then nothing of it is read.
        is_evicted = file.was_downloaded and not file.path.is_file()
        progress.begin(name, None if is_evicted else probe_duration(file, plan.stream))
        result = extract_video(plan, backbones, name, file, advance, download)
        progress.end(result)
        return result

    with _log_warnings(progress.log), ThreadPoolExecutor(jobs) as pool:
        waiting = iter(videos.items())
        running: set[Future[ExtractionResult]] = set()
        results: list[ExtractionResult] = []
        try:
            while True:
                # No more than `jobs` are submitted, so that an interruption leaves none in the pool's queue.
                while len(running) < jobs and (item := next(waiting, None)) is not None:
                    running.add(pool.submit(run, *item))
                if not running:
                    break
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                results += [future.result() for future in finished]
        except BaseException:
            stop.set()
            raise
    order = {name: i for i, name in enumerate(videos)}
    return sorted(results, key=lambda result: order[result.name])


@contextmanager
def _log_warnings(log: Callable[[str], None]) -> Iterator[None]:
    """Log the warnings of decoders, such as a broken tail, at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        log(str(warning.message))


def extract_video(
    plan: ExtractionPlan,
    load_backbones: Callable[[], LoadedBackbones],
    name: str,
    video: SourceFile,
    advance: Callable[[float], None] = lambda _: None,
    download: ProgressCallback = no_progress,
) -> ExtractionResult:
    """Extract the features of one video to its file, unless that is done already."""
    begin, begun_at, path = time.monotonic(), time.time(), video.path
    try:
        if not video.exists():
            raise InputError(f"{path}: no such file")
        if video.known_key() is None:
            video.fetch(download)
        sha256 = video.key()
        if (sidecar := finished_sidecar(plan, name, sha256)) is not None:
            return ExtractionResult(name, "kept", "", sidecar.num_segments, sidecar.duration_s)
        file = plan.feature_file(name)
        if file.exists() and not sidecar_path(file).exists():
            raise InputError(f"{file}: is there, and hiero extract did not write it; remove it, or choose another -o")
        video.fetch(download)
        clock = plan.row_clock(path)
    except (InputError, OSError) as error:
        return ExtractionResult(name, "failed", failure_message(video.name, error), spent_s=time.monotonic() - begin)
    backbones = load_backbones()  # outside of any try: its errors are not the video's
    try:
        rows, duration_s = _extract_rows(plan, backbones, name, path, clock, sha256, advance)
        _write(plan, name, path, clock, rows, duration_s, sha256)
        _remove_leftovers(plan.feature_file(name), begun_at)
    except Exception as error:  # whatever it is, the other videos go on
        if is_disk_full(error):
            raise
        return ExtractionResult(name, "failed", failure_message(video.name, error), spent_s=time.monotonic() - begin)
    return ExtractionResult(name, "done", "", len(rows), duration_s, time.monotonic() - begin)


def finished_sidecar(plan: ExtractionPlan, name: str, sha256: str) -> Sidecar | None:
    """The sidecar of a video that need not be read: same content, weights and settings, and a whole feature file."""
    file = plan.feature_file(name)
    sidecar = read_sidecar(file)
    if sidecar is None or not file.is_file() or sidecar.sha256 != sha256 or sidecar.settings != plan.settings_key:
        return None
    try:
        return sidecar if rows_key(read_feature_array(file, sidecar.width)) == sidecar.rows else None
    except InputError:
        return None


def failure_message(name: str, error: Exception) -> str:
    """What went wrong with a file, in a line."""
    text = display_addresses(str(error))
    if isinstance(error, InputError):
        return text if name in text else f"{name}: {text}"
    if isinstance(error, OSError):
        return f"{display_addresses(str(error.filename or name))}: {error.strerror or text}"
    return f"{name}: {type(error).__name__}: {text}"


def _extract_rows(
    plan: ExtractionPlan,
    backbones: LoadedBackbones,
    name: str,
    path: Path,
    clock: Clock,
    sha256: str,
    advance: Callable[[float], None],
) -> tuple[np.ndarray, float]:
    """Rows (T, D) in the precision of the plan, and the length of the video in seconds."""
    from hiero.extraction.extractor import ExtractionOptions, extract_features

    partial = _partial_file(plan, name, sha256)
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
        partial.unlink(missing_ok=True)  # it has such rows too
        raise InputError(f"{path}: {plan.backbone} gives values that are not finite; try --precision float32")
    if np.abs(rows).max() > np.finfo(plan.dtype).max:
        raise InputError(f"{path}: values up to {np.abs(rows).max():.3g} do not fit {plan.dtype}; use --dtype float32")
    return rows.astype(plan.dtype), source.duration_s


def _partial_file(plan: ExtractionPlan, name: str, sha256: str) -> Path:
    """Where an interrupted extraction resumes from; another file for another content or other settings."""
    file = plan.feature_file(name)
    return file.parent / f".{file.stem}-{plan.settings_key[:8]}{sha256[:8]}.partial"


def _write(
    plan: ExtractionPlan, name: str, path: Path, clock: Clock, rows: np.ndarray, duration_s: float, sha256: str
) -> None:
    """Write the feature file and its sidecar."""
    file = plan.feature_file(name)
    # A tower sees a window of its own; other networks see two segments.
    window = (plan.overlap if plan.is_tower else 2) * clock.stride
    sidecar = Sidecar(
        plan.backbone,
        plan.weights_key,
        plan.settings_key,
        rows.shape[1],
        clock.fps,
        clock.stride,
        window,
        plan.frames_per_segment or 0,
        str(rows.dtype),
        len(rows),
        duration_s,
        path.name,
        sha256,
        rows_key(rows),
    )
    # The rows are on the disk, under a temporary name, before the sidecar is: where they do not
    # fit, nothing has changed.
    with atomic_path(file) as temporary:
        temporary.write_bytes(_serialise(rows, plan.format))
        write_text(sidecar_path(file), json.dumps(sidecar.to_dict(), indent=1) + "\n")


def _remove_leftovers(file: Path, begun_at: float) -> None:
    """Remove what interrupted and killed extractions of a video have left beside its feature file."""
    for partial in file.parent.glob(f".{glob.escape(file.stem)}-*.partial"):
        partial.unlink(missing_ok=True)
    # as `atomic_path` names them
    for pattern in (f".{glob.escape(file.name)}.*.part", f"..{glob.escape(file.stem)}-*.part"):
        for part in file.parent.glob(pattern):
            with suppress(FileNotFoundError):
                if part.stat().st_mtime < begun_at:
                    part.unlink()


def _serialise(rows: np.ndarray, format: str) -> bytes:
    if format == "pt":
        import torch

        out = io.BytesIO()
        torch.save(torch.from_numpy(rows), out)
        return out.getvalue()
    from safetensors.numpy import save

    return save({"features": rows})
