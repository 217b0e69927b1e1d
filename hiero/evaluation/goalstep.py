"""Ego4D Goal-Step: step grounding, step localization, key-step classification; official files in,
zero-shot scores out.

Times in the files are seconds of the video (or of a group of videos that were recorded one after
the other and are joined).
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hiero.data.features import features_by_name, read_feature_array
from hiero.engine import Engine
from hiero.errors import InputError
from hiero.evaluation.cases import AnnotatedVideo, Case, TextEmbeddings, case_owners
from hiero.evaluation.linear_probe import fit_probe
from hiero.evaluation.metrics import top_hits
from hiero.evaluation.protocols import CORRECTED, Protocol
from hiero.evaluation.results import Table, bootstrap_row, weighted_means
from hiero.storage.files import read_json, read_lines
from hiero.types import AnnotatedStep, Clock

NUM_LABELS = 514  # of the whole taxonomy
GROUP_PREFIX = "grp-"
NARRATOR = "#C C "  # how narrations of Ego4D call the camera wearer


def read_grounding(path: Path, prefix: str = NARRATOR) -> list[AnnotatedVideo]:
    """Queries of the step-grounding task, in the layout of NLQ."""
    return [annotation for _, annotation in read_queries(path, prefix)]


def read_queries(path: Path, prefix: str = "") -> list[tuple[str, AnnotatedVideo]]:
    """Clips of an NLQ-like file by their names, times in seconds of the video. Queries without a
    text are left out.
    """
    clips = []
    for video in _read_videos(path):
        with _name_video_in_errors(path, video):
            for clip in video["clips"] if "clips" in video else [_as_clip(video)]:
                steps = []
                for query in (query for annotation in clip["annotations"] for query in annotation["language_queries"]):
                    # NLQ gives times in the clip and in the video; step grounding only one, the
                    # video's whatever its name.
                    timeline = "video" if "video_start_sec" in query else "clip"
                    if query.get("query"):
                        start_s, end_s = float(query[f"{timeline}_start_sec"]), float(query[f"{timeline}_end_sec"])
                        steps.append(AnnotatedStep(start_s, end_s, prefix + query["query"]))
                part_s = float(clip["video_start_sec"]), float(clip["video_end_sec"])
                name = clip.get("clip_uid", video["video_uid"])
                clips.append((name, AnnotatedVideo(video["video_uid"], tuple(steps), *part_s)))
    return clips


def _as_clip(video: dict[str, Any]) -> dict[str, Any]:
    """A video of goalstep_{train,val}.json in the layout of NLQ: one clip, a query for each step and substep."""

    def walk(segments: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for segment in segments:
            times = {"clip_start_sec": segment["start_time"], "clip_end_sec": segment["end_time"]}
            yield {**times, "query": segment["step_description"].strip()}
            yield from walk(segment.get("segments") or [])

    return {
        "clip_uid": video["video_uid"],
        "video_start_sec": video["start_time"],
        "video_end_sec": video["end_time"],
        "annotations": [{"language_queries": list(walk(video["segments"]))}],
    }


def read_steps(path: Path) -> list[AnnotatedVideo]:
    """All steps and substeps of goalstep_{train,val}.json; the text of each is its category."""

    def walk(segments: Sequence[dict[str, Any]]) -> Iterator[AnnotatedStep]:
        for segment in segments:
            yield AnnotatedStep(float(segment["start_time"]), float(segment["end_time"]), segment["step_category"])
            yield from walk(segment.get("segments") or [])

    annotated = []
    for video in _read_videos(path):
        with _name_video_in_errors(path, video):
            steps = tuple(walk(video["segments"]))
            annotated.append(
                AnnotatedVideo(video["video_uid"], steps, float(video["start_time"]), float(video["end_time"]))
            )
    return annotated


def label_text(category: str) -> str:
    """`Make baked goods: Knead the dough` → the step itself, in the words of a narration."""
    return category.split(":", 1)[-1].strip()


def read_groups(path: Path) -> dict[str, list[str]]:
    """Groups of goalstep_video_groups.tsv by the name that annotations use: grp- and the first video."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        groups = [ast.literal_eval(row["video_group"]) for row in rows]
        return {GROUP_PREFIX + group[0]: [str(video) for video in group] for group in groups}
    except (OSError, KeyError, ValueError, SyntaxError, TypeError, IndexError, RecursionError, csv.Error) as error:
        raise InputError(f"{path}: not Goal-Step's list of video groups ({error})") from error


def read_goalstep_cases(
    engine: Engine,
    folder: Path,
    annotated: Sequence[AnnotatedVideo],
    groups: dict[str, list[str]],
    clock: Clock,
    progress: Callable[[str], None] = lambda _: None,
    protocol: Protocol = CORRECTED,
) -> tuple[list[Case], list[str]]:
    """The annotated part of each video, read through the engine. Those without steps are left out."""
    files = features_by_name(folder)
    input_size = None if engine.folder is None else engine.folder.config.input_size
    cases, missing = [], []
    for annotation in annotated:
        alone = [annotation.video]
        # A group that is not listed has no features: its name is no file's.
        members = alone if annotation.video in files else groups.get(annotation.video, alone)
        if absent := [video for video in members if video not in files]:
            missing += absent
        elif annotation.steps:
            features = np.concatenate([read_feature_array(files[video], input_size) for video in members])
            start, end = 0, len(features)
            if not protocol.whole_videos:
                start = min(len(features) - 1, clock.index(annotation.start_s))
            if annotation.end_s is not None and not protocol.whole_videos:
                end = max(start + 1, min(end, clock.index(annotation.end_s) + 1))
            part_clock = Clock(clock.fps, clock.stride, clock.start_s + start * clock.spacing_s)
            video = engine.read_array(features[start:end], part_clock, annotation.video)
            shift_s = annotation.start_s if protocol.shifted_spans else 0.0
            cases.append(Case(video, features[start:end], list(annotation.steps), shift_s=shift_s))
        progress(annotation.video)
    if not cases:
        names = ", ".join(missing[:3]) or "none"
        raise InputError(
            f"{folder}: none of the {len(annotated)} annotated videos has features here (looked for {names} …)"
        )
    return cases, missing


def taxonomy_of(annotated: Sequence[AnnotatedVideo]) -> list[str]:
    """All texts of the steps, sorted."""
    return sorted({step.text for annotation in annotated for step in annotation.steps})


def read_taxonomy(annotated: Sequence[AnnotatedVideo], files: Sequence[Path] = ()) -> list[str]:
    """The labels of annotations and of other files, sorted."""
    labels = set(taxonomy_of(annotated))
    for file in files:
        labels |= set(taxonomy_of(read_steps(file)) if file.suffix == ".json" else read_lines(file))
    return sorted(labels)


def evaluate_classification(
    cases: Sequence[Case],
    taxonomy: Sequence[str],
    embeddings: TextEmbeddings,
    train: Sequence[Case] | None = None,
    tops: Sequence[int] = (1, 5),
) -> Table:
    """Key-step classification of given segments: the mean node of each against the labels, and a
    linear probe if there is training.
    """
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
    columns, owners = [f"top-{k}" for k in tops], case_owners(cases)
    rows = [
        bootstrap_row(name, weighted_means(top_hits(scores, truth, tops), owners, columns), len(cases))
        for name, scores in logits.items()
    ]
    return Table(f"Key-step classification, {len(taxonomy)} labels, segments given", rows)


def segment_means(cases: Sequence[Case], source: str) -> np.ndarray:
    """Mean over the nodes of each annotated segment."""
    means = []
    for case in cases:
        x = {"nodes": case.video.nodes, "features": case.features}.get(source)
        if x is None:
            x = case.video.engine.enrich(case.features, case.video.clock, 0)
        means += [
            x[start:end].mean(0) for start, end in (case.to_nodes((step.start_s, step.end_s)) for step in case.truth)
        ]
    return np.stack(means)


def _read_videos(path: Path) -> list[dict[str, Any]]:
    content = read_json(path, "; Ego4D's download has the annotations of Goal-Step")
    if not isinstance(content, dict) or not isinstance(content.get("videos"), list) or not content["videos"]:
        raise InputError(f"{path}: not an annotation file of Goal-Step; expected a list of videos")
    return content["videos"]


@contextmanager
def _name_video_in_errors(path: Path, video: Any) -> Iterator[None]:
    """Turn an error in a video's annotations into one that names the file and the video."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        name = video.get("video_uid", "?") if isinstance(video, dict) else "?"
        raise InputError(f"{path}: {name} cannot be read ({type(error).__name__}: {error})") from error
