"""Attention of the video towers: divided in space and time, and inside Swin's windows.

Each function takes the Triton kernel where it can run and torch's attention otherwise; a test holds that both agree.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.kernels.dispatch import video_kernels


def divided_attention(qkv: Tensor, num_frames: int, num_heads: int, along: Literal["time", "space"]) -> Tensor:
    """Patches attend to their group and the class token; the class token attends to everything.

    Args:
        qkv: Queries, keys and values of the class token and the patches, (B, 1 + F·N, 3·H·d).
        num_frames: F.
        num_heads: H.
        along: `time`, the same patch in all frames; `space`, all patches of a frame.

    Returns:
        (B, 1 + F·N, H·d).
    """
    batch, length, width = qkv.shape
    split = qkv.view(batch, length, 3, num_heads, width // 3 // num_heads)
    class_row = _attend(*(part.transpose(1, 2) for part in (split[:, :1, 0], split[:, :, 1], split[:, :, 2])))  # (B, H, 1, d)
    class_row = class_row.transpose(1, 2)
    if (kernels := video_kernels(qkv)) is not None:
        out: Tensor = kernels.divided_attention(qkv, num_frames, num_heads, along == "time")
        out[:, :1] = class_row.flatten(2)
        return out
    patches = split[:, 1:].unflatten(1, (num_frames, -1))  # (B, F, N, 3, H, d)
    if along == "time":
        patches = patches.transpose(1, 2)  # (B, groups, members, 3, H, d)
    groups = patches.shape[1]
    shared = split[:, None, :1, 1:].expand(-1, groups, -1, -1, -1, -1)
    k, v = torch.cat([shared, patches[:, :, :, 1:]], 2).flatten(0, 1).permute(2, 0, 3, 1, 4)
    q = patches[:, :, :, 0].flatten(0, 1).transpose(1, 2)
    patch_rows = _attend(q, k, v).transpose(1, 2).unflatten(0, (batch, groups))  # (B, groups, members, H, d)
    if along == "time":
        patch_rows = patch_rows.transpose(1, 2)
    return torch.cat([class_row, patch_rows.flatten(1, 2)], 1).flatten(2)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)
