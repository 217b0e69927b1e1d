"""Adapting a model to corrected or labelled videos: it learns prototypes of the named steps, without training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hiero.engine import Engine, Video
from hiero.errors import InputError
from hiero.formats.annotations import read_annotations
from hiero.formats.hiero_json import read_edits
from hiero.media.source import VideoSource
from hiero.model.model_folder import (
    CONFIG_FILE,
    HEAD_KEY,
    PROTOTYPE_FILES,
    TEXT_ENCODER_FILE,
    WEIGHTS_FILE,
    open_model_folder,
)
from hiero.steps.prototypes import CorrectedVideo, StepPrototypes, learn_prototypes
from hiero.storage.files import atomic_path, read_json, write_text
from hiero.types import AnnotatedStep, Hierarchy

MAX_NAMES = 3  # names listed in an error
MODEL_FILES = (WEIGHTS_FILE, TEXT_ENCODER_FILE, CONFIG_FILE)  # the configuration marks a complete folder


@dataclass(frozen=True)
class CorrectedSteps:
    """A video with corrected or labelled steps."""

    name: str
    source: VideoSource
    steps: tuple[AnnotatedStep, ...]


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
        CorrectedVideo(video.sight.views, [step for step in steps if step.start_s < video.duration_s], video.clock)
        for video, steps in videos
    ]
    return learn_prototypes([video for video in corrected if video.steps])


def adapt(
    engine: Engine,
    corrections: Sequence[CorrectedSteps],
    read: Callable[[VideoSource], Video],
    out: Path,
) -> StepPrototypes:
    """Write a copy of a model that knows the named steps of some videos, like `hiero adapt`."""
    if engine.folder is None:
        raise InputError(f"{engine.name} has no model to adapt; choose one with --model")
    source = open_model_folder(engine.folder.path)
    if out.resolve() == source.path.resolve():
        raise InputError(f"{out}: is the model to adapt; choose another folder for the adapted one")
    prototypes = learn_from_videos([(read(steps.source), steps.steps) for steps in corrections])
    out.mkdir(parents=True, exist_ok=True)
    for name in MODEL_FILES:
        if (source.path / name).is_file():
            with atomic_path(out / name) as temporary:
                shutil.copyfile(source.path / name, temporary)
    for name in PROTOTYPE_FILES:
        (out / name).unlink(missing_ok=True)
    if engine.folder.image_text_head != source.image_text_head:
        document = read_json(out / CONFIG_FILE) | {HEAD_KEY: engine.folder.image_text_head}
        write_text(out / CONFIG_FILE, json.dumps(document, indent=2) + "\n")
    prototypes.save(out, {"model": engine.name, "videos": [steps.name for steps in corrections]})
    return prototypes


def renamed_steps(before: Hierarchy, after: Hierarchy) -> list[dict[str, Any]]:
    """The steps of the finest level whose names have changed."""
    return [
        {"start_s": round(new.start_s, 3), "end_s": round(new.end_s, 3), "before": old.label, "after": new.label}
        for old, new in zip(before.levels[-1], after.levels[-1], strict=True)
        if old.label != new.label
    ]
