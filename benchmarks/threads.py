"""Where threads pay: real recordings of CaptainCook4D cut and interleaved, two or three at once, as people cook.

    python -m benchmarks.threads modes WORK --kind omnivore-b --model MODEL [--sequences 24] [--activities 2]
    python -m benchmarks.threads train WORK --kind omnivore-b [--seeds 2] [--jobs 16] [--device cuda]
    python -m benchmarks.threads table WORK --kind omnivore-b [--activities 3]

`modes`: one network, different threads. MODEL was trained without the test recordings
(`benchmarks.captaincook4d one --part test`); only these are interleaved, and in one sequence those
of one room where there are such, so that a room does not tell them apart. Each recording goes on
for a minute, then the next one does: steps come back. The same weights run with different threads
inside the network: none, the release's edges, those of the paper with several numbers of them (also
that which the eigenvalues suggest), the mean over three cuts, and the true activities. Of the nodes
that come out:

    activities  clusters, as many as recordings: share of nodes in the right one
    steps       F1 of clusters, as many as steps, that may come back; and of as many contiguous steps, which may not
    words       is the best span of a step's text inside that step?

Printed are means over sequences, and how each differs from no threads, with a 95 % interval
(bootstrap over sequences).

`train`: networks that learned on interleaved recordings, of the training part, in pairs and in
threes; each has its own threads and weight of L_ft. `table` scores them as they were trained, and
without threads; seeds are averaged before the bootstrap.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.captaincook4d_data import CLOCK, PARTS, read_annotations, split, unpack, write_training_files
from benchmarks.jobs import run_modules
from hiero import Behaviour, HiERO, HieroEnsemble, ModelConfig, embed_features, load_model
from hiero.evaluation.metrics import matched_accuracy, procedure_scores
from hiero.features.stores import FeatureStore
from hiero.model import unet
from hiero.model.spectral import spectral_cut
from hiero.networks.text_encoders import encode_texts
from hiero.steps.clustering import cluster
from hiero.steps.grounding import candidate_spans, rank_spans
from hiero.storage.files import write_text
from hiero.training.from_files import TrainOptions, train_from_files

TURN_S = 60  # of one recording, before the next goes on
MAX_S = 900  # of each recording
MEASURES = ("activities", "steps F1", "contiguous F1", "words")
NUM_DRAWS = 2000
SOFT_NUMBERS = (2, 4, 8)
MODES = (
    "no threads",
    "released edges",
    "K = 2",
    "K = 4",
    "K = 8",
    "as many as activities",
    "learned K",
    "mean of K = 2, 4, 8",
    "true activities",
)
# Settings of `hiero train` for networks that learn on interleaved recordings.
TRAININGS = {
    "no threads": ["model.num_threads=1", "losses.thread_weight=0.0"],
    "released edges, K = 4": [
        f"model.behaviour.{name}=true" for name in ("mixed_threads", "truncated_labels", "rounded_times")
    ],
    "K = 2, L_ft 0": ["model.num_threads=2", "losses.thread_weight=0.0"],
    "K = 2, L_ft 1": ["model.num_threads=2"],
    "K = 4, L_ft 0": ["losses.thread_weight=0.0"],
    "K = 4, L_ft 0.3": ["losses.thread_weight=0.3"],
    "K = 4, L_ft 1": [],
    "K = 4, L_ft 3": ["losses.thread_weight=3.0"],
    "K = 8, L_ft 1": ["model.num_threads=8"],
}
TRAINING_SEQUENCES = {2: 80, 3: 40}  # how many of so many recordings
TEST_SEQUENCES = {2: 24, 3: 12}
WINDOW_S = 2700.0  # a sequence is one training window


def interleave(lengths: list[int], turn: int) -> np.ndarray:
    """Recording and index of each node when recordings take turns, (T, 2); the longest ones end alone."""
    rows, positions = [], [0] * len(lengths)
    while any(position < length for position, length in zip(positions, lengths, strict=True)):
        for i, length in enumerate(lengths):
            end = min(length, positions[i] + turn)
            rows += [(i, j) for j in range(positions[i], end)]
            positions[i] = end
    return np.array(rows)


def draw_sequences(annotations: dict, recordings: list[str], num: int, size: int) -> list[list[str]]:
    """Groups of recordings of different recipes, in one room where possible."""
    rng = np.random.default_rng(0)
    out: list[list[str]] = []
    while len(out) < num:
        first = str(rng.choice(recordings))
        group = [first]
        others = [r for r in recordings if annotations[r]["environment"] == annotations[first]["environment"]]
        for recording in [*rng.permutation(others), *rng.permutation(recordings)]:
            if len(group) < size and annotations[recording]["recipe"] not in {annotations[r]["recipe"] for r in group}:
                group.append(str(recording))
        out.append(group)
    return out


@contextmanager
def given_threads(activities: np.ndarray | None) -> Iterator[None]:
    """Threads inside the network are the true activities (T,) at every level; None leaves the cut."""
    if activities is None:
        yield
        return

    def cut(x: Tensor, mask: Tensor, config: ModelConfig) -> Tensor:
        position = np.linspace(0, len(activities) - 1, x.shape[1]).round().astype(int)
        return torch.from_numpy(activities[position])[None].to(x.device)

    with mock.patch.object(unet, "cut_threads", cut):
        yield


def embed(model: HiERO | HieroEnsemble, features: Tensor, mode: str, activities: np.ndarray) -> np.ndarray:
    """Unit vectors of level 0, (T, E), with threads of a mode."""
    config, num = model.config, int(activities.max()) + 1
    if mode == "learned K":  # by the eigenvalues of the nodes' similarity, as `spectral_cut` picks it
        mode = (
            f"K = {int(spectral_cut(torch.from_numpy(embed(model, features, MODES[0], activities)), 'auto').max()) + 1}"
        )
    numbers = {"as many as activities": (num,), "true activities": (num,), "mean of K = 2, 4, 8": SOFT_NUMBERS}
    total = 0
    for num_threads in numbers.get(mode, (int(mode[4:]),) if mode.startswith("K = ") else (config.num_threads,)):
        released = Behaviour.released() if mode == "released edges" else Behaviour()
        model.configure(config.replace(num_threads=num_threads, behaviour=released))
        with given_threads(activities if mode == "true activities" else None):
            nodes = embed_features(model, features, CLOCK, [0], threads=mode != "no threads")["projected0"]
        total = total + F.normalize(nodes, dim=-1)
    model.configure(config)
    return F.normalize(total, dim=-1).numpy()


def score(nodes: np.ndarray, queries: np.ndarray | None, labels: np.ndarray, activities: np.ndarray) -> list[float]:
    """The measures of one sequence; labels (T,) number the steps from 1, 0 is background."""
    used = labels > 0
    num = len(set(labels[used].tolist()))
    come_back, contiguous = (
        procedure_scores(cluster(nodes[used], num, method), labels[used]).f1 for method in ("spectral", "contiguous")
    )
    accuracy = matched_accuracy(cluster(nodes, int(activities.max()) + 1, "spectral"), activities)
    if queries is None:
        return [accuracy, come_back, contiguous, float("nan")]
    spans = candidate_spans(nodes, CLOCK.spacing_s)
    ranked = rank_spans(queries @ nodes.T, spans, CLOCK.spacing_s)
    inside = [np.mean(labels[slice(*spans[indices[0]])] == i + 1) > 0.5 for i, (indices, _) in enumerate(ranked)]
    return [accuracy, come_back, contiguous, float(np.mean(inside))]


class Sequence(NamedTuple):
    """Interleaved recordings.

    Attributes:
        features: (T, F).
        labels: Step of each node, from 1 on, 0 between steps, (T,).
        texts: Of the steps.
        activities: Recording of each node, from 0 on, (T,).
    """

    features: Tensor
    labels: np.ndarray
    texts: list[str]
    activities: np.ndarray


def make_sequence(annotations: dict, store: FeatureStore, group: list[str]) -> Sequence:
    """The recordings of a group, taking turns."""
    recordings = [store.read(recording)[:MAX_S] for recording in group]
    rows = interleave([len(part) for part in recordings], TURN_S)
    starts = np.cumsum([0, *(len(part) for part in recordings)])
    order = starts[rows[:, 0]] + rows[:, 1]
    labels, texts = np.zeros(starts[-1], dtype=int), []
    for recording, start, end in zip(group, starts[:-1], starts[1:], strict=True):
        for step in annotations[recording]["steps"]:
            nodes = slice(start + round(step["start_s"]), min(start + round(step["end_s"]), end))
            if nodes.start < nodes.stop:
                texts.append(step["text"])
                labels[nodes] = len(texts)
    return Sequence(torch.cat(recordings)[order], labels[order], texts, rows[:, 0])


def test_sequences(work: Path, kind: str, num: int, num_activities: int) -> Iterator[Sequence]:
    """Of recordings that no model saw."""
    annotations, store = read_annotations(work), FeatureStore(work / kind / "store")
    parts = split(annotations, list(store), "test")
    for group in draw_sequences(annotations, [r for part in PARTS for r in parts[part]], num, num_activities):
        yield make_sequence(annotations, store, group)


def embed_queries(model: HiERO | HieroEnsemble, work: Path, texts: list[str]) -> np.ndarray:
    """Unit vectors of texts, (Q, E)."""
    with torch.no_grad():
        vectors = encode_texts(texts, cache=work / "text").float().to(next(model.parameters()).device)
        return model.embed_text(vectors).cpu().numpy()


def compare_modes(args: argparse.Namespace) -> None:
    """One network with different threads."""
    unpack(args.work, args.kind)
    model = load_model(args.model)
    values: dict[str, list[list[float]]] = {mode: [] for mode in (*MODES, "raw features")}
    for x in test_sequences(args.work, args.kind, args.sequences, args.activities):
        queries = embed_queries(model, args.work, x.texts)
        for mode in MODES:
            values[mode].append(score(embed(model, x.features, mode, x.activities), queries, x.labels, x.activities))
        raw = F.normalize(x.features - x.features.mean(0), dim=-1).numpy()
        values["raw features"].append(score(raw, None, x.labels, x.activities))
    print_table(values)


def write_interleaved(work: Path, kind: str) -> None:
    """A training set of interleaved recordings: WORK/threads/KIND/store and narrations.csv."""
    unpack(work, kind)
    annotations, store = read_annotations(work), FeatureStore(work / kind / "store")
    recordings = split(annotations, list(store), "test")["train"]
    features, steps = {}, {}
    for size, num in TRAINING_SEQUENCES.items():
        for i, group in enumerate(draw_sequences(annotations, recordings, num, size)):
            x = make_sequence(annotations, store, group)
            name = f"{size}-{i}"
            features[name] = x.features
            # where a run of one step begins, and the end
            edges = np.flatnonzero(np.diff(x.labels, prepend=-1, append=-1))
            runs = [(a, b, x.labels[a]) for a, b in pairwise(edges) if x.labels[a]]
            steps[name] = [{"start_s": float(a), "end_s": float(b), "text": x.texts[label - 1]} for a, b, label in runs]
    write_training_files(work / "threads" / kind, features, steps, kind)


def training_folder(work: Path, kind: str, name: str) -> Path:
    """Of a training of `TRAININGS`, with a folder for each seed."""
    return work / "threads" / kind / name.replace(" ", "_")


def train_one(args: argparse.Namespace) -> None:
    """Train with the settings of a name and a seed; write the scores of each test sequence."""
    folder = args.work / "threads" / args.kind
    out = training_folder(args.work, args.kind, args.name) / str(args.seeds)
    train_from_files(
        folder / "store",
        folder / "narrations.csv",
        out / "model",
        settings=[*TRAININGS[args.name], f"seed={args.seeds}", f"window_s={WINDOW_S}"],
        options=TrainOptions(device=args.device, validation_share=0.0, capture=False, text_cache=args.work / "text"),
    )
    model = load_model(out / "model").to(args.device)
    scores: dict[str, list[list[float]]] = {}
    for size, num in TEST_SEQUENCES.items():
        for x in test_sequences(args.work, args.kind, num, size):
            queries = embed_queries(model, args.work, x.texts)
            for mode in ("as trained", "no threads"):
                nodes = embed_features(model, x.features, CLOCK, [0], threads=mode == "as trained")["projected0"]
                values = score(F.normalize(nodes, dim=-1).numpy(), queries, x.labels, x.activities)
                scores.setdefault(f"{size} {mode}", []).append(values)
    write_text(out / "scores.json", json.dumps(scores))
    print(f"{args.name}, seed {args.seeds}: {out / 'scores.json'} written", flush=True)


def train_all(args: argparse.Namespace) -> None:
    """All trainings and seeds that are not done yet, each in a process of its own."""
    if not (args.work / "threads" / args.kind / "narrations.csv").is_file():
        write_interleaved(args.work, args.kind)
    commands = [
        [
            "benchmarks.threads",
            "one",
            str(args.work),
            "--kind",
            args.kind,
            "--name",
            name,
            "--seeds",
            str(seed),
            "--device",
            args.device,
        ]
        for seed in range(args.seeds)
        for name in TRAININGS
        if not (training_folder(args.work, args.kind, name) / str(seed) / "scores.json").is_file()
    ]
    run_modules(commands, args.jobs)


def trained_table(args: argparse.Namespace) -> None:
    """Print the scores of trained networks, each as it was trained and without threads."""
    values: dict[str, list[list[float]]] = {}
    for name in TRAININGS:
        files = sorted(training_folder(args.work, args.kind, name).glob("*/scores.json"))
        runs = [json.loads(file.read_text()) for file in files]
        for mode in ("as trained", "no threads"):
            if runs and (name, mode) != (MODES[0], "as trained"):
                row = name if name == MODES[0] else f"{name}; {'run without threads' if mode == 'no threads' else mode}"
                values[row] = np.mean([run[f"{args.activities} {mode}"] for run in runs], axis=0).tolist()
    print_table(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["modes", "train", "one", "table"])
    parser.add_argument("work", type=Path, help="of `benchmarks.captaincook4d prepare`")
    parser.add_argument("--kind", default="omnivore-b")
    parser.add_argument("--model", type=Path, help="of `modes`")
    parser.add_argument("--sequences", type=int, default=24, help="of `modes`")
    parser.add_argument("--activities", type=int, default=2)
    parser.add_argument("--name", choices=list(TRAININGS), help="of `one`")
    parser.add_argument("--seeds", type=int, default=2, help="how many; with `one`, which")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    {"modes": compare_modes, "train": train_all, "one": train_one, "table": trained_table}[args.what](args)


def print_table(values: dict[str, list[list[float]]]) -> None:
    """Means over sequences, and differences from no threads with their intervals."""
    rng = np.random.default_rng(0)
    base = np.array(values[MODES[0]])
    draws = rng.integers(0, len(base), (NUM_DRAWS, len(base)))
    print("| | " + " | ".join(MEASURES) + " |\n" + "|---" * (1 + len(MEASURES)) + "|")
    for mode, rows in values.items():
        x = np.array(rows)
        low, high = np.percentile((x - base)[draws].mean(1), [2.5, 97.5], axis=0)
        cells = [
            ""
            if np.isnan(m)
            else f"{100 * m:.1f}" + (f" ({100 * a:+.1f} to {100 * b:+.1f})" if mode != MODES[0] else "")
            for m, a, b in zip(x.mean(0), low, high, strict=True)
        ]
        print(f"| {mode} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
