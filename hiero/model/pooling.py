"""Pooling to half the rate, upsampling, and resampling to a fixed number of nodes, without parameters.

Videos fill a prefix of T, which `mask` (B, T) marks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

MIN_SQUARED_DISTANCE = 1e-16  # lets a node at distance 0 outweigh all others


def pool(x: Tensor, mask: Tensor) -> Tensor:
    """Average every second node with its two neighbours: [1, 2, 1]/4, or [2, 1]/3 at an end.

    The remaining nodes keep their times: slice times and mask with [:, ::2].
    """
    weight = mask[..., None].to(x.dtype)
    x = x * weight
    odd = F.pad(x[:, 1::2], (0, 0, 1, 1))
    odd_weight = F.pad(weight[:, 1::2], (0, 0, 1, 1))
    num_coarse = (x.shape[1] + 1) // 2
    total = 2 * x[:, ::2] + odd[:, :num_coarse] + odd[:, 1 : num_coarse + 1]
    return total / (2 + odd_weight[:, :num_coarse] + odd_weight[:, 1 : num_coarse + 1])


def upsample(coarse: Tensor, mask: Tensor) -> Tensor:
    """Double the rate on a uniform clock: the 2 nearest coarse nodes, weighted by 1/distance²."""
    length = mask.shape[1]
    valid = mask[:, ::2, None]
    coarse = torch.where(valid, coarse, 0)
    after, after_valid = F.pad(coarse[:, 1:], (0, 0, 0, 1)), F.pad(valid[:, 1:], (0, 0, 0, 1))
    before = torch.cat([coarse[:, :1], coarse[:, :-1]], dim=1)  # the first node replaces the one before it
    # Even nodes copy and odd nodes average both sides. The nearest nodes of a last odd node are 1 and
    # 3 nodes to its left: 1/1² : 1/3² = 9 : 1.
    odd = torch.where(after_valid, (coarse + after) / 2, 0.9 * coarse + 0.1 * before)
    return torch.stack([coarse, odd], dim=2).flatten(1, 2)[:, :length]


def _nearest_weights(distance: Tensor, num_nearest: int) -> tuple[Tensor, Tensor]:
    """Weights by 1/distance² (summing to 1) and indices of the nearest candidates; ties go to the earlier one."""
    distance, index = distance.sort(dim=-1, stable=True)
    weight = 1 / (distance[..., :num_nearest] ** 2).clamp_min(MIN_SQUARED_DISTANCE)
    return weight / weight.sum(-1, keepdim=True), index[..., :num_nearest]


def upsample_by_time(coarse: Tensor, times: Tensor, mask: Tensor) -> Tensor:
    """`upsample` for any times (B, T): the 2 nearest of the four coarse nodes around each fine node."""
    batch, length = mask.shape
    num_coarse = coarse.shape[1]
    index = torch.arange(length, device=mask.device)[:, None] // 2 + torch.arange(-1, 3, device=mask.device)
    inside = (index >= 0) & (index < num_coarse)
    index = index.clamp(0, num_coarse - 1)
    candidate_times = times[:, ::2][:, index]  # (B, T, 4)
    candidate_mask = mask[:, ::2][:, index] & inside
    distance = (candidate_times - times[..., None]).abs().masked_fill(~candidate_mask, torch.inf)
    weight, choice = _nearest_weights(distance, 2)
    weight = torch.where(mask[..., None], weight, 0).to(coarse.dtype)
    chosen = index.expand(batch, -1, -1).gather(2, choice)
    return sum(  # type: ignore[return-value]
        coarse.gather(1, chosen[..., i, None].expand(-1, -1, coarse.shape[-1])) * weight[..., i, None] for i in range(2)
    )


def resample(x: Tensor, mask: Tensor, num_samples: int) -> Tensor:
    """Sample each video evenly, (B, S, D); a sample is the 1/distance² mean of the 3 nearest nodes."""
    last = mask.sum(1, keepdim=True) - 1  # (B, 1)
    sample_position = torch.linspace(0, 1, num_samples, device=x.device)
    before = (sample_position * last).floor().long()  # (B, S), the node before each sample
    index = before[..., None] + torch.arange(-1, 3, device=x.device)
    inside = (index >= 0) & (index <= last[..., None])
    position = index / last[..., None].clamp_min(1)
    distance = (position - sample_position[:, None]).abs().masked_fill(~inside, torch.inf)
    weight, choice = _nearest_weights(distance, 3)
    weight = weight.to(x.dtype)
    chosen = index.gather(2, choice).clamp_min(0).minimum(last[..., None])  # (B, S, 3)
    rows = x.gather(1, chosen.flatten(1)[..., None].expand(-1, -1, x.shape[-1])).unflatten(1, chosen.shape[1:])
    return (rows * weight[..., None]).sum(2)


def nearest_sample(mask: Tensor, num_samples: int, *, rounded: bool = False) -> Tensor:
    """Index of the sample nearest to each node, (B, T); ties go to the earlier one.

    `rounded` compares distances in float32, as the release does, so that rounding decides ties.
    """
    last = (mask.sum(1, keepdim=True) - 1).clamp_min(1)
    if rounded:
        samples = torch.linspace(0, 1, num_samples, device=mask.device)
        nodes = torch.arange(mask.shape[1], device=mask.device) / last
        return (nodes[..., None] - samples).abs().argmin(-1)
    position = torch.arange(mask.shape[1], device=mask.device) * (num_samples - 1) / last
    return (position - 0.5).ceil().long().clamp(0, num_samples - 1)
