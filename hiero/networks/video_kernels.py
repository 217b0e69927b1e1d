"""Operations of the video towers: attention divided in space and time, attention inside Swin's windows,
residual addition with LayerNorm, and CLIP's GELU.

Each function uses the Triton kernel (`video_triton`) if it can run and torch operations otherwise.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GridShape = tuple[int, int, int]
"""Tokens along time, height and width."""


def video_kernels(x: Tensor) -> Any:
    """The module of Triton kernels, or None if they cannot run (no GPU, no Triton, or with gradients)."""
    if not x.is_cuda:
        return None
    try:
        from hiero.networks import video_triton
    except ImportError:  # a CPU build of torch has no Triton
        return None
    return video_triton if video_triton.usable(x) else None


def quick_gelu(x: Tensor) -> Tensor:
    """CLIP's approximation of GELU, x · σ(1.702 x). It may overwrite its input if there are no gradients."""
    if (kernels := video_kernels(x)) is not None:
        return kernels.quick_gelu_triton_(x)
    return x * torch.sigmoid(1.702 * x)


def add_norm(x: Tensor, y: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """x + y and its LayerNorm."""
    if (kernels := video_kernels(x)) is not None:
        return kernels.add_norm_triton(x, y, norm)
    x = x if y is None else x + y
    return x, norm(x)


def divided_attention(qkv: Tensor, num_frames: int, num_heads: int, along: Literal["time", "space"]) -> Tensor:
    """Patches attend to their group and the class token; the class token attends to everything."""
    batch, length, width = qkv.shape
    split = qkv.view(batch, length, 3, num_heads, width // 3 // num_heads)
    q, k, v = (part.transpose(1, 2) for part in (split[:, :1, 0], split[:, :, 1], split[:, :, 2]))
    class_row = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)  # (B, 1, H, d)
    if (kernels := video_kernels(qkv)) is not None:
        out: Tensor = kernels.divided_attention_triton(qkv, num_frames, num_heads, along == "time")
        out[:, :1] = class_row.flatten(2)
        return out
    patches = split[:, 1:].unflatten(1, (num_frames, -1))  # (B, F, N, 3, H, d)
    if along == "time":
        patches = patches.transpose(1, 2)  # (B, groups, members, 3, H, d)
    num_groups = patches.shape[1]
    class_kv = split[:, None, :1, 1:].expand(-1, num_groups, -1, -1, -1, -1)
    k, v = torch.cat([class_kv, patches[:, :, :, 1:]], 2).flatten(0, 1).permute(2, 0, 3, 1, 4)
    q = patches[:, :, :, 0].flatten(0, 1).transpose(1, 2)
    rows = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)  # (B · groups, members, H, d)
    patch_rows = rows.unflatten(0, (batch, num_groups))
    if along == "time":
        patch_rows = patch_rows.transpose(1, 2)
    return torch.cat([class_row, patch_rows.flatten(1, 2)], 1).flatten(2)


@dataclass(frozen=True, eq=False)
class WindowPartition:
    """A grid of L tokens cut into W windows of N positions, with padding if windows do not divide it.

    After a shift, a window may hold tokens from two ends of the grid, which must not attend to each other.
    """

    order: Tensor  # tokens of the padded grid, window by window, (W·N)
    inverse: Tensor  # position of each token of the unpadded grid in `order`, (L)
    num_windows: int
    # Windows [start, end) with the same mask (N, N), True for pairs that must not see each other, or None.
    groups: list[tuple[int, int, Tensor | None]]
    # Region of each token, (W·N): tokens of different regions must not see each other. None without a shift.
    regions: Tensor | None
    unpadded: bool  # whether the windows divide the grid

    @functools.lru_cache(2)  # noqa: B019  (partitions are cached too)
    def tiled(self, tile: int) -> tuple[Tensor, Tensor | None, int]:
        """`order` and `regions` as (W, P), with P a multiple of `tile`, and N."""
        order = self.order.view(self.num_windows, -1)
        num_positions = order.shape[1]
        padding = (0, -num_positions % tile)
        regions = None if self.regions is None else F.pad(self.regions.view(self.num_windows, -1), padding).contiguous()
        return F.pad(order, padding).contiguous(), regions, num_positions


@functools.lru_cache(64)
def partition_windows(size: GridShape, window: GridShape, shift: GridShape, device: torch.device) -> WindowPartition:
    """Cut a grid into windows, after rolling it by `shift`."""
    padded = tuple(-(-n // w) * w for n, w in zip(size, window, strict=True))
    tokens = torch.arange(math.prod(padded)).view(padded).roll([-n for n in shift], (0, 1, 2))
    # The region of a token has one bit for each shifted axis: whether the roll wrapped it around.
    regions = torch.zeros(padded, dtype=torch.long)
    for axis, (length, offset) in enumerate(zip(padded, shift, strict=True)):
        if offset:
            wrapped = (torch.arange(length) >= length - offset).long()
            regions = 2 * regions + wrapped.view([-1 if i == axis else 1 for i in range(3)])
    tokens, regions = _cut(tokens, window), _cut(regions, window)
    masked = regions[:, :, None] != regions[:, None]
    # Windows with the same mask are adjacent, so that torch's attention is called once for each mask.
    by_mask: dict[bytes, list[int]] = {}
    for index, mask in enumerate(masked):
        by_mask.setdefault(mask.numpy().tobytes(), []).append(index)
    groups: list[tuple[int, int, Tensor | None]] = []
    for indices in by_mask.values():
        start = groups[-1][1] if groups else 0
        mask = masked[indices[0]]
        groups.append((start, start + len(indices), mask.to(device) if bool(mask.any()) else None))
    sequence = [index for indices in by_mask.values() for index in indices]
    order = tokens[sequence].flatten()
    inverse = order.argsort().view(padded)[: size[0], : size[1], : size[2]].flatten()
    token_regions = regions[sequence].flatten().int().to(device) if any(shift) else None
    return WindowPartition(
        order.int().to(device), inverse.to(device), len(tokens), groups, token_regions, size == padded
    )


def _cut(grid: Tensor, window: GridShape) -> Tensor:
    """(T, H, W) → (windows, positions)."""
    (a, b, c), (t, h, w) = window, (n // m for n, m in zip(grid.shape, window, strict=True))
    return grid.view(t, a, h, b, w, c).permute(0, 2, 4, 1, 3, 5).reshape(t * h * w, a * b * c)


def window_attention(
    qkv: Tensor, windows: WindowPartition, bias_table: Tensor, bias_index: Tensor, bias_cache: dict[Any, Tensor]
) -> Tensor:
    """Tokens attend to those of their window, with a learned bias for each displacement."""
    num_heads = bias_table.shape[1]
    if windows.unpadded and (kernels := video_kernels(qkv)) is not None:
        order, regions, num_positions = windows.tiled(kernels.TILE)
        bias = _kernel_bias(bias_table, bias_index, order.shape[1], bias_cache)
        return kernels.window_attention_triton(qkv, order, regions, bias, num_positions)
    split = qkv[:, windows.order].unflatten(1, (windows.num_windows, -1)).unflatten(-1, (3, num_heads, -1))
    q, k, v = split.permute(3, 0, 1, 4, 2, 5)  # each (B, W, H, N, d)
    bias = bias_table.mT[:, bias_index].to(q.dtype).contiguous()  # fused kernels need contiguous rows
    out = []
    for start, end, masked in windows.groups:
        mask = bias if masked is None else bias.masked_fill(masked, float("-inf"))
        group_q, group_k, group_v = (part[:, start:end].flatten(0, 1) for part in (q, k, v))
        rows = F.scaled_dot_product_attention(group_q, group_k, group_v, mask[None])
        out.append(rows.unflatten(0, (len(qkv), end - start)).transpose(2, 3).flatten(3))
    return torch.cat(out, 1).flatten(1, 2)[:, windows.inverse]


def _kernel_bias(table: Tensor, index: Tensor, padded: int, cache: dict[Any, Tensor]) -> Tensor:
    """The bias (H, P, P) times log₂e, for exponentials with base 2, with −∞ for padding keys."""
    num_positions = len(index)
    key = (num_positions, padded, table.device, table.dtype, table.data_ptr())
    if key not in cache:
        bias = F.pad(table.mT[:, index].float() / math.log(2), (0, padded - num_positions), value=float("-inf"))
        cache.clear()  # other weights or another window length
        cache[key] = F.pad(bias, (0, 0, 0, padded - num_positions)).to(table.dtype).contiguous()
    return cache[key]
