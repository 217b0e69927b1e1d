"""LaViLa's visual tower: a TimeSformer initialised from CLIP's ViT-L/14, projected to 256 dimensions.

The released files hold `state_dict` with `module.visual.…`, `module.image_projection` (D, 256), and
the text tower of CLIP with `module.text_projection`. They were trained on 4 frames; for more, the
release interpolates the temporal embeddings.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from hiero.networks.registry import centre_crop, normalise
from hiero.networks.spacetime import ProjectedTower, SpaceTimeTransformer, load_released_tower

# Statistics of pixels in [0, 255] in the release. They are those of CLIP, except the first mean (122.77 in CLIP).
MEAN, DEVIATION = (108.3272985, 116.7460125, 104.09373615), (68.5005327, 66.6321579, 70.32316305)
SIZE = 224  # pixels
PROJECTED_SIZE = 256  # width of the space shared with text


def untrained(*, num_frames: int = 4) -> ProjectedTower:
    transformer = SpaceTimeTransformer(1024, 24, 14, 256, num_frames, clip=True)
    return ProjectedTower(transformer, nn.Linear(1024, PROJECTED_SIZE, bias=False))


def load(folder: Path, *, num_frames: int | None = None) -> ProjectedTower:
    """Load the tower. `num_frames` is the length of a window (by default that of training)."""
    name = "LaViLa's visual tower"
    return load_released_tower(folder, "visual.", "image_projection", num_frames, "interpolate", name)


def prepare(frames: Tensor) -> Tensor:
    """Frames (N, H, W, 3) uint8 with a short side of 224 → normalised central squares (N, 3, 224, 224)."""
    return normalise(centre_crop(frames, SIZE, antialias=False), MEAN, DEVIATION)
