"""Train a model from files, as `hiero train` does."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hiero.config import TextConfig, TrainConfig, read_preset
from hiero.errors import InputError
from hiero.features.stores import FeatureStore
from hiero.model.ensemble import HieroEnsemble, load_model
from hiero.model.model_folder import open_model_folder
from hiero.networks.text_encoders import MINILM, encode_texts, load_text_encoder
from hiero.training.hiero_training import Capture, HieroTraining
from hiero.training.loop import RunOptions, apply_settings, start_run
from hiero.training.narrated_windows import NarratedWindows
from hiero.training.narrations import Narrations, is_spoken, read_narrations, read_skip_list

SPEECH_WINDOW_S = 8.0  # twice that of written narrations in the preset k400-minilm
MAX_SPEECH_WINDOW_S = 3600.0


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """Options of `hiero train`, whose help describes them."""

    validation: Path | None = None
    validation_share: float = 0.1
    skip: Path | None = None
    speech_window_s: float = SPEECH_WINDOW_S
    capture: Capture = "auto"
    text_cache: Path | None = None


def train_from_files(
    store: Path,
    narrations: Path,
    out: Path,
    *,
    preset: str = "k400-minilm",
    settings: Sequence[str] = (),
    initial: str | Path | None = None,
    options: TrainOptions | None = None,
) -> HieroTraining:
    """Train HiERO and save the model in a folder."""
    options = options or TrainOptions()
    features = FeatureStore(store)
    folder = None if initial is None else open_model_folder(initial)
    preset_values = read_preset(preset)
    if folder is not None:
        preset_values["model"] = (folder.networks or (folder.config,))[0].to_dict()
    fabric, display = start_run(out, options)
    options = replace(options, display=display)
    settings = [*speech_settings(narrations, options.speech_window_s), *settings]
    values = apply_settings(preset_values, settings, TrainConfig, display.log)
    text_config = _text_config(values, preset)
    # This reports wrong settings before any work.
    build_config(values, features, values.get("model", {}).get("text_size", 1))

    windows, validation_windows = _read_windows(features, narrations, values, text_config, options)
    text_vectors = validation_vectors = text_encoder = None
    if text_config.mode != "frozen" or text_config.encoder != MINILM:  # it is saved with the model
        torch.manual_seed(int(values.get("seed", 0)))  # new LoRA matrices are part of the run
        text_encoder = load_text_encoder(text_config)
        text_size = text_encoder.size
    if text_config.mode == "frozen":
        num_texts = len(windows.texts) + (len(validation_windows.texts) if validation_windows else 0)
        with options.display.texts(num_texts) as progress:
            encode = partial(encode_texts, device=fabric.device, cache=options.text_cache, progress=progress)
            text_vectors = encode(windows.texts, text_config.encoder)
            if validation_windows:
                validation_vectors = encode(validation_windows.texts, text_config.encoder)
        text_size = text_vectors.shape[1]
    training = HieroTraining(
        build_config(values, features, text_size),
        windows,
        out,
        fabric,
        text_vectors=text_vectors,
        text_encoder=text_encoder,
        validation=(validation_windows, validation_vectors) if validation_windows else None,
    )
    if folder is not None:
        loaded = load_model(folder.path)
        network = loaded.members[0] if isinstance(loaded, HieroEnsemble) else loaded
        training.model.load_state_dict(network.state_dict())
    _run(training, options)
    return training


def _read_windows(
    store: FeatureStore, path: Path, values: dict[str, Any], text_config: TextConfig, options: TrainOptions
) -> tuple[NarratedWindows, NarratedWindows | None]:
    """Windows to train on and to validate on."""
    narrations, validation = _split(store, path, options)
    options.display.log(narrations.summary())
    window_s = float(values.get("window_s", 300.0))
    windows = NarratedWindows(store, narrations, window_s, drop_tags=text_config.drop_tags)
    options.display.log(windows.summary())
    if validation is None:
        return windows, None
    validation_windows = NarratedWindows(store, validation, window_s, drop_tags=text_config.drop_tags)
    options.display.log(f"validation: {validation_windows.summary()}")
    return windows, validation_windows


def _run(training: HieroTraining, options: TrainOptions) -> None:
    display = options.display
    num_parameters = sum(p.numel() for p in training.model.parameters())
    if training.text_encoder is not None:
        num_parameters += sum(p.numel() for p in training.text_encoder.parameters() if p.requires_grad)
    device = training.fabric.device
    display.log(f"{num_parameters / 1e6:.2f} M trainable parameters, {training.num_steps} steps on {device}")
    training.save_every_s = options.save_every_s
    training.prepare(resume=options.resume, capture=options.capture, log=display.log)
    if options.resume:
        display.log(f"resuming at step {training.step_number}")
    training.run_and_log(display, "model", "hiero embed FEATURES --model {} -o OUT")


def speech_settings(narrations: Path, window_s: float) -> list[str]:
    """Settings for transcripts: people speak before or after they act, so positives reach further."""
    if not 0 < window_s < MAX_SPEECH_WINDOW_S:
        raise InputError(f"--speech-window-s must be between 0 and {MAX_SPEECH_WINDOW_S:g} seconds, got {window_s:g}")
    return [f"losses.alpha={1 / window_s!r}"] if is_spoken(narrations) else []


def build_config(values: dict[str, Any], store: FeatureStore, text_size: int) -> TrainConfig:
    """The configuration of a run: the values of a preset, and the sizes and clock of the data."""
    model = {
        "input_size": store.width,
        "text_size": text_size,
        "backbone": store.backbone,
        "clock": {"fps": store.clock.fps, "stride": store.clock.stride},
        **values.get("model", {}),
    }
    for name, size in (("input_size", store.width), ("text_size", text_size)):
        if model[name] != size:
            raise InputError(f"model.{name} is set to {model[name]}, but the data has {size}; omit this setting")
    return TrainConfig.from_dict({**values, "model": model})


def _text_config(values: dict[str, Any], preset: str) -> TextConfig:
    for group in ("model", "losses", "text"):
        if not isinstance(values.get(group, {}), dict):
            raise InputError(f"{group} is a group of settings; set one of them: --set {group}.NAME=VALUE")
    config = TextConfig.from_dict(values.get("text", {}))
    if not config.encoder:
        raise InputError(
            f"preset {preset} needs the weights of a text encoder: --set text.encoder=FILE or FOLDER. EgoVLP's is at "
            "https://www.sapeirone.it/data/hiero/pretrained/egovlp_text.pth"
        )
    return config


def _split(store: FeatureStore, path: Path, options: TrainOptions) -> tuple[Narrations, Narrations | None]:
    """Narrations to train on and to validate on. No video is in both."""
    share = options.validation_share
    skipped = read_skip_list(options.skip) if options.skip is not None else frozenset()
    narrations = read_narrations(path).select_videos(store, skipped)
    if not narrations.by_video:
        raise InputError(f"{path}: {narrations.summary()}")
    if options.validation is not None:
        validation = read_narrations(options.validation).select_videos(store, skipped)
        if not validation.by_video:
            raise InputError(f"{options.validation}: {validation.summary()}")
        for video in sorted(set(narrations.by_video) & set(validation.by_video)):
            narrations.leave_out("kept for validation", video, len(narrations.by_video.pop(video)))
        if not narrations.by_video:
            raise InputError(f"{path}: nothing is left to train on\n{narrations.summary()}")
        return narrations, validation
    if not 0 <= share < 1:
        raise InputError(f"--validation-share must be between 0 and 1, got {share}")
    # Sorting by hashes gives an even choice that is the same in every run.
    shuffled = sorted(narrations.by_video, key=lambda video: hashlib.sha256(video.encode()).digest())
    chosen = shuffled[: round(share * len(shuffled))]
    validation = Narrations({video: narrations.by_video.pop(video) for video in chosen})
    return narrations, validation if chosen else None
