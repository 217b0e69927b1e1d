"""Between levels: halve the rate (pool), go back up (upsample), and resample to a fixed number of nodes.

Videos fill a prefix of T; `mask` (B, T) marks it. Nothing here has parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

NEAREST = 1e-16  # floor of a squared distance; an exact hit then outweighs everything else


def pool(x: Tensor, mask: Tensor) -> Tensor:
    """Every second node, averaged with its two neighbours: [1, 2, 1]/4, at an end [2, 1]/3, alone itself.

    x (B, T, D) → (B, ⌈T/2⌉, D). The kept nodes keep their own times: slice times and mask with [:, ::2].
    """
    weight = mask[..., None].to(x.dtype)
    x = x * weight
    odd, odd_weight = F.pad(x[:, 1::2], (0, 0, 1, 1)), F.pad(weight[:, 1::2], (0, 0, 1, 1))
    num = (x.shape[1] + 1) // 2
    total = 2 * x[:, ::2] + odd[:, :num] + odd[:, 1 : num + 1]
    return total / (2 + odd_weight[:, :num] + odd_weight[:, 1 : num + 1])


def upsample(coarse: Tensor, mask: Tensor) -> Tensor:
    """Back to twice the rate on a uniform clock: the 2 nearest coarse nodes, weighted by 1/distance².

    Even nodes copy, odd ones take the mean of their two sides; a last odd node has both on its left, 9 : 1.
    coarse (B, ⌈T/2⌉, D), mask (B, T) of the fine nodes → (B, T, D).
    """
    length = mask.shape[1]
    valid = mask[:, ::2, None]
    coarse = torch.where(valid, coarse, 0)
    after, after_valid = F.pad(coarse[:, 1:], (0, 0, 0, 1)), F.pad(valid[:, 1:], (0, 0, 0, 1))
    before = torch.cat([coarse[:, :1], coarse[:, :-1]], dim=1)  # the first node stands in for the missing one before it
    odd = torch.where(after_valid, (coarse + after) / 2, 0.9 * coarse + 0.1 * before)
    return torch.stack([coarse, odd], dim=2).flatten(1, 2)[:, :length]


def _nearest(distance: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Of candidates on the last axis, 1/distance² weights of the `num` nearest (summing to 1) and which they are, earlier first."""
    nearest, choice = distance.sort(dim=-1, stable=True)
    weight = 1 / (nearest[..., :num] ** 2).clamp_min(NEAREST)
    return weight / weight.sum(-1, keepdim=True), choice[..., :num]


def upsample_by_time(coarse: Tensor, times: Tensor, mask: Tensor) -> Tensor:
    """The same for any times: the 2 nearest of the four coarse nodes around each fine one (earlier first on a tie)."""
    batch, length = mask.shape
    num = coarse.shape[1]
    index = torch.arange(length, device=mask.device)[:, None] // 2 + torch.arange(-1, 3, device=mask.device)
    inside = (index >= 0) & (index < num)
    index = index.clamp(0, num - 1)
    candidate_times, candidate_mask = times[:, ::2][:, index], mask[:, ::2][:, index] & inside  # (B, T, 4)
    distance = (candidate_times - times[..., None]).abs().masked_fill(~candidate_mask, torch.inf)
    weight, choice = _nearest(distance, 2)
    weight = torch.where(mask[..., None], weight, 0).to(coarse.dtype)
    chosen = index.expand(batch, -1, -1).gather(2, choice)
    return sum(  # type: ignore[return-value]
        coarse.gather(1, chosen[..., i, None].expand(-1, -1, coarse.shape[-1])) * weight[..., i, None] for i in range(2)
    )


def resample(x: Tensor, mask: Tensor, num: int) -> Tensor:
    """`num` nodes spread evenly over each video's index range, each a 1/distance² mean of the 3 nearest nodes.

    x (B, T, D) → (B, num, D). A video shorter than `num` is stretched; a single node is repeated.
    """
    last = mask.sum(1, keepdim=True) - 1  # (B, 1)
    unit = torch.linspace(0, 1, num, device=x.device)
    centre = (unit * last).floor().long()  # (B, num)
    index = centre[..., None] + torch.arange(-1, 3, device=x.device)
    inside = (index >= 0) & (index <= last[..., None])
    place = index / last[..., None].clamp_min(1)
    distance = (place - unit[:, None]).abs().masked_fill(~inside, torch.inf)
    weight, choice = _nearest(distance, 3)
    weight = weight.to(x.dtype)
    chosen = index.gather(2, choice).clamp_min(0).minimum(last[..., None])  # (B, num, 3)
    rows = x.gather(1, chosen.flatten(1)[..., None].expand(-1, -1, x.shape[-1])).unflatten(1, chosen.shape[1:])
    return (rows * weight[..., None]).sum(2)


def nearest_sample(mask: Tensor, num: int) -> Tensor:
    """For each node the nearest of `num` samples spread evenly over its video (the earlier one on a tie). (B, T) → (B, T)."""
    last = (mask.sum(1, keepdim=True) - 1).clamp_min(1)
    place = torch.arange(mask.shape[1], device=mask.device) * (num - 1) / last
    return (place - 0.5).ceil().long().clamp(0, num - 1)
