"""How well a model in training aligns windows it does not learn from."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hiero.data.narrated_windows import NarratedWindows
from hiero.training.step import Objective


class Score(NamedTuple):
    """Both losses, and the share of narrations whose most similar node of their window is one of their own (within 1/α seconds)."""

    alignment: float
    threads: float
    hit: float


@torch.no_grad()
def validate(objective: Objective, windows: NarratedWindows, vectors: Tensor, batch_size: int = 8) -> Score:
    """Runs on the windows in order, dropout off; the network and the random state are left as they were."""
    model, config = objective.model, objective.losses
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    hits = num = batches = 0
    for start in range(0, len(windows), batch_size):
        x = windows.read(range(start, min(start + batch_size, len(windows)))).with_vectors(vectors).to(device)
        with torch.autocast(device.type, dtype=objective.precision, enabled=objective.precision is not None):
            levels = model.enrich(x.features, x.mask, x.times, objective.spacing_s, threads=True)
            losses = model.losses(levels, x.texts, x.text_times, x.text_mask, config)
            similarity = model.embed_text(x.texts) @ model.embed_video(levels[0].features).mT  # (B, M, T)
        totals += torch.stack([losses.alignment, losses.threads]).double().cpu()
        batches += 1
        found = similarity.float().masked_fill(~x.mask[:, None], -torch.inf).argmax(2)
        gap = (x.times.gather(1, found) - x.text_times).abs()
        hits += int(((gap <= 1 / config.alpha) & x.text_mask).sum())
        num += int(x.text_mask.sum())
    model.train(was_training)
    alignment, threads = (totals / batches).tolist()
    return Score(alignment, threads, hits / max(1, num))
