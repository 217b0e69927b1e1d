"""Frames as the networks want them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation of its pixels in [0, 1]


def centre_crop(frames: Tensor, size: int, share: float = 1.0, antialias: bool = True) -> Tensor:
    """The square in the middle of each frame, scaled."""
    height, width = frames.shape[1:3]
    side = max(1, round(share * min(height, width)))
    top, left = (height - side) // 2, (width - side) // 2
    x = frames[:, top : top + side, left : left + side].permute(0, 3, 1, 2).float()
    return (
        x
        if side == size
        else F.interpolate(x, size=(size, size), mode="bilinear", antialias=antialias, align_corners=False)
    )


def normalise(pictures: Tensor, mean: Sequence[float], deviation: Sequence[float]) -> Tensor:
    """(N, 3, H, W) shifted and scaled by channel."""
    return (pictures - pictures.new_tensor(mean)[:, None, None]) / pictures.new_tensor(deviation)[:, None, None]
