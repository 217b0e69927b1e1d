"""Train HiERO with a loop of your own, on simulated sessions: python -m examples.train_loop"""

from __future__ import annotations

import torch
from torch.nn.utils.rnn import pad_sequence

from examples.simulation import Session, World, WorldConfig, bag_of_words
from hiero import HiERO, LossConfig, ModelConfig
from hiero.model.batches import node_times
from hiero.training.narrated_windows import TrainingBatch
from hiero.training.step import Objective, TrainStep, make_adam

WORLD = World(WorldConfig(width=16, session_s=200.0))
SIZES = {"input_size": 16, "hidden_size": 32, "embedding_size": 32, "text_size": 64, "gate_size": 16, "radius_s": 2.5}


def make_batch(sessions: list[Session]) -> TrainingBatch:
    """Features, narrations and their times, padded: (B, T, D), (B, M, text_size), (B, M)."""
    features = torch.stack([session.features for session in sessions])
    times = node_times(features.shape[1], WORLD.config.clock).expand(len(sessions), -1)
    texts = [bag_of_words([narration.text for narration in session.narrations]) for session in sessions]
    text_times = [torch.tensor([narration.time_s for narration in session.narrations]) for session in sessions]
    text_mask = [torch.ones(len(session.narrations), dtype=torch.bool) for session in sessions]
    narrations = (pad_sequence(parts, batch_first=True) for parts in (texts, text_times, text_mask))
    return TrainingBatch(features, torch.ones(features.shape[:2], dtype=torch.bool), times, *narrations)


def train(config: ModelConfig, num_steps: int = 40, batch_size: int = 4) -> tuple[HiERO, list[float]]:
    """A trained network, and the loss of each step."""
    torch.manual_seed(0)
    model = HiERO(config).train()
    objective = Objective(model, LossConfig(alpha=0.5), WORLD.config.clock.spacing_s)
    step = TrainStep(objective, make_adam(model, lr=3e-3))
    losses = []
    for i in range(num_steps):
        sessions = [WORLD.session(seed) for seed in range(i * batch_size, (i + 1) * batch_size)]
        losses.append(step(make_batch(sessions)).total.item())
    return model.eval(), losses


if __name__ == "__main__":
    _, losses = train(ModelConfig(**SIZES, clock=WORLD.config.clock))
    print(*(f"{loss:.3f}" for loss in losses))
