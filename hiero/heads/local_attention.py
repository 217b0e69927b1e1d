"""Attention inside a window around each moment, computed in blocks: time and memory grow linearly with the video."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.heads.layers import ChannelLayerNorm, MaskedConv


class LocalAttention(nn.Module):
    """Multi-head attention on (B, C, T) that reaches window // 2 moments to each side.

    Queries, keys and values go through depth-wise convolutions first, with the stride of the block.
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
        projections = []
        out_mask = mask
        for conv, norm, linear in zip((self.query, self.key, self.value), self.norms, self.linear, strict=True):
            y, out_mask = conv(x, mask)
            projections.append(linear(norm(y)).unflatten(1, (self.num_heads, -1)).mT)  # (B, H, T, c)
        query, key, value = projections
        attended = attend_locally(query, key, value, out_mask, self.reach, self.dropout if self.training else 0.0)
        return self.out(attended.mT.flatten(1, 2)) * out_mask[:, None], out_mask


def attend_locally(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, reach: int, dropout: float = 0.0) -> Tensor:
    """Softmax attention in which i sees j where |i − j| ≤ reach.

    Computed in blocks of `reach` moments. A block sees itself and its two neighbours, so nothing of
    size T × T is ever made.
    """
    length, size = query.shape[2], max(1, reach)
    padding = -length % size
    query, key, value = (F.pad(x, (0, 0, 0, padding)) for x in (query, key, value))
    mask = F.pad(mask, (0, padding))
    num_blocks = (length + padding) // size

    def with_neighbours(x: Tensor) -> Tensor:
        """(…, T, c) → (…, num_blocks, 3 · size, c): each block with the one before and the one after."""
        padded = F.pad(x, (0, 0, size, size))
        return padded.unfold(-2, 3 * size, size).mT

    key_position = torch.arange(3 * size, device=query.device) - size  # from the start of the query's block
    query_position = torch.arange(size, device=query.device)
    in_reach = (key_position[None] - query_position[:, None]).abs() <= reach  # (size, 3 size)
    key_mask = with_neighbours(mask[..., None].float())[..., 0].bool()  # (B, num_blocks, 3 size)
    allowed = in_reach & key_mask[:, None, :, None, :]
    # padding that sees nothing sees everything, so that it stays finite
    allowed = allowed | ~allowed.any(-1, keepdim=True)
    blocks = query.unflatten(2, (num_blocks, size))
    attended = F.scaled_dot_product_attention(
        blocks, with_neighbours(key), with_neighbours(value), attn_mask=allowed, dropout_p=dropout
    )
    return attended.flatten(2, 3)[:, :, :length]
