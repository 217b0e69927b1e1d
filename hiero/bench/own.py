"""One's own videos: features of each and a file with timed steps, scored on every task.

FILE is JSON: {video: {"task": …, "duration_s": …, "steps": [{"start_s", "end_s", "text"}]}}; the folder has a feature file a video.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hiero.bench.results import Table
from hiero.bench.tasks import Case, Options, Truth, Words, choose, ground, localize, procedure
from hiero.data.features import features_by_name, read_array
from hiero.engine import NO_WORDS, Engine
from hiero.errors import InputError
from hiero.files import read_json
from hiero.records import Clock

TASKS = ("procedure", "grounding", "localization", "choices")
TOLERANCE = 1.1  # of the length that features and annotations give a video


@dataclass(frozen=True)
class Annotated:
    video: str
    task: str
    duration_s: float | None
    steps: list[Truth] = field(default_factory=list)


def read_annotations(path: Path) -> list[Annotated]:
    """The videos of an annotation file, in order. All that is wrong with it is said at once."""
    content = read_json(path)
    if content == {}:
        raise InputError(f"{path}: holds no videos")
    if not isinstance(content, dict):
        raise InputError(f'{path}: expected {{"video": {{"steps": [{{"start_s", "end_s", "text"}}]}}}}')
    out, wrong = [], []
    for video, about in content.items():
        try:
            steps = [_step(step) for step in about["steps"]]
            duration_s = about.get("duration_s")
            out.append(Annotated(video, str(about.get("task", "")), None if duration_s is None else float(duration_s), steps))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            wrong.append(f"{video} (no {error})" if isinstance(error, KeyError) else f"{video} ({error})")
    if wrong:
        raise InputError(f"{path}: {len(wrong)} videos cannot be read: {'; '.join(wrong[:5])}{' …' if len(wrong) > 5 else ''}")
    return sorted(out, key=lambda one: one.video)


def _step(step: dict[str, object]) -> Truth:
    start_s, end_s = float(step["start_s"]), float(step["end_s"])  # type: ignore[arg-type]
    if not (math.isfinite(start_s) and math.isfinite(end_s)) or end_s < start_s or start_s < 0:
        raise ValueError(f"a step from {start_s} to {end_s} s")
    text = str(step["text"]).strip()
    if not text:
        raise ValueError("a step without a text")
    return Truth(start_s, end_s, text)


def read_cases(
    engine: Engine, folder: Path, annotated: Sequence[Annotated], clock: Clock | None, done: Callable[[str], None] = lambda _: None
) -> tuple[list[Case], list[str], list[str]]:
    """Each annotated video with its features, read through the engine; the names of those without; and what was left out."""
    files = features_by_name(folder)
    cases, missing, left_out = [], [], []
    for one in annotated:
        if one.video not in files:
            missing.append(one.video)
        elif one.steps:
            features = read_array(files[one.video], None if engine.folder is None else engine.folder.config.input_size)
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
        done(one.video)
    if not cases:
        known = ", ".join(sorted(files)[:3])
        raise InputError(f"{folder}: none of the {len(annotated)} annotated videos has features here (found {known} …)")
    return cases, missing, left_out


def doubt_length(one: Annotated, covered_s: float) -> str | None:
    """What to say when features and annotations do not agree on how long a video is."""
    if not one.duration_s or 1 / TOLERANCE < covered_s / one.duration_s < TOLERANCE:
        return None
    return f"{one.video}: features cover {covered_s:.0f} s, the annotations say {one.duration_s:.0f} s; is --hz right?"


def evaluate(
    cases: Sequence[Case],
    tasks: Sequence[str],
    options: Options,
    num_clusters: int | None = None,
    done: Callable[[str], None] = lambda _: None,
) -> list[Table]:
    """The tables of each task."""
    out: list[Table] = []
    texts = list(dict.fromkeys(step.text for case in cases for step in case.truth))
    engine = cases[0].video.engine
    words = Words(engine, texts) if engine.knows_words else None
    for task in tasks:
        if task == "procedure":
            out += procedure(cases, options)
            if num_clusters is not None:
                out += procedure(cases, options, num_clusters)
        elif words is None:
            out.append(Table(task, [], [NO_WORDS]))
        elif task == "grounding":
            out.append(ground(cases, words, options))
        elif task == "localization":
            out.append(localize(cases, texts, words, options))
        elif task == "choices":
            out.append(choose(cases, words, options))
        done(task)
    return out
