"""Validation: how well a model aligns narrations with held-out windows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hiero.data.narrated_windows import NarratedWindows
from hiero.model.losses import Timed, compute_losses
from hiero.training.step import Objective


class ValidationScore(NamedTuple):
    """Losses, and the share of narrations that are found."""

    alignment: float
    threads: float
    hit_rate: float


@torch.no_grad()
def validate(
    objective: Objective, windows: NarratedWindows, text_vectors: Tensor, batch_size: int = 8
) -> ValidationScore:
    """Score a model during training, without changing the network or the random state."""
    model, config = objective.model, objective.losses
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    loss_sums = torch.zeros(2, dtype=torch.float64)
    num_hits = num_narrations = num_batches = 0
    for start in range(0, len(windows), batch_size):
        x = windows.read(range(start, min(start + batch_size, len(windows)))).with_vectors(text_vectors).to(device)
        with torch.autocast(device.type, dtype=objective.precision, enabled=objective.precision is not None):
            levels = model.forward_unchecked(x.features, x.mask, x.times, objective.spacing_s, threads=True)
            losses = compute_losses(model, levels, Timed(x.texts, x.text_times, x.text_mask), config)
            similarity = model.embed_text(x.texts) @ model.embed_video(levels[0].features).mT  # (B, M, T)
        loss_sums += torch.stack([losses.alignment, losses.threads]).double().cpu()
        num_batches += 1
        best_node = similarity.float().masked_fill(~x.mask[:, None], -torch.inf).argmax(2)
        distance_s = (x.times.gather(1, best_node) - x.text_times).abs()
        num_hits += int(((distance_s <= 1 / config.alpha) & x.text_mask).sum())
        num_narrations += int(x.text_mask.sum())
    model.train(was_training)
    alignment, threads = (loss_sums / num_batches).tolist()
    return ValidationScore(alignment, threads, num_hits / max(1, num_narrations))
