"""LaViLa's visual tower: a TimeSformer initialised from CLIP's ViT-L/14, projected to 256 dimensions.

The released files hold `state_dict` with `module.visual.…`, `module.image_projection` (D, 256), and
the text tower of CLIP with `module.text_projection`. They were trained on 4 frames; for more, the
release interpolates the temporal embeddings.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from hiero.networks.registry import centre_crop, normalise
from hiero.networks.spacetime import SpaceTimeTransformer, load_released_tower

# Statistics of pixels in [0, 255] in the release. They are those of CLIP, except the first mean (122.77 in CLIP).
MEAN, DEVIATION = (108.3272985, 116.7460125, 104.09373615), (68.5005327, 66.6321579, 70.32316305)
SIZE = 224  # pixels
PROJECTED_SIZE = 256  # width of the space shared with text


class LaViLa(nn.Module):
    """Normalised windows (B, F, 3, 224, 224) → (B, 256)."""

    def __init__(self, visual: SpaceTimeTransformer, size: int) -> None:
        super().__init__()
        self.visual = visual
        self.image_projection = nn.Parameter(torch.empty(visual.norm.weight.shape[0], size))

    def forward(self, frames: Tensor) -> Tensor:
        return self.visual(frames) @ self.image_projection


def untrained(*, num_frames: int = 4) -> LaViLa:
    tower = LaViLa(SpaceTimeTransformer(1024, 24, 14, 256, num_frames, clip=True), PROJECTED_SIZE)
    nn.init.normal_(tower.image_projection, std=0.02)
    return tower


def load(folder: Path, *, num_frames: int | None = None) -> LaViLa:
    """Load the tower from a released file, or from the only file in a folder.

    `num_frames` is the length of a window (by default that of training).
    """

    def make(tower: SpaceTimeTransformer, state: dict[str, Tensor]) -> LaViLa:
        return LaViLa(tower, state["image_projection"].shape[1])

    prefixes = ("visual.", "image_projection")
    return load_released_tower(folder, make, prefixes, num_frames, "interpolate", "LaViLa's visual tower")


def prepare(frames: Tensor) -> Tensor:
    """Frames (N, H, W, 3) uint8 with a short side of 224 → normalised central squares (N, 3, 224, 224)."""
    return normalise(centre_crop(frames, SIZE, antialias=False), MEAN, DEVIATION)
