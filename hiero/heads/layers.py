"""Parts that heads share: masks, convolutions that respect them, and inputs brought to one scale."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn


class Standardise(nn.Module):
    """Each channel of any features, shifted and scaled as the training data asks."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def fit(self, parts: Iterable[np.ndarray]) -> None:
        """Mean and deviation over the rows of all parts, one part in memory at a time."""
        count, total, square = 0, 0.0, 0.0
        for part in parts:
            rows = part.astype(np.float64)
            count, total, square = count + len(rows), total + rows.sum(0), square + (rows**2).sum(0)
        mean = total / count
        deviation = np.sqrt(np.maximum(square / count - mean**2, 0))
        self.mean.copy_(torch.from_numpy(np.asarray(mean)))
        self.scale.copy_(torch.from_numpy(1 / np.maximum(deviation, 1e-3 * deviation.mean() + 1e-6)))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) * self.scale


class Normalise(nn.Module):
    """LayerNorm over channels of (B, C, T)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT


class MaskedConv(nn.Module):
    """A convolution over time on (B, C, T) that never sees padding: masked before and after. With a stride the mask follows."""

    def __init__(self, inputs: int, outputs: int, size: int = 3, *, stride: int = 1, groups: int = 1, bias: bool = True) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv1d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=bias)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv(x * mask[:, None])
        mask = mask[:, :: self.stride]
        return x * mask[:, None], mask


def at_least_single(x: Tensor) -> Tensor:
    """Half precision is too coarse for losses."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def pad_batch(rows: list[np.ndarray], multiple: int = 1) -> tuple[Tensor, Tensor]:
    """(T, D) arrays → (B, T', D) and mask (B, T'), T' a multiple of `multiple`."""
    longest = max(len(row) for row in rows)
    longest = -(-longest // multiple) * multiple
    out = torch.zeros(len(rows), longest, rows[0].shape[1])
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.from_numpy(np.ascontiguousarray(row, dtype=np.float32))
        mask[i, : len(row)] = True
    return out, mask


def mean_pool(x: np.ndarray, most: int) -> np.ndarray:
    """Features (T, D) as means over at most `most` equal parts."""
    if len(x) <= most:
        return x
    edges = np.linspace(0, len(x), most + 1).round().astype(int)
    return np.asarray(np.add.reduceat(x, edges[:-1], axis=0) / np.diff(edges)[:, None])
