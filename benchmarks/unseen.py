"""Procedures never seen: the same step in other recordings, names from a few corrected recordings, and
steps in order, with the fold models of `benchmarks.cross_validation`.

    python -m benchmarks.cross_validation train WORK --kinds k400 --variants text-noise-1 --device cuda
    python -m benchmarks.unseen embed WORK --kinds k400 --variants text-noise-1      nodes of all recordings, kept
    python -m benchmarks.unseen same-step WORK --kinds k400 --variants text-noise-1
    python -m benchmarks.unseen probability WORK --kinds k400 --variants text-noise-1      of `--like`
    python -m benchmarks.unseen names WORK --kinds k400 --variants text-noise-1
    python -m benchmarks.unseen order WORK --kinds k400 --variants text-noise-1

For Omnivore: `--kinds omnivore-b --variants long-text-noise-1`. Each recording is once one of a recipe
that its fold's model never saw ("unseen"); "known" are recordings that were left out of other recipes.

*same-step*: each annotated step is searched among the annotated steps of the other recordings of its
recipe. Vectors are the model's (`Video.embed_spans`), means of the backbone's features, or both
(`join_features`), compared one by one or in order (`correspondence`). The weight of *joined, weight of
other folds* was chosen for each fold on the others. *names*: annotated steps get names of the recipe
after 1 or 4 recordings were corrected; F1 is that of steps cut and named. *order*: the texts of all
steps are placed in their order, k is the weight of the prior of their lengths. Intervals hold 95 % of what
other recordings (same-step) or recipes (names) would give.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.adaptation import segmental_f1
from benchmarks.captaincook4d_data import CLOCK, read_annotations
from benchmarks.cross_validation import NUM_FOLDS, PARTS, deal_folds, split_fold
from benchmarks.same_step import retrieval_scores
from hiero import embed_features, load, load_model
from hiero.corpus.adaptation import learn_from_videos
from hiero.engine import Engine, Video
from hiero.evaluation.metrics import interval_iou
from hiero.features.stores import FeatureStore
from hiero.features.video_features import VideoFeatures
from hiero.steps import correspondence as matching
from hiero.steps import grounding
from hiero.steps.correspondence import JOINED_STEP_WEIGHT, centre_steps, correspondence
from hiero.steps.prototypes import StepPrototypes
from hiero.types import AnnotatedStep, Step

WEIGHTS = (0.3, 0.5, 0.6, 0.7, 0.8)  # of the backbone's features
LENGTH_WEIGHTS = (0.0, 6.0, 20.0, 60.0)  # of steps in order
NUM_CORRECTED = (1, 4)
NUM_DRAWS, MAX_SCORED = 2, 6
NUM_RESAMPLES = 2000
NUM_FITTED = 20  # hits of each step that the probability is fitted to


class Folds:
    """The recordings of a kind, read with the model of each fold."""

    def __init__(self, work: Path, kind: str, variant: str) -> None:
        self.work, self.kind, self.variant = work, kind, variant
        self.annotations = read_annotations(work)
        self.store = FeatureStore(work / kind / "store")
        self.recordings = sorted(self.store)
        self.features = cache(lambda name: self.store.read(name).float().numpy())
        self.engine = cache(self._engine)
        self.step_vectors = cache(self._step_vectors)

    def folder(self, fold: int) -> Path:
        return self.work / "folds" / self.kind / self.variant / "0" / f"model{fold}"

    def parts(self, fold: int) -> dict[str, list[str]]:
        return split_fold(self.annotations, self.recordings, fold)

    def _engine(self, fold: int) -> Engine:
        return load(self.folder(fold), device="cpu")

    def nodes_file(self, fold: int, name: str) -> Path:
        return self.folder(fold).with_name(f"nodes{fold}") / f"{name}.npy"

    def embed(self) -> None:
        """Write the nodes of all recordings, as unit vectors in half precision."""
        for fold in range(NUM_FOLDS):
            model = load_model(self.folder(fold))
            for name in self.recordings:
                file = self.nodes_file(fold, name)
                if not file.is_file():
                    file.parent.mkdir(exist_ok=True)
                    with torch.inference_mode():
                        nodes = embed_features(model, self.store.read(name), CLOCK, [0])["projected0"]
                    np.save(file, F.normalize(nodes, dim=-1).half().numpy())
            print(f"{self.kind} {self.variant} fold {fold}: {len(self.recordings)} recordings", flush=True)

    def video(self, fold: int, name: str) -> Video:
        """A recording as `Engine.read_array` gives it, from the nodes that `embed` wrote."""
        features = self.features(name)
        nodes = np.load(self.nodes_file(fold, name)).astype(np.float32)
        scores = {"i3d-k400": features} if self.kind == "k400" else {}
        source = VideoFeatures(scores, float(len(features)), CLOCK.spacing_s)
        return Video(self.engine(fold), Path(name), CLOCK, float(len(features)), nodes, source, features)

    def steps(self, name: str) -> list[AnnotatedStep]:
        """The annotated steps in time order, as far as the features reach."""
        rows = sorted(self.annotations[name]["steps"], key=lambda row: (row["start_s"], row["end_s"]))
        length_s = len(self.features(name))
        return [AnnotatedStep(r["start_s"], r["end_s"], r["text"]) for r in rows if r["start_s"] < length_s]

    def spans(self, name: str) -> np.ndarray:
        length = len(self.features(name))
        return np.array([CLOCK.span(step.start_s, step.end_s, length) for step in self.steps(name)])

    def _step_vectors(self, fold: int, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The model's vectors of the annotated steps, and means of the backbone's features."""
        video = self.video(fold, name)
        features = video.sight.average_features(self.spans(name))
        assert features is not None
        return video.sight.embed_spans(self.spans(name)), features


def bootstrap(values: np.ndarray, owners: Sequence[str]) -> np.ndarray:
    """Mean of (N, C) and its 95 % interval over owners, (3, C)."""
    names = sorted(set(owners))
    sums = np.array([values[[o == name for o in owners]].sum(0) for name in names])
    counts = np.array([sum(o == name for o in owners) for name in names])
    drawn = np.random.default_rng(0).integers(len(names), size=(NUM_RESAMPLES, len(names)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)[:, None]
    return np.stack([values.mean(0), *np.quantile(means, (0.025, 0.975), axis=0)])


# The same step

Vectors = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of the model's vectors and the backbone's features
Match = Callable[[np.ndarray, list[np.ndarray]], list[np.ndarray]]


def joined(weight: float) -> Vectors:
    def join(own: np.ndarray, features: np.ndarray) -> np.ndarray:
        parts = [np.sqrt(1 - weight) * centre_steps(own), np.sqrt(weight) * centre_steps(features)]
        return np.concatenate(parts, axis=1)

    return join


def by_cosine(own: np.ndarray, others: list[np.ndarray]) -> list[np.ndarray]:
    return [own @ other.T for other in others]


def joined_in_order(own: np.ndarray, others: list[np.ndarray]) -> list[np.ndarray]:
    return correspondence(own, others, step_weight=JOINED_STEP_WEIGHT)


def retrieve(folds: Folds, fold: int, part: str, vectors: Vectors, match: Match) -> tuple[np.ndarray, list[str]]:
    """R@1 and R@5 of each step of a part, (Q, 2), and the recordings that they belong to."""
    values, owners = [], []
    for name, texts, scores in score_steps(folds, fold, part, vectors, match):
        for step, row in zip(folds.steps(name), scores, strict=True):
            right = texts == step.text
            if right.any():
                values.append(retrieval_scores(row, right)[:2])
                owners.append(name)
    return np.array(values), owners


def score_steps(
    folds: Folds, fold: int, part: str, vectors: Vectors, match: Match, any_recipe: bool = False
) -> Iterable[tuple[str, np.ndarray, np.ndarray]]:
    """Each recording of a part, texts (N,) of the steps of others, by default of its recipe, and scores (n, N)."""
    parts = folds.parts(fold)
    recipe = {name: folds.annotations[name]["recipe"] for name in folds.recordings}
    made = cache(lambda name: vectors(*folds.step_vectors(fold, name)))
    for name in parts[part]:
        others = [
            other for other in folds.recordings if other != name and (any_recipe or recipe[other] == recipe[name])
        ]
        if others:
            texts = np.array([step.text for other in others for step in folds.steps(other)])
            yield name, texts, np.concatenate(match(made(name), [made(other) for other in others]), axis=1)


def same_step(folds: Folds) -> None:
    """Print R@1 and R@5 of all ways to compare steps."""
    methods: dict[str, tuple[Vectors, Match]] = {
        "model": (lambda own, _: centre_steps(own), by_cosine),
        "features of the backbone": (lambda _, features: centre_steps(features), by_cosine),
        **{f"joined, {weight:g}": (joined(weight), by_cosine) for weight in WEIGHTS},
        "model, in order": (lambda own, _: own, correspondence),
        "joined, in order": (joined(matching.FEATURE_WEIGHT), joined_in_order),
    }
    found = {
        (name, part, fold): retrieve(folds, fold, part, *ways)
        for name, ways in methods.items()
        for part in PARTS
        for fold in range(NUM_FOLDS)
    }
    weighted = [f"joined, {weight:g}" for weight in WEIGHTS]
    for part in PARTS:  # each fold with the weight that is best on the unseen recipes of the other folds
        for fold in range(NUM_FOLDS):
            others = [f for f in range(NUM_FOLDS) if f != fold]
            best = max(weighted, key=lambda n: np.concatenate([found[n, "unseen", f][0] for f in others])[:, 0].mean())
            found["joined, weight of other folds", part, fold] = found[best, part, fold]
    print("| | " + " | ".join(f"{part} R@1 | R@5" for part in PARTS) + " |\n" + "|---" * 5 + "|")
    for name in (*methods, "joined, weight of other folds"):
        cells = []
        for part in PARTS:
            values = np.concatenate([found[name, part, fold][0] for fold in range(NUM_FOLDS)])
            owners = [owner for fold in range(NUM_FOLDS) for owner in found[name, part, fold][1]]
            rows = 100 * bootstrap(values, owners)
            cells += [f"{mean:.1f} ({low:.1f}-{high:.1f})" for mean, low, high in rows.T]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def fit_probability(folds: Folds) -> None:
    """The log-odds that one of the first hits among all recipes is right, fitted on known ones, checked on unseen."""
    from sklearn.linear_model import LogisticRegression

    scores: dict[str, list[float]] = {part: [] for part in PARTS}
    right: dict[str, list[bool]] = {part: [] for part in PARTS}
    for part in PARTS:
        for fold in range(NUM_FOLDS):
            ways = joined(matching.FEATURE_WEIGHT), joined_in_order
            for name, texts, rows in score_steps(folds, fold, part, *ways, any_recipe=True):
                for step, row in zip(folds.steps(name), rows, strict=True):
                    first = np.argsort(-row, kind="stable")[:NUM_FITTED]
                    scores[part] += row[first].tolist()
                    right[part] += (texts[first] == step.text).tolist()
    model = LogisticRegression(C=100.0).fit(np.array(scores["known"])[:, None], right["known"])
    print(f"SAME_JOINED_STEP = {model.coef_[0, 0]:.2f}, {model.intercept_[0]:.2f}")
    probability, truth = model.predict_proba(np.array(scores["unseen"])[:, None])[:, 1], np.array(right["unseen"])
    for low in np.arange(5) / 5:
        inside = (probability >= low) & (probability < low + 0.2)
        if inside.any():
            print(f"  said {low:.1f}-{low + 0.2:.1f}: {100 * truth[inside].mean():.0f} % right ({inside.sum()})")


# Names


def name_steps(video: Video, level: Sequence[Step], texts: list[str], compete: bool) -> list[str]:
    """The best text for each step, as `hiero label` chooses it."""
    if compete:
        return [best[0][0] for best in video.likely_labels(level, texts, num=1)]
    similarity = video.sight.similarity(texts)
    return [texts[similarity[:, start:end].mean(1).argmax()] for start, end in video.sight.level_spans(level)]


def score_names(video: Video, truth: list[AnnotatedStep], texts: list[str], compete: bool) -> list[float]:
    """Share of annotated steps with the right name, and F1 of the video cut and named."""
    given = [Step(str(i), step.start_s, step.end_s, 0, origin="person") for i, step in enumerate(truth)]
    names = name_steps(video, given, texts, compete)
    level = video.steps(labels=[]).levels[-1]
    named: list[tuple[float, float, str]] = []
    for step, text in zip(level, name_steps(video, level, texts, compete), strict=True):
        if named and named[-1][2] == text:
            named[-1] = (named[-1][0], step.end_s, text)
        else:
            named.append((step.start_s, step.end_s, text))
    right = float(np.mean([name == step.text for name, step in zip(names, truth, strict=True)]))
    return [right, segmental_f1(named, truth)]


def names_table(folds: Folds) -> None:
    """Print names and F1 after 1 and 4 corrected recordings."""
    methods: dict[str, tuple[tuple[str, ...], bool]] = {  # views of the prototypes, and whether steps compete
        "no adaptation": ((), False),
        "prototypes of nodes": (("nodes",), False),
        "and of features": (("nodes", "classes", "features"), False),
        "and names compete": (("nodes", "classes", "features"), True),
    }
    recipes: dict[str, list[str]] = {}
    for name in folds.recordings:
        recipes.setdefault(folds.annotations[name]["recipe"], []).append(name)
    scores: dict[tuple[str, int], list[tuple[str, list[float]]]] = {}
    for recipe, fold in sorted(deal_folds(folds.annotations).items()):
        names = recipes.get(recipe, [])
        texts = sorted({step.text for name in names for step in folds.steps(name)})
        videos = {name: folds.video(fold, name) for name in names}
        for num in [num for num in NUM_CORRECTED if num < len(names)]:
            for draw in range(NUM_DRAWS):
                order = random.Random(f"{recipe} {draw}").sample(names, len(names))
                learned = learn_from_videos([(videos[name], folds.steps(name)) for name in order[:num]])
                for method, (views, compete) in methods.items():
                    use_views(videos.values(), learned, views)
                    for name in order[num:][-MAX_SCORED:]:
                        row = score_names(videos[name], folds.steps(name), texts, compete)
                        scores.setdefault((method, num), []).append((recipe, row))
        print(f"{recipe}: done", flush=True)
    print(
        "| | " + " | ".join(f"{m}: {num}" for m in ("names", "F1") for num in NUM_CORRECTED) + " |\n" + "|---" * 5 + "|"
    )
    for method in methods:
        cells = []
        for column in range(2):
            for num in NUM_CORRECTED:
                rows = scores[method, num]
                means = {r: np.mean([row[column] for recipe, row in rows if recipe == r]) for r, _ in rows}
                mean, low, high = 100 * bootstrap(np.array(list(means.values()))[:, None], list(means))[:, 0]
                cells.append(f"{mean:.1f} ({low:.1f}-{high:.1f})")
        print(f"| {method} | {' | '.join(cells)} |", flush=True)


def use_views(videos: Iterable[Video], learned: StepPrototypes, views: tuple[str, ...]) -> None:
    """Let the engine of some videos know prototypes of some views, or none."""
    kept = {name: value for name, value in learned.means.items() if name in views}
    readouts = {name: value for name, value in learned.readouts.items() if name in views}
    counts = learned.num_steps, kept, readouts, learned.positions, learned.max_repeats
    for video in videos:
        video.engine.prototypes = StepPrototypes(learned.labels, *counts) if views else None


# In order


def order_table(folds: Folds) -> None:
    """Print R1@.3 of the steps of a recording placed in order, with priors of their lengths and in equal parts."""
    methods = ("equal parts", *LENGTH_WEIGHTS)
    hits: dict[tuple[str, str | float], list[np.ndarray]] = {(part, m): [] for part in PARTS for m in methods}
    owners: dict[str, list[str]] = {part: [] for part in PARTS}
    for fold in range(NUM_FOLDS):
        parts = folds.parts(fold)
        for part, name in [(p, name) for p in PARTS for name in parts[p]]:
            video, steps = folds.video(fold, name), folds.steps(name)
            truth = np.array([[step.start_s, step.end_s] for step in steps])
            similarity = video.sight.similarity([step.text for step in steps])
            owners[part] += [name] * len(steps)
            for method in methods:
                if method == "equal parts":
                    edges = np.linspace(0, len(video.nodes), len(steps) + 1)
                    spans = np.stack([edges[:-1], edges[1:]], axis=1)
                else:
                    with patch.object(grounding, "LENGTH_WEIGHT", method):
                        spans = np.array(grounding.align_in_order(similarity), dtype=float)
                found = [
                    float(interval_iou(span[None], true)[0]) > 0.3 for span, true in zip(spans, truth, strict=True)
                ]
                hits[part, method].append(np.array(found))
    print("| R1@.3 | " + " | ".join(PARTS) + " |\n|---|---|---|")
    for method in methods:
        rows = [
            100 * bootstrap(np.concatenate(hits[part, method])[:, None] * 1.0, owners[part])[:, 0] for part in PARTS
        ]
        cells = " | ".join(f"{mean:.1f} ({low:.1f}-{high:.1f})" for mean, low, high in rows)
        print(f"| {method if method == 'equal parts' else f'k = {method:g}'} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["embed", "same-step", "probability", "names", "order"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["k400"])
    parser.add_argument("--variants", nargs="+", default=["text-noise-1"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    commands = {
        "embed": Folds.embed,
        "same-step": same_step,
        "probability": fit_probability,
        "names": names_table,
        "order": order_table,
    }
    for kind, variant in zip(args.kinds, args.variants, strict=True):
        folds = Folds(args.work, kind, variant)
        print(f"\n{kind}, {variant}\n", flush=True)
        commands[args.what](folds)


if __name__ == "__main__":
    main()
