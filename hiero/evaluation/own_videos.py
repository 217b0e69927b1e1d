"""One's own videos: features of each and a file with timed steps, scored on every task.

The annotations are JSON, {video: {"task": …, "duration_s": …, "steps": [{"start_s", "end_s",
"text"}]}}; the folder has a feature file for each video.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hiero.data.features import features_by_name, read_feature_array
from hiero.devices import choose_device
from hiero.engine import NO_TEXT, Engine, load
from hiero.errors import InputError
from hiero.evaluation.case_processes import MIN_CASES, CaseProcesses, start_processes
from hiero.evaluation.cases import (
    MAX_WORKERS,
    AnnotatedVideo,
    Case,
    CaseTask,
    EvalOptions,
    TextEmbeddings,
    map_cases,
    recorded_outputs,
)
from hiero.evaluation.grounding import grounding_task
from hiero.evaluation.localization import localization_task
from hiero.evaluation.multiple_choice import choice_task
from hiero.evaluation.procedure import procedure_task
from hiero.evaluation.results import Report, Table
from hiero.storage.files import read_json, read_lines
from hiero.types import AnnotatedStep, Clock

TASKS = ("procedure", "grounding", "localization", "choices")
MAX_ERRORS = 5  # of an annotation file that a message names
MAX_WARNINGS = 10  # that are shown; all are in the report
LENGTH_TOLERANCE = 1.1  # ratio of the lengths that features and annotations give a video


def read_annotations(path: Path) -> list[AnnotatedVideo]:
    """The videos of an annotation file, sorted by name."""
    content = read_json(path)
    if content == {}:
        raise InputError(f"{path}: holds no videos")
    if not isinstance(content, dict):
        raise InputError(f'{path}: expected {{"video": {{"steps": [{{"start_s", "end_s", "text"}}]}}}}')
    annotated, errors = [], []
    for video, entry in content.items():
        try:
            steps = tuple(_parse_step(step) for step in entry["steps"])
            duration_s = entry.get("duration_s")
            task = str(entry.get("task", ""))
            annotated.append(
                AnnotatedVideo(video, steps, task=task, duration_s=None if duration_s is None else float(duration_s))
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            errors.append(f"{video} (no {error})" if isinstance(error, KeyError) else f"{video} ({error})")
    if errors:
        more = " …" if len(errors) > MAX_ERRORS else ""
        raise InputError(f"{path}: {len(errors)} videos cannot be read: {'; '.join(errors[:MAX_ERRORS])}{more}")
    return sorted(annotated, key=lambda annotation: annotation.video)


def _parse_step(step: dict[str, object]) -> AnnotatedStep:
    start_s, end_s = float(step["start_s"]), float(step["end_s"])  # type: ignore[arg-type]
    if not (math.isfinite(start_s) and math.isfinite(end_s)) or end_s < start_s or start_s < 0:
        raise ValueError(f"a step from {start_s} to {end_s} s")
    text = str(step["text"]).strip()
    if not text:
        raise ValueError("a step without a text")
    return AnnotatedStep(start_s, end_s, text)


def read_own_cases(
    engine: Engine,
    folder: Path,
    annotated: Sequence[AnnotatedVideo],
    clock: Clock | None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Case], list[str], list[str]]:
    """Each annotated video with its features, read through the engine."""
    files = features_by_name(folder)
    cases, missing, warnings = [], [], []
    for annotation in annotated:
        name = annotation.video
        if name not in files:
            missing.append(name)
        elif annotation.steps:
            features = read_feature_array(
                files[name], None if engine.folder is None else engine.folder.config.input_size
            )
            with recorded_outputs(engine) as outputs:
                video = engine.read(files[name], clock=clock)
            steps = [step for step in annotation.steps if step.start_s < video.duration_s]
            if num_late := len(annotation.steps) - len(steps):
                warnings.append(f"{name}: {num_late} of {len(annotation.steps)} steps begin after its features end")
            if warning := length_warning(annotation, video.duration_s):
                warnings.append(warning)
            if steps:
                cases.append(Case(video, features, steps, annotation.task, outputs=outputs))
        else:
            warnings.append(f"{name}: has no steps")
        progress(name)
    if not cases:
        names = ", ".join(sorted(files)[:3])
        raise InputError(f"{folder}: none of the {len(annotated)} annotated videos has features here (found {names} …)")
    return cases, missing, warnings


@dataclass(frozen=True)
class OwnSettings:
    """What `hiero eval own` scores, and how; `only` is a file with the names of videos."""

    model: str = "hiero-k400"
    clock: Clock | None = None
    tasks: Sequence[str] = TASKS
    num_clusters: int | None = None
    options: EvalOptions = field(default_factory=EvalOptions)
    only: Path | None = None
    device: str = "auto"
    num_processes: int = 1

    def check_tasks(self) -> None:
        unknown = [name for name in self.tasks if name not in TASKS]
        if unknown or not self.tasks:
            raise InputError(f"--tasks are some of {', '.join(TASKS)}, got {', '.join(unknown) or 'none'}")


def run_own_videos(
    features: Path,
    annotations: Path,
    settings: OwnSettings,
    log: Callable[[str], None] = lambda _: None,
    bar: Callable[[str, int], AbstractContextManager[Callable[[str], None]]] = lambda *_: nullcontext(lambda _: None),
) -> Report:
    """All that `hiero eval own` does: read, score, report."""
    settings.check_tasks()
    annotated = read_annotations(annotations)
    if settings.only is not None:
        annotated = _select_videos(annotated, annotations, settings.only, log)
    engine = load(settings.model, backbone="default", device=settings.device)
    num_processes = min(settings.num_processes, MAX_WORKERS, len(annotated) // MIN_CASES)
    if choose_device(settings.device) != "cpu":
        num_processes = 1
    with start_processes(settings.model, num_processes) or nullcontext() as processes:
        with bar("reading", len(annotated)) as advance:
            cases, missing, warnings = read_own_cases(engine, features, annotated, settings.clock, advance)
        for line in warnings[:MAX_WARNINGS]:
            log(line)
        if len(warnings) > MAX_WARNINGS:
            log(f"… and {len(warnings) - MAX_WARNINGS} more like this; all are in the report")
        num_passes = len(settings.tasks) + ("procedure" in settings.tasks and settings.num_clusters is not None)
        with bar("scoring", num_passes * len(cases)) as advance:
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
    """`--only`: the annotated videos that a file names."""
    names = read_lines(only)
    selected = [annotation for annotation in annotated if annotation.video in names]
    if not selected:
        raise InputError(f"{only}: none of its videos is in {annotations}")
    if absent := sorted(set(names) - {annotation.video for annotation in annotated}):
        log(f"{only}: {len(absent)} videos are not in {annotations}: {', '.join(absent[:3])} …")
    return selected


def read_case(
    engine: Engine, features: Path, annotations: Path, video: str | None = None, clock: Clock | None = None
) -> tuple[Case, str | None]:
    """One feature file with its annotated steps."""
    if not features.is_file():
        raise InputError(f"{features}: no such file")
    name = video or features.stem
    annotated = {annotation.video: annotation for annotation in read_annotations(annotations)}
    if name not in annotated:
        raise InputError(
            f"{annotations}: has no video {name}; say which with --video ({', '.join(sorted(annotated)[:3])} …)"
        )
    opened = engine.read(features, clock=clock)
    case = Case(opened, read_feature_array(features), list(annotated[name].steps), annotated[name].task)
    return case, length_warning(annotated[name], opened.duration_s)


def length_warning(annotation: AnnotatedVideo, covered_s: float) -> str | None:
    """A warning where features and annotations do not agree on how long a video is."""
    if not annotation.duration_s or 1 / LENGTH_TOLERANCE < covered_s / annotation.duration_s < LENGTH_TOLERANCE:
        return None
    lengths = f"features cover {covered_s:.0f} s, the annotations say {annotation.duration_s:.0f} s"
    return f"{annotation.video}: {lengths}; is --hz right?"


def evaluate_own_videos(
    cases: Sequence[Case],
    tasks: Sequence[str],
    options: EvalOptions,
    num_clusters: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
    processes: CaseProcesses | None = None,
) -> list[Table]:
    """The tables of each task. A case is scored on all tasks at once: they share candidates and
    outputs of the network.
    """
    texts = list(dict.fromkeys(text for case in cases for text in case.texts))
    engine = cases[0].video.engine
    embeddings = TextEmbeddings(engine, texts) if engine.has_text else None
    case_tasks: list[tuple[str, CaseTask[Any]]] = []
    for task in tasks:
        if task == "procedure":
            case_tasks.append((task, procedure_task(cases, options)))
            if num_clusters is not None:
                case_tasks.append((task, procedure_task(cases, options, num_clusters)))
        elif embeddings is None:
            case_tasks.append((task, CaseTask(_score_nothing, partial(_no_text_table, task))))
        elif task == "grounding":
            case_tasks.append((task, grounding_task(cases, embeddings, options)))
        elif task == "localization":
            case_tasks.append((task, localization_task(cases, texts, embeddings, options)))
        elif task == "choices":
            case_tasks.append((task, choice_task(cases, embeddings, options)))

    is_counted: set[str] = set()

    def advance(video: str) -> None:
        for task, _ in case_tasks if video not in is_counted else ():
            progress(f"{task}: {video}")
        is_counted.add(video)

    score = partial(_score_tasks, scores=[case_task.score for _, case_task in case_tasks])
    try:
        results = map_cases(score, cases, advance, None if processes is None else processes.submit)
    except BrokenExecutor:  # a process died, for want of memory perhaps: one alone takes less
        results = map_cases(score, cases, advance)
    columns = zip(*results, strict=True)
    return [
        table for (_, task), column in zip(case_tasks, columns, strict=True) for table in task.tabulate(list(column))
    ]


def _score_tasks(case: Case, scores: Sequence[Callable[[Case], Any]]) -> list[Any]:
    return [score(case) for score in scores]


def _score_nothing(case: Case) -> None:
    """Of a task that needs words, where there are none."""


def _no_text_table(task: str, results: list[None]) -> list[Table]:
    return [Table(task, [], [NO_TEXT])]
