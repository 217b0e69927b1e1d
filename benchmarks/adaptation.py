"""What a few corrected recordings teach: CaptainCook4D, a recipe that the model never saw, 1, 2, 4 or
8 recordings corrected.

    python -m benchmarks.adaptation ../shared/captaincook4d --work WORK                   the curve on unseen recipes
    python -m benchmarks.adaptation ../shared/captaincook4d --work WORK --part dev   the same on recipes for development
    python -m benchmarks.adaptation ../shared/captaincook4d --work WORK --select   weights of prototypes, on the latter
    python -m benchmarks.adaptation ../shared/captaincook4d --work WORK --draw docs/adaptation.png

The model is trained without these recipes: WORK/models/PART-0, by the recipe of `hiero-k400`, and
trained now where it is missing (minutes on a GPU). `--part test` has the unseen recipes of
`benchmarks.captaincook4d`; `dev` those that its training recordings are split into once more, on
which everything was chosen. For each recipe and number some recordings are drawn and their true
steps given; the others are scored:

    labels      a true step gets the best of the recipe's step texts: share that is right
    R1@.3       the text of a step is searched in its recording: share whose first answer has an IoU above 0.3
    F1          the recording is cut and named (`hiero label`): steps of the right name with an IoU above 0.3

Means over draws, the same for all methods, then over recipes; ± is the deviation over recipes. Each cell is kept in
WORK/cells-PART.jsonl, so a run goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from benchmarks.captaincook4d_data import (
    CLOCK,
    NARRATION_SPACING_S,
    PARTS,
    expand,
    read_annotations,
    read_features,
    split,
)
from hiero.corpus.adaptation import (
    learn_from_videos,
)
from hiero.engine import Engine, Video, load
from hiero.evaluation.metrics import grounding_recall, interval_iou
from hiero.features.stores import pack
from hiero.steps.grounding import rank_spans, span_means
from hiero.steps.prototypes import PrototypeWeights, StepPrototypes
from hiero.steps.segmentation import centre_and_normalise
from hiero.storage.files import load_tensors, save_tensors
from hiero.types import AnnotatedStep

METHODS = {
    "none": "no adaptation",
    "neighbour": "nearest neighbour, raw features",
    "prototypes": "prototypes (hiero adapt)",
    "vslnet": "VSLNet, same recordings",
    "actionformer": "ActionFormer, same recordings",
}
METRICS = ("labels", "R1@.3", "F1")
NUMBERS = (1, 2, 4, 8)
MIN_IOU = 0.3
MAX_SCORED = 6  # recordings that a draw is scored on
SELECTED_ON = (1, 2, 4, 8)


class Data:
    """Recordings of unseen recipes of a part, with features and true steps."""

    def __init__(self, source: Path, work: Path, part: str) -> None:
        self.work, self.part = work, part
        prepared = source / "k400.safetensors"
        features = expand(load_tensors(prepared)) if prepared.is_file() else read_features(source, "k400")
        self.annotations = read_annotations(source)
        recordings = sorted(self.annotations)
        # of a folder with some of the recordings only, for a machine that cannot hold all
        listed = source / "unseen.json"
        self.parts = None if listed.is_file() else split(self.annotations, recordings, part)
        unseen = json.loads(listed.read_text())[part] if self.parts is None else self.parts[PARTS[1]]
        self.features = {name: features[name].numpy() for name in unseen}
        self.all_features = features
        self.recipes: dict[str, list[str]] = {}
        for name in unseen:
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


# Scores


def score_similarity(
    video: Video, texts: list[str], steps: Sequence[AnnotatedStep], similarity: np.ndarray
) -> list[float]:
    """All metrics of a recording, from the similarity of all texts with its nodes."""
    spans = np.array([CLOCK.span(step.start_s, step.end_s, len(video.nodes)) for step in steps])
    best = span_means(similarity, spans).argmax(0)
    labels = float(np.mean([texts[i] == step.text for i, step in zip(best, steps, strict=True)]))
    rows = [texts.index(step.text) for step in steps]
    ranked = rank_spans(
        similarity[rows], video.sight.spans, video.clock.spacing_s, num=1, temperature=video.sight.temperature
    )
    predicted = [video.sight.spans[i].astype(float) for i, _ in ranked]
    level = video.steps(labels=[]).levels[-1]
    cut = video.sight.level_spans(level)
    named: list[tuple[float, float, str]] = []
    for (start, end), i in zip(cut.tolist(), span_means(similarity, cut).argmax(0), strict=True):
        if named and named[-1][2] == texts[i]:
            named[-1] = (named[-1][0], end, texts[i])
        else:
            named.append((start, end, texts[i]))
    return [labels, _recall(predicted, steps), segmental_f1(named, steps)]


def segmental_f1(named: Sequence[tuple[float, float, str]], steps: Sequence[AnnotatedStep]) -> float:
    """F1 of steps found: one is right whose true step of the same name, each used once, has an IoU above MIN_IOU."""
    used: set[int] = set()
    for start_s, end_s, text in named:
        ious = [
            (float(interval_iou(np.array([[start_s, end_s]]), np.array([step.start_s, step.end_s]))[0]), i)
            for i, step in enumerate(steps)
            if step.text == text and i not in used
        ]
        if ious and max(ious)[0] > MIN_IOU:
            used.add(max(ious)[1])
    return 2 * len(used) / (len(named) + len(steps))


def _recall(predicted: Sequence[np.ndarray], steps: Sequence[AnnotatedStep]) -> float:
    truth = np.array([[step.start_s, step.end_s] for step in steps])
    return float(grounding_recall([np.reshape(span, (-1, 2)) for span in predicted], truth)[0, 0])


# Methods: each takes the data, a recipe, recordings to learn from and recordings to score


def read_videos(data: Data, engine: Engine, recordings: Iterable[str]) -> dict[str, Video]:
    return {name: engine.read_array(data.features[name], CLOCK, name) for name in recordings}


@cache
def base_engine(folder: Path) -> Engine:
    return load(folder, device="cpu")


@cache
def base_video(data: Data, folder: Path, recording: str) -> Video:
    return read_videos(data, base_engine(folder), [recording])[recording]


def score_engine(
    data: Data,
    folder: Path,
    recipe: str,
    learn: Sequence[str],
    score: Sequence[str],
    teach: bool,
    weights: PrototypeWeights | None = None,
) -> list[float]:
    """A model, with prototypes of the corrected recordings or without."""
    texts = data.texts(recipe)
    prototypes: StepPrototypes | None = None
    if teach:
        prototypes = learn_from_videos([(base_video(data, folder, name), data.steps(name)) for name in learn])
    rows = []
    for name in score:
        video = base_video(data, folder, name)
        video.engine.prototypes = None
        similarity = video.sight.cached_similarity(texts)
        if prototypes is not None:
            similarity = similarity.copy()
            names = {text: i for i, text in enumerate(prototypes.labels)}
            known = [(row, names[text]) for row, text in enumerate(texts) if text in names]
            similarity[[row for row, _ in known]] += prototypes.similarity(
                [i for _, i in known], video.sight.views, weights
            )
        rows.append(score_similarity(video, texts, data.steps(name), similarity))
    return np.mean(rows, axis=0).tolist()


def score_neighbour(data: Data, recipe: str, learn: Sequence[str], score: Sequence[str]) -> list[float]:
    """Raw features, centred: as similar to a text as to the most similar second that was labelled with it."""
    texts = data.texts(recipe)
    raw = load("raw", device="cpu")
    memory: dict[str, list[np.ndarray]] = {}
    for name in learn:
        rows = centre_and_normalise(data.features[name].astype(np.float32))
        for step in data.steps(name):
            start, end = CLOCK.span(step.start_s, step.end_s, len(rows))
            memory.setdefault(step.text, []).append(rows[start:end])
    results = []
    for name in score:
        rows = centre_and_normalise(data.features[name].astype(np.float32))
        similarity = np.full((len(texts), len(rows)), -1.0, np.float32)
        for i, text in enumerate(texts):
            if text in memory:
                similarity[i] = (rows @ np.concatenate(memory[text]).T).max(1)
        video = raw.read_array(rows, CLOCK, name)
        results.append(score_similarity(video, texts, data.steps(name), similarity))
    return np.mean(results, axis=0).tolist()


def score_head(
    data: Data, folder: Path, kind: str, recipe: str, learn: Sequence[str], score: Sequence[str], device: str
) -> list[float | None]:
    """A supervised head on HiERO's features, trained on the corrected recordings alone."""
    from hiero.evaluation.heads.clips import read_clips
    from hiero.evaluation.heads.head import load_trained_head
    from hiero.evaluation.heads.scoring import predict_detections, predict_spans
    from hiero.evaluation.heads.token_embeddings import TokenEmbeddings
    from hiero.evaluation.heads.training import train_head
    from hiero.training.loop import RunOptions

    engine = base_engine(folder)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "features").mkdir()
        for recording in (*learn, *score):
            np.save(work / "features" / f"{recording}.npy", engine.enrich(data.features[recording], CLOCK, 0))
        document = {r: {"steps": [vars(step) for step in data.steps(r)]} for r in (*learn, *score)}
        (work / "annotations.json").write_text(json.dumps(document))
        clips = {
            part: read_clips(work / "features", work / "annotations.json", CLOCK, only=names)
            for part, names in (("learn", learn), ("score", score))
        }
        embeddings = TokenEmbeddings([text for recipe in data.recipes for text in data.texts(recipe)])
        # As many updates as in the presets with some dozens of recordings.
        settings = ["epochs=100"] if kind == "vslnet" else ["epochs=80", "warmup_epochs=10"]
        train_head(
            kind,
            clips["learn"],
            work / "head",
            settings=settings,
            embeddings=embeddings,
            options=RunOptions(device=device),
        )
        head = load_trained_head(work / "head", device)
        if kind == "vslnet":
            predicted, truth, owner = predict_spans(head, clips["score"], embeddings)
            hits = np.array(
                [
                    float(grounding_recall([spans[:1]], true[None])[0, 0])
                    for spans, true in zip(predicted, truth, strict=True)
                ]
            )
            return [None, float(np.mean([hits[owner == i].mean() for i in range(len(clips["score"]))])), None]
        rows = []
        for truth_row, detections, clip in zip(
            *predict_detections(head, clips["score"]), clips["score"].clips, strict=True
        ):
            rows.append(_score_detections(truth_row, detections, len(clip.truth)))
        return np.mean(rows, axis=0).tolist()


def _score_detections(truth: object, detections: object, num: int) -> list[float]:
    """Detections: the label of a true step is that of the best one around it; a text's answer is the
    best one of its label.
    """
    spans, labels, scores = detections.spans, detections.labels, detections.scores  # type: ignore[attr-defined]
    right, hits = [], []
    for span, label in zip(truth.spans, truth.labels, strict=True):  # type: ignore[attr-defined]
        overlap = interval_iou(spans, span) * scores if len(spans) else np.zeros(0)
        right.append(len(spans) > 0 and overlap.max() > 0 and labels[overlap.argmax()] == label)
        own = np.flatnonzero(labels == label)
        hits.append(len(own) > 0 and float(interval_iou(spans[own[scores[own].argmax()]][None], span)[0]) > MIN_IOU)
    best = [own[scores[own].argmax()] for label in np.unique(labels) for own in [np.flatnonzero(labels == label)]]
    steps = [AnnotatedStep(*span, str(label)) for span, label in zip(truth.spans, truth.labels, strict=True)]  # type: ignore[attr-defined]
    named = [(*spans[i], str(labels[i])) for i in best]
    return [float(np.mean(right)), float(np.mean(hits)), segmental_f1(named, steps)]


# Cells


@cache
def open_data(source: Path, work: Path, part: str) -> Data:
    return Data(source, work, part)


def compute_cell(
    source: Path, work: Path, part: str, method: str, recipe: str, num: int, number: int, device: str
) -> dict:
    """Scores of one method for one draw."""
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    data, folder = open_data(source, work, part), work / "models" / f"{part}-0"
    learn, score = data.draw(recipe, num, number)
    runs: dict[str, Callable[[], list]] = {
        "none": lambda: score_engine(data, folder, recipe, [], score, False),
        "neighbour": lambda: score_neighbour(data, recipe, learn, score),
        "prototypes": lambda: score_engine(data, folder, recipe, learn, score, True),
        "vslnet": lambda: score_head(data, folder, "vslnet", recipe, learn, score, device),
        "actionformer": lambda: score_head(data, folder, "actionformer", recipe, learn, score, device),
    }
    return {"method": method, "recipe": recipe, "num": num, "draw": number, "scores": runs[method]()}


def run_cells(args: argparse.Namespace) -> list[dict]:
    """Compute the cells that are not there yet, and return all."""
    data = open_data(args.source, args.work, args.part)
    file = args.work / f"cells-{args.part}.jsonl"
    cells = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    done = {(cell["method"], cell["recipe"], cell["num"], cell["draw"]) for cell in cells}
    todo = [
        (method, recipe, num, number)
        for number, method, num, recipe in product(range(args.draws), args.methods, args.numbers, data.recipes)
        if num < len(data.recipes[recipe])
        and (method, recipe, num, number) not in done
        and (number < args.slow_draws or method in ("none", "neighbour", "prototypes"))
    ]
    with file.open("a") as out:
        arguments = [(args.source, args.work, args.part, *cell, args.device) for cell in todo]
        for cell in _compute_cells(arguments, args.jobs):
            cells.append(cell)
            out.write(json.dumps(cell) + "\n")
            out.flush()
            print(cell, flush=True)
    return cells


def _compute_cells(arguments: list[tuple], jobs: int) -> Iterator[dict]:
    """Cells as they are done: in this process, or in several."""
    if jobs < 1:
        yield from (compute_cell(*values) for values in arguments)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(compute_cell, *values) for values in arguments]):
            yield future.result()


def select(args: argparse.Namespace) -> None:
    """Weights of prototypes on recipes for development: mean of labels and R1@.3 over recipes, draws and numbers."""
    data, folder = open_data(args.source, args.work, "dev"), args.work / "models" / "dev-0"
    grid = list(product((0.0, 0.25, 0.5, 1.0, 2.0), (0.0, 0.1, 0.2, 0.4), (0.0, 0.05, 0.1, 0.2)))
    context = get_context("spawn")
    with ProcessPoolExecutor(args.jobs, mp_context=context) as pool:
        jobs = {
            values: pool.submit(_score_weights, data.part, args.source, args.work, folder, values, args.draws)
            for values in grid
        }
        results = {values: job.result() for values, job in jobs.items()}
    for values, scores in sorted(results.items(), key=lambda item: -np.mean(item[1])):
        print(
            f"prototype {values[0]:g} readout {values[1]:g} position {values[2]:g}:",
            np.round(100 * np.array(scores), 1).tolist(),
        )


def _score_weights(
    part: str, source: Path, work: Path, folder: Path, values: tuple[float, float, float], draws: int
) -> list[list[float]]:
    torch.set_num_threads(1)
    data = open_data(source, work, part)
    rows = []
    for num in SELECTED_ON:
        scores = [
            score_engine(data, folder, recipe, *data.draw(recipe, num, number), True, PrototypeWeights(*values))
            for recipe in data.recipes
            if num < len(data.recipes[recipe])
            for number in range(draws)
        ]
        rows.append(np.mean(scores, axis=0).tolist())
    return rows


def train_model(source: Path, work: Path, part: str, device: str, settings: Sequence[str] = ("seed=0",)) -> None:
    """The recipe of `hiero-k400` without the recordings that are not for training; WORK/models/PART-0."""
    from hiero.training.from_files import TrainOptions, train_from_files

    out = work / "models" / f"{part}-0"
    if (out / "config.json").is_file():
        return
    data = open_data(source, work, part)
    assert data.parts is not None
    names = data.parts["train"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for recording in names:
            save_tensors(folder / "features" / f"{recording}.safetensors", {"features": data.all_features[recording]})
        pack(folder / "features", folder / "store", backbone="k400", clock=CLOCK, window=1)
        lines = ["video,time_s,text"]
        for recording in names:
            for step in data.annotations[recording]["steps"]:
                num = max(1, round((step["end_s"] - step["start_s"]) / NARRATION_SPACING_S))
                text = json.dumps(step["text"], ensure_ascii=False).replace('\\"', '""')
                lines += [
                    f"{recording},{step['start_s'] + (i + 0.5) / num * (step['end_s'] - step['start_s']):.2f},{text}"
                    for i in range(num)
                ]
        (folder / "narrations.csv").write_text("\n".join(lines) + "\n")
        print(f"training {out} on {len(names)} recordings", flush=True)
        train_from_files(
            folder / "store",
            folder / "narrations.csv",
            out,
            settings=settings,
            options=TrainOptions(validation_share=0.0, device=device),
        )


def summarise(cells: list[dict]) -> dict[str, dict[int, np.ndarray]]:
    """For each method and number: mean and deviation over recipes of each metric, (2, 3); of draws
    that all methods have.
    """
    methods = {cell["method"] for cell in cells}
    shared = [{cell["draw"] for cell in cells if cell["method"] == method} for method in methods]
    draws = set.intersection(*shared) if shared else set()
    cells = [cell for cell in cells if cell["draw"] in draws]
    out: dict[str, dict[int, np.ndarray]] = {}
    for method in METHODS:
        for num in NUMBERS:
            by_recipe: dict[str, list[list[float]]] = {}
            for cell in cells:
                if cell["method"] == method and cell["num"] == num:
                    by_recipe.setdefault(cell["recipe"], []).append(
                        [np.nan if v is None else v for v in cell["scores"]]
                    )
            if by_recipe:
                means = np.array([np.mean(rows, axis=0) for rows in by_recipe.values()])
                out.setdefault(method, {})[num] = 100 * np.stack([means.mean(0), means.std(0)])
    return out


def print_table(cells: list[dict]) -> None:
    summary = summarise(cells)
    for column, metric in enumerate(METRICS):
        print(
            f"\n| {metric} | "
            + " | ".join(f"{num} corrected" for num in NUMBERS)
            + " |\n|---"
            + "|---" * len(NUMBERS)
            + "|"
        )
        for method, rows in summary.items():
            values = [rows[num][:, column] if num in rows else None for num in NUMBERS]
            if any(value is not None and np.isfinite(value[0]) for value in values):
                text = [f"{value[0]:.1f} ± {value[1]:.1f}" if value is not None else "" for value in values]
                print(f"| {METHODS[method]} | {' | '.join(text)} |")


def draw(cells: list[dict], file: Path) -> None:
    """The curve of each method, a panel for each metric."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    summary = summarise(cells)
    styles = {
        "none": ("#888888", "--"),
        "neighbour": ("#b8860b", "-"),
        "prototypes": ("#0b6e4f", "-"),
        "vslnet": ("#c0392b", ":"),
        "actionformer": ("#8e44ad", ":"),
    }
    titles = {"labels": "Right name for a step, %", "R1@.3": "Step found by its text, R1@.3", "F1": "Cut and named, F1"}
    figure, axes = plt.subplots(1, len(METRICS), figsize=(11, 3.7), sharex=True)
    for column, (axis, metric) in enumerate(zip(axes, METRICS, strict=True)):
        for method, rows in summary.items():
            numbers = [num for num in NUMBERS if num in rows and np.isfinite(rows[num][0, column])]
            if numbers:
                values = [rows[num][0, column] for num in numbers]
                color, line = styles[method]
                axis.plot(
                    numbers, values, line, marker="o", markersize=4, color=color, label=METHODS[method], linewidth=1.8
                )
        axis.set_xscale("log", base=2)
        axis.set_xticks(NUMBERS, [str(num) for num in NUMBERS])
        axis.set_ylim(bottom=0)
        axis.set_title(titles[metric], fontsize=10)
        axis.set_xlabel("corrected recordings of the recipe")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False, fontsize=8.5)
    figure.tight_layout(rect=(0, 0.13, 1, 1))
    figure.savefig(file, dpi=130)
    print(f"{file}: written")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "source", type=Path, help="../shared/captaincook4d, or a folder with k400.safetensors as `prepare` leaves it"
    )
    parser.add_argument("--work", type=Path, default=Path("runs/adaptation"))
    parser.add_argument("--part", choices=["dev", "test"], default="test")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--numbers", nargs="+", type=int, default=list(NUMBERS), help="of corrected recordings")
    parser.add_argument("--draws", type=int, default=2, help="of recordings, for each recipe and number")
    parser.add_argument("--slow-draws", type=int, default=2, help="of methods that train")
    parser.add_argument("--select", action="store_true")
    parser.add_argument("--draw", type=Path, help="write the plot to this file")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0 computes in this one")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args(arguments)
    args.work.mkdir(parents=True, exist_ok=True)
    train_model(args.source, args.work, "dev" if args.select else args.part, args.device)
    if args.select:
        select(args)
        return
    cells = run_cells(args)
    print_table(cells)
    if args.draw is not None:
        draw(cells, args.draw)


if __name__ == "__main__":
    main()
