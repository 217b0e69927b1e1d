"""Do the activities that `hiero report` finds in many videos match true steps (CaptainCook4D)?

    python -m benchmarks.folder_report --model MODEL [--kind k400|omnivore-b] [--part dev|test]
        [--source ../shared/captaincook4d]

Each recipe that the model never saw is a folder of recordings. Activities are matched one to one with
true steps by the seconds that they share in all recordings (Hungarian algorithm). NMI and F1 count
annotated seconds only. Baselines with the true number of steps are equal parts of each recording, and
K-Means of the same vectors. Settings were chosen with `--part dev`.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hiero
from benchmarks.captaincook4d_data import CLOCK, PARTS, read_annotations, read_features, split
from hiero.corpus.folder_report import FolderReport, VideoSteps, build_report
from hiero.evaluation.metrics import procedure_scores
from hiero.vectors import unit_vectors

MIN_RECORDINGS = 4  # of a recipe, to be a folder


@dataclass
class Recording:
    """A recording with its truth.

    Attributes:
        steps: Input of `hiero report`.
        truth: Step of each second, (T,); −1 where there is none.
        annotated: Steps of the annotation.
    """

    steps: VideoSteps
    truth: np.ndarray
    annotated: list[dict]


def read_recipes(source: Path, kind: str, model: str, part: str) -> dict[str, list[Recording]]:
    """Recordings of each recipe that the model never saw."""
    annotations, features = read_annotations(source), read_features(source, kind)
    engine = hiero.load(model, device="cpu")
    out = defaultdict(list)
    for name in split(annotations, sorted(features), part)[PARTS[1]]:
        video = engine.read_array(features[name].numpy(), CLOCK, name)
        level = video.steps(labels=[]).levels[-1]
        truth = np.full(len(video.nodes), -1)
        for step in annotations[name]["steps"]:
            truth[round(step["start_s"]) : round(step["end_s"])] = step["step_id"]
        steps = VideoSteps(
            name, video.duration_s, level, video.sight.embed_spans(video.sight.level_spans(level)), (None,) * len(level)
        )
        out[annotations[name]["recipe"]].append(Recording(steps, truth, annotations[name]["steps"]))
    return {recipe: recordings for recipe, recordings in out.items() if len(recordings) >= MIN_RECORDINGS}


def score_labels(labels: Sequence[np.ndarray], recordings: Sequence[Recording]) -> tuple[float, float]:
    """NMI and F1 in percent, over the annotated seconds of all recordings together."""
    from sklearn.metrics import normalized_mutual_info_score

    predicted = np.concatenate(labels)
    truth = np.concatenate([recording.truth for recording in recordings])
    is_step = truth >= 0
    true_labels = np.unique(truth[is_step], return_inverse=True)[1]
    activities = np.unique(predicted[is_step], return_inverse=True)[1]
    return 100 * normalized_mutual_info_score(true_labels, activities), 100 * procedure_scores(
        activities, true_labels + 1
    ).f1


def second_labels(report: FolderReport, recordings: Sequence[Recording]) -> list[np.ndarray]:
    """Activity of each second of each recording."""
    out = []
    for video, recording in zip(report.document["videos"], recordings, strict=True):
        labels = np.zeros(len(recording.truth), dtype=int)
        for run in video["runs"]:
            labels[round(run["start_s"]) : round(run["end_s"])] = run["activity"] - 1
        out.append(labels)
    return out


def main() -> None:
    """Measure, and print."""
    from sklearn.cluster import KMeans

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=Path("../shared/captaincook4d"))
    parser.add_argument("--kind", default="k400", choices=["k400", "omnivore-b"])
    parser.add_argument("--model", required=True, help="a model folder that saw none of these recipes, or raw")
    parser.add_argument("--part", default="dev", choices=["dev", "test"])
    args = parser.parse_args()
    recipes = read_recipes(args.source, args.kind, args.model, args.part)
    scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for recipe, recordings in recipes.items():
        ids = {step["step_id"] for recording in recordings for step in recording.annotated}
        report = build_report([recording.steps for recording in recordings], title=recipe, model=args.model)
        labels = second_labels(report, recordings)
        scores["activities of the page"].append(score_labels(labels, recordings))
        parts = [np.arange(len(recording.truth)) * len(ids) // len(recording.truth) for recording in recordings]
        scores["equal parts, true number"].append(score_labels(parts, recordings))
        vectors = np.concatenate([recording.steps.vectors for recording in recordings])
        grouped = iter(KMeans(len(ids), n_init=4, random_state=0).fit_predict(unit_vectors(vectors)))
        by_kmeans = []
        for recording in recordings:
            row = np.zeros(len(recording.truth), dtype=int)
            for step in recording.steps.steps:
                row[round(step.start_s) : round(step.end_s)] = next(grouped)
            by_kmeans.append(row)
        scores["K-Means of steps, true number"].append(score_labels(by_kmeans, recordings))
        print(f"{recipe}: {len(recordings)} recordings, {len(ids)} true steps, {report.num_shared} shared activities")
    for name, rows in scores.items():
        nmi, f1 = np.mean(rows, axis=0)
        print(f"{name:32s} NMI {nmi:.1f}  F1 {f1:.1f}")


if __name__ == "__main__":
    main()
