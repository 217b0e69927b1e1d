"""What context, threads and L_ft each add, on simulated activity (examples/simulation.py), over
several worlds and seeds.

    python -m benchmarks.ablation [--seeds 3] [--only "interleaved"]

Each run trains on 24 narrated sessions of a world and is scored on 8 new ones:
  label    seconds whose most similar step text, among the texts of the session's steps, is the
  right one threads  seconds that agree with the true steps after a spectral cut into the true
  number (best one-to-one matching)
Pauses do not count. Numbers are means over seeds with their standard deviation.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from examples.simulation import Session, World, WorldConfig, bag_of_words, write_sessions
from hiero import HiERO, embed_features, spectral_cut
from hiero.config import LossConfig, ModelConfig, TrainConfig
from hiero.features.stores import pack
from hiero.training.fabric import make_fabric
from hiero.training.hiero_training import HieroTraining
from hiero.training.narrated_windows import NarratedWindows
from hiero.training.narrations import read_narrations

FIRST_TEST_SESSION = 1000  # far from those that are trained on
NUM_TEST_SESSIONS = 8
VARIANTS: dict[str, tuple[dict, dict] | None] = {
    "raw features": None,
    "per-second MLP": ({"depth": 0}, {"thread_weight": 0.0}),
    "context": ({"num_threads": 1}, {"thread_weight": 0.0}),
    "context, threads": ({}, {"thread_weight": 0.0}),
    "context, threads, L_ft": ({}, {}),
}
WORLDS = {
    "interleaved": WorldConfig(),
    "sequential": WorldConfig(interleave=0.0),
    "interleaved, every action looks its own": WorldConfig(shared_actions=0.0),
    "interleaved, a place for each step": WorldConfig(num_places=18),
    "interleaved, little noise": WorldConfig(noise=0.7),
    "interleaved, few narrations": WorldConfig(omission=0.8),
}


class Scores(NamedTuple):
    """Shares of seconds, as in the docstring of this module."""

    label: float
    threads: float


def train(world: World, variant: str, seed: int, num_sessions: int = 24, epochs: int = 24) -> HiERO:
    """Train a variant of HiERO on narrated sessions of a world."""
    model, losses = VARIANTS[variant] or ({}, {})
    with tempfile.TemporaryDirectory() as folder:
        features, narrations = write_sessions([world.session(i) for i in range(num_sessions)], Path(folder))
        store, _ = pack(features, Path(folder) / "store", clock=world.config.clock)
        windows = NarratedWindows(store, read_narrations(narrations))
        config = TrainConfig(
            ModelConfig(
                store.width,
                64,
                64,
                64,
                gate_size=32,
                radius_s=2.5,
                standardise=True,
                clock=store.clock,
                random_state=seed,
                **model,
            ),
            LossConfig(alpha=0.5, **losses),
            epochs=epochs,
            lr=2e-3,
            warmup_epochs=2,
            weight_decay=1e-4,
            seed=seed,
        )
        training = HieroTraining(
            config, windows, Path(folder) / "run", make_fabric("cpu"), text_vectors=bag_of_words(windows.texts)
        )
        training.prepare()
        training.run()
        return training.model.eval()


def matched_accuracy(labels: Tensor, truth: Tensor) -> float:
    """Accuracy over seconds after Hungarian matching of labels to steps, one to one, by overlap."""
    from scipy.optimize import linear_sum_assignment

    size = max(int(labels.max()), int(truth.max())) + 1
    overlap = torch.zeros(size, size)
    overlap.index_put_((labels, truth), torch.ones(len(labels)), accumulate=True)
    step_of_label = torch.as_tensor(linear_sum_assignment(-overlap.numpy())[1])
    return float((step_of_label[labels] == truth).float().mean())


def score(model: HiERO | None, sessions: list[Session]) -> Scores:
    """Mean scores over sessions; without a model those of raw features."""
    scores = []
    for session in sessions:
        busy = session.steps >= 0
        steps = sorted(session.step_texts)
        label = float("nan")  # raw features are not comparable with texts
        nodes = session.features
        if model is not None:
            nodes = embed_features(model, session.features, session.clock, [0])["projected0"]
            with torch.no_grad():
                texts = model.embed_text(bag_of_words([session.step_texts[step] for step in steps]))
            predicted = torch.tensor(steps)[(F.normalize(nodes, dim=1) @ texts.mT).argmax(1)]
            label = float((predicted == session.steps)[busy].float().mean())
        truth = torch.tensor([steps.index(step) for step in session.steps[busy].tolist()])
        labels = spectral_cut(nodes[busy], len(steps), kappa=0.5)
        scores.append(Scores(label, matched_accuracy(labels, truth)))
    return Scores(*np.mean(scores, axis=0).tolist())


def run(world_config: WorldConfig, variant: str, seed: int, **options: int) -> Scores:
    """Train and score one variant in one world."""
    world = World(world_config, seed)
    model = train(world, variant, seed, **options) if VARIANTS[variant] is not None else None
    return score(model, [world.session(FIRST_TEST_SESSION + i) for i in range(NUM_TEST_SESSIONS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(WORLDS))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    args = parser.parse_args()
    print("| world | variant | label | threads |\n|---|---|---|---|")
    for name in args.only:
        for variant in args.variants:
            scores = 100 * np.array([run(WORLDS[name], variant, seed) for seed in range(args.seeds)])
            cells = [
                "" if np.isnan(mean) else f"{mean:.1f} ± {spread:.1f}"
                for mean, spread in zip(scores.mean(0), scores.std(0), strict=True)
            ]
            print(f"| {name} | {variant} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
