"""Residual addition and LayerNorm in one pass over memory."""

from __future__ import annotations

from torch import Tensor, nn

from hiero.kernels.dispatch import video_kernels


def add_norm(x: Tensor, y: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """x + y, and its LayerNorm."""
    if (kernels := video_kernels(x)) is not None:
        return kernels.add_norm_triton(x, y, norm)
    x = x if y is None else x + y
    return x, norm(x)
