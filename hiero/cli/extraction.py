"""hiero extract, hiero backbones: features of whole collections from any backbone."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from hiero.cli.console import download_bars, format_download, log, plain_table, print_json
from hiero.cli.options import Device, Flag, Json, Out, StoredPrecision, set_threads
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.backbones.registry import Backbone
    from hiero.extraction.collection import ExtractionProgress, ExtractionResult
    from hiero.types import ProgressEvent

RAY_ADDRESS = re.compile(r"auto|ray://\S+|[\w.\-\[\]:]+:\d+")
FILE_WIDTH = 220  # characters of a table that goes to a file or a pipe


@Parameter(name="*")
@dataclass(frozen=True)
class FeatureOptions:
    """What a row of features is, and how it is stored.

    Parameters
    ----------
    weights
        A checkpoint in place of the weights that `hiero weights get` brought.
    clock
        seconds: a row every 16/30 s (or `--spacing`), whatever the frame rate; frames: every 16
        frames of each video's own rate.
    spacing
        Seconds from row to row.
    window
        Frames that a row sees, a multiple of 16; Ego4D's own Omnivore features saw 32.
    frames
        How many of 16 frames the tower looks at, evenly spread; each backbone has its own number.
    format
        safetensors, or torch's .pt as Ego4D has them.
    dtype
        Precision on disk: float16, or for .pt float32.
    """

    weights: Path | None = None
    clock: Literal["seconds", "frames"] = "seconds"
    spacing: float | None = None
    window: int | None = None
    frames: int | None = None
    format: Literal["safetensors", "pt"] = "safetensors"
    dtype: StoredPrecision | None = None


FEATURE_DEFAULTS = FeatureOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class ProcessOptions:
    """Where the work is done.

    Parameters
    ----------
    jobs
        Videos at a time; more than one pays on a GPU, where decoding is the limit.
    ray
        Run on a Ray cluster: `--ray` alone starts a local one, `--ray ADDRESS` takes the one there
        (`auto` on one of its machines).
    address
        The same as the address after `--ray`.
    workers
        Processes of the cluster that hold the network; by default one a GPU, or one for two CPUs.
    """

    jobs: Annotated[int, Parameter(alias="-j")] = 1
    ray: Flag = False
    address: str | None = None
    workers: int | None = None


PROCESS_DEFAULTS = ProcessOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class NetworkOptions:
    """How the network runs.

    Parameters
    ----------
    precision
        Of the network; auto is bfloat16 for towers on a GPU.
    batch_size
        Windows that go through the network together; by default 1 on a CPU, 16 on a GPU.
    stream
        Which video stream of the files.
    threads
        CPU threads of the network and of each decoder.
    """

    device: Device = "auto"
    precision: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    batch_size: int | None = None
    stream: int = 0
    threads: int | None = None


NETWORK_DEFAULTS = NetworkOptions()


def extract(
    *videos: str,
    out: Out,
    backbone: str,
    features: FeatureOptions = FEATURE_DEFAULTS,
    processes: ProcessOptions = PROCESS_DEFAULTS,
    network: NetworkOptions = NETWORK_DEFAULTS,
    json_: Json = False,
) -> None:
    """Extract features of videos with a backbone, one file a video, with a sidecar that says where they come from.

    Run it again after an interruption: finished videos are kept, one that was begun goes on. A
    video that cannot be read does not stop the others; the report names it, and the exit code is 1.

    **Examples**

    `hiero extract kitchen.mp4 garage.mp4 -o features/ --backbone egovlp`

    `hiero extract ego4d/full_scale/ -o features/ --backbone omnivore-l --window 32 --format pt -j 4`

    `hiero extract ego4d/full_scale/ -o features/ --backbone lavila-l --workers 8 --ray auto`

    Parameters
    ----------
    videos
        Video files, or folders of them; also addresses: https://, s3:// and what else fsspec opens.
    out
        Folder for the feature files.
    backbone
        One of `hiero backbones`.
    """
    from hiero.backbones.registry import fetch_weights, find_backbone
    from hiero.decoding.recordings import find_videos
    from hiero.extraction.collection import extract_all
    from hiero.extraction.plan import ExtractionPlan
    from hiero.extraction.ray_cluster import extract_on_cluster

    if processes.jobs < 1 or (processes.workers is not None and processes.workers < 1):
        raise InputError("--jobs and --workers are at least 1")
    if network.threads is not None:
        set_threads(network.threads)
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
        device=network.device,
        precision=network.precision,
        batch_size=network.batch_size,
        stream=network.stream,
        threads=network.threads or 0,
    )
    if features.weights is None:
        with download_bars() as progress:
            fetch_weights(find_backbone(backbone), progress)
    with _extraction_bars(len(files)) as shown:
        if processes.ray or processes.address is not None:
            address, workers, jobs = processes.address, processes.workers, processes.jobs
            results = extract_on_cluster(files, plan, address=address, workers=workers, jobs=jobs, progress=shown)
        else:
            results = extract_all(files, plan, processes.jobs, shown)
    _print_results(results, out, json_)
    if any(result.status == "failed" for result in results):
        sys.exit(1)


def expand_ray_address(tokens: list[str]) -> list[str]:
    """`--ray ADDRESS` as `--ray --address ADDRESS`: what follows --ray is an address if it looks like
    one and is no file.
    """
    for index, (token, progress) in enumerate(itertools.pairwise(tokens)):
        if token == "--ray" and RAY_ADDRESS.fullmatch(progress) and not Path(progress).exists():
            return [*tokens[: index + 1], "--address", *tokens[index + 1 :]]
    return tokens


def _print_results(results: list[ExtractionResult], out: Path, as_json: bool) -> None:
    from hiero.types import format_time

    if as_json:
        print_json({"version": 1, "out": str(out), "videos": [result.to_dict() for result in results]})
        return
    done, reused, failed = ([r for r in results if r.status == status] for status in ("done", "kept", "failed"))
    for result in failed:
        log(f"failed: {result.message}")
    video_s, spent_s = sum(result.duration_s for result in done), sum(result.spent_s for result in done)
    line = f"{out}: {len(done)} done ({format_time(video_s)}), {len(reused)} kept, {len(failed)} failed"
    print(line + (f"; {video_s / spent_s:.2f} seconds of video a second" if spent_s > 0 else ""))


@contextmanager
def _extraction_bars(num_videos: int) -> Iterator[ExtractionProgress]:
    """A bar for all videos, and one for each that is being read; lines instead where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from hiero.extraction.collection import ExtractionProgress
    from hiero.types import format_time

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        overall = bars.add_task("all videos", total=num_videos, status=f"0 of {num_videos}")
        tasks: dict[str, Any] = {}
        ended: list[ExtractionResult] = []

        def begin(name: str, duration_s: float | None) -> None:
            tasks[name] = bars.add_task(name, total=duration_s, status="")

        def advance(name: str, done_s: float) -> None:
            if name in tasks:
                bars.update(tasks[name], completed=done_s, status=format_time(done_s))

        def download(event: ProgressEvent) -> None:
            """The bytes of a remote video, in a bar of its own."""
            if event.stage == "message":
                log(event.message)
                return
            key = f"bytes of {event.name}"
            if key not in tasks:
                tasks[key] = bars.add_task(f"fetch {event.name}", total=event.total, status="")
            bars.update(tasks[key], completed=event.done, status=format_download(event))
            if event.total and event.done >= event.total:
                bars.remove_task(tasks.pop(key))

        def end(result: ExtractionResult) -> None:
            ended.append(result)
            if (task := tasks.pop(result.name, None)) is not None:
                bars.remove_task(task)
            count = f"{len(ended)} of {num_videos}"
            bars.update(overall, completed=len(ended), status=count)
            if not console.is_terminal:
                log(f"{result.name}: {result.status} ({count})")

        yield ExtractionProgress(begin, advance, end, log, download)


def backbones(
    *,
    measure: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    device: Device = "auto",
) -> None:
    """List the backbones: what they give, which weights they need and where these come from, and how
    fast they are here.

    **Examples**

    `hiero backbones`

    `hiero backbones --measure egovlp lavila-l`

    Parameters
    ----------
    measure
        Measure these on this machine (with random weights, which are as fast), or `all`; the
        numbers are kept.
    device
        What to measure on: auto, cpu, cuda, mps …
    """
    from rich.console import Console

    from hiero.backbones.registry import backbones as registered_backbones
    from hiero.devices import choose_device
    from hiero.extraction.speed import known_speeds, measure_speed

    device = choose_device(device)
    for name in list(registered_backbones()) if measure == ["all"] else measure or []:
        log(f"measuring {name} on {device} …")
        try:
            measure_speed(name, device)
        except InputError as error:
            log(f"{error}")
    speeds = known_speeds(device)
    columns = ("name", "width", "window", "what", "weights", "licence", "from", "speed here")
    table = plain_table(*columns, right=("width",))
    for column in table.columns:
        column.overflow = "fold"
    for backbone in registered_backbones().values():
        table.add_row(*_describe_backbone(backbone, speeds.get(backbone.name)))
    Console(width=None if sys.stdout.isatty() else FILE_WIDTH).print(table)


def _describe_backbone(backbone: Backbone, speed: float | None) -> list[str]:
    """The cells of its row."""
    from hiero.backbones.registry import FPS, STRIDE
    from hiero.storage import weights

    if backbone.num_frames:
        window = f"{STRIDE}/{FPS:.0f} s, {backbone.num_frames} frames"
    else:
        window = "a frame" if backbone.per_frame else "2 s"
    entry = weights.REGISTRY.get(backbone.weights_name)
    if entry is None or weights.find(entry.name):
        availability = "here"
    else:
        availability = "fetched when needed" if backbone.auto_fetch else f"hiero weights get {entry.name}"
    return [
        backbone.name,
        str(backbone.width),
        window,
        backbone.description,
        availability,
        entry.licence if entry else "",
        entry.origin if entry else backbone.module,
        "--measure" if speed is None else f"{speed:.2f} × real time",
    ]
