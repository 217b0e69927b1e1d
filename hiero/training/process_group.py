"""Processes that train together: each holds a part of the batch, and all are compared with all."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


class ProcessGroup:
    """The default group of torch.distributed, for losses whose gradients are then averaged over processes."""

    def __init__(self) -> None:
        self.rank, self.num = dist.get_rank(), dist.get_world_size()

    def gather(self, part: Tensor) -> Tensor:
        """(B, …) of each process → (all B, …). Every process computes the same loss from it; each one's gradient comes back to
        its own part, times the number of processes, since gradients are averaged afterwards."""
        return _Gather.apply(part, self.rank, self.num)

    def share(self, count: Tensor | int) -> Tensor:
        """count / mean of the counts of all processes."""
        own = torch.as_tensor(count, dtype=torch.float32)
        total = own.clone()
        dist.all_reduce(total)
        return own * self.num / total.clamp_min(1)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part, rank, num):  # type: ignore[no-untyped-def]
        ctx.rank, ctx.num, ctx.size = rank, num, len(part)
        part = part.contiguous()
        sent = part.byte() if part.dtype == torch.bool else part
        parts = [torch.empty_like(sent) for _ in range(num)]
        dist.all_gather(parts, sent)
        return torch.cat(parts).to(part.dtype)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return grad[ctx.rank * ctx.size : (ctx.rank + 1) * ctx.size] * ctx.num, None, None
