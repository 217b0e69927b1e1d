"""hiero import-checkpoint, embed, pack, train: make a model, and use it on features."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import hiero
from hiero.cli.console import log, progress_bar
from hiero.cli.display import TrainDisplay
from hiero.cli.options import Device, Out, Settings, StoredPrecision
from hiero.devices import choose_device
from hiero.errors import InputError


def import_checkpoint(file: Path, out: Path, /) -> None:
    """Turn an authors' checkpoint into a model folder. Nothing in the file is executed.

    **Example**: `hiero import-checkpoint hiero_egovlp.pth models/egovlp`

    Parameters
    ----------
    file
        hiero_omnivore.pth, hiero_egovlp.pth, hiero_lavila-l.pth, or one of the same layout.
    out
        Folder to write config.json, model.safetensors and text_encoder.safetensors to.
    """
    from hiero.model.released import read_released

    released = read_released(file)
    released.save(out)
    config = released.config
    print(
        f"{out}: {config.backbone or 'unnamed'} features ({config.input_size}-d) → {config.hidden_size}-d, "
        f"{config.depth} levels"
    )
    print(f"  text encoder: {len(released.text_encoder)} tensors; behaviour: released (see config.json)")
    print(f"  next: hiero embed FEATURES --model {out} -o out.safetensors")


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
    """Enrich backbone features with a model: one file in, one safetensors out; or a folder in, a folder out.

    The output holds `level{l}`, `projected{l}`, `times{l}` and, with threads, `threads{l}` for each level.
    A folder is worked through file by file; files already done by the same model and settings are skipped.

    **Examples**

    `hiero embed kitchen.pt --model models/egovlp -o kitchen.safetensors`

    `hiero embed features/ --model models/egovlp -o enriched/ --no-threads --device cuda`

    Parameters
    ----------
    features
        .pt, .npy, .npz or .safetensors with one (T, D) tensor, or a folder of such files.
    model
        A model folder (from import-checkpoint or training) or a hub id.
    out
        Output file, or folder when FEATURES is a folder.
    fps
        Frames a second of the video that the features come from; default: as the model was trained.
    stride
        Frames from one segment to the next; default: as the model was trained.
    start_s
        Time of the first segment's start in seconds.
    levels
        Which levels to write, separated by commas, such as 0,1,2; default: all.
    threads
        Cut & Match on or off; default: as the model is configured.
    """
    from hiero.model.embed_files import FileEmbedder, output_files, tensor_shapes
    from hiero.model.ensemble import load_model
    from hiero.types import Clock

    level_numbers = None if levels is None else _parse_levels(levels)
    targets = output_files(features, out)
    loaded = load_model(model).to(choose_device(device))
    trained = loaded.config.clock
    clock = Clock(trained.fps if fps is None else fps, trained.stride if stride is None else stride, start_s)
    embedder = FileEmbedder(loaded, clock, level_numbers, threads, hiero.__version__)
    if features.is_file():
        embedder.embed_file(features, out)
        print(f"{out}: {', '.join(f'{name} {shape}' for name, shape in tensor_shapes(out).items())}")
        return
    with progress_bar(f"embed {features.name}/", len(targets)) as advance:
        problems = embedder.embed_files(targets, advance)
    print(f"{out}: {len(targets) - len(problems)} of {len(targets)} files")
    if problems:
        log("hiero: these could not be used; the others are done\n  " + "\n  ".join(problems))
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
    """Pack a folder of feature files into a store that training reads window by window.

    All files that cannot be used are listed at once. Packing again replaces the store when it is
    complete, never half of it.

    **Example**: `hiero pack ego4d/omnivore/ stores/omnivore --backbone omnivore`

    Parameters
    ----------
    folder
        One .pt, .npy, .npz or .safetensors a video; the file's path without suffix is the video's id.
    out
        Folder of the store.
    backbone
        Name of the features, kept with the store.
    fps
        Frames a second of the videos; by default what `hiero extract` wrote beside the files, else 30.
    stride
        Frames from one segment to the next; likewise, else 16.
    window
        Frames that a segment's feature was computed from; likewise, else 16.
    dtype
        Precision on disk.
    skip_bad
        Pack the good files when some are bad, instead of refusing.
    """
    from hiero.data.features import find_features
    from hiero.data.stores import pack as pack_features
    from hiero.types import Clock

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
    print(f"{out}: {len(store)} videos, {hours:.1f} hours, {store.width}-d, {dtype}")
    if problems:
        log("hiero: left out\n  " + "\n  ".join(problems))
        sys.exit(1)


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

    OUT becomes a model folder that `hiero embed` takes, with the state to resume and TensorBoard's
    events beside it (`tensorboard --logdir OUT`). Ctrl-C ends the step, saves and stops; after
    that, or after a crash, `--resume` goes on, on a CPU to the very same weights. For several
    processes start it with torchrun.

    **Examples**

    `hiero train stores/kitchen narrations.csv -o models/kitchen`

    `hiero train stores/kitchen transcripts/ -o models/kitchen --speech-window-s 12`

    `hiero train stores/omnivore egoclip.csv -o models/omnivore --preset omnivore --set batch_size=16 --set lr=2e-5`

    `torchrun --nproc-per-node 2 -m hiero train stores/kitchen narrations.csv -o models/kitchen --resume`

    Parameters
    ----------
    store
        Features packed by `hiero pack`.
    narrations
        EgoClip's csv, or your own .csv or .jsonl with video, time_s (or start_s and end_s) and text. Or
        transcripts: one (.srt,
        .vtt, Whisper's .json), or a folder of them, each named as its video.
    out
        Folder for the model and the state of the run.
    preset
        k400-minilm, omnivore, egovlp, lavila-l, or a .toml file of your own.
    set_
        Change a setting, such as `--set lr=1e-4` or `--set model.hidden_size=256`; may be repeated.
    validation
        Narrations of videos to validate on after each epoch, in the same formats; they are not trained on.
    validation_share
        Without a file: the share of videos kept for validation, chosen by their ids; 0 for none.
    skip
        File with video ids to leave out, one a line.
    speech_window_s
        Of transcripts: how many seconds before or after an utterance its moment may be, since people speak
        early or late. At
        level l it is 2^l times as far. --set losses.alpha goes before it, which is one over these seconds.
    resume
        Go on with the run in OUT.
    capture
        Compile and record the step (CUDA): auto does when the run is long enough to gain from it.
    save_every_s
        Seconds between two saves.
    text_cache
        Folder for text vectors; default: in hiero's cache folder.
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


def _parse_levels(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"--levels takes numbers separated by commas, such as 0,1,2; got {text!r}") from None
