"""One video through a model, as named tensors that can be written to a file."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from hiero.data.batches import node_times
from hiero.errors import InputError
from hiero.model.hiero import HiERO
from hiero.types import Clock


@torch.inference_mode()
def embed_features(
    model: HiERO, features: Tensor, clock: Clock, levels: Collection[int] | None = None, threads: bool | None = None
) -> dict[str, Tensor]:
    """features (T, F) → level{l} (Tₗ, D), projected{l} = h_v(level{l}) (Tₗ, E), times{l} (Tₗ,), and threads{l} (Tₗ,) when cut.

    All levels unless some are named. Level 0 is never cut: its threads are −1, as in the release.
    """
    depth = max(1, model.config.depth)
    levels = range(depth) if levels is None else levels
    if not levels or any(not 0 <= level < depth for level in levels):
        raise InputError(f"levels must be some of {', '.join(map(str, range(depth)))}, got {', '.join(map(str, levels)) or 'none'}")
    device = next(model.parameters()).device
    training = model.training
    try:
        times = node_times(len(features), clock, device)
        found = model.eval()(features[None].to(device), times=times[None], spacing_s=clock.spacing_s, threads=threads)
    finally:
        model.train(training)
    cut = any(level.threads is not None for level in found)
    out = {}
    for i in sorted(set(levels)):
        level = found[i]
        out[f"level{i}"] = level.features[0]
        out[f"projected{i}"] = model.video_head(level.features[0])
        out[f"times{i}"] = level.times[0]
        if cut:
            labels = torch.full_like(level.mask[0], -1, dtype=torch.long) if level.threads is None else level.threads[0]
            out[f"threads{i}"] = labels
    return {name: value.contiguous().cpu() for name, value in out.items()}
