"""From files to a trained model: what `hiero train` does, for scripts too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hiero.config import TextConfig, TrainConfig, override, read_preset
from hiero.data.narrated_windows import NarratedWindows
from hiero.data.narrations import Narrations, read_narrations, read_skip_list
from hiero.data.stores import FeatureStore
from hiero.errors import InputError
from hiero.text.encoders import TextEncoder, encode_texts, load_text_encoder
from hiero.training.loop import STATE, TrainingStatus, make_fabric
from hiero.training.training import Training


class SilentDisplay:
    """A display that shows nothing; the command line has one that does."""

    def log(self, line: str) -> None: ...

    def steps(self, done: int, total: int) -> AbstractContextManager[None]:
        return nullcontext()

    def texts(self, total: int) -> AbstractContextManager[Callable[[int], None]]:
        return nullcontext(lambda _: None)

    def report(self, report: TrainingStatus) -> None: ...


def train_from_files(
    store: Path,
    narrations: Path,
    out: Path,
    *,
    preset: str = "k400-minilm",
    settings: list[str],
    validation: Path | None = None,
    validation_share: float = 0.1,
    skip: Path | None = None,
    resume: bool = False,
    capture: bool | Literal["auto"] = "auto",
    save_every_s: float = 300.0,
    text_cache: Path | None = None,
    device: str = "auto",
    display: SilentDisplay | Any = None,
) -> Training:
    """Train, and leave the model in `out`. See `hiero train --help`."""
    display = display or SilentDisplay()
    features = FeatureStore(store)
    values = override(read_preset(preset), settings)
    fabric = make_fabric(device)
    display = display if fabric.is_global_zero else SilentDisplay()
    if (out / STATE).is_file() and not resume:
        raise InputError(f"{out}: holds a run already; go on with it (--resume) or choose another folder")
    for group in ("model", "losses", "text"):
        if not isinstance(values.get(group, {}), dict):
            raise InputError(f"{group} is a group of settings; set one of them, such as --set {group}.NAME=VALUE")
    text_config = TextConfig.from_dict(values.get("text", {}))
    if not text_config.encoder:
        raise InputError(
            f"preset {preset} needs a text encoder's weights: --set text.encoder=FILE or FOLDER (see hiero train --help)"
        )
    plan(values, features, values.get("model", {}).get("text_size", 1))  # a wrong setting is said before any work
    found, held_out = _split(features, narrations, validation, validation_share, skip)
    display.log(found.summary())
    window_s = float(values.get("window_s", 300.0))
    windows = NarratedWindows(features, found, window_s, drop_tags=text_config.drop_tags)
    display.log(windows.summary())
    check: NarratedWindows | None = None
    if held_out is not None and held_out.by_video:
        check = NarratedWindows(features, held_out, window_s, drop_tags=text_config.drop_tags)
        display.log(f"validation: {check.summary()}")

    text: TextEncoder | None = None
    vectors: Tensor | None = None
    check_vectors: Tensor | None = None
    if text_config.mode == "frozen":
        num = len(windows.texts) + (len(check.texts) if check else 0)
        with display.texts(num) as progress:
            encode = {"device": fabric.device, "cache": text_cache, "progress": progress}
            vectors = encode_texts(windows.texts, text_config.encoder, **encode)
            check_vectors = encode_texts(check.texts, text_config.encoder, **encode) if check else None
        text_size = vectors.shape[1]
    else:
        torch.manual_seed(int(values.get("seed", 0)))  # new LoRA matrices are part of the run
        text = load_text_encoder(text_config)
        text_size = text.size

    config = plan(values, features, text_size)
    training = Training(
        config, windows, out, fabric, vectors=vectors, text=text, validation=(check, check_vectors) if check else None,
        capture=capture, save_every_s=save_every_s,
    )  # fmt: skip
    trained = sum(p.numel() for p in training.model.parameters())
    trained += sum(p.numel() for p in text.parameters() if p.requires_grad) if text is not None else 0
    display.log(f"{trained / 1e6:.2f} M parameters learn, {training.num_steps} steps on {fabric.device}")
    out.mkdir(parents=True, exist_ok=True)
    training.prepare(resume=resume, log=display.log)
    if resume:
        display.log(f"resuming at step {training.step_number}")
    with display.steps(training.step_number, training.num_steps):
        training.run(on_report=display.report, log=display.log)
    display.log(f"{out}: trained; next: hiero embed FEATURES --model {out} -o OUT")
    return training


def plan(values: dict[str, Any], store: FeatureStore, text_size: int) -> TrainConfig:
    """The whole configuration: a preset's values, and what the data decides."""
    model = {
        "input_size": store.width, "text_size": text_size, "backbone": store.backbone,
        "clock": {"fps": store.clock.fps, "stride": store.clock.stride}, **values.get("model", {}),
    }  # fmt: skip
    for name, size in (("input_size", store.width), ("text_size", text_size)):
        if model[name] != size:
            raise InputError(f"model.{name} is set to {model[name]}, but the data has {size}; leave it out")
    return TrainConfig.from_dict({**values, "model": model})


def _split(
    store: FeatureStore, narrations: Path, validation: Path | None, share: float, skip: Path | None
) -> tuple[Narrations, Narrations | None]:
    """Narrations to train on and to validate on; no video is in both."""
    left_out = read_skip_list(skip) if skip is not None else frozenset()
    found = read_narrations(narrations)
    if validation is not None:
        held_out = read_narrations(validation).keep(store, left_out)
        if not held_out.by_video:
            raise InputError(f"{validation}: {held_out.summary()}")
        found = found.keep(store, left_out)
        for video in sorted(set(found.by_video) & set(held_out.by_video)):
            found.leave_out("kept for validation", video, len(found.by_video.pop(video)))
        if not found.by_video:
            raise InputError(f"{narrations}: nothing is left to train on\n{found.summary()}")
        return found, held_out
    found = found.keep(store, left_out)
    if not found.by_video:
        raise InputError(f"{narrations}: {found.summary()}")
    if not 0 <= share < 1:
        raise InputError(f"--validation-share is between 0 and 1, got {share}")
    chosen = sorted(found.by_video, key=lambda video: hashlib.sha256(video.encode()).digest())[: round(share * len(found.by_video))]
    if not chosen:
        return found, None
    held = Narrations({video: found.by_video[video] for video in chosen})
    rest = {video: said for video, said in found.by_video.items() if video not in held.by_video}
    return Narrations(rest, found.left_out, found.examples), held
