"""What do a few corrected recordings of a recipe teach a model that never saw it (CaptainCook4D)?

    python -m benchmarks.adaptation SOURCE --work WORK [--jobs 14] [--device cuda]

SOURCE is the folder of the recordings. The model is trained without the unseen recipes of
`benchmarks.captaincook4d`, with the settings of `hiero-k400`, into WORK/models/PART-0, unless it
exists. Settings of `hiero adapt` were chosen with `--part dev`. For each recipe and number, some
recordings are drawn and their true steps given; the others are scored:

    names       share of true steps that get the right text of the recipe
    R1@.3       share of steps whose text, searched in the recording, has a first answer with an IoU above 0.3
    F1          the recording is cut and named: steps with the right name and an IoU above 0.3

The table has means over draws, then over recipes; ± is the deviation over recipes. Each cell is saved
in WORK/cells-PART.jsonl, so an interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from benchmarks.captaincook4d_data import (
    CLOCK,
    PARTS,
    read_annotations,
    read_features,
    split,
    write_training_files,
)
from benchmarks.scores import MIN_IOU, segmental_f1
from hiero.corpus.adaptation import learn_from_videos
from hiero.engine import Engine, Video, load
from hiero.evaluation.heads.clips import read_clips
from hiero.evaluation.heads.head import load_trained_head
from hiero.evaluation.heads.scoring import predict_detections
from hiero.evaluation.heads.training import train_head
from hiero.evaluation.metrics import Detections, grounding_recall, interval_iou
from hiero.steps.grounding import rank_spans, span_means
from hiero.training.from_files import TrainOptions, train_from_files
from hiero.training.loop import RunOptions
from hiero.types import AnnotatedStep

METHODS = {
    "none": "no adaptation",
    "prototypes": "prototypes (hiero adapt)",
    "actionformer": "ActionFormer, same recordings",
}
METRICS = ("names", "R1@.3", "F1")
NUMBERS = (1, 2, 4, 8)
MAX_SCORED = 6  # recordings that a draw is scored on


class Data:
    """Recordings of unseen recipes of a part, with features and true steps."""

    def __init__(self, source: Path, part: str) -> None:
        self.all_features = read_features(source, "k400")
        self.annotations = read_annotations(source)
        self.parts = split(self.annotations, sorted(self.annotations), part)
        self.features = {name: self.all_features[name].numpy() for name in self.parts[PARTS[1]]}
        self.recipes: dict[str, list[str]] = {}
        for name in self.features:
            self.recipes.setdefault(self.annotations[name]["recipe"], []).append(name)

    def steps(self, recording: str) -> tuple[AnnotatedStep, ...]:
        length_s = len(self.features[recording])
        rows = self.annotations[recording]["steps"]
        return tuple(
            AnnotatedStep(row["start_s"], row["end_s"], row["text"]) for row in rows if row["start_s"] < length_s
        )

    def texts(self, recipe: str) -> list[str]:
        return sorted({step.text for recording in self.recipes[recipe] for step in self.steps(recording)})

    def draw(self, recipe: str, num: int, number: int) -> tuple[list[str], list[str]]:
        """Recordings that are corrected, and those that are scored."""
        order = random.Random(f"{recipe} {number}").sample(self.recipes[recipe], len(self.recipes[recipe]))
        return order[:num], order[num:][-MAX_SCORED:]


@cache
def open_data(source: Path, part: str) -> Data:
    return Data(source, part)


@cache
def open_engine(folder: Path) -> Engine:
    return load(folder, device="cpu")


@cache
def read_video(data: Data, folder: Path, recording: str) -> Video:
    return open_engine(folder).read_array(data.features[recording], CLOCK, recording)


# Scores


def score_similarity(
    video: Video, texts: list[str], steps: Sequence[AnnotatedStep], similarity: np.ndarray
) -> list[float]:
    """All metrics of a recording, from the similarity of all texts with its nodes."""
    spans = np.array([CLOCK.span(step.start_s, step.end_s, len(video.nodes)) for step in steps])
    best = span_means(similarity, spans).argmax(0)
    names = float(np.mean([texts[i] == step.text for i, step in zip(best, steps, strict=True)]))
    rows = [texts.index(step.text) for step in steps]
    ranked = rank_spans(
        similarity[rows], video.sight.spans, video.clock.spacing_s, num=1, temperature=video.sight.temperature
    )
    predicted = [np.reshape(video.sight.spans[i].astype(float), (-1, 2)) for i, _ in ranked]
    truth = np.array([[step.start_s, step.end_s] for step in steps])
    cut = video.sight.level_spans(video.steps(labels=[]).levels[-1])
    named: list[tuple[float, float, str]] = []
    for (start, end), i in zip(cut.tolist(), span_means(similarity, cut).argmax(0), strict=True):
        if named and named[-1][2] == texts[i]:
            named[-1] = (named[-1][0], end, texts[i])
        else:
            named.append((start, end, texts[i]))
    return [names, float(grounding_recall(predicted, truth)[0, 0]), segmental_f1(named, steps)]


def score_engine(data: Data, folder: Path, recipe: str, learn: Sequence[str], score: Sequence[str]) -> list[float]:
    """Scores of a model, with prototypes of the corrected recordings if there are some."""
    texts = data.texts(recipe)
    prototypes = None
    if learn:
        prototypes = learn_from_videos([(read_video(data, folder, name), data.steps(name)) for name in learn])
    rows = []
    for name in score:
        video = read_video(data, folder, name)
        similarity = video.sight.cached_similarity(texts).copy()
        if prototypes is not None:
            names = {text: i for i, text in enumerate(prototypes.labels)}
            known = [(row, names[text]) for row, text in enumerate(texts) if text in names]
            learned = prototypes.similarity([i for _, i in known], video.sight.views)
            similarity[[row for row, _ in known]] += learned
        rows.append(score_similarity(video, texts, data.steps(name), similarity))
    return np.mean(rows, axis=0).tolist()


def score_actionformer(
    data: Data, folder: Path, learn: Sequence[str], score: Sequence[str], device: str
) -> list[float]:
    """Scores of ActionFormer on HiERO's features, trained on the corrected recordings alone."""
    engine = open_engine(folder)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "features").mkdir()
        for recording in (*learn, *score):
            np.save(work / "features" / f"{recording}.npy", engine.enrich(data.features[recording], CLOCK, 0))
        document = {r: {"steps": [vars(step) for step in data.steps(r)]} for r in (*learn, *score)}
        (work / "annotations.json").write_text(json.dumps(document))
        learned, scored = (
            read_clips(work / "features", work / "annotations.json", CLOCK, only=names) for names in (learn, score)
        )
        # As many updates as in the presets with some dozens of recordings.
        settings = ["epochs=80", "warmup_epochs=10"]
        train_head("actionformer", learned, work / "head", settings=settings, options=RunOptions(device=device))
        head = load_trained_head(work / "head", device)
        pairs = zip(*predict_detections(head, scored), strict=True)
        return np.mean([_score_detections(truth, found) for truth, found in pairs], axis=0).tolist()


def _score_detections(truth: Detections, found: Detections) -> list[float]:
    """A true step gets the label of the best detection around it; a text's answer is the best of its label."""
    right, hits = [], []
    for span, label in zip(truth.spans, truth.labels, strict=True):
        overlap = interval_iou(found.spans, span) * found.scores if len(found.spans) else np.zeros(0)
        right.append(len(overlap) > 0 and overlap.max() > 0 and found.labels[overlap.argmax()] == label)
        own = np.flatnonzero(found.labels == label)
        best = own[found.scores[own].argmax()] if len(own) else None
        hits.append(best is not None and float(interval_iou(found.spans[best][None], span)[0]) > MIN_IOU)
    groups = [np.flatnonzero(found.labels == label) for label in np.unique(found.labels)]
    best_of_each = [group[found.scores[group].argmax()] for group in groups]
    named = [(*found.spans[i], str(found.labels[i])) for i in best_of_each]
    steps = [AnnotatedStep(*span, str(label)) for span, label in zip(truth.spans, truth.labels, strict=True)]
    return [float(np.mean(right)), float(np.mean(hits)), segmental_f1(named, steps)]


# Cells


def compute_cell(source: Path, work: Path, part: str, device: str, cell: tuple[str, str, int, int]) -> dict:
    """Scores of one method, recipe, number of corrected recordings and draw."""
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    method, recipe, num, number = cell
    data, folder = open_data(source, part), work / "models" / f"{part}-0"
    learn, score = data.draw(recipe, num, number)
    if method == "actionformer":
        scores = score_actionformer(data, folder, learn, score, device)
    else:
        scores = score_engine(data, folder, recipe, learn if method == "prototypes" else [], score)
    return {"method": method, "recipe": recipe, "num": num, "draw": number, "scores": scores}


def run_cells(args: argparse.Namespace) -> list[dict]:
    """Compute the missing cells, and return all."""
    data = open_data(args.source, args.part)
    file = args.work / f"cells-{args.part}.jsonl"
    cells = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    done = {(cell["method"], cell["recipe"], cell["num"], cell["draw"]) for cell in cells}
    todo = [
        (method, recipe, num, number)
        for number, method, num, recipe in product(range(args.draws), args.methods, args.numbers, data.recipes)
        if num < len(data.recipes[recipe]) and (method, recipe, num, number) not in done
    ]
    with file.open("a") as out:
        for cell in _compute_cells(
            [(args.source, args.work, args.part, args.device, cell) for cell in todo], args.jobs
        ):
            cells.append(cell)
            out.write(json.dumps(cell) + "\n")
            out.flush()
            print(cell, flush=True)
    return cells


def _compute_cells(arguments: list[tuple], jobs: int) -> Iterator[dict]:
    """Compute cells in this process or in several, in the order in which they finish."""
    if jobs < 1:
        yield from (compute_cell(*values) for values in arguments)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(compute_cell, *values) for values in arguments]):
            yield future.result()


def train_model(source: Path, work: Path, part: str, device: str, settings: Sequence[str] = ("seed=0",)) -> None:
    """Train WORK/models/PART-0 with the settings of `hiero-k400` on the training recordings, unless it exists."""
    out = work / "models" / f"{part}-0"
    if (out / "config.json").is_file():
        return
    data = open_data(source, part)
    names = data.parts["train"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = {recording: data.annotations[recording]["steps"] for recording in names}
        write_training_files(folder, {recording: data.all_features[recording] for recording in names}, steps, "k400")
        print(f"training {out} on {len(names)} recordings", flush=True)
        options = TrainOptions(validation_share=0.0, device=device)
        train_from_files(folder / "store", folder / "narrations.csv", out, settings=settings, options=options)


def summarise(cells: list[dict]) -> dict[str, dict[int, np.ndarray]]:
    """Mean and deviation over recipes of each metric, (2, 3), by method and number, of draws that all methods have."""
    methods = {cell["method"] for cell in cells}
    draws = set.intersection(*({cell["draw"] for cell in cells if cell["method"] == method} for method in methods))
    scores: dict[tuple[str, int], dict[str, list[list[float]]]] = {}
    for cell in cells:
        if cell["draw"] in draws:
            by_recipe = scores.setdefault((cell["method"], cell["num"]), {})
            by_recipe.setdefault(cell["recipe"], []).append(cell["scores"])
    out: dict[str, dict[int, np.ndarray]] = {}
    for (method, num), by_recipe in scores.items():
        means = np.array([np.mean(rows, axis=0) for rows in by_recipe.values()])
        out.setdefault(method, {})[num] = 100 * np.stack([means.mean(0), means.std(0)])
    return out


def print_table(cells: list[dict]) -> None:
    summary = summarise(cells)
    for column, metric in enumerate(METRICS):
        print(f"\n| {metric} | " + " | ".join(f"{num} corrected" for num in NUMBERS) + " |")
        print("|---" * (1 + len(NUMBERS)) + "|")
        for method, rows in summary.items():
            values = [rows[num][:, column] if num in rows else None for num in NUMBERS]
            text = [f"{value[0]:.1f} ± {value[1]:.1f}" if value is not None else "" for value in values]
            print(f"| {METHODS[method]} | {' | '.join(text)} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/adaptation"))
    parser.add_argument("--part", choices=["dev", "test"], default="test")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--numbers", nargs="+", type=int, default=list(NUMBERS), help="of corrected recordings")
    parser.add_argument("--draws", type=int, default=2, help="of recordings, for each recipe and number")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0 computes in this one")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args(arguments)
    args.work.mkdir(parents=True, exist_ok=True)
    train_model(args.source, args.work, args.part, args.device)
    print_table(run_cells(args))


if __name__ == "__main__":
    main()
