"""One video through a model, as named tensors that can be written to a file."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from hiero.data.batches import node_times
from hiero.errors import InputError
from hiero.model.ensemble import HieroEnsemble
from hiero.model.hiero import HiERO
from hiero.types import Clock


@torch.inference_mode()
def embed_features(
    model: HiERO | HieroEnsemble,
    features: Tensor,
    clock: Clock,
    levels: Collection[int] | None = None,
    threads: bool | None = None,
) -> dict[str, Tensor]:
    """Node features of one video at every level, as named tensors on the CPU.

    Args:
        model: The network, on any device. It runs in evaluation mode and is left in the mode that it was in.
        features: Backbone features of the video, (T, F).
        clock: When each row of the features is.
        levels: Which levels to return; by default all.
        threads: Cut & Match on or off; by default as the model is configured.

    Returns:
        For each level l with Tₗ nodes: `level{l}`, the decoder's features, (Tₗ, D); `projected{l}`,
        the same after h_v, not normalised, (Tₗ, E); `times{l}` in seconds, (Tₗ,); and, with Cut &
        Match on, `threads{l}`, (Tₗ,). Level 0 is never cut: its threads are −1, as in the release.

    Raises:
        InputError: The network has no such level, or the features do not fit it.

    Examples:
        >>> import hiero, torch
        >>> model = hiero.HiERO(hiero.ModelConfig(input_size=8, hidden_size=16, embedding_size=32))
        >>> tensors = hiero.embed_features(model, torch.randn(100, 8), hiero.Clock(fps=30, stride=16), levels=[2])
        >>> {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        {'level2': (25, 16), 'projected2': (25, 32), 'times2': (25,), 'threads2': (25,)}
    """
    num_levels = max(1, model.config.depth)
    levels = range(num_levels) if levels is None else levels
    if not levels or any(not 0 <= level < num_levels for level in levels):
        choices, chosen = ", ".join(map(str, range(num_levels))), ", ".join(map(str, levels)) or "none"
        raise InputError(f"levels must be some of {choices}, got {chosen}")
    device = next(model.parameters()).device
    training = model.training
    try:
        times = node_times(len(features), clock, device)
        outputs = model.eval()(features[None].to(device), times=times[None], spacing_s=clock.spacing_s, threads=threads)
    finally:
        model.train(training)
    has_threads = any(level.threads is not None for level in outputs)
    tensors = {}
    for i in sorted(set(levels)):
        level = outputs[i]
        tensors[f"level{i}"] = level.features[0]
        tensors[f"projected{i}"] = model.video_head(level.features[0])
        tensors[f"times{i}"] = level.times[0]
        if has_threads:
            labels = torch.full_like(level.mask[0], -1, dtype=torch.long) if level.threads is None else level.threads[0]
            tensors[f"threads{i}"] = labels
    return {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
