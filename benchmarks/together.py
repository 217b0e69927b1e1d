"""Steps that the recordings of a recipe share, for recipes that the fold's model never saw.

    python -m benchmarks.unseen embed WORK --kinds k400 --variants text-noise-1
    python -m benchmarks.together WORK --kinds k400 --variants text-noise-1

For Omnivore: `--kinds omnivore-b --variants long-text-noise-1`. Each recording is cut into its true
number of steps, background removed (as in docs/results.md). All recordings of a recipe then share as
many steps as it has. *One matching*: clusters are matched with key-steps once for all recordings of
the recipe, so that a step must be the same cluster everywhere; a key-step without a cluster counts
zero. *Per video*: clusters are matched in each recording, as in the other tables. The weight of
positions of *together* was chosen for each fold on the others. Intervals hold 95 % of what other
recipes would give.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.cross_validation import NUM_FOLDS, deal_folds
from benchmarks.opel import train
from benchmarks.unseen import Folds, bootstrap
from hiero.evaluation.metrics import procedure_scores
from hiero.steps.clustering import cluster
from hiero.steps.correspondence import centre_steps, join_features
from hiero.steps.segmentation import NODE_LENGTH_PRIOR, cut_steps, step_labels
from hiero.steps.shared_activities import shared_activities
from hiero.steps.shared_steps import share_steps

PLACE_WEIGHTS = (0.0, 0.5, 1.0, 2.0)
OPEL_STEPS = 300  # of training, for each recipe


@dataclass
class Recording:
    """A recording without its background."""

    nodes: np.ndarray
    features: np.ndarray
    truth: np.ndarray  # key-step of each node, from 1

    def __post_init__(self) -> None:
        self.num = len(set(self.truth.tolist()))
        self.pieces = step_labels(cut_steps(self.nodes, self.num, length_prior=NODE_LENGTH_PRIOR))
        self.places = np.array([np.flatnonzero(self.pieces == i).mean() / len(self.nodes) for i in range(self.num)])

    def step_means(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([rows[self.pieces == i].mean(0) for i in range(self.num)])


def read_recipe(folds: Folds, fold: int, names: Sequence[str]) -> list[Recording]:
    """The recordings of a recipe; a text has the same number in all."""
    texts = sorted({step["text"] for name in names for step in folds.annotations[name]["steps"]})
    out = []
    for name in names:
        nodes = np.load(folds.nodes_file(fold, name)).astype(np.float32)
        truth = np.zeros(len(nodes), dtype=int)
        for step in folds.annotations[name]["steps"]:
            truth[round(step["start_s"]) : round(step["end_s"])] = 1 + texts.index(step["text"])
        used = truth > 0
        out.append(Recording(nodes[used], folds.features(name)[used], truth[used]))
    return out


def score(recordings: Sequence[Recording], labels: Sequence[np.ndarray]) -> list[float]:
    """F1 and IoU with one matching, and F1 per video."""
    truth = np.concatenate([recording.truth for recording in recordings])
    task = procedure_scores(np.concatenate(labels), truth, num_clusters=int(truth.max()) + 1)
    videos = [
        procedure_scores(*(np.unique(values, return_inverse=True)[1] + i for i, values in enumerate(pair))).f1
        for pair in zip(labels, (recording.truth for recording in recordings), strict=True)
    ]
    return [task.f1, task.iou, float(np.mean(videos))]


def together(
    recordings: Sequence[Recording], num: int, vectors: Callable[[Recording], np.ndarray], weight: float
) -> list[np.ndarray]:
    shared = share_steps([vectors(r) for r in recordings], [r.places for r in recordings], num, place_weight=weight)
    return [steps[r.pieces] for steps, r in zip(shared, recordings, strict=True)]


def grouped(recordings: Sequence[Recording], num: int) -> list[np.ndarray]:
    """Groups of steps as in the report of a folder; a recording may have a group several times."""
    counts = [r.num for r in recordings]
    vectors, places = np.concatenate([joined(r) for r in recordings]), np.concatenate([r.places for r in recordings])
    groups = shared_activities(vectors, places, np.repeat(np.arange(len(recordings)), counts), num)
    parts = np.split(groups, np.cumsum(counts)[:-1])
    return [steps[r.pieces] for steps, r in zip(parts, recordings, strict=True)]


def joined(recording: Recording) -> np.ndarray:
    return join_features(recording.step_means(recording.nodes), recording.step_means(recording.features))


def cluster_all(rows: Sequence[np.ndarray], num: int) -> list[np.ndarray]:
    """K-Means over the nodes of all recordings."""
    labels = cluster(np.concatenate(rows), num, "k-means-cosine")
    return np.split(labels, np.cumsum([len(x) for x in rows])[:-1])


def score_recipe(recordings: Sequence[Recording]) -> dict[str, list[float]]:
    """Scores of all methods."""
    num = len(set(np.concatenate([r.truth for r in recordings]).tolist()))
    views: dict[str, Callable[[Recording], np.ndarray]] = {
        "joined": joined,
        "model": lambda r: centre_steps(r.step_means(r.nodes)),
        "features": lambda r: centre_steps(r.step_means(r.features)),
    }
    mean = np.concatenate([r.features for r in recordings]).mean(0)
    scale = recordings[0].features.shape[1] ** 0.5 / 4
    centred = [scale * F.normalize(torch.from_numpy(r.features - mean).float(), dim=1) for r in recordings]
    network = train(centred, OPEL_STEPS, 0)
    with torch.inference_mode():
        embedded = [network(x).numpy() for x in centred]
    opel = cluster_all(embedded, num)
    alone = [cluster(x, r.num, "k-means-cosine") for x, r in zip(embedded, recordings, strict=True)]
    found = {
        "HiERO per video, k-th step": [r.pieces for r in recordings],
        "HiERO per video, groups of a folder report": grouped(recordings, num),
        "HiERO's nodes, K-Means over all": cluster_all([r.nodes for r in recordings], num),
        "OPEL, K-Means over all": opel,
        "OPEL, K-Means per video": alone,
        **{
            f"together, {view}, {weight:g}": together(recordings, num, vectors, weight)
            for view, vectors in views.items()
            for weight in PLACE_WEIGHTS
        },
    }
    return {name: score(recordings, labels) for name, labels in found.items()}


def choose_weights(scores: dict[str, dict[str, list[float]]], fold_of: dict[str, int]) -> None:
    """Add rows in which each fold has the weight that is best on the other folds."""
    for view in ("joined", "model", "features"):
        options = [f"together, {view}, {weight:g}" for weight in PLACE_WEIGHTS]
        for fold in range(NUM_FOLDS):
            others = [recipe for recipe in scores if fold_of[recipe] != fold]
            best = max(options, key=lambda name: np.mean([scores[recipe][name][0] for recipe in others]))
            for recipe in scores.keys() - set(others):
                scores[recipe][f"together, {view}, weight of other folds"] = scores[recipe][best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["k400"])
    parser.add_argument("--variants", nargs="+", default=["text-noise-1"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for kind, variant in zip(args.kinds, args.variants, strict=True):
        folds = Folds(args.work, kind, variant)
        fold_of = deal_folds(folds.annotations)
        scores = {}
        for recipe, fold in sorted(fold_of.items()):
            names = [name for name in folds.recordings if folds.annotations[name]["recipe"] == recipe]
            if len(names) > 1:
                scores[recipe] = score_recipe(read_recipe(folds, fold, names))
                print(f"{recipe}: {len(names)} recordings", flush=True)
        choose_weights(scores, fold_of)
        print(
            f"\n{kind}, {variant}\n\n| | one matching: F1 | IoU | per video: F1 | gain, F1 |" + "\n" + "|---" * 5 + "|"
        )
        reference = np.array([values["HiERO per video, k-th step"] for values in scores.values()])
        for name in next(iter(scores.values())):
            values = np.array([scores[recipe][name] for recipe in scores])
            rows = 100 * bootstrap(np.concatenate([values, values - reference], axis=1), list(scores))
            cells = [f"{mean:.1f} ({low:.1f}-{high:.1f})" for mean, low, high in rows[:, :3].T]
            print(f"| {name} | {' | '.join(cells)} | {rows[0, 3]:+.1f} ({rows[1, 3]:+.1f} to {rows[2, 3]:+.1f}) |")


if __name__ == "__main__":
    main()
