"""Layers and padding shared by the heads."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Standardise(nn.Module):
    """Shift and scale each channel to zero mean and unit deviation over the training data."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def fit(self, arrays: Iterable[np.ndarray]) -> None:
        """Set mean and scale from the rows of all arrays, (T, D) each, with one array in memory at a time."""
        num_rows, total, squares = 0, 0.0, 0.0
        for array in arrays:
            rows = array.astype(np.float64)
            num_rows += len(rows)
            total += rows.sum(0)
            squares += (rows**2).sum(0)
        mean = total / num_rows
        deviation = np.sqrt(np.maximum(squares / num_rows - mean**2, 0))
        # A nearly constant channel must not be scaled up to the size of the others.
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
    """Convolution over time on (B, C, T), masked before and after."""

    def __init__(
        self, inputs: int, outputs: int, size: int = 3, *, stride: int = 1, groups: int = 1, bias: bool = True
    ) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv1d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=bias)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.conv(x * mask[:, None]) * mask[:, None, :: self.stride]


def pad_batch(arrays: list[np.ndarray], multiple: int = 1) -> tuple[Tensor, Tensor]:
    """(T, D) arrays → (B, T', D) and mask (B, T'), T' a multiple of `multiple`."""
    rows = [torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)) for array in arrays]
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    padded = F.pad(padded, (0, 0, 0, -padded.shape[1] % multiple))
    lengths = torch.tensor([len(array) for array in arrays])
    return padded, torch.arange(padded.shape[1]) < lengths[:, None]


def mean_pool(x: np.ndarray, max_length: int) -> np.ndarray:
    """Features (T, D) as means over `max_length` equal parts, or unchanged if T is not larger."""
    if len(x) <= max_length:
        return x
    edges = np.linspace(0, len(x), max_length + 1).round().astype(int)
    return np.asarray(np.add.reduceat(x, edges[:-1], axis=0) / np.diff(edges)[:, None])


class LocalAttention(nn.Module):
    """Multi-head attention on (B, C, T) over window // 2 moments to each side. Queries, keys and values
    first go through depth-wise convolutions with the stride of the block.
    """

    def __init__(self, width: int, num_heads: int, window: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.reach, self.dropout = num_heads, window // 2, dropout
        self.query, self.key, self.value = (
            MaskedConv(width, width, 3, stride=stride, groups=width, bias=False) for _ in range(3)
        )
        self.norms = nn.ModuleList(ChannelLayerNorm(width) for _ in range(3))
        self.linear = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(3))
        self.out = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, T) and mask (B, T) → (B, C, T / stride) and mask (B, T / stride)."""
        query, key, value = (
            linear(norm(conv(x, mask))).unflatten(1, (self.num_heads, -1)).mT  # (B, H, T, c)
            for conv, norm, linear in zip((self.query, self.key, self.value), self.norms, self.linear, strict=True)
        )
        out_mask = mask[:, :: self.query.stride]
        attended = attend_locally(query, key, value, out_mask, self.reach, self.dropout if self.training else 0.0)
        return self.out(attended.mT.flatten(1, 2)) * out_mask[:, None], out_mask


def attend_locally(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, reach: int, dropout: float = 0.0) -> Tensor:
    """Softmax attention between moments at most `reach` apart.

    It is computed in blocks of `reach` moments, each with its two neighbours, so memory grows
    linearly with T.
    """
    length, size = query.shape[2], max(1, reach)
    padding = -length % size
    query, key, value = (F.pad(x, (0, 0, 0, padding)) for x in (query, key, value))
    mask = F.pad(mask, (0, padding))

    def with_neighbours(x: Tensor) -> Tensor:
        """(…, T, c) → (…, num_blocks, 3 · size, c): each block with the one before and the one after."""
        return F.pad(x, (0, 0, size, size)).unfold(-2, 3 * size, size).mT

    key_position = torch.arange(3 * size, device=query.device) - size  # relative to the start of the query's block
    query_position = torch.arange(size, device=query.device)
    in_reach = (key_position[None] - query_position[:, None]).abs() <= reach  # (size, 3 size)
    key_mask = with_neighbours(mask[..., None].float())[..., 0].bool()  # (B, num_blocks, 3 size)
    allowed = in_reach & key_mask[:, None, :, None, :]
    # Padding with nothing to attend to attends to everything, so that it stays finite.
    allowed = allowed | ~allowed.any(-1, keepdim=True)
    blocks = query.unflatten(2, (-1, size))
    attended = F.scaled_dot_product_attention(
        blocks, with_neighbours(key), with_neighbours(value), attn_mask=allowed, dropout_p=dropout
    )
    return attended.flatten(2, 3)[:, :, :length]
