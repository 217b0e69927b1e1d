"""Ego4D Goal-Step: zero-shot step grounding, step localization and key-step classification.

Times in the official files are seconds of the video, or of a group of consecutive recordings that
are joined.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hiero.engine import Engine
from hiero.errors import InputError
from hiero.evaluation.cases import (
    Case,
    TextEmbeddings,
    case_owners,
    check_warnings,
    find_members,
    length_warning,
    part_segments,
    read_input_features,
)
from hiero.evaluation.metrics import fit_probe, top_hits
from hiero.evaluation.parsing import parsing
from hiero.evaluation.protocols import CORRECTED, Protocol
from hiero.evaluation.results import Table, bootstrap_row, weighted_means
from hiero.features.files import features_by_name
from hiero.formats.annotations import AnnotatedVideo
from hiero.storage.files import read_json, read_lines
from hiero.types import AnnotatedStep, Clock

NUM_LABELS = 514  # labels of the whole taxonomy
GROUP_PREFIX = "grp-"
Result = TypeVar("Result")
RATE_OPTIONS = "--fps and --stride"
CLIPS, SEGMENTS = "clips", "segments"  # content of a video in files of queries, and of steps with categories
NARRATOR = "#C C "  # stands for the camera wearer in narrations of Ego4D


def read_grounding(path: Path, prefix: str = NARRATOR) -> list[AnnotatedVideo]:
    """Read the queries of the step-grounding task, in the layout of NLQ or of goalstep_{train,val}.json."""
    return [part for _, part in read_queries(path, prefix)]


def read_queries(path: Path, prefix: str = "") -> list[tuple[str, AnnotatedVideo]]:
    """Read the clips of a file in the layout of NLQ, each with its name. Queries without a text are left out.

    A video of goalstep_{train,val}.json is one clip, and the descriptions of its segments are the queries.
    """

    def read_clips(video: dict[str, Any]) -> list[tuple[str, AnnotatedVideo]]:
        if CLIPS in video:
            parts = [_read_clip(video["video_uid"], clip) for clip in video[CLIPS]]
        else:
            parts = [(video["video_uid"], _read_segments(video, lambda each: each["step_description"].strip()))]
        clips = []
        for name, part in parts:
            steps = [replace(step, text=prefix + step.text) for step in part.steps if step.text]
            clips.append((name, replace(part, steps=tuple(steps))))
        return clips

    return list(chain.from_iterable(_read_videos(path, read_clips)))


def _read_clip(video: str, clip: dict[str, Any]) -> tuple[str, AnnotatedVideo]:
    steps = []
    for query in (query for annotation in clip["annotations"] for query in annotation["language_queries"]):
        # NLQ gives times in the clip and in the video. Step grounding gives only the time in the
        # video, but calls it that in the clip.
        timeline = "video" if "video_start_sec" in query else "clip"
        if query.get("query"):
            start_s, end_s = float(query[f"{timeline}_start_sec"]), float(query[f"{timeline}_end_sec"])
            steps.append(AnnotatedStep(start_s, end_s, query["query"]))
    name, end_s = str(clip.get("clip_uid", video)), float(clip["video_end_sec"])
    duration_s = end_s if name == video else None  # clips of NLQ are parts of a video
    return name, AnnotatedVideo(video, tuple(steps), float(clip["video_start_sec"]), end_s, duration_s=duration_s)


def _walk(segments: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All steps and substeps, each step before its substeps."""
    for segment in segments:
        yield segment
        yield from _walk(segment.get("segments") or [])


def read_steps(path: Path) -> list[AnnotatedVideo]:
    """Read all steps and substeps of goalstep_{train,val}.json; the text of each is its category."""

    def read(video: dict[str, Any]) -> AnnotatedVideo:
        if SEGMENTS not in video:
            raise InputError(f"{path}: has queries without categories; give goalstep_train.json or goalstep_val.json")
        return _read_segments(video, itemgetter("step_category"))

    return _read_videos(path, read)


def _read_segments(video: dict[str, Any], to_text: Callable[[dict[str, Any]], str]) -> AnnotatedVideo:
    """A video of goalstep_{train,val}.json with a step for each segment."""
    steps = [
        AnnotatedStep(float(segment["start_time"]), float(segment["end_time"]), to_text(segment))
        for segment in _walk(video[SEGMENTS])
    ]
    start_s, end_s = float(video["start_time"]), float(video["end_time"])
    return AnnotatedVideo(video["video_uid"], tuple(steps), start_s, end_s, duration_s=end_s)


def label_text(category: str) -> str:
    """The step alone: `Make baked goods: Knead the dough` → `Knead the dough`."""
    return category.split(":", 1)[-1].strip()


def read_groups(path: Path) -> dict[str, list[str]]:
    """Read goalstep_video_groups.tsv: the videos of each group by its name, `grp-` and the first video."""
    problem = f"{path}: not the list of video groups of Goal-Step"
    with parsing(problem), path.open(encoding="utf-8", newline="") as file:
        groups = [ast.literal_eval(row["video_group"]) for row in csv.DictReader(file, delimiter="\t")]
        members = {GROUP_PREFIX + group[0]: [str(video) for video in group] for group in groups}
    if not members:
        raise InputError(f"{path}: has no groups; download it again")
    return members


def read_goalstep_cases(
    engine: Engine,
    folder: Path,
    annotated: Sequence[AnnotatedVideo],
    groups: dict[str, list[str]],
    clock: Clock,
    progress: Callable[[str], None] = lambda _: None,
    protocol: Protocol = CORRECTED,
    log: Callable[[str], None] = lambda _: None,
) -> tuple[list[Case], list[str]]:
    """Read the annotated part of each video that has steps; also returns the videos without features."""
    if not any(annotation.steps for annotation in annotated):
        raise InputError(f"none of the {len(annotated)} annotated videos has a step with a text")
    files = features_by_name(folder)
    cases, missing, warnings = [], [], []
    for annotation in annotated:
        members, absent = find_members(files, groups, annotation.video)
        missing += absent
        if annotation.steps and not absent:
            features = np.concatenate([read_input_features(engine, file) for file in members])
            if warning := length_warning(annotation, clock.edge_s(len(features)), RATE_OPTIONS):
                warnings.append(warning)
            start_s, end_s = (0.0, None) if protocol.whole_videos else (annotation.start_s, annotation.end_s)
            part = part_segments(len(features), clock, start_s, end_s)
            part_clock = Clock(clock.fps, clock.stride, clock.edge_s(part.start))
            video = engine.read_array(features[part], part_clock, annotation.video)
            shift_s = annotation.start_s if protocol.shifted_spans else 0.0
            cases.append(Case(video, features[part], list(annotation.steps), shift_s=shift_s))
        progress(annotation.video)
    if not cases:
        names = ", ".join(missing[:3]) or "none"
        raise InputError(f"{folder}: none of the {len(annotated)} annotated videos has features (missing {names} …)")
    for warning in check_warnings(warnings, len(cases), RATE_OPTIONS):
        log(warning)
    return cases, missing


def read_taxonomy(annotated: Sequence[AnnotatedVideo], files: Sequence[Path] = ()) -> list[str]:
    """The labels of annotations and of further files, sorted."""
    labels = {step.text for annotation in annotated for step in annotation.steps}
    for file in files:
        lines = read_lines(file)
        is_json = bool(lines) and lines[0].startswith("{")
        labels |= set(read_taxonomy(read_steps(file)) if is_json else lines)
    return sorted(labels)


def evaluate_classification(
    cases: Sequence[Case], taxonomy: Sequence[str], embeddings: TextEmbeddings, train: Sequence[Case] | None = None
) -> Table:
    """Classify given segments by their mean node and, with training cases, by a linear probe."""
    label_index = {label: i for i, label in enumerate(taxonomy)}
    truth = np.array([label_index[step.text] for case in cases for step in case.truth])
    logits = {"zero-shot": segment_means(cases, "nodes") @ embeddings(taxonomy)[1].T}
    if train:
        train_truth = np.array([label_index[step.text] for case in train for step in case.truth])
        sources = {"linear probe on HiERO": "enriched", "linear probe on raw features": "features"}
        if cases[0].video.engine.folder is None:
            del sources["linear probe on HiERO"]
        for name, source in sources.items():
            probe = fit_probe(segment_means(train, source), train_truth, len(taxonomy))
            logits[name] = probe(segment_means(cases, source))
    rows = []
    for name, scores in logits.items():
        means = weighted_means(top_hits(scores, truth, (1, 5)), case_owners(cases), ["top-1", "top-5"])
        rows.append(bootstrap_row(name, means, len(cases)))
    return Table(f"Key-step classification, {len(taxonomy)} labels, segments given", rows)


def segment_means(cases: Sequence[Case], source: str) -> np.ndarray:
    """Mean vector of each annotated segment."""
    means = []
    for case in cases:
        x = case.vectors(source)
        for span_s in case.spans_s:
            start, end = case.to_nodes(span_s)
            means.append(x[start:end].mean(0))
    return np.stack(means)


def _read_videos(path: Path, read: Callable[[dict[str, Any]], Result]) -> list[Result]:
    """Read each video of an annotation file. Errors name the file and the video."""
    content = read_json(path, "; get the annotations from https://github.com/facebookresearch/ego4d-goalstep")
    if not isinstance(content, dict) or not isinstance(content.get("videos"), list) or not content["videos"]:
        raise InputError(f"{path}: not an annotation file of Goal-Step; it must have a list of videos")
    if not any(isinstance(video, dict) and {SEGMENTS, CLIPS} & video.keys() for video in content["videos"]):
        raise InputError(f"{path}: not an annotation file of Goal-Step; its videos have no segments and no clips")
    out = []
    for video in content["videos"]:
        name = video.get("video_uid", "?") if isinstance(video, dict) else "?"
        if not isinstance(name, str):
            raise InputError(f"{path}: video_uid must be a text, got {str(name)[:40]}")
        with parsing(f"{path}: {name} cannot be read"):
            out.append(read(video))
    return out
