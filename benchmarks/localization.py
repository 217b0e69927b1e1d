"""Step localization, and grounding after corrections, on recipes that a model never saw: HiERO, TW-FINCH
and ActionFormer.

    python -m benchmarks.localization labels WORK --kinds k400 --variants text-noise-1
    python -m benchmarks.localization corrected WORK --kinds k400 --variants text-noise-1 --numbers 1 4
    python -m benchmarks.localization corrected WORK --kinds k400 --variants text-noise-1 --numbers 4 --methods all

WORK and its nodes are those of `benchmarks.unseen`. For Omnivore: `--kinds omnivore-b --variants
long-text-noise-1`.

*labels*: mean mAP with all step sentences of a fold's part as labels, without corrections. *corrected*:
the true steps of some recordings of a recipe are given. R1@.3 is the share of step texts whose first
answer (`Video.ask`) in another recording has an IoU above 0.3; F1 requires the right name and such an IoU
(`Video.label`). Each cell is kept in WORK/localization.KIND.jsonl, so a run goes on. Intervals hold 95 %
of what other recordings (labels) or recipes (corrected) would give.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.adaptation import MIN_IOU, score_head, segmental_f1
from benchmarks.cross_validation import NUM_FOLDS, PARTS, deal_folds
from benchmarks.unseen import MAX_SCORED, Folds, bootstrap
from hiero.corpus.adaptation import learn_from_videos
from hiero.engine import Video
from hiero.engine import video as engine_video
from hiero.evaluation.metrics import Detections, interval_iou
from hiero.evaluation.tasks import localization_row
from hiero.steps import prototypes
from hiero.steps.clustering import tw_finch
from hiero.steps.segmentation import label_runs
from hiero.steps.similarity import detect_labels, label_probabilities
from hiero.types import AnnotatedStep

NUM_THREADS, MIN_NODES = 16, 3  # of TW-FINCH, as in `hiero eval own`
METHODS = ("plain", "hiero", "actionformer")
METRICS = ("names", "R1@.3", "F1")


# Without corrections


def label_parts(similarity: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spans, their best labels and the labels' shares of belief."""
    probabilities = label_probabilities(similarity, spans)
    return spans, probabilities.argmax(1), probabilities.max(1)


def cut(video: Video) -> np.ndarray:
    return video.sight.level_spans(video.steps(labels=[]).levels[-1])


DETECTORS: dict[str, Callable[[Video, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]] = {
    "steps of `hiero steps`": lambda video, similarity: label_parts(similarity, cut(video)),
    "TW-FINCH": lambda video, similarity: label_parts(
        similarity, label_runs(tw_finch(video.nodes, NUM_THREADS), MIN_NODES)
    ),
    "best spans of each label": lambda video, similarity: detect_labels(
        similarity, video.sight.spans, video.clock.spacing_s
    ),
}


def labels_table(folds: Folds, args: argparse.Namespace) -> None:
    """Print mean mAP of each way to find spans. A label of two folds counts as two labels."""
    print("| mean mAP | " + " | ".join(PARTS) + " |\n|---|---|---|")
    rows: dict[str, list[str]] = {name: [] for name in DETECTORS}
    for part in PARTS:
        truth, num_labels = [], 0
        found: dict[str, list[Detections]] = {name: [] for name in DETECTORS}
        for fold in range(NUM_FOLDS):
            names = folds.parts(fold)[part]
            texts = sorted({step.text for name in names for step in folds.steps(name)})
            for name in names:
                video, steps = folds.video(fold, name), folds.steps(name)
                spans = np.array([[step.start_s, step.end_s] for step in steps])
                numbers = np.array([texts.index(step.text) for step in steps])
                truth.append(Detections(spans, num_labels + numbers, np.zeros(len(steps))))
                similarity = video.sight.similarity(texts)
                for way, detect in DETECTORS.items():
                    spans, labels, scores = detect(video, similarity)
                    found[way].append(Detections(spans.astype(float), num_labels + labels, scores))
            num_labels += len(texts)
        for way, detections in found.items():
            row = localization_row(way, truth, detections, args.num_draws)
            low, high = row.intervals["mean"]
            rows[way].append(f"{row.scores['mean']:.1f} ({low:.1f}-{high:.1f})")
    for way, cells in rows.items():
        print(f"| {way} | {' | '.join(cells)} |", flush=True)


# After corrections


class Recipe:
    """The recordings of a recipe, read with the model that never saw it, as `score_head` takes them."""

    def __init__(self, folds: Folds, recipe: str) -> None:
        self.folds, self.fold = folds, deal_folds(folds.annotations)[recipe]
        names = [name for name in folds.recordings if folds.annotations[name]["recipe"] == recipe]
        self.recipes = {recipe: names}
        self.features = {name: folds.features(name) for name in names}
        self.videos = {name: folds.video(self.fold, name) for name in names}

    def steps(self, name: str) -> tuple[AnnotatedStep, ...]:
        return tuple(self.folds.steps(name))

    def texts(self, recipe: str) -> list[str]:
        return sorted({step.text for name in self.recipes[recipe] for step in self.steps(name)})


def score_learned(recipe: Recipe, learn: Sequence[str], scored: Sequence[str], texts: list[str]) -> list[float]:
    """Names, R1@.3 and F1 of prototypes of the corrected recordings."""
    videos = recipe.videos
    engine = videos[scored[0]].engine
    engine.prototypes = learn_from_videos([(videos[name], recipe.steps(name)) for name in learn])
    rows = [score_video(videos[name], recipe.steps(name), texts) for name in scored]
    engine.prototypes = None
    return np.mean(rows, axis=0).tolist()


def score_video(video: Video, steps: Sequence[AnnotatedStep], texts: list[str]) -> list[float]:
    from benchmarks.unseen import score_names

    first = {text: answer.matches[0] for text, answer in zip(texts, video.ask(texts, num=1), strict=True)}
    spans = np.array([[first[step.text].start_s, first[step.text].end_s] for step in steps])
    truth = np.array([[step.start_s, step.end_s] for step in steps])
    hits = [float(interval_iou(span[None], true)[0]) > MIN_IOU for span, true in zip(spans, truth, strict=True)]
    named = [(step.start_s, step.end_s, step.label) for step in video.label(texts) if step.label]
    return [score_names(video, list(steps), texts, True)[0], float(np.mean(hits)), segmental_f1(named, steps)]


def score_cell(recipe: Recipe, method: str, name: str, learn: Sequence[str], scored: Sequence[str]) -> list[float]:
    """Scores of a method on some recordings of a recipe."""
    if method == "actionformer":
        return score_head(
            recipe,
            recipe.folds.folder(recipe.fold),
            method,
            name,
            learn,
            scored,
            "cpu",  # type: ignore[arg-type]
        )
    texts = recipe.texts(name)
    if method == "hiero":
        return score_learned(recipe, learn, scored, texts)
    with (
        patch.object(prototypes, "LENGTH_WEIGHT", 0.0),
        patch.object(prototypes, "RIVAL_WEIGHT", 0.0),
        patch.object(engine_video, "place_learned_names", lambda video, labels, level: level),
    ):
        return score_learned(recipe, learn, scored, texts)


def corrected_table(folds: Folds, args: argparse.Namespace) -> None:
    """Compute the missing cells and print the means over recipes that all methods have."""
    file = folds.work / f"localization.{folds.kind}.jsonl"
    cells = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    done = {(cell["method"], cell["recipe"], cell["num"], cell["draw"]): cell["scores"] for cell in cells}
    wanted = args.recipes or sorted({folds.annotations[name]["recipe"] for name in folds.recordings})
    for name in wanted:
        recipe = None
        for draw, num, method in product(range(args.draws), args.numbers, args.methods):
            names = [n for n in folds.recordings if folds.annotations[n]["recipe"] == name]
            if (method, name, num, draw) in done or num >= len(names):
                continue
            recipe = recipe or Recipe(folds, name)
            order = random.Random(f"{name} {draw}").sample(names, len(names))
            scores = score_cell(recipe, method, name, order[:num], order[num:][-MAX_SCORED:])
            done[method, name, num, draw] = scores
            with file.open("a") as out:
                cell = {"method": method, "recipe": name, "num": num, "draw": draw, "scores": scores}
                out.write(json.dumps(cell) + "\n")
            print(f"{name}, {num}, {method}: {np.round(100 * np.array(scores), 1).tolist()}", flush=True)
    print("| | " + " | ".join(f"{m}: {num}" for m in METRICS for num in args.numbers) + " |")
    print("|---" * (1 + len(METRICS) * len(args.numbers)) + "|")
    for method in args.methods:
        columns = []
        for column, num in product(range(len(METRICS)), args.numbers):
            found = {
                name: [done[method, name, num, d][column] for d in range(args.draws) if (method, name, num, d) in done]
                for name in wanted
                if all((m, name, num, 0) in done for m in args.methods)
            }
            means = np.array([np.mean(values) for values in found.values()])[:, None]
            mean, low, high = 100 * bootstrap(means, list(found))[:, 0]
            columns.append(f"{mean:.1f} ({low:.1f}-{high:.1f})")
        print(f"| {method} | {' | '.join(columns)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["labels", "corrected"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["k400"])
    parser.add_argument("--variants", nargs="+", default=["text-noise-1"])
    parser.add_argument("--numbers", nargs="+", type=int, default=[1, 4], help="of corrected recordings")
    parser.add_argument("--methods", nargs="+", default=["plain", "hiero"], choices=[*METHODS, "all"])
    parser.add_argument("--recipes", nargs="+", help="defaults to all")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--num-draws", type=int, default=100, help="of the bootstrap")
    args = parser.parse_args()
    args.methods = list(METHODS) if "all" in args.methods else args.methods
    torch.set_num_threads(1)
    for kind, variant in zip(args.kinds, args.variants, strict=True):
        print(f"\n{kind}, {variant}\n", flush=True)
        (labels_table if args.what == "labels" else corrected_table)(Folds(args.work, kind, variant), args)


if __name__ == "__main__":
    main()
