"""The learning rate over a run."""

from __future__ import annotations

import math

from hiero.config import RunConfig


def learning_rate(step: int, num_steps: int, config: RunConfig) -> float:
    """Rate of step 0 … num_steps − 1: linear from warmup_factor · lr up to lr, then a cosine down to min_lr."""
    warmup = config.warmup_epochs * num_steps / config.epochs
    if step < warmup:
        return config.lr * (config.warmup_factor + (1 - config.warmup_factor) * step / warmup)
    progress = (step - warmup) / max(1.0, num_steps - warmup)
    return config.min_lr + (config.lr - config.min_lr) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
