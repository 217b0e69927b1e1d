"""LaViLa's visual tower: a TimeSformer that began as CLIP's ViT-L/14, and its projection into 256 dimensions.

The release's files hold `state_dict` with `module.visual.…`, `module.image_projection` (D, 256),
and CLIP's text tower with `module.text_projection`. They were trained on 4 frames; for more, the
release interpolates the temporal embeddings.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from hiero.backbones.preprocessing import centre_crop, normalise
from hiero.backbones.spacetime import SpaceTimeTransformer, load_released_tower

# Of pixels in [0, 255], as the release has them: CLIP's, but for the first mean, which in CLIP is 122.77.
MEAN, DEVIATION = (108.3272985, 116.7460125, 104.09373615), (68.5005327, 66.6321579, 70.32316305)
SIZE = 224  # pixels
PROJECTED_SIZE = 256  # width of the space shared with text


class LaViLa(nn.Module):
    """Windows (B, F, 3, 224, 224), normalised → (B, 256), or (B, 1024) without the projection."""

    def __init__(self, visual: SpaceTimeTransformer, size: int | None) -> None:
        super().__init__()
        self.visual = visual
        self.image_projection = nn.Parameter(torch.empty(visual.norm.weight.shape[0], size)) if size else None

    def forward(self, frames: Tensor) -> Tensor:
        x: Tensor = self.visual(frames)
        return x if self.image_projection is None else x @ self.image_projection


def untrained(*, num_frames: int = 4, project: bool = True) -> LaViLa:
    """A tower of the release's size with random weights."""
    tower = LaViLa(SpaceTimeTransformer(1024, 24, 14, 256, num_frames, clip=True), PROJECTED_SIZE if project else None)
    if tower.image_projection is not None:
        nn.init.normal_(tower.image_projection, std=0.02)
    return tower


def load(folder: Path, *, num_frames: int | None = None, project: bool = True) -> LaViLa:
    """The tower in a release's file, which is the path or alone in a folder.

    `num_frames` are those of a window, by default as many as it was trained on; `project` adds the
    projection into the space shared with text. Raises InputError where the file holds no such tower.
    """
    projection = ("image_projection", lambda state: state["image_projection"].shape[1]) if project else None
    return load_released_tower(
        folder, LaViLa, "visual.", projection, num_frames, "interpolate", "LaViLa's visual tower"
    )


def prepare(frames: Tensor) -> Tensor:
    """(N, H, W, 3) uint8, decoded to a short side of 224 → (N, 3, 224, 224): the middle square, normalised."""
    return normalise(centre_crop(frames, SIZE, antialias=False), MEAN, DEVIATION)
