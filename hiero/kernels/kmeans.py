"""K-Means for many small problems at once, the same on every device for a given seed.

Every video in a batch sees the same few random numbers, so it gets the same clusters alone or in a batch. Restarts run
side by side. Without `early_stop` nothing waits for the host, which lets a CUDA graph capture it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F


def draw(*shape: int, random_state: int, device: torch.device) -> Tensor:
    """Numbers in [0, 1): an integer hash of place and seed, so that any device draws the same, also while captured."""
    x = torch.arange(math.prod(shape), device=device) + (random_state * 0x9E3779B9 & 0xFFFFFFFF)
    for _ in range(2):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return ((x ^ (x >> 16)).float() / 2**32).clamp_max(1 - 2**-24).view(shape)


def kmeans(
    points: Tensor,
    num_clusters: int,
    *,
    random_state: int = 0,
    num_restarts: int = 8,
    mask: Tensor | None = None,
    num_iterations: int = 50,
    early_stop: bool = True,
) -> Tensor:
    """Label of each point: the best of several restarts of Lloyd's algorithm from k-means++ seeds.

    points (B, N, C), mask (B, N) → labels (B, N) in 0 … K − 1, numbered by first appearance.
    Masked points get −1. With fewer distinct points than clusters, some clusters stay empty.
    """
    valid = torch.ones(points.shape[:2], dtype=points.dtype, device=points.device) if mask is None else mask.to(points.dtype)
    points = points * valid[..., None]
    square = points.square().sum(-1)[:, None, :, None]

    def distances(centres: Tensor) -> Tensor:
        """(B, R, k, C) → (B, R, N, k)"""
        cross = torch.einsum("bnc,brkc->brnk", points, centres)
        return (square - 2 * cross + centres.square().sum(-1)[:, :, None]).clamp_min(0) * valid[:, None, :, None]

    centres = _seed(points, valid, distances, num_clusters, num_restarts, random_state)
    labels = distances(centres).argmin(-1)  # (B, R, N)
    for _ in range(num_iterations):
        member = F.one_hot(labels, num_clusters).to(points.dtype) * valid[:, None, :, None]
        count = member.sum(2)[..., None]
        mean = torch.einsum("brnk,bnc->brkc", member, points) / count.clamp_min(1)
        centres = torch.where(count > 0, mean, centres)
        updated = distances(centres).argmin(-1)
        if early_stop and torch.equal(updated, labels):
            break
        labels = updated
    spread = distances(centres).amin(-1).sum(-1)  # (B, R)
    best = spread.argmin(1)[:, None, None].expand(-1, 1, labels.shape[-1])
    return renumber(labels.gather(1, best)[:, 0], num_clusters, mask)


def _seed(
    points: Tensor,
    valid: Tensor,
    distances: Callable[[Tensor], Tensor],
    num_clusters: int,
    num_restarts: int,
    random_state: int,
) -> Tensor:
    """Greedy k-means++: draw a few points with probability proportional to their squared distance from the centres so far,
    keep the one that leaves the least. → (B, R, K, C)"""
    num_trials = 2 + int(math.log(num_clusters))
    numbers = draw(num_clusters, num_restarts, num_trials, random_state=random_state, device=points.device).to(points.dtype)
    chosen: list[Tensor] = []
    weight = valid[:, None].expand(-1, num_restarts, -1)  # (B, R, N): uniform for the first centre
    left = torch.full_like(weight, torch.inf)  # squared distance to the nearest centre
    for k in range(num_clusters):
        total = weight.cumsum(-1)
        target = numbers[k] * total[..., -1:]  # (B, R, trials)
        index = torch.searchsorted(total, target, right=True).clamp_max(points.shape[1] - 1)
        trial = points[:, None].expand(-1, num_restarts, -1, -1).gather(2, index[..., None].expand(*index.shape, points.shape[2]))
        after = torch.minimum(left[..., None], distances(trial))  # (B, R, N, trials)
        best = after.sum(2).argmin(-1)[..., None, None]  # (B, R, 1, 1)
        left = weight = after.gather(3, best.expand(*after.shape[:3], 1))[..., 0]
        chosen.append(trial.gather(2, best.expand(*best.shape[:3], points.shape[2]))[:, :, 0])
    return torch.stack(chosen, dim=2)


def renumber(labels: Tensor, num_clusters: int, mask: Tensor | None = None) -> Tensor:
    """Number clusters by when they first appear, so that thread 0 is the one that the video begins with."""
    place = torch.arange(labels.shape[1], device=labels.device)
    own = labels[..., None] == torch.arange(num_clusters, device=labels.device)
    if mask is not None:
        own = own & mask[..., None]
    first = torch.where(own, place[:, None], labels.shape[1]).amin(1)  # (B, K)
    earlier = (first[:, None] < first[..., None]).sum(-1)  # ties exist only among empty clusters
    labels = earlier.gather(1, labels)
    return labels if mask is None else torch.where(mask, labels, -1)
