"""The learning-rate schedule: linear warm-up, then cosine decay."""

from __future__ import annotations

import math

from hiero.config import RunConfig


def learning_rate(step: int, num_steps: int, config: RunConfig) -> float:
    """Rate of a step: linear from warmup_factor · lr up to lr, then a cosine down to min_lr."""
    warmup_steps = config.warmup_epochs * num_steps / config.epochs
    if step < warmup_steps:
        return config.lr * (config.warmup_factor + (1 - config.warmup_factor) * step / warmup_steps)
    progress = (step - warmup_steps) / max(1.0, num_steps - warmup_steps)
    return config.min_lr + (config.lr - config.min_lr) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
