"""How good is a model on recipes that it never saw? Six folds over the recipes of CaptainCook4D.

    python -m benchmarks.captaincook4d prepare WORK
    python -m benchmarks.cross_validation train WORK [--jobs 12] [--device cuda]    the models of all folds
    python -m benchmarks.cross_validation table WORK        a step's text finds it in the recording
    python -m benchmarks.cross_validation number WORK       F1 of steps, with the true number and the default one
    python -m benchmarks.cross_validation labels WORK       mean mAP of localization with all step texts
    python -m benchmarks.cross_validation corrected WORK    after 1 or 4 corrected recordings of the recipe
    python -m benchmarks.cross_validation same-step WORK    the same step in other recordings
    python -m benchmarks.cross_validation one WORK --variants small --fold -1     a model trained on all recipes
    python -m benchmarks.cross_validation join WORK --variants text-noise-1 small radius-5 -o MODEL

For Omnivore: `--kinds omnivore-b --variants long-text-noise-1`. The 19 recipes are dealt into six folds.
The model of a fold is trained without its recipes ("unseen") and without one recording in seven of the
others ("known"). Variants joined by + are an ensemble: their similarities are averaged and their nodes
concatenated. ± is the deviation over folds; intervals hold 95 % of what other recordings (same-step) or
recipes (corrected) would give.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.captaincook4d_data import CLOCK, KINDS, read_annotations, restrict_input, share, unpack
from benchmarks.jobs import run_modules
from benchmarks.scores import MIN_IOU, fit_logistic, percent, segmental_f1, share_of_time
from hiero import HiERO, embed_features, load, load_model
from hiero.corpus.adaptation import learn_from_videos
from hiero.engine import Video
from hiero.engine.vocabulary import class_names
from hiero.evaluation.metrics import Detections, grounding_recall, interval_iou, procedure_scores
from hiero.evaluation.tasks import localization_row
from hiero.features.stores import FeatureStore
from hiero.model.ensemble import HieroEnsemble
from hiero.model.hiero import write_model_folder
from hiero.networks.text_encoders import encode_texts
from hiero.steps.clustering import finch
from hiero.steps.correspondence import JOINED_STEP_WEIGHT, centre_steps, correspondence, join_features
from hiero.steps.grounding import candidate_spans, rank_spans
from hiero.steps.hierarchy import default_step_counts
from hiero.steps.recipes import align_in_order, log_lift
from hiero.steps.segmentation import NODE_LENGTH_PRIOR, cut_steps, label_runs, step_labels
from hiero.steps.similarity import detect_labels, label_probabilities
from hiero.storage.checkpoints import quantise
from hiero.storage.files import load_tensors, save_tensors
from hiero.training.from_files import TrainOptions, train_from_files
from hiero.types import AnnotatedStep, Step
from hiero.vectors import unit_vectors

NUM_FOLDS = 6
KNOWN_SHARE = 1 / 7
PARTS = ("known", "unseen")
# Settings of `hiero train`
SETTINGS = {
    "base": [],
    "text-noise-1": ["text_noise=1.0"],
    "radius-5": ["model.radius_s=5.0"],
    "small": ["model.hidden_size=256", "model.embedding_size=128"],
}
LONG = ["noise=1.0", "epochs=60"]  # as hiero-omnivore-b is trained
VARIANTS = SETTINGS | {("long" if name == "base" else f"long-{name}"): [*own, *LONG] for name, own in SETTINGS.items()}
# Of `join`: size of the joint space, and the recordings and nodes that its projection is fitted to
EMBEDDING_SIZE, RECORDING_STEP, NODE_STEP = 256, 4, 3
NUM_THREADS, MIN_NODES = 16, 3  # of TW-FINCH, as in `hiero eval own`
NUM_CORRECTED, MAX_SCORED = (1, 4), 6
NUM_FITTED = 20  # hits of each step that the probability of `--like` is fitted to
NUM_DRAWS = 100  # of the bootstrap of localization


def deal_folds(annotations: dict) -> dict[str, int]:
    """Fold of each recipe."""
    recipes = sorted({entry["recipe"] for entry in annotations.values()}, key=lambda recipe: share("fold " + recipe))
    return {recipe: i % NUM_FOLDS for i, recipe in enumerate(recipes)}


def split_fold(annotations: dict, recordings: list[str], fold: int) -> dict[str, list[str]]:
    """Recordings for training, and known and unseen ones for tests; fold −1 leaves nothing out."""
    folds = deal_folds(annotations)
    out: dict[str, list[str]] = {"train": [], "known": [], "unseen": []}
    for recording in sorted(recordings):
        if folds[annotations[recording]["recipe"]] == fold:
            out["unseen"].append(recording)
        else:
            out["known" if fold >= 0 and share("fold " + recording) < KNOWN_SHARE else "train"].append(recording)
    return out


# Training


def train_all(work: Path, args: argparse.Namespace) -> None:
    """Train the missing models, each in a process of its own."""
    for kind in args.kinds:
        unpack(work, kind)
    run = ["benchmarks.cross_validation", "one", str(work), "--device", args.device]
    commands = [
        [*run, "--kinds", kind, "--variants", variant, "--seed", str(seed), "--fold", str(fold)]
        for variant in args.variants
        for seed in range(args.seeds)
        for kind in args.kinds
        for fold in range(NUM_FOLDS)
        if not (work / "folds" / kind / variant / str(seed) / f"model{fold}" / "config.json").is_file()
    ]
    run_modules(commands, args.jobs)


def train_fold(work: Path, kind: str, variant: str, seed: int, fold: int, device: str) -> None:
    """Train without the recipes of a fold."""
    store = FeatureStore(work / kind / "store")
    trained = split_fold(read_annotations(work), list(store), fold)["train"]
    out = work / "folds" / kind / variant / str(seed)
    out.mkdir(parents=True, exist_ok=True)
    skip = out / f"{fold}.txt"
    skip.write_text("\n".join(recording for recording in store if recording not in trained))
    train_from_files(
        work / kind / "store",
        work / kind / "narrations.csv",
        out / f"model{fold}",
        settings=[*VARIANTS[variant], f"seed={seed}"],
        options=TrainOptions(device=device, validation_share=0.0, skip=skip, capture=False, text_cache=work / "text"),
    )
    if kind == "omnivore-b":
        file = out / f"model{fold}" / "model.safetensors"
        save_tensors(file, restrict_input(load_tensors(file), load_tensors(work / f"{kind}.safetensors")["basis"]))
    print(f"{out / f'model{fold}'}: trained on {len(trained)} recordings", flush=True)


def join(work: Path, kind: str, variants: list[str], out: Path) -> None:
    """Average the networks of some variants, trained on all recipes, in one model with weights in 8 bits."""
    folders = [work / "folds" / kind / variant / "0" / "model-1" for variant in variants]
    networks = [HiERO.from_pretrained(folder) for folder in folders]
    ensemble = HieroEnsemble([network.config for network in networks], EMBEDDING_SIZE)
    for member, network in zip(ensemble.members, networks, strict=True):
        member.load_state_dict(network.state_dict())
    ensemble.eval()
    store, annotations = FeatureStore(work / kind / "store"), read_annotations(work)
    texts = sorted({step["text"] for entry in annotations.values() for step in entry["steps"]} | set(class_names()))
    with torch.inference_mode():
        vectors = encode_texts(texts, cache=work / "text").float()
        rows = [torch.cat([network.embed_text(vectors) for network in networks], dim=1)]
        for recording in list(store)[::RECORDING_STEP]:
            levels = ensemble(store.read(recording)[None], spacing_s=CLOCK.spacing_s)
            parts = levels[0].features[0].split([network.config.hidden_size for network in networks], dim=-1)
            embedded = [network.embed_video(part) for network, part in zip(networks, parts, strict=True)]
            rows.append(torch.cat(embedded, dim=1)[::NODE_STEP])
        ensemble.fit_projection(torch.cat(rows))
    settings = [json.loads((folder / "config.json").read_text()) for folder in folders]
    extra = {"text_encoder": settings[0]["text_encoder"], "training": [values["training"] for values in settings]}
    extra["networks"] = [network.config.to_dict() for network in networks]
    write_model_folder(out, ensemble.config, quantise(ensemble.state_dict()), extra)
    print(f"{out}: {sum(p.numel() for p in ensemble.parameters()) / 1e6:.1f} M parameters, {len(networks)} networks")


# The models of all folds and what they say about recordings


class Folds:
    """Recordings, read with the model of each fold."""

    def __init__(self, work: Path, kind: str, variant: str, seed: int = 0) -> None:
        self.folder = work / "folds" / kind / variant / str(seed)
        self.text_cache = work / "text"
        self.annotations = read_annotations(work)
        self.store = FeatureStore(work / kind / "store")
        self.recordings = sorted(self.store)
        self.features = cache(lambda name: self.store.read(name).float().numpy())
        self.model = cache(lambda fold: load_model(self.folder / f"model{fold}"))
        self.engine = cache(lambda fold: load(self.folder / f"model{fold}", device="cpu"))
        self.video = cache(lambda fold, name: self.engine(fold).read_array(self.features(name), CLOCK, name))

    def held_out(self, part: str) -> Iterator[tuple[int, str]]:
        """Each fold with each of its recordings of a part."""
        for fold in range(NUM_FOLDS):
            for name in split_fold(self.annotations, self.recordings, fold)[part]:
                yield fold, name

    def recipe(self, name: str) -> str:
        return str(self.annotations[name]["recipe"])

    def steps(self, name: str) -> list[AnnotatedStep]:
        """The annotated steps in time order, as far as the features reach."""
        rows = sorted(self.annotations[name]["steps"], key=lambda row: (row["start_s"], row["end_s"]))
        length_s = len(self.features(name))
        return [AnnotatedStep(r["start_s"], r["end_s"], r["text"]) for r in rows if r["start_s"] < length_s]

    def step_texts(self, names: Sequence[str]) -> list[str]:
        return sorted({step.text for name in names for step in self.steps(name)})

    @torch.no_grad()
    def compare(self, fold: int, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Nodes (T, D), and their cosines with the texts of the recording's steps, (Q, T)."""
        model = self.model(fold)
        nodes = F.normalize(embed_features(model, self.store.read(name), CLOCK, [0])["projected0"], dim=-1)
        texts = encode_texts([step.text for step in self.steps(name)], cache=self.text_cache).float()
        return nodes.numpy(), (model.embed_text(texts) @ nodes.mT).numpy()


# Finding a step by its text; cutting


def true_spans(steps: Sequence[AnnotatedStep]) -> np.ndarray:
    return np.array([[step.start_s, step.end_s] for step in steps])


def score_grounding(
    steps: Sequence[AnnotatedStep], similarity: np.ndarray, spans: np.ndarray, nodes: np.ndarray
) -> list[float]:
    """R1@.3, R5@.3, R1@.5, R5@.5; and with all texts placed in order R1@.3 and the share of time that is right."""
    ranked = [spans[i] * CLOCK.spacing_s for i, _ in rank_spans(similarity, spans, CLOCK.spacing_s)]
    ordered = np.array(align_in_order(log_lift(similarity), nodes, CLOCK.spacing_s), dtype=float)[:, None]
    truth = true_spans(steps)
    in_order = grounding_recall(list(ordered), truth)[0, 0], share_of_time(ordered[:, 0], truth)
    return [*grounding_recall(ranked, truth).flatten(), *in_order]


def score_steps(
    nodes: np.ndarray, steps: Sequence[AnnotatedStep], num: int | None = None, equal_parts: bool = False
) -> tuple[float, float]:
    """F1 and IoU of contiguous steps, without the background.

    Args:
        nodes: (T, D), one per second.
        steps: The true steps.
        num: Number of steps; defaults to the true one.
        equal_parts: Cut the time into equal parts instead.
    """
    labels = np.zeros(len(nodes), dtype=int)
    names = {step.text: i for i, step in enumerate(steps, start=1)}
    for step in steps:
        labels[round(step.start_s) : round(step.end_s)] = names[step.text]
    used = labels > 0
    truth = labels[used]
    num = num or len(set(truth.tolist()))
    equal = np.arange(len(truth)) * num // len(truth)
    cut = equal if equal_parts else step_labels(cut_steps(nodes[used], num, length_prior=NODE_LENGTH_PRIOR))
    scores = procedure_scores(cut, truth)
    return scores.f1, scores.iou


def print_table(work: Path, kind: str, variants: list[str]) -> None:
    """Recall, steps in order and F1: means over steps or recordings, and the deviation of the folds' means."""
    print("| | | R1@.3 | R5@.3 | R1@.5 | R5@.5 | in order R1@.3 | time | F1 | IoU | recordings |\n" + "|---" * 11 + "|")
    for variant in variants:
        members = [Folds(work, kind, name) for name in variant.split("+")]
        for part in PARTS:
            rows, folds = [], []
            for fold, name in members[0].held_out(part):
                steps = members[0].steps(name)
                nodes, similarity = zip(*(member.compare(fold, name) for member in members), strict=True)
                spans = candidate_spans(nodes[0], CLOCK.spacing_s, NODE_LENGTH_PRIOR)
                joined = np.concatenate(nodes, axis=1)
                grounding = score_grounding(steps, np.mean(similarity, axis=0), spans, unit_vectors(joined))
                rows.append([*grounding, *score_steps(joined, steps), len(steps)])
                folds.append(fold)
            values, where = np.array(rows), np.array(folds)
            weights = np.where(np.arange(8) < 5, values[:, 8:], 1.0)  # recall counts steps, F1 recordings
            chosen = [np.full(len(where), True), *(where == fold for fold in sorted(set(folds)))]
            mean, *by_fold = (np.average(values[c, :8], axis=0, weights=weights[c]) for c in chosen)
            cells = [f"{100 * m:.1f} ± {100 * d:.1f}" for m, d in zip(mean, np.std(by_fold, axis=0), strict=True)]
            print(f"| {variant} | {part} | {' | '.join(cells)} | {len(rows)} |", flush=True)


def print_number(folds: Folds, _: argparse.Namespace) -> None:
    """F1 and IoU of contiguous steps, with the true number and with one step per minute."""
    print("| | number of steps | F1 | IoU | equal parts: F1 | IoU | recordings |\n" + "|---" * 7 + "|")
    for part in PARTS:
        scores: dict[str, list[list[float]]] = {"true": [], "one per minute (`hiero steps`)": []}
        for fold, name in folds.held_out(part):
            nodes, steps = folds.compare(fold, name)[0], folds.steps(name)
            for row, num in zip(scores.values(), (None, default_step_counts(len(nodes), len(nodes))[-1]), strict=True):
                row.append([*score_steps(nodes, steps, num), *score_steps(nodes, steps, num, equal_parts=True)])
        for way, rows in scores.items():
            cells = " | ".join(f"{100 * value:.1f}" for value in np.mean(rows, axis=0))
            print(f"| {part} | {way} | {cells} | {len(rows)} |", flush=True)


# Localization without corrections


def label_spans(similarity: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spans, the best label of each and its probability."""
    probabilities = label_probabilities(similarity, spans)
    return spans, probabilities.argmax(1), probabilities.max(1)


DETECTORS: dict[str, Callable[[Video, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]] = {
    "best spans of each label": lambda video, similarity: detect_labels(
        similarity, video.sight.spans, video.clock.spacing_s
    ),
    "a label for each step of `hiero steps`": lambda video, similarity: label_spans(
        similarity, video.sight.level_spans(video.steps(labels=[]).levels[-1])
    ),
    "TW-FINCH on the nodes": lambda video, similarity: label_spans(
        similarity, label_runs(finch(video.nodes, NUM_THREADS), MIN_NODES)
    ),
}


def print_labels(folds: Folds, _: argparse.Namespace) -> None:
    """Mean mAP of each way to find spans; a label in two folds counts as two labels."""
    rows: dict[str, list[str]] = {name: [] for name in DETECTORS}
    for part in PARTS:
        held_out = list(folds.held_out(part))
        truth: list[Detections] = []
        found: dict[str, list[Detections]] = {name: [] for name in DETECTORS}
        num_labels = 0
        for fold in range(NUM_FOLDS):
            names = [name for each, name in held_out if each == fold]
            texts = folds.step_texts(names)
            for name in names:
                video, steps = folds.video(fold, name), folds.steps(name)
                numbers = np.array([texts.index(step.text) for step in steps])
                truth.append(Detections(true_spans(steps), num_labels + numbers, np.zeros(len(steps))))
                similarity = video.sight.similarity(texts)
                for way, detect in DETECTORS.items():
                    spans, labels, scores = detect(video, similarity)
                    found[way].append(Detections(spans.astype(float), num_labels + labels, scores))
            num_labels += len(texts)
        for way, detections in found.items():
            row = localization_row(way, truth, detections, NUM_DRAWS)
            low, high = row.intervals["mean"]
            rows[way].append(f"{row.scores['mean']:.1f} ({low:.1f}-{high:.1f})")
    print("| mean mAP | " + " | ".join(PARTS) + " |\n|---|---|---|")
    for way, cells in rows.items():
        print(f"| {way} | {' | '.join(cells)} |")


# After corrections


def score_corrected(video: Video, steps: list[AnnotatedStep], texts: list[str]) -> list[float]:
    """Share of true steps with the right name; R1@.3 of their texts; F1 of steps with the right name."""
    given = [Step(str(i), step.start_s, step.end_s, 0, origin="person") for i, step in enumerate(steps)]
    names = [best[0][0] for best in video.likely_labels(given, texts, num=1)]
    first = {text: answer.matches[0] for text, answer in zip(texts, video.ask(texts, num=1), strict=True)}
    found = np.array([[first[step.text].start_s, first[step.text].end_s] for step in steps])
    hits = [interval_iou(span[None], true)[0] > MIN_IOU for span, true in zip(found, true_spans(steps), strict=True)]
    named = [(step.start_s, step.end_s, step.label) for step in video.label(texts) if step.label]
    right = [name == step.text for name, step in zip(names, steps, strict=True)]
    return [float(np.mean(right)), float(np.mean(hits)), segmental_f1(named, steps)]


def print_corrected(folds: Folds, args: argparse.Namespace) -> None:
    """Names, R1@.3 and F1 on other recordings of an unseen recipe, without corrections and with some."""
    rows: dict[tuple[str, int], list[tuple[str, list[float]]]] = {}
    for recipe, fold in sorted(deal_folds(folds.annotations).items()):
        names = [name for name in folds.recordings if folds.recipe(name) == recipe]
        texts = folds.step_texts(names)
        for num in [num for num in NUM_CORRECTED if num < len(names)]:
            for draw in range(args.draws):
                order = random.Random(f"{recipe} {draw}").sample(names, len(names))
                learned = learn_from_videos([(folds.video(fold, name), folds.steps(name)) for name in order[:num]])
                for method, prototypes in (("no adaptation", None), ("prototypes (`hiero adapt`)", learned)):
                    folds.engine(fold).prototypes = prototypes
                    for name in order[num:][-MAX_SCORED:]:
                        score = score_corrected(folds.video(fold, name), folds.steps(name), texts)
                        rows.setdefault((method, num), []).append((recipe, score))
                folds.engine(fold).prototypes = None
        print(f"{recipe}: {len(names)} recordings", flush=True)
    metrics = ("names", "R1@.3", "F1")
    print("\n| corrected recordings | | " + " | ".join(metrics) + " |\n" + "|---" * 5 + "|")
    for (method, num), scored in rows.items():
        recipes = sorted({recipe for recipe, _ in scored})
        means = [np.mean([score for other, score in scored if other == recipe], axis=0) for recipe in recipes]
        print(f"| {num} | {method} | {' | '.join(percent(column) for column in np.transpose(means))} |", flush=True)


# The same step in other recordings

Match = Callable[[np.ndarray, list[np.ndarray]], list[np.ndarray]]


def compare_one_by_one(own: np.ndarray, others: list[np.ndarray]) -> list[np.ndarray]:
    return [centre_steps(own) @ centre_steps(other).T for other in others]


def compare_joined_in_order(own: np.ndarray, others: list[np.ndarray]) -> list[np.ndarray]:
    return correspondence(own, others, step_weight=JOINED_STEP_WEIGHT)


WAYS: dict[str, tuple[str, Match]] = {
    "the model's vectors": ("model", compare_one_by_one),
    "features of the backbone": ("backbone", compare_one_by_one),
    "both": ("both", lambda own, others: [own @ other.T for other in others]),
    "the model's vectors, in order": ("model", correspondence),
    "both, in order (`hiero search --like`)": ("both", compare_joined_in_order),
}


@cache
def step_vectors(folds: Folds, fold: int, name: str) -> dict[str, np.ndarray]:
    """Vectors of the annotated steps of a recording, (n, D) each."""
    video = folds.video(fold, name)
    spans = np.array([CLOCK.span(step.start_s, step.end_s, len(video.nodes)) for step in folds.steps(name)])
    model, backbone = video.sight.embed_spans(spans), video.sight.average_features(spans)
    assert backbone is not None
    return {"model": model, "backbone": backbone, "both": join_features(model, backbone)}


def rank_steps(
    folds: Folds, part: str, way: str, all_recipes: bool = False
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """For each step of a part: its recording, and scores and truth of the steps of other recordings, best first."""
    vectors, match = WAYS[way]
    for fold, name in folds.held_out(part):
        others = [
            other
            for other in folds.recordings
            if other != name and (all_recipes or folds.recipe(other) == folds.recipe(name))
        ]
        if not others:
            continue
        texts = np.array([step.text for other in others for step in folds.steps(other)])
        other_vectors = [step_vectors(folds, fold, other)[vectors] for other in others]
        scores = np.concatenate(match(step_vectors(folds, fold, name)[vectors], other_vectors), axis=1)
        for step, row in zip(folds.steps(name), scores, strict=True):
            order = np.argsort(-row, kind="stable")
            yield name, row[order], texts[order] == step.text


def print_same_step(folds: Folds, _: argparse.Namespace) -> None:
    """R@1 and R@5 of each way to compare steps, and the constants of the probability of `--like`."""
    print("| | " + " | ".join(f"{part} R@1 | R@5" for part in PARTS) + " |\n" + "|---" * 5 + "|")
    for way in WAYS:
        cells = []
        for part in PARTS:
            ranked = [(name, right) for name, _, right in rank_steps(folds, part, way) if right.any()]
            owners = [name for name, _ in ranked]
            cells += [percent([right[:num].any() for _, right in ranked], owners) for num in (1, 5)]
        print(f"| {way} | {' | '.join(cells)} |", flush=True)
    hits = list(rank_steps(folds, "known", list(WAYS)[-1], all_recipes=True))
    scores = np.concatenate([scores[:NUM_FITTED] for _, scores, _ in hits])
    right = np.concatenate([right[:NUM_FITTED] for *_, right in hits]).astype(float)
    slope, offset = fit_logistic(scores[:, None], right, np.ones(len(right)), penalty=0.01)
    print(f"SAME_JOINED_STEP = ({slope:.2f}, {offset:.2f})")


TABLES = {
    "number": print_number,
    "labels": print_labels,
    "corrected": print_corrected,
    "same-step": print_same_step,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "one", "table", "number", "labels", "corrected", "same-step", "join"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["k400"], choices=list(KINDS))
    parser.add_argument("--variants", nargs="+", default=["text-noise-1"], help="for `table` also joined by +")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, for `train`")
    parser.add_argument("--seed", type=int, default=0, help="for `one`")
    parser.add_argument("--fold", type=int, default=0, help="for `one`; -1 trains on all recipes")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--draws", type=int, default=2, help="of corrected recordings, for `corrected`")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--out", type=Path, help="for `join`")
    args = parser.parse_args(arguments)
    if args.what == "train":
        train_all(args.work, args)
        return
    if args.what == "join":
        unpack(args.work, args.kinds[0])
        join(args.work, args.kinds[0], args.variants, args.out)
        return
    for kind in args.kinds:
        if args.what == "one":
            unpack(args.work, kind)
            train_fold(args.work, kind, args.variants[0], args.seed, args.fold, args.device)
        elif args.what == "table":
            print(f"\n{KINDS[kind]}\n")
            print_table(args.work, kind, args.variants)
        else:
            for variant in args.variants:
                print(f"\n{KINDS[kind]}, {variant}\n")
                TABLES[args.what](Folds(args.work, kind, variant), args)


if __name__ == "__main__":
    main()
