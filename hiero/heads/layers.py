"""Layers and padding that the heads share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn


class Standardise(nn.Module):
    """Each channel shifted and scaled to zero mean and unit deviation over the training data."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def fit(self, arrays: Iterable[np.ndarray]) -> None:
        """Set mean and scale by the rows of all arrays, (T, D) each; one array is in memory at a time."""
        num_rows, total, squares = 0, 0.0, 0.0
        for array in arrays:
            rows = array.astype(np.float64)
            num_rows, total, squares = num_rows + len(rows), total + rows.sum(0), squares + (rows**2).sum(0)
        mean = total / num_rows
        deviation = np.sqrt(np.maximum(squares / num_rows - mean**2, 0))
        # A channel that hardly moves is not blown up to the size of the others.
        smallest = 1e-3 * deviation.mean() + 1e-6
        self.mean.copy_(torch.from_numpy(np.asarray(mean)))
        self.scale.copy_(torch.from_numpy(1 / np.maximum(deviation, smallest)))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) * self.scale


class ChannelLayerNorm(nn.Module):
    """LayerNorm over channels of (B, C, T)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT


class MaskedConv(nn.Module):
    """A convolution over time on (B, C, T) that never sees padding: masked before and after. With a
    stride the mask follows.
    """

    def __init__(
        self, inputs: int, outputs: int, size: int = 3, *, stride: int = 1, groups: int = 1, bias: bool = True
    ) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv1d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=bias)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.conv(x * mask[:, None])
        mask = mask[:, :: self.stride]
        return x * mask[:, None], mask


def pad_batch(arrays: list[np.ndarray], multiple: int = 1) -> tuple[Tensor, Tensor]:
    """(T, D) arrays → (B, T', D) and mask (B, T'), T' a multiple of `multiple`."""
    longest = max(len(array) for array in arrays)
    longest = -(-longest // multiple) * multiple
    out = torch.zeros(len(arrays), longest, arrays[0].shape[1])
    mask = torch.zeros(len(arrays), longest, dtype=torch.bool)
    for i, array in enumerate(arrays):
        out[i, : len(array)] = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
        mask[i, : len(array)] = True
    return out, mask


def mean_pool(x: np.ndarray, max_length: int) -> np.ndarray:
    """Features (T, D) as means over `max_length` equal parts; as they are where T is no larger."""
    if len(x) <= max_length:
        return x
    edges = np.linspace(0, len(x), max_length + 1).round().astype(int)
    return np.asarray(np.add.reduceat(x, edges[:-1], axis=0) / np.diff(edges)[:, None])
