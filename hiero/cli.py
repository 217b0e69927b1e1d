"""The command line: one function a command. Heavy imports stay inside the functions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

import hiero
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.model.hiero import HiERO
    from hiero.records import Clock

app = App(
    name="hiero",
    help="Hours of first-person video in, a searchable hierarchy of what was done out.",
    version=hiero.__version__,
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)


def main() -> None:
    """Run the command line; a user's mistake is one clear line and exit code 2, an interruption 130."""
    try:
        app()
    except InputError as error:
        _say(f"hiero: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        _say("hiero: interrupted; finished files are kept, run the same command again to go on")
        sys.exit(130)
    except OSError as error:
        _say(f"hiero: {error.filename or ''}: {error.strerror or error}; nothing half-written was left behind")
        sys.exit(1)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


@app.command
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
    print(f"{out}: {config.backbone or 'unnamed'} features ({config.input_size}-d) → {config.hidden_size}-d, {config.depth} levels")
    print(f"  text encoder: {len(released.text_encoder)} tensors; behaviour: released (see config.json)")
    print(f"  next: hiero embed FEATURES --model {out} -o out.safetensors")


@app.command
def embed(
    features: Path,
    /,
    *,
    model: Path,
    out: Annotated[Path, Parameter(alias="-o")],
    fps: float | None = None,
    stride: float | None = None,
    start_s: float = 0.0,
    levels: str | None = None,
    threads: bool | None = None,
    device: str = "auto",
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
    device
        auto, cpu, cuda, mps …
    """
    from torch import OutOfMemoryError

    from hiero.data.features import find_features

    wanted = None if levels is None else _parse_levels(levels)
    _check_out(features, out)
    files = [features] if features.is_file() else find_features(features)
    loaded = _load_model(model, device)
    clock = _clock(loaded, fps, stride, start_s)
    stamp = {
        "hiero": hiero.__version__, "model": _fingerprint(loaded), "fps": clock.fps, "stride": clock.stride,
        "start_s": clock.start_s, "levels": wanted, "threads": threads,
    }  # fmt: skip
    if features.is_file():
        _embed_file(loaded, features, out, clock, wanted, threads, stamp)
        print(f"{out}: {_describe(out)}")
        return
    failures = []
    with _progress(f"embed {features.name}/", len(files)) as advance:
        for file in files:
            target = out / file.relative_to(features).with_suffix(".safetensors")
            try:
                _embed_file(loaded, file, target, clock, wanted, threads, stamp, skip_done=True)
            except InputError as error:
                failures.append(str(error))
            except (MemoryError, OutOfMemoryError):
                failures.append(f"{file}: does not fit in memory on this device")
            advance(file.name)
    print(f"{out}: {len(files) - len(failures)} of {len(files)} files")
    if failures:
        _say("hiero: these could not be used; the others are done\n  " + "\n  ".join(failures))
        sys.exit(1)


@app.command
def pack(
    folder: Path,
    out: Path,
    /,
    *,
    backbone: str | None = None,
    fps: float = 30.0,
    stride: float = 16.0,
    window: float = 16.0,
    dtype: Literal["float16", "float32"] = "float16",
    skip_bad: bool = False,
) -> None:
    """Pack a folder of feature files into a store that training reads window by window.

    All files that cannot be used are listed at once. Packing again replaces the store when it is complete, never half of it.

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
        Frames a second of the videos.
    stride
        Frames from one segment to the next.
    window
        Frames that a segment's feature was computed from.
    dtype
        Precision on disk.
    skip_bad
        Pack the good files when some are bad, instead of refusing.
    """
    from hiero.data.features import find_features
    from hiero.data.store import pack as pack_features
    from hiero.records import Clock

    clock = Clock(fps, stride)
    with _progress(f"pack {folder.name}/", len(find_features(folder))) as advance:
        store, problems = pack_features(
            folder, out, backbone=backbone, clock=clock, window=window, precision=dtype, skip_bad=skip_bad, progress=advance
        )
    hours = sum(video.length for video in store.videos.values()) * clock.spacing_s / 3600
    print(f"{out}: {len(store)} videos, {hours:.1f} hours, {store.width}-d, {dtype}")
    if problems:
        _say("hiero: left out\n  " + "\n  ".join(problems))
        sys.exit(1)


def _embed_file(
    model: HiERO, source: Path, target: Path, clock: Clock, levels: list[int] | None, threads: bool | None, stamp: dict[str, Any],
    skip_done: bool = False,
) -> None:  # fmt: skip
    from hiero.data.features import read_features
    from hiero.files import save_tensors
    from hiero.model.embed import embed_features

    stat = source.stat()
    mark = json.dumps({**stamp, "source": [source.name, stat.st_size, stat.st_mtime_ns]}, sort_keys=True)
    if skip_done and target.is_file() and _mark(target) == mark:
        return
    tensors = embed_features(model, read_features(source, model.config.input_size), clock, levels, threads)
    save_tensors(target, tensors, {"hiero": mark})


def _mark(path: Path) -> str | None:
    """What an output says it was made from; None when it is damaged or not ours."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get("hiero")
    except (SafetensorError, OSError):
        return None


def _describe(path: Path) -> str:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return ", ".join(f"{name} {tuple(file.get_slice(name).get_shape())}" for name in sorted(file.keys()))


def _check_out(source: Path, out: Path) -> None:
    """An output must never take the place of an input, nor be taken for one in the next run."""
    inside = source.is_dir() and out.resolve().is_relative_to(source.resolve())
    if inside or out.resolve() == source.resolve():
        raise InputError(f"-o {out} would mix with the input {source}; choose another place")
    if source.is_dir() and out.is_file():
        raise InputError(f"-o {out} is a file; a folder of features needs a folder to write to")
    if source.is_file() and out.is_dir():
        raise InputError(f"-o {out} is a folder; name the file to write, such as {out / source.with_suffix('.safetensors').name}")


def _parse_levels(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"--levels takes numbers separated by commas, such as 0,1,2; got {text!r}") from None


def _load_model(path: Path, device: str) -> HiERO:
    import torch

    from hiero.model.hiero import HiERO

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {device} cannot be used here ({str(error).splitlines()[0]}); try --device cpu") from error
    return HiERO.from_pretrained(str(path)).to(device)


def _clock(model: HiERO, fps: float | None, stride: float | None, start_s: float) -> Clock:
    from hiero.records import Clock

    trained = model.config.clock
    return Clock(trained.fps if fps is None else fps, trained.stride if stride is None else stride, start_s)


def _fingerprint(model: HiERO) -> str:
    """Names the weights, so that outputs of another model are not mistaken for finished."""
    import hashlib

    digest = hashlib.sha256(json.dumps(model.config.to_dict(), sort_keys=True).encode())
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


@contextmanager
def _progress(title: str, total: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, now="")
        yield lambda name: progress.update(task, advance=1, now=name)


if __name__ == "__main__":
    main()
