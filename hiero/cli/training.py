"""hiero pack, train and embed: create models from features, and use them on features."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

import hiero
from hiero.cli.console import echo, log, progress_bar
from hiero.cli.options import Device, Out, Settings, StoredPrecision, parse_frames, parse_numbers
from hiero.devices import choose_device
from hiero.formatting import format_count, printable
from hiero.types import Clock

if TYPE_CHECKING:
    from hiero.training.loop import TrainingStatus

LOSS_NAMES = {"alignment": "L_vna", "threads": "L_ft"}  # as the paper writes them


@Parameter(name="*")
@dataclass(frozen=True)
class RowTimes:
    """When the rows of a feature file are."""

    fps: float | None = None
    """Frame rate of the video. Defaults to that of the training data."""
    stride: float | None = None
    """Frames between two segments. Defaults to that of the training data."""
    start_s: float = 0.0
    """Start of the first segment in seconds."""

    def clock(self, trained: Clock) -> Clock:
        fps = trained.fps if self.fps is None else self.fps
        return Clock(fps, trained.stride if self.stride is None else self.stride, self.start_s)


def embed(
    features: Path,
    /,
    *,
    model: Path,
    out: Out,
    times: RowTimes = RowTimes(),
    levels: str | None = None,
    threads: bool | None = None,
    device: Device = "auto",
) -> None:
    """Enrich backbone features with a model, one file or a whole folder.

    Level 0 has one node for each row of the input, and each further level has half as many. The output
    holds, for each level such as 0: `level0` (enriched features), `projected0` (the same in the space
    shared with text), `times0` (the middle of each node in seconds) and, with threads, `threads0` (the
    thread of each node). In a folder, files already processed by the same model and settings are
    skipped.

    **Examples**

    * `hiero embed kitchen.pt --model models/egovlp -o kitchen.safetensors`
    * `hiero embed features/ --model models/egovlp -o enriched/ --no-threads --device cuda`

    Parameters
    ----------
    features
        File with one (T, D) tensor (.pt, .npy, .npz or .safetensors), or a folder of such files.
    model
        Model folder or Hugging Face id.
    out
        Output file, or output folder if FEATURES is a folder.
    levels
        Levels to write, such as 0,1,2. Defaults to all.
    threads
        Whether to find threads (Cut & Match). Defaults to the configuration of the model.
    """
    from hiero.model.embed_files import FileEmbedder, output_files

    level_numbers = parse_numbers("--levels", levels, 0)
    targets = output_files(features, out)
    loaded = hiero.load_model(model).to(choose_device(device))
    embedder = FileEmbedder(loaded, times.clock(loaded.config.clock), level_numbers, threads, hiero.__version__)
    if features.is_file():
        tensors = embedder.embed_file(features, out)
        echo(f"{out}: {', '.join(f'{name} {tuple(tensor.shape)}' for name, tensor in sorted(tensors.items()))}")
        return
    with progress_bar(f"embed {features.name}/", len(targets)) as advance:
        problems = embedder.embed_files(targets, advance)
    echo(f"{out}: {len(targets) - len(problems)} of {len(targets)} files")
    _exit_if_skipped(problems)


def _exit_if_skipped(problems: list[str]) -> None:
    """Name files that could not be used, and exit with code 1 if there are any."""
    if problems:
        log("hiero: left out these files, which cannot be used:\n  " + "\n  ".join(problems))
        sys.exit(1)


@Parameter(name="*")
@dataclass(frozen=True)
class StoreOptions:
    """What the store records about the features."""

    backbone: str | None = None
    """Name of the features, recorded in the store."""
    fps: float | None = None
    """Frame rate of the videos. Defaults to the value recorded by `hiero extract`, or 30."""
    stride: float | None = None
    """Frames between two segments. Defaults to the value recorded by `hiero extract`, or 16."""
    window: float | None = None
    """Frames that a segment covers. Defaults to the value recorded by `hiero extract`, or 16."""
    dtype: StoredPrecision = "float16"
    """Precision on disk."""
    skip_bad: bool = False
    """Skip unusable files instead of stopping."""


def pack(folder: Path, out: Path, /, *, options: StoreOptions = StoreOptions()) -> None:
    """Pack a folder of feature files into a store for training.

    All unusable files are reported at once. An existing store is replaced when the new one is complete.

    **Example**

    * `hiero pack ego4d/omnivore/ stores/omnivore --backbone omnivore`

    Parameters
    ----------
    folder
        Folder with one .pt, .npy, .npz or .safetensors file per video. The path without the suffix is
        the id of the video.
    out
        Output folder for the store.
    """
    from hiero.features.files import find_features
    from hiero.features.stores import pack as pack_features

    with progress_bar(f"pack {folder.name}/", len(find_features(folder))) as advance:
        store, problems = pack_features(
            folder,
            out,
            backbone=options.backbone,
            clock=parse_frames(options.fps, options.stride),
            window=options.window,
            precision=options.dtype,
            skip_bad=options.skip_bad,
            progress=advance,
        )
    hours = sum(video.length for video in store.videos.values()) * store.clock.spacing_s / 3600
    echo(f"{out}: {format_count(len(store), 'video')}, {hours:.1f} hours, {store.width}-d, {options.dtype}")
    _exit_if_skipped(problems)


class TrainDisplay:
    """The display of a training run on standard error: messages, and a bar with losses, speed and time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=self.console,
        )
        self.task: Any = None

    def log(self, line: str) -> None:
        """Print a message above the bar."""
        self.console.print(printable(line), soft_wrap=True, markup=False)

    @contextmanager
    def steps(self, done: int, total: int) -> Iterator[None]:
        """The bar of the optimisation steps; `done` of them are from an earlier run."""
        self.task = self.progress.add_task("train", total=total, completed=done, status="")
        with self.progress:
            yield

    @contextmanager
    def texts(self, total: int) -> Iterator[Any]:
        """The bar of encoded texts. Yields a function to call with the number of newly encoded texts."""
        task = self.progress.add_task("texts", total=total, status="")
        with self.progress:
            yield lambda num_texts: self.progress.advance(task, num_texts)
        self.progress.remove_task(task)

    def report(self, report: TrainingStatus) -> None:
        """Update the bar."""
        losses = " ".join(f"{LOSS_NAMES.get(name, name)} {value:.3f}" for name, value in report.losses.items())
        status = f"epoch {report.epoch} {losses} {report.windows_per_s:.0f} windows/s"
        self.progress.update(self.task, completed=report.step, status=status)


@Parameter(name="*")
@dataclass(frozen=True)
class TrainingOptions:
    """What is learned from, and how the run proceeds."""

    preset: str = "k400-minilm"
    """k400-minilm, omnivore, egovlp, lavila-l, or your own .toml file."""
    set_: Settings = None
    validation: Path | None = None
    """Narrations to validate on after each epoch. Their videos are not used for training."""
    validation_share: float = 0.1
    """Share of the videos used for validation if `--validation` is not given. 0 disables it."""
    skip: Path | None = None
    """Text file with the ids of videos to leave out, one per line."""
    speech_window_s: float = 8.0
    """Seconds before or after an utterance in which its action may happen, at level 0; doubled at each coarser level.
    `--set losses.alpha` takes precedence."""
    resume: bool = False
    """Continue the run in the output folder."""
    capture: Literal["auto", "yes", "no"] = "auto"
    """Compile the training step into a CUDA graph. `auto` does so if the run is long enough."""
    save_every_s: float = 300.0
    """Seconds between two saves."""
    text_cache: Path | None = None
    """Folder for cached text embeddings. Defaults to hiero's cache."""
    device: Device = "auto"


def train(store: Path, narrations: Path, /, *, out: Out, options: TrainingOptions = TrainingOptions()) -> None:
    """Train a model from features and narrations.

    The output folder is a model folder that also holds the training state and TensorBoard events.
    Ctrl-C saves and stops; `--resume` continues, on a CPU with exactly the same result. Start several
    processes with torchrun.

    **Examples**

    * `hiero train stores/kitchen narrations.csv -o models/kitchen`
    * `hiero train stores/omnivore egoclip.csv -o models/omnivore --preset omnivore --set batch_size=16`
    * `torchrun --nproc-per-node 2 -m hiero train stores/kitchen narrations.csv -o models/kitchen --resume`

    Parameters
    ----------
    store
        Feature store created by `hiero pack`.
    narrations
        EgoClip's csv file, your own .csv or .jsonl file with video, time_s (or start_s and end_s) and
        text, or a folder of transcripts (.srt, .vtt, JSON from Whisper) named like their videos.
    out
        Output folder for the model and the training state.
    """
    from hiero.training.from_files import TrainOptions, train_from_files

    run = TrainOptions(
        options.resume,
        options.device,
        options.save_every_s,
        TrainDisplay(),
        validation=options.validation,
        validation_share=options.validation_share,
        skip=options.skip,
        speech_window_s=options.speech_window_s,
        capture="auto" if options.capture == "auto" else options.capture == "yes",
        text_cache=options.text_cache,
    )
    train_from_files(store, narrations, out, preset=options.preset, settings=options.set_ or [], options=run)
