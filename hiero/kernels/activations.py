"""Activations that torch has no fused kernel for."""

from __future__ import annotations

import torch
from torch import Tensor

from hiero.kernels.dispatch import video_kernels


def quick_gelu(x: Tensor) -> Tensor:
    """CLIP's approximation of GELU, x · σ(1.702 x). May write over its input where no gradient needs it."""
    if (kernels := video_kernels(x)) is not None:
        return kernels.quick_gelu_triton_(x)
    return x * torch.sigmoid(1.702 * x)
