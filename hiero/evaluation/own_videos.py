"""Scoring on your own videos: a folder with a feature file for each video, and a JSON file with timed
steps, {video: {"task": …, "duration_s": …, "steps": [{"start_s", "end_s", "text"}]}}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hiero.devices import choose_device
from hiero.engine import NO_TEXT, Engine, load
from hiero.errors import InputError
from hiero.evaluation.cases import (
    MAX_WORKERS,
    MIN_CASES,
    Case,
    CaseProcesses,
    CaseTask,
    EvalOptions,
    TextEmbeddings,
    length_warning,
    map_cases,
    read_input_features,
    start_processes,
)
from hiero.evaluation.grounding import grounding_task
from hiero.evaluation.many_recordings import many_recordings_task
from hiero.evaluation.results import Report, Table
from hiero.evaluation.tasks import choice_task, localization_task, procedure_task
from hiero.features.files import features_by_name
from hiero.formats.annotations import AnnotatedVideo, read_annotations
from hiero.storage.files import read_lines
from hiero.types import Clock

TEXT_TASKS = ("grounding", "localization", "choices")
TASKS = ("procedure", *TEXT_TASKS)
ALL_TASKS = (*TASKS, "procedure-many")
MAX_WARNINGS = 10  # warnings shown; the report lists all


def read_own_cases(
    engine: Engine,
    folder: Path,
    annotated: Sequence[AnnotatedVideo],
    clock: Clock | None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Case], list[str], list[str]]:
    """Read each annotated video. Returns the cases, the videos without features, and warnings."""
    files = features_by_name(folder)
    cases, missing, warnings = [], [], []
    for annotation in annotated:
        name = annotation.video
        if name not in files:
            missing.append(name)
        elif annotation.steps:
            features = read_input_features(engine, files[name])
            video = engine.read(files[name], clock=clock, edits=False)
            steps = [step for step in annotation.steps if step.start_s < video.duration_s]
            if num_late := len(annotation.steps) - len(steps):
                warnings.append(f"{name}: {num_late} of {len(annotation.steps)} steps start after its features end")
            if warning := length_warning(annotation, video.duration_s):
                warnings.append(warning)
            if steps:
                cases.append(Case(video, features, steps, annotation.task))
        else:
            warnings.append(f"{name}: has no steps")
        progress(name)
    if not cases:
        names = ", ".join(sorted(files)[:3])
        raise InputError(f"{folder}: none of the {len(annotated)} annotated videos has features (found {names} …)")
    return cases, missing, warnings


@dataclass(frozen=True)
class OwnSettings:
    """Settings of `hiero eval own`; `only` is a file with the names of the videos to score."""

    model: str = "hiero-k400"
    clock: Clock | None = None
    tasks: Sequence[str] = TASKS
    num_clusters: int | None = None
    options: EvalOptions = field(default_factory=EvalOptions)
    only: Path | None = None
    held_out: bool = False  # whether videos that the model was trained on are left out
    device: str = "auto"
    num_processes: int = 1


def run_own_videos(
    features: Path,
    annotations: Path,
    settings: OwnSettings,
    log: Callable[[str], None] = lambda _: None,
    bar: Callable[[str, int], AbstractContextManager[Callable[[str], None]]] = lambda *_: nullcontext(lambda _: None),
) -> Report:
    """Read and score the videos, and report the results."""
    unknown = [name for name in settings.tasks if name not in ALL_TASKS]
    if unknown or not settings.tasks:
        raise InputError(f"--tasks must be some of {', '.join(ALL_TASKS)}, got {', '.join(unknown) or 'none'}")
    annotated = read_annotations(annotations)
    if settings.only is not None:
        annotated = _select_videos(annotated, annotations, settings.only, log)
    engine = load(settings.model, device=settings.device)
    annotated = _set_apart(annotated, engine, settings.held_out, log)
    num_processes = min(settings.num_processes, MAX_WORKERS, len(annotated) // MIN_CASES)
    if choose_device(settings.device) != "cpu":
        num_processes = 1
    with start_processes(settings.model, num_processes) or nullcontext() as processes:
        with bar("reading", len(annotated)) as advance:
            cases, missing, warnings = read_own_cases(engine, features, annotated, settings.clock, advance)
        for line in warnings[:MAX_WARNINGS]:
            log(line)
        if len(warnings) > MAX_WARNINGS:
            log(f"… and {len(warnings) - MAX_WARNINGS} more warnings; the report lists all")
        with bar("scoring", len(cases)) as advance:
            tables = evaluate_own_videos(
                cases, settings.tasks, settings.options, settings.num_clusters, advance, processes
            )
    clock = settings.clock
    described = {
        "model": settings.model,
        "videos": len(cases),
        "steps": sum(len(case.truth) for case in cases),
        "seed": settings.options.random_state,
        "hz": None if clock is None else clock.fps / clock.stride,
        "left_out": warnings,
    }
    return Report("own", tables, described, missing)


def _select_videos(
    annotated: Sequence[AnnotatedVideo], annotations: Path, only: Path, log: Callable[[str], None]
) -> list[AnnotatedVideo]:
    """Select the annotated videos that a file names."""
    names = read_lines(only)
    selected = [annotation for annotation in annotated if annotation.video in names]
    if not selected:
        raise InputError(f"{only}: none of the videos is in {annotations}")
    if absent := sorted(set(names) - {annotation.video for annotation in annotated}):
        log(f"{only}: {len(absent)} videos are not in {annotations}: {', '.join(absent[:3])} …")
    return selected


def _set_apart(
    annotated: list[AnnotatedVideo], engine: Engine, held_out: bool, log: Callable[[str], None]
) -> list[AnnotatedVideo]:
    """The videos that the model was not trained on, or all of them with a warning."""
    training = engine.folder.extra.get("training", {}) if engine.folder else {}
    networks = training if isinstance(training, list) else [training]  # an ensemble has a list
    seen = {video for network in networks for video in network.get("videos", ())}
    others = [annotation for annotation in annotated if annotation.video not in seen]
    num_seen = len(annotated) - len(others)
    if not num_seen:
        return annotated
    if held_out and not others:
        raise InputError(
            f"{engine.name} was trained on all {num_seen} videos; keep some for scoring: hiero train --skip"
        )
    if not held_out:
        log(f"{engine.name} was trained on {num_seen} of {len(annotated)} videos, so their scores are too high")
        log("--held-out scores only the others" if others else "hiero train --skip FILE keeps videos for scoring")
    return others if held_out else annotated


def evaluate_own_videos(
    cases: Sequence[Case],
    tasks: Sequence[str],
    options: EvalOptions,
    num_clusters: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
    processes: CaseProcesses | None = None,
) -> list[Table]:
    """Score the cases on all tasks. A case is scored on all tasks at once because they share results."""
    texts = list(dict.fromkeys(text for case in cases for text in case.texts))
    engine = cases[0].video.engine
    embeddings = TextEmbeddings(engine, texts) if engine.has_text else None
    case_tasks: list[CaseTask[Any]] = []
    without_text = [] if engine.has_text else [Table(task, [], [NO_TEXT]) for task in tasks if task in TEXT_TASKS]
    for task in tasks:
        if task == "procedure":
            case_tasks += [procedure_task(cases, options, num) for num in dict.fromkeys((None, num_clusters))]
        elif task == "procedure-many":
            case_tasks.append(many_recordings_task(cases, options))
        elif embeddings is None:
            continue
        elif task == "grounding":
            case_tasks.append(grounding_task(cases, embeddings, options))
        elif task == "localization":
            case_tasks.append(localization_task(cases, texts, embeddings, options))
        else:
            case_tasks.append(choice_task(cases, embeddings, options))
    score = partial(_score_tasks, scores=[task.score for task in case_tasks])
    try:
        results = map_cases(score, cases, progress, processes)
    except BrokenExecutor:  # a process died, perhaps out of memory; a single process needs less
        results = map_cases(score, cases)
    scored = zip(case_tasks, zip(*results, strict=True), strict=False)
    return [table for task, column in scored for table in task.tabulate(list(column))] + without_text


def _score_tasks(case: Case, scores: Sequence[Callable[[Case], Any]]) -> list[Any]:
    return [score(case) for score in scores]
