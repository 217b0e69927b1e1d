"""Which kernels a tensor can go through."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def video_kernels(x: Tensor) -> Any:
    """The module of Triton kernels for the video towers, or None where they cannot run (no GPU, no
    Triton, gradients).
    """
    if not x.is_cuda:
        return None
    try:
        from hiero.kernels import video_triton
    except ImportError:  # a CPU build of torch has no Triton
        return None
    return video_triton if video_triton.usable(x) else None
