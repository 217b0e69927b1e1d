"""Where threads pay: real recordings of CaptainCook4D cut and interleaved, two or three at once, as people cook.

    python -m benchmarks.threads WORK --kind omnivore-b --model MODEL [--sequences 24] [--activities 2]

MODEL was trained without the test recordings (`benchmarks.captaincook4d one … --part test`); only these are interleaved, and in one
sequence those of one room where there are such, so that a room does not tell them apart. Each recording goes on for a minute, then
the next one does: steps come back. The same weights run with different threads inside the network: none, the release's edges, those
of the paper with several numbers of them, the mean over three cuts, and the true activities. Of the nodes that come out:

    activities  clusters, as many as recordings: share of nodes in the right one
    steps       F1 of clusters, as many as steps, that may come back; and of as many contiguous pieces, which may not
    words       is the best span of a step's text inside that step?

Printed are means over sequences, and how each differs from no threads, with a 95 % interval (bootstrap over sequences).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.captaincook4d_data import CLOCK, PARTS, read_annotations, split, unpack
from hiero import Behaviour, HiERO, ModelConfig, embed_features
from hiero.data.stores import FeatureStore
from hiero.evaluation.metrics import matched_accuracy, procedure_scores
from hiero.model import unet
from hiero.steps.clustering import cluster
from hiero.steps.grounding import candidate_spans, rank_spans
from hiero.text.encoders import encode_texts

TURN_S = 60  # of one recording, before the next goes on
MAX_S = 900  # of each recording
MEASURES = ("activities", "steps F1", "pieces F1", "words")
NUM_DRAWS = 2000
SOFT_NUMBERS = (2, 4, 8)
MODES = (
    "no threads",
    "released edges",
    "K = 2",
    "K = 4",
    "K = 8",
    "as many as activities",
    "mean of K = 2, 4, 8",
    "true activities",
)


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


def embed(model: HiERO, features: Tensor, mode: str, activities: np.ndarray) -> np.ndarray:
    """Unit vectors of level 0, (T, E), with threads of a mode."""
    config, num = model.config, int(activities.max()) + 1
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
        procedure_scores(cluster(nodes[used], num, method), labels[used]).f1 for method in ("spectral", "pieces")
    )
    accuracy = matched_accuracy(cluster(nodes, int(activities.max()) + 1, "spectral"), activities)
    if queries is None:
        return [accuracy, come_back, contiguous, float("nan")]
    spans = candidate_spans(nodes, CLOCK.spacing_s)
    ranked = rank_spans(queries @ nodes.T, spans, CLOCK.spacing_s)
    inside = [np.mean(labels[slice(*spans[indices[0]])] == i + 1) > 0.5 for i, (indices, _) in enumerate(ranked)]
    return [accuracy, come_back, contiguous, float(np.mean(inside))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="of `benchmarks.captaincook4d prepare`")
    parser.add_argument("--kind", default="omnivore-b")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--sequences", type=int, default=24)
    parser.add_argument("--activities", type=int, default=2)
    args = parser.parse_args()
    unpack(args.work, args.kind)
    annotations, store = read_annotations(args.work), FeatureStore(args.work / args.kind / "store")
    parts = split(annotations, list(store), "test")
    model = HiERO.from_pretrained(args.model)
    values: dict[str, list[list[float]]] = {mode: [] for mode in (*MODES, "raw features")}
    for group in draw_sequences(annotations, [r for part in PARTS for r in parts[part]], args.sequences, args.activities):
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
        features, labels, activities = torch.cat(recordings)[order], labels[order], rows[:, 0]
        with torch.no_grad():
            queries = model.embed_text(encode_texts(texts, cache=args.work / "text").float()).numpy()
        for mode in MODES:
            values[mode].append(score(embed(model, features, mode, activities), queries, labels, activities))
        raw = F.normalize(features - features.mean(0), dim=-1).numpy()
        values["raw features"].append(score(raw, None, labels, activities))
    print_table(values)


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
            "" if np.isnan(m) else f"{100 * m:.1f}" + (f" ({100 * a:+.1f} to {100 * b:+.1f})" if mode != MODES[0] else "")
            for m, a, b in zip(x.mean(0), low, high, strict=True)
        ]
        print(f"| {mode} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
