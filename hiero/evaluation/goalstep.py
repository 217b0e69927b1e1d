"""Ego4D Goal-Step: step grounding, step localization, key-step classification; official files in, zero-shot scores out.

Times in the files are seconds of the video (or of a group of videos that were recorded one after the other and are joined).
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hiero.data.features import features_by_name, read_feature_array
from hiero.engine import Engine
from hiero.errors import InputError
from hiero.evaluation.annotations import AnnotatedVideo
from hiero.evaluation.cases import Case, TextEmbeddings, case_owners
from hiero.evaluation.metrics import top_hits
from hiero.evaluation.results import Table, bootstrap_row, weighted_means
from hiero.storage.files import read_json
from hiero.types import AnnotatedStep, Clock

NUM_LABELS = 514
GROUP = "grp-"


def read_grounding(path: Path, prefix: str = "#C C ") -> list[AnnotatedVideo]:
    """Queries of the step-grounding task (NLQ-like layout). prefix: texts are asked as narrations are written."""
    return [one for _, one in read_queries(path, prefix)]


def read_queries(path: Path, prefix: str = "") -> list[tuple[str, AnnotatedVideo]]:
    """Clips of an NLQ-like file by their names, times in seconds of the video. Queries without a text are left out.

    NLQ gives times in the clip and in the video; step grounding only one, which is the video's whatever its name.
    """
    out = []
    for video in _videos(path):
        with _naming(path, video):
            for clip in video["clips"]:
                steps = []
                for query in (query for about in clip["annotations"] for query in about["language_queries"]):
                    kind = "video" if "video_start_sec" in query else "clip"
                    if query.get("query"):
                        times = float(query[f"{kind}_start_sec"]), float(query[f"{kind}_end_sec"])
                        steps.append(AnnotatedStep(*times, prefix + query["query"]))
                start_s, end_s = float(clip["video_start_sec"]), float(clip["video_end_sec"])
                out.append(
                    (clip.get("clip_uid", video["video_uid"]), AnnotatedVideo(video["video_uid"], tuple(steps), start_s, end_s))
                )
    return out


def read_steps(path: Path) -> list[AnnotatedVideo]:
    """All steps and substeps of goalstep_{train,val}.json, with their categories."""

    def walk(segments: Sequence[dict[str, Any]]) -> Iterator[AnnotatedStep]:
        for segment in segments:
            yield AnnotatedStep(float(segment["start_time"]), float(segment["end_time"]), segment["step_category"])
            yield from walk(segment.get("segments") or [])

    out = []
    for video in _videos(path):
        with _naming(path, video):
            steps = tuple(walk(video["segments"]))
            out.append(AnnotatedVideo(video["video_uid"], steps, float(video["start_time"]), float(video["end_time"])))
    return out


def label_text(category: str) -> str:
    """`Make baked goods: Knead the dough` → the step itself, in the words of a narration."""
    return category.split(":", 1)[-1].strip()


def read_groups(path: Path) -> dict[str, list[str]]:
    """Groups of goalstep_video_groups.tsv by the name that annotations use: grp- and the first video."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        groups = [ast.literal_eval(line["video_group"]) for line in rows]
        return {GROUP + group[0]: [str(video) for video in group] for group in groups}
    except (OSError, KeyError, ValueError, SyntaxError, TypeError, IndexError) as error:
        raise InputError(f"{path}: not Goal-Step's list of video groups ({error})") from error


def read_cases(
    engine: Engine,
    folder: Path,
    annotated: Sequence[AnnotatedVideo],
    groups: dict[str, list[str]],
    clock: Clock,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Case], list[str]]:
    """Each annotated part with its features, UID.pt in the folder; grouped videos are joined. And the names of those without."""
    files = features_by_name(folder)
    width = None if engine.folder is None else engine.folder.config.input_size
    cases, missing = [], []
    for one in annotated:
        members = groups.get(one.video, [one.video])  # a group that is not known has no features
        if one.video in files:
            members = [one.video]
        if gone := [video for video in members if video not in files]:
            missing += gone
        elif one.steps:
            features = np.concatenate([read_feature_array(files[video], width) for video in members])
            start = min(len(features) - 1, clock.index(one.start_s))
            end = len(features) if one.end_s is None else max(start + 1, min(len(features), clock.index(one.end_s) + 1))
            part = Clock(clock.fps, clock.stride, clock.start_s + start * clock.spacing_s)
            video = engine.read_array(features[start:end], part, one.video)
            cases.append(Case(video, features[start:end], list(one.steps)))
        progress(one.video)
    if not cases:
        names = ", ".join(missing[:3]) or "none"
        raise InputError(f"{folder}: none of the {len(annotated)} annotated videos has features here (looked for {names} …)")
    return cases, missing


def taxonomy_of(*annotated: Sequence[AnnotatedVideo]) -> list[str]:
    return sorted({step.text for part in annotated for one in part for step in one.steps})


def evaluate_classification(
    cases: Sequence[Case],
    taxonomy: Sequence[str],
    embeddings: TextEmbeddings,
    train: Sequence[Case] | None = None,
    tops: Sequence[int] = (1, 5),
) -> Table:
    """Key-step classification with known segments: the mean node of each against the taxonomy; and a linear probe, if trained."""
    names = [f"top-{k}" for k in tops]
    owner = case_owners(cases)
    numbers = {label: i for i, label in enumerate(taxonomy)}
    truth = np.array([numbers[step.text] for case in cases for step in case.truth])
    labels = embeddings(taxonomy)[1]
    rows = [("zero-shot", segment_means(cases, "nodes") @ labels.T)]
    if train:
        from hiero.evaluation.linear_probe import fit_probe

        known = np.array([numbers[step.text] for case in train for step in case.truth])
        for name, on in (("linear probe on HiERO", "enriched"), ("linear probe on raw features", "features")):
            probe = fit_probe(segment_means(train, on), known, len(taxonomy))
            rows.append((name, probe(segment_means(cases, on))))
    out = []
    for name, scores in rows:
        out.append(bootstrap_row(name, weighted_means(top_hits(scores, truth, tops), owner, names), len(cases)))
    return Table(f"Key-step classification, {len(taxonomy)} labels, segments given", out)


def segment_means(cases: Sequence[Case], on: str) -> np.ndarray:
    """Mean over the nodes of each annotated segment (S, D): `nodes` in the space of words, `enriched` before h_v, or `features`."""
    out = []
    for case in cases:
        x = {"nodes": case.video.nodes, "features": case.features}.get(on)
        if x is None:
            x = case.video.engine.enrich(case.features, case.video.clock, 0)
        out += [x[a:b].mean(0) for a, b in (case.to_nodes((step.start_s, step.end_s)) for step in case.truth)]
    return np.stack(out)


def _videos(path: Path) -> list[dict[str, Any]]:
    content = read_json(path, "; Ego4D's download has the annotations of Goal-Step")
    if not isinstance(content, dict) or not isinstance(content.get("videos"), list) or not content["videos"]:
        raise InputError(f"{path}: not an annotation file of Goal-Step; expected a list of videos")
    return content["videos"]


class _naming:  # noqa: N801
    """An error in a video's annotations names the file and the video."""

    def __init__(self, path: Path, video: Any) -> None:
        self.path, self.video = path, video

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError):
            name = self.video.get("video_uid", "?") if isinstance(self.video, dict) else "?"
            raise InputError(f"{self.path}: {name} cannot be read ({type(error).__name__}: {error})") from error
