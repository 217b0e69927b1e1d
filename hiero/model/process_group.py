"""Exchange between the processes of a training run, for losses whose gradients DDP averages.

Each process computes a share of the batch. Contrastive losses compare the whole batch.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


class ProcessGroup:
    """The default group of torch.distributed: processes that hold parts of the same batch."""

    def __init__(self) -> None:
        self.rank, self.num = dist.get_rank(), dist.get_world_size()

    def gather(self, part: Tensor) -> Tensor:
        """Concatenate the tensors (B, …) of all processes, with gradients, to (num · B, …).

        Every process computes the same loss from the result. The gradient of its own part is
        multiplied by the number of processes, because DDP averages gradients afterwards.
        """
        return _Gather.apply(part, self.rank, self.num)

    def share(self, count: Tensor | int) -> Tensor:
        """Weight of this process's mean over `count` items: count / mean of the counts of all processes."""
        own = torch.as_tensor(count, dtype=torch.float32)
        total = own.clone()
        dist.all_reduce(total)
        return own * self.num / total.clamp_min(1)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part, rank, num):  # type: ignore[no-untyped-def]
        ctx.rank, ctx.num, ctx.size = rank, num, len(part)
        part = part.contiguous()
        sent = part.byte() if part.dtype == torch.bool else part  # not every backend sends booleans
        parts = [torch.empty_like(sent) for _ in range(num)]
        dist.all_gather(parts, sent)
        return torch.cat(parts).to(part.dtype)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return grad[ctx.rank * ctx.size : (ctx.rank + 1) * ctx.size] * ctx.num, None, None
