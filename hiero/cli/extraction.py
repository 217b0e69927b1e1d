"""hiero extract: features of whole collections from any backbone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from hiero.cli.console import ReadingBars, echo, log, print_json, reading_bars, transient_bars
from hiero.cli.options import (
    BatchSize,
    Device,
    Json,
    Out,
    StoredPrecision,
    Stream,
    Threads,
    check_at_least,
    set_threads,
)
from hiero.errors import InputError
from hiero.formatting import format_time
from hiero.types import ProgressEvent

if TYPE_CHECKING:
    from hiero.features.collection import ExtractionProgress, ExtractionResult


@Parameter(name="*")
@dataclass(frozen=True)
class FeatureOptions:
    """What a row of features is, and how it is stored."""

    weights: Path | None = None
    """Checkpoint to use instead of the weights that `hiero models get` installs."""
    clock: Literal["seconds", "frames"] = "seconds"
    """`seconds`: a row every 16/30 s, or every `--spacing` seconds, at any frame rate. `frames`: a row every 16
    frames."""
    spacing: float | None = None
    """Seconds between two rows. Defaults to 16/30."""
    window: int | None = None
    """Frames that a row covers, a multiple of 16. Ego4D's own Omnivore features use 32."""
    frames: int | None = None
    """Number of frames out of every 16 that the network sees. Each backbone has its own default."""
    format: Literal["safetensors", "pt"] = "safetensors"
    """File format: safetensors, or .pt as used by Ego4D."""
    dtype: StoredPrecision | None = None
    """Precision on disk. Defaults to float16, and to float32 for .pt files."""


@Parameter(name="*")
@dataclass(frozen=True)
class ComputeOptions:
    """Where and how the network runs."""

    jobs: Annotated[int, Parameter(alias="-j")] = 1
    """Videos processed at a time; several help on a GPU."""
    ray: str | None = None
    """Run on the Ray cluster at this address: `auto` if this machine belongs to it, `local` to start one here."""
    workers: int | None = None
    """Processes on the cluster, each with a copy of the network. Defaults to one per GPU, or per two CPUs."""
    device: Device = "auto"
    precision: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """Precision of the network. `auto` chooses the fastest one."""
    batch_size: BatchSize = None
    stream: Stream = 0
    threads: Threads = None


def extract(
    *videos: str,
    out: Out,
    backbone: str,
    features: FeatureOptions = FeatureOptions(),
    compute: ComputeOptions = ComputeOptions(),
    json_: Json = False,
) -> None:
    """Extract features of videos with a backbone: one file per video, with a sidecar that records its origin.

    Run it again after an interruption: finished videos are kept, and the current one continues. If a
    video cannot be read, the others are still processed and the exit code is 1.

    **Examples**

    * `hiero extract kitchen.mp4 garage.mp4 -o features/ --backbone egovlp`
    * `hiero extract ego4d/full_scale/ -o features/ --backbone omnivore-l --window 32 --format pt -j 4`
    * `hiero extract ego4d/full_scale/ -o features/ --backbone lavila-l --workers 8 --ray auto`

    Parameters
    ----------
    videos
        Videos, folders, or addresses (https://, s3:// and others supported by fsspec).
    out
        Output folder for the feature files.
    backbone
        Name of a backbone from `hiero models`.
    """
    from hiero.features.collection import ExtractionPlan, extract_all
    from hiero.features.ray_cluster import extract_on_cluster
    from hiero.media.recordings import find_videos
    from hiero.networks.registry import fetch_weights, find_backbone

    check_at_least("--jobs", compute.jobs)
    check_at_least("--workers", compute.workers)
    set_threads(compute.threads)
    if features.weights is not None and not features.weights.exists():
        raise InputError(f"{features.weights}: no such file")
    files = find_videos(videos)
    plan = ExtractionPlan(
        backbone,
        out,
        clock=features.clock,
        spacing_s=features.spacing,
        window=features.window,
        num_frames=features.frames,
        format=features.format,
        dtype=features.dtype or ("float32" if features.format == "pt" else "float16"),
        weights=features.weights,
        device=compute.device,
        precision=compute.precision,
        batch_size=compute.batch_size,
        stream=compute.stream,
        threads=compute.threads or 0,
    )
    if features.weights is None:
        with reading_bars() as progress:
            fetch_weights(find_backbone(backbone), progress)
    with _extraction_bars(len(files)) as shown:
        if compute.ray is not None:
            results = extract_on_cluster(files, plan, address=compute.ray, workers=compute.workers, progress=shown)
        else:
            results = extract_all(files, plan, compute.jobs, shown)
    _print_results(results, out, json_)
    if any(result.status == "failed" for result in results):
        sys.exit(1)


def _print_results(results: list[ExtractionResult], out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"version": 1, "out": str(out), "videos": [asdict(result) for result in results]})
        return
    done, reused, failed = ([r for r in results if r.status == status] for status in ("done", "kept", "failed"))
    for result in failed:
        log(f"failed: {result.message}")
    video_s, spent_s = sum(result.duration_s for result in done), sum(result.spent_s for result in done)
    line = f"{out}: {len(done)} done ({format_time(video_s)}), {len(reused)} kept, {len(failed)} failed"
    echo(line + (f"; {video_s / spent_s:.2f} seconds of video per second" if spent_s > 0 else ""))


@contextmanager
def _extraction_bars(num_videos: int) -> Iterator[ExtractionProgress]:
    """A bar for all videos and one for each current video; without a terminal, a line for each finished video."""
    from hiero.features.collection import ExtractionProgress

    with transient_bars() as bars:
        overall = bars.add_task("all videos", total=num_videos, status=f"0 of {num_videos}")
        bars.start()
        reading = ReadingBars(bars)
        durations_s: dict[str, float | None] = {}
        ended: list[ExtractionResult] = []

        def begin(name: str, duration_s: float | None) -> None:
            durations_s[name] = duration_s
            reading(ProgressEvent("read", name, 0.0, duration_s))

        def advance(name: str, done_s: float) -> None:
            if name in durations_s:
                reading(ProgressEvent("read", name, done_s, durations_s[name]))

        def end(result: ExtractionResult) -> None:
            ended.append(result)
            durations_s.pop(result.name, None)
            reading.remove(result.name)
            count = f"{len(ended)} of {num_videos}"
            bars.update(overall, completed=len(ended), status=count)
            if not bars.console.is_terminal:
                log(f"{result.name}: {result.status} ({count})")

        yield ExtractionProgress(begin, advance, end, log, reading)
