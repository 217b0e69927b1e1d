"""hiero pack, train and embed: create models from features, and use them on features."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cyclopts import Parameter

import hiero
from hiero.cli.console import echo, log, progress_bar
from hiero.cli.options import Device, Out, Settings, StoredPrecision, parse_numbers
from hiero.cli.training_display import TrainDisplay
from hiero.devices import choose_device
from hiero.types import Clock, format_count


def embed(
    features: Path,
    /,
    *,
    model: Path,
    out: Out,
    fps: float | None = None,
    stride: float | None = None,
    start_s: float = 0.0,
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
    fps
        Frame rate of the video. Defaults to that of the training data.
    stride
        Frames between two segments. Defaults to that of the training data.
    start_s
        Start of the first segment in seconds.
    levels
        Levels to write, such as 0,1,2. Defaults to all.
    threads
        Whether to find threads (Cut & Match). Defaults to the configuration of the model.
    """
    from hiero.model.embed_files import FileEmbedder, output_files

    level_numbers = parse_numbers("--levels", levels, 0)
    targets = output_files(features, out)
    loaded = hiero.load_model(model).to(choose_device(device))
    trained = loaded.config.clock
    clock = Clock(trained.fps if fps is None else fps, trained.stride if stride is None else stride, start_s)
    embedder = FileEmbedder(loaded, clock, level_numbers, threads, hiero.__version__)
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


def pack(
    folder: Path,
    out: Path,
    /,
    *,
    backbone: str | None = None,
    fps: float | None = None,
    stride: float | None = None,
    window: float | None = None,
    dtype: StoredPrecision = "float16",
    skip_bad: bool = False,
) -> None:
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
    backbone
        Name of the features, recorded in the store.
    fps
        Frame rate of the videos. Defaults to the value recorded by `hiero extract`, or 30.
    stride
        Frames between two segments. Defaults to the value recorded by `hiero extract`, or 16.
    window
        Frames that a segment covers. Defaults to the value recorded by `hiero extract`, or 16.
    dtype
        Precision on disk.
    skip_bad
        Skip unusable files instead of stopping.
    """
    from hiero.features.files import find_features
    from hiero.features.stores import pack as pack_features

    clock = None if fps is None and stride is None else Clock(fps or 30.0, stride or 16.0)
    with progress_bar(f"pack {folder.name}/", len(find_features(folder))) as advance:
        store, problems = pack_features(
            folder,
            out,
            backbone=backbone,
            clock=clock,
            window=window,
            precision=dtype,
            skip_bad=skip_bad,
            progress=advance,
        )
    hours = sum(video.length for video in store.videos.values()) * store.clock.spacing_s / 3600
    echo(f"{out}: {format_count(len(store), 'video')}, {hours:.1f} hours, {store.width}-d, {dtype}")
    _exit_if_skipped(problems)


@Parameter(name="*")
@dataclass(frozen=True)
class TrainingOptions:
    """What is learned from, and how the run proceeds.

    Parameters
    ----------
    preset
        k400-minilm, omnivore, egovlp, lavila-l, or your own .toml file.
    validation
        Narrations to validate on after each epoch. Their videos are not used for training.
    validation_share
        Share of the videos used for validation if `--validation` is not given. 0 disables it.
    skip
        Text file with the ids of videos to leave out, one per line.
    speech_window_s
        Seconds before or after an utterance in which its action may happen, at level 0; doubled at
        each coarser level. `--set losses.alpha` takes precedence.
    resume
        Continue the run in the output folder.
    capture
        Compile the training step into a CUDA graph. `auto` does so if the run is long enough.
    save_every_s
        Seconds between two saves.
    text_cache
        Folder for cached text embeddings. Defaults to hiero's cache.
    """

    preset: str = "k400-minilm"
    set_: Settings = None
    validation: Path | None = None
    validation_share: float = 0.1
    skip: Path | None = None
    speech_window_s: float = 8.0
    resume: bool = False
    capture: Literal["auto", "yes", "no"] = "auto"
    save_every_s: float = 300.0
    text_cache: Path | None = None
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
