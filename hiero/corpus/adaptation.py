"""Adapting a model to corrected or labelled videos.

The model always learns prototypes of the named steps. If there are enough steps, and if it helps on
corrected videos that were held out, its weights are also fine-tuned for a short time, with the texts of
the steps as narrations spread over their spans.
"""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hiero.corpus.adaptation_choice import MIN_GAIN, cross_validate, score_held_out
from hiero.data.stores import pack
from hiero.engine import Engine, Video, load
from hiero.errors import InputError
from hiero.evaluation.own_videos import read_annotations
from hiero.formats.hiero_json import read_edits
from hiero.model.model_folder import CONFIG_FILE, PROTOTYPE_FILES, TEXT_ENCODER_FILE, WEIGHTS_FILE, open_model_folder
from hiero.sources.source import VideoSource
from hiero.steps.prototypes import CorrectedVideo, StepPrototypes, learn_prototypes
from hiero.storage.files import atomic_path
from hiero.types import AnnotatedStep, Hierarchy, format_count

NARRATION_SPACING_S = 4.0  # seconds between narrations, as in the training of the shipped models
MIN_TUNING_STEPS = 100  # with fewer, prototypes work better (docs/results.md), and fine-tuning is not tried
MIN_TUNING_VIDEOS = 8
MAX_NAMES = 3  # names listed in an error
MODEL_FILES = (WEIGHTS_FILE, TEXT_ENCODER_FILE, CONFIG_FILE)  # the configuration marks a complete folder


@dataclass(frozen=True)
class TuningSettings:
    """Settings of the fine-tuning. The defaults were chosen on development recipes."""

    options: Sequence[str] = ("lr=3e-4", "warmup_epochs=0")  # settings of `hiero train --set`
    num_updates: int = 60  # approximate number of weight updates
    window_s: float = 1200.0  # longest part of a video in a batch
    batch_size: int = 2  # half the time of 4, with the same result
    save_every_s: float = 10.0


DEFAULT_TUNING = TuningSettings()


@dataclass(frozen=True)
class CorrectedSteps:
    """A video with corrected or labelled steps."""

    name: str
    source: VideoSource
    steps: tuple[AnnotatedStep, ...]


CorrectedPair = tuple[Video, CorrectedSteps]


def named_steps(hierarchy: Hierarchy) -> tuple[AnnotatedStep, ...]:
    """The steps that a person named or imported, without those that repeat the label of a child."""
    by_id = {step.id: step for step in hierarchy}
    out: dict[tuple[float, float, str], AnnotatedStep] = {}
    for step in hierarchy:
        label = (step.label or "").strip()
        repeats = any((by_id[child].label or "").strip() == label for child in step.children if child in by_id)
        if label and step.is_named_by_person and not step.background and not repeats:
            out[step.start_s, step.end_s, label] = AnnotatedStep(step.start_s, step.end_s, label)
    return tuple(out.values())


def find_corrections(videos: Mapping[str, VideoSource]) -> list[CorrectedSteps]:
    """The videos that have a file with corrected steps next to them."""
    edits = {name: read_edits(source.path, source.known_key()) for name, source in videos.items()}
    steps = {name: named_steps(found.hierarchy) for name, found in edits.items() if found is not None}
    corrected = [CorrectedSteps(name, videos[name], named) for name, named in steps.items() if named]
    if not corrected:
        raise InputError(
            "none of the videos has corrected steps with names next to it; correct some with "
            "hiero serve, or import them with hiero import-steps"
        )
    return corrected


def annotated_corrections(videos: Mapping[str, VideoSource], annotations: Path) -> list[CorrectedSteps]:
    """The videos that have steps in an annotation file of `hiero eval own`."""
    corrected = [
        CorrectedSteps(annotated.video, videos[annotated.video], tuple(annotated.steps))
        for annotated in read_annotations(annotations)
        if annotated.video in videos and annotated.steps
    ]
    if not corrected:
        raise InputError(
            f"{annotations}: has no steps for any of these videos ({', '.join(list(videos)[:MAX_NAMES])} …)"
        )
    return corrected


def learn_from_videos(videos: Sequence[tuple[Video, Sequence[AnnotatedStep]]]) -> StepPrototypes:
    """Learn prototypes of the named steps of videos."""
    corrected = [
        CorrectedVideo(video.views, [step for step in steps if step.start_s < video.duration_s], video.clock)
        for video, steps in videos
    ]
    return learn_prototypes([video for video in corrected if video.steps])


def copy_model(source: Path, out: Path) -> None:
    """Copy the files of a model folder without its prototypes."""
    for name in MODEL_FILES:
        if (source / name).is_file():
            with atomic_path(out / name) as temporary:
                shutil.copyfile(source / name, temporary)
    for name in PROTOTYPE_FILES:
        (out / name).unlink(missing_ok=True)


def spread_narrations(videos: Sequence[CorrectedSteps]) -> list[tuple[str, float, str]]:
    """Video, time and text of narrations that repeat the text of each step every few seconds."""
    rows = []
    for video in videos:
        for step in video.steps:
            duration_s, text = step.end_s - step.start_s, " ".join(step.text.split())
            num = max(1, round(duration_s / NARRATION_SPACING_S))
            rows += [(video.name, step.start_s + (i + 0.5) / num * duration_s, text) for i in range(num)]
    return rows


def fine_tune(
    engine: Engine,
    videos: Sequence[tuple[Video, CorrectedSteps]],
    out: Path,
    tuning: TuningSettings = DEFAULT_TUNING,
    device: str = "auto",
    display: Any = None,
) -> None:
    """Fine-tune a model on corrected steps and write it to a folder. Calling it again resumes an interrupted run."""
    from hiero.training.from_files import TrainOptions, train_from_files
    from hiero.training.loop import STATE_FILE, SilentDisplay

    if engine.folder is None or not engine.uses_minilm:
        raise InputError("only models with the sentence encoder minilm can be fine-tuned; use --no-fine-tune")
    work = out.parent / f".{out.name}.training"  # kept after an interruption, so that the next run can resume
    shutil.rmtree(work / "features", ignore_errors=True)
    (work / "features").mkdir(parents=True)
    for i, (video, _) in enumerate(videos):
        features = video.source.features.get(engine.backbones[0])
        if features is None:
            raise InputError(f"{video.path}: has no {engine.backbones[0]} features to train on; use --no-fine-tune")
        np.save(work / "features" / f"{i}.npy", features.astype(np.float32))
    pack(work / "features", work / "store", backbone=engine.folder.config.backbone, clock=videos[0][0].clock, window=1)
    numbered = [replace(steps, name=str(i)) for i, (_, steps) in enumerate(videos)]
    with (work / "narrations.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("video", "time_s", "text"), *spread_narrations(numbered)])
    num_windows = sum(math.ceil(video.duration_s / tuning.window_s) for video, _ in videos)
    batch_size = max(1, min(tuning.batch_size, num_windows))
    epochs = max(1, round(tuning.num_updates / (num_windows // batch_size)))
    settings = [f"batch_size={batch_size}", f"epochs={epochs}", f"window_s={tuning.window_s}", *tuning.options]
    has_begun = (work / "model" / STATE_FILE).is_file()
    options = TrainOptions(
        has_begun, device, tuning.save_every_s, display or SilentDisplay(), validation_share=0.0, capture=False
    )
    train = partial(train_from_files, work / "store", work / "narrations.csv", work / "model", settings=settings)
    try:
        train(initial=engine.folder.path, options=options)
    except InputError:
        if not has_begun:
            raise
        shutil.rmtree(work / "model")  # the interrupted run had other steps or videos
        train(initial=engine.folder.path, options=replace(options, resume=False))
    copy_model(work / "model", out)
    shutil.rmtree(work)


def adapt(
    engine: Engine,
    corrections: Sequence[CorrectedSteps],
    read: Callable[[Engine, VideoSource], Video],
    out: Path,
    *,
    tune: bool | None = None,
    display: Any = None,
    log: Callable[[str], None] = lambda _: None,
) -> StepPrototypes:
    """Write a copy of a model that knows the named steps of some videos, like `hiero adapt`."""
    if engine.folder is None:
        raise InputError("raw features have no model to adapt; choose one with --model")
    source = open_model_folder(engine.folder.path).path
    if out.resolve() == source.resolve():
        raise InputError(f"{out}: is the model to adapt; choose another folder for the adapted one")
    videos = [(read(engine, steps.source), steps) for steps in corrections]
    if tune is None:
        tune = _choose_tuning(engine, videos, read, out, display, log)
    out.mkdir(parents=True, exist_ok=True)
    if tune:
        num_steps = sum(len(steps.steps) for steps in corrections)
        log(f"training on {format_count(num_steps, 'step')} of {format_count(len(videos), 'video')}")
        fine_tune(engine, videos, out, device=engine.device, display=display)
        videos = _read_again(engine, videos, read, out)
    else:
        copy_model(source, out)
    prototypes = learn_from_videos([(video, steps.steps) for video, steps in videos])
    prototypes.save(out, {"model": engine.name, "videos": [steps.name for steps in corrections], "fine_tuned": tune})
    return prototypes


def _read_again(
    engine: Engine, videos: Sequence[CorrectedPair], read: Callable[[Engine, VideoSource], Video], model: Path
) -> list[CorrectedPair]:
    """The videos read with a fine-tuned model."""
    tuned = load(
        model, backbone="default", device=engine.device, precision=engine.precision, batch_size=engine.batch_size
    )
    tuned.backbones = engine.backbones
    return [(read(tuned, steps.source), steps) for _, steps in videos]


def _choose_tuning(
    engine: Engine,
    videos: Sequence[CorrectedPair],
    read: Callable[[Engine, VideoSource], Video],
    out: Path,
    display: Any,
    log: Callable[[str], None],
) -> bool:
    """Whether to fine-tune the network: only if held-out videos show that it helps. Says what was chosen and why."""
    num_steps = sum(len(steps.steps) for _, steps in videos)
    has_features = all(engine.backbones[0] in video.source.features for video, _ in videos)
    if not engine.uses_minilm or not has_features:
        log("no fine-tuning: this model, or these features, cannot be trained")
        return False
    if num_steps < MIN_TUNING_STEPS or len(videos) < MIN_TUNING_VIDEOS:
        needed = f"{MIN_TUNING_VIDEOS} videos and {MIN_TUNING_STEPS} steps"
        log(f"no fine-tuning: with fewer than {needed}, examples of the steps work better (--fine-tune forces it)")
        return False
    log("comparing with and without fine-tuning on held-out videos, which takes twice as long as the training")
    checks = out.parent / f".{out.name}.checks"  # kept after an interruption, like the training itself
    names = list(dict.fromkeys(step.text.strip() for _, steps in videos for step in steps.steps))

    def score(learned: list[CorrectedPair], held_out: list[CorrectedPair]) -> np.ndarray:
        reader = learned[0][0].engine
        before = reader.prototypes
        reader.prototypes = learn_from_videos([(video, steps.steps) for video, steps in learned])
        try:
            return score_held_out([(video, steps.steps) for video, steps in held_out], names)
        finally:
            reader.prototypes = before

    def score_group(learned: list[int], held_out: list[int]) -> tuple[np.ndarray, np.ndarray]:
        model = checks / f"without-{held_out[0]}"
        fine_tune(engine, [videos[i] for i in learned], model, device=engine.device, display=display)
        tuned = _read_again(engine, videos, read, model)
        without, with_tuning = (score([v[i] for i in learned], [v[i] for i in held_out]) for v in (videos, tuned))
        return without, with_tuning

    fingerprint = repr([engine.name, *((steps.name, steps.steps) for _, steps in videos)])
    without, tuned = cross_validate(len(videos), score_group, checks, fingerprint)
    chosen = tuned.mean > without.mean + MIN_GAIN
    choice = "fine-tuning helps" if chosen else "no fine-tuning: it does not help"
    log(f"{choice} on held-out videos: with it {tuned}, without {without}")
    return chosen


def renamed_steps(before: Hierarchy, after: Hierarchy) -> list[dict[str, Any]]:
    """The steps of the finest level whose names have changed."""
    return [
        {"start_s": round(new.start_s, 3), "end_s": round(new.end_s, 3), "before": old.label, "after": new.label}
        for old, new in zip(before.levels[-1], after.levels[-1], strict=True)
        if old.label != new.label
    ]
