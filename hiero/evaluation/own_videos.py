"""One's own videos: features of each and a file with timed steps, scored on every task.

FILE is JSON: {video: {"task": …, "duration_s": …, "steps": [{"start_s", "end_s", "text"}]}}; the folder has a feature file a video.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from hiero.data.features import features_by_name, read_feature_array
from hiero.engine import NO_TEXT, Engine, load
from hiero.errors import InputError
from hiero.evaluation.annotations import AnnotatedVideo
from hiero.evaluation.cases import Case, EvalOptions, TextEmbeddings
from hiero.evaluation.grounding import evaluate_grounding
from hiero.evaluation.localization import evaluate_localization
from hiero.evaluation.multiple_choice import evaluate_multiple_choice
from hiero.evaluation.procedure import evaluate_procedure_learning
from hiero.evaluation.results import Report, Table
from hiero.storage.files import read_json, read_lines
from hiero.types import AnnotatedStep, Clock

TASKS = ("procedure", "grounding", "localization", "choices")
MAX_LINES = 10  # about videos that were left out, that are shown
TOLERANCE = 1.1  # of the length that features and annotations give a video


def read_annotations(path: Path) -> list[AnnotatedVideo]:
    """The videos of an annotation file, in order. All that is wrong with it is said at once."""
    content = read_json(path)
    if content == {}:
        raise InputError(f"{path}: holds no videos")
    if not isinstance(content, dict):
        raise InputError(f'{path}: expected {{"video": {{"steps": [{{"start_s", "end_s", "text"}}]}}}}')
    out, wrong = [], []
    for video, entry in content.items():
        try:
            steps = tuple(_parse_step(step) for step in entry["steps"])
            duration_s = entry.get("duration_s")
            task = str(entry.get("task", ""))
            out.append(AnnotatedVideo(video, steps, task=task, duration_s=None if duration_s is None else float(duration_s)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            wrong.append(f"{video} (no {error})" if isinstance(error, KeyError) else f"{video} ({error})")
    if wrong:
        raise InputError(f"{path}: {len(wrong)} videos cannot be read: {'; '.join(wrong[:5])}{' …' if len(wrong) > 5 else ''}")
    return sorted(out, key=lambda one: one.video)


def _parse_step(step: dict[str, object]) -> AnnotatedStep:
    start_s, end_s = float(step["start_s"]), float(step["end_s"])  # type: ignore[arg-type]
    if not (math.isfinite(start_s) and math.isfinite(end_s)) or end_s < start_s or start_s < 0:
        raise ValueError(f"a step from {start_s} to {end_s} s")
    text = str(step["text"]).strip()
    if not text:
        raise ValueError("a step without a text")
    return AnnotatedStep(start_s, end_s, text)


def read_cases(
    engine: Engine,
    folder: Path,
    annotated: Sequence[AnnotatedVideo],
    clock: Clock | None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Case], list[str], list[str]]:
    """Each annotated video with its features, read through the engine; the names of those without; and what was left out."""
    files = features_by_name(folder)
    cases, missing, left_out = [], [], []
    for one in annotated:
        if one.video not in files:
            missing.append(one.video)
        elif one.steps:
            features = read_feature_array(files[one.video], None if engine.folder is None else engine.folder.config.input_size)
            video = engine.read(files[one.video], clock=clock)
            steps = [step for step in one.steps if step.start_s < video.duration_s]
            if len(steps) < len(one.steps):
                left_out.append(
                    f"{one.video}: {len(one.steps) - len(steps)} of {len(one.steps)} steps begin after its features end"
                )
            if doubt := doubt_length(one, video.duration_s):
                left_out.append(doubt)
            if steps:
                cases.append(Case(video, features, steps, one.task))
        else:
            left_out.append(f"{one.video}: has no steps")
        progress(one.video)
    if not cases:
        known = ", ".join(sorted(files)[:3])
        raise InputError(f"{folder}: none of the {len(annotated)} annotated videos has features here (found {known} …)")
    return cases, missing, left_out


def run_own_videos(
    features: Path,
    annotations: Path,
    *,
    model: str = "hiero-k400",
    clock: Clock | None = None,
    tasks: Sequence[str] = TASKS,
    num_clusters: int | None = None,
    options: EvalOptions | None = None,
    only: Path | None = None,
    device: str = "auto",
    log: Callable[[str], None] = lambda _: None,
    bar: Callable[[str, int], AbstractContextManager[Callable[[str], None]]] = lambda *_: nullcontext(lambda _: None),
) -> Report:
    """All that `hiero eval own` does: read, score, report.

    Args:
        features: Folder with a feature file for each video.
        annotations: JSON file with the timed steps of each video.
        model: As `hiero.load` takes it.
        clock: When the rows are, if not as the model was trained.
        tasks: Some of TASKS.
        num_clusters: Procedure learning also with this number for all videos.
        options: Settings.
        only: A file with the names of videos to score, one a line.
        device: `auto`, `cpu`, `cuda` …
        log: Gets lines worth showing.
        bar: Makes a progress bar of a title and a total; entered, it gives a function that is called for each item.
    """
    options = options or EvalOptions()
    if unknown := [name for name in tasks if name not in TASKS]:
        raise InputError(f"--tasks are some of {', '.join(TASKS)}, got {', '.join(unknown)}")
    if not tasks:
        raise InputError(f"--tasks are some of {', '.join(TASKS)}, got none")
    annotated = read_annotations(annotations)
    if only is not None:
        names = read_lines(only)
        not_annotated = sorted(set(names) - {one.video for one in annotated})
        annotated = [one for one in annotated if one.video in names]
        if not annotated:
            raise InputError(f"{only}: none of its videos is in {annotations}")
        if not_annotated:
            log(f"{only}: {len(not_annotated)} videos are not in {annotations}: {', '.join(not_annotated[:3])} …")
    engine = load(model, backbone="default", device=device)
    with bar("reading", len(annotated)) as advance:
        cases, missing, left_out = read_cases(engine, features, annotated, clock, advance)
    for line in left_out[:MAX_LINES]:
        log(line)
    if len(left_out) > MAX_LINES:
        log(f"… and {len(left_out) - MAX_LINES} more like this; all are in the report")
    with bar("scoring", len(tasks)) as advance:
        tables = evaluate_own_videos(cases, tasks, options, num_clusters, advance)
    settings = {
        "model": model, "videos": len(cases), "steps": sum(len(case.truth) for case in cases), "seed": options.random_state,
        "hz": None if clock is None else clock.fps / clock.stride, "left_out": left_out,
    }  # fmt: skip
    return Report("own", "", tables, settings, missing)


def read_case(
    engine: Engine, features: Path, annotations: Path, video: str | None = None, clock: Clock | None = None
) -> tuple[Case, str | None]:
    """One feature file with its annotated steps, and what to say when the two do not agree on its length.

    Args:
        engine: Reads it.
        features: The file.
        annotations: JSON file with timed steps.
        video: Its name there; by default that of the file.
        clock: When the rows are, if not as the model was trained.
    """
    if not features.is_file():
        raise InputError(f"{features}: no such file")
    name = video or features.stem
    annotated = {one.video: one for one in read_annotations(annotations)}
    if name not in annotated:
        raise InputError(f"{annotations}: has no video {name}; say which with --video ({', '.join(sorted(annotated)[:3])} …)")
    opened = engine.read(features, clock=clock)
    case = Case(opened, read_feature_array(features), list(annotated[name].steps), annotated[name].task)
    return case, doubt_length(annotated[name], opened.duration_s)


def doubt_length(one: AnnotatedVideo, covered_s: float) -> str | None:
    """What to say when features and annotations do not agree on how long a video is."""
    if not one.duration_s or 1 / TOLERANCE < covered_s / one.duration_s < TOLERANCE:
        return None
    return f"{one.video}: features cover {covered_s:.0f} s, the annotations say {one.duration_s:.0f} s; is --hz right?"


def evaluate_own_videos(
    cases: Sequence[Case],
    tasks: Sequence[str],
    options: EvalOptions,
    num_clusters: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Table]:
    """The tables of each task.

    Args:
        cases: Of `read_cases`.
        tasks: Some of TASKS.
        options: Settings.
        num_clusters: Procedure learning also with this number for all videos.
        progress: Called with the name of each task when it is done.
    """
    out: list[Table] = []
    texts = list(dict.fromkeys(text for case in cases for text in case.texts))
    engine = cases[0].video.engine
    embeddings = TextEmbeddings(engine, texts) if engine.has_text else None
    for task in tasks:
        if task == "procedure":
            out += evaluate_procedure_learning(cases, options)
            if num_clusters is not None:
                out += evaluate_procedure_learning(cases, options, num_clusters)
        elif embeddings is None:
            out.append(Table(task, [], [NO_TEXT]))
        elif task == "grounding":
            out.append(evaluate_grounding(cases, embeddings, options))
        elif task == "localization":
            out.append(evaluate_localization(cases, texts, embeddings, options))
        elif task == "choices":
            out.append(evaluate_multiple_choice(cases, embeddings, options))
        progress(task)
    return out
