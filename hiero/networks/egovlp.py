"""EgoVLP's visual tower: ViT-B/16 with divided space-time attention and a projection to 256 dimensions.

The released file (egovlp.pth) holds `state_dict` with `module.video_model.…`,
`module.vid_proj.0.…`, `module.text_model.…` (DistilBERT) and `module.txt_proj.1.…`. It was trained
on 4 frames; for more, the release pads the temporal embeddings with zeros.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from hiero.networks.registry import IMAGENET, centre_crop, normalise
from hiero.networks.spacetime import ProjectedTower, SpaceTimeTransformer, load_released_tower

SIZE = 224  # pixels
PROJECTED_SIZE = 256  # width of the space shared with text


def untrained(*, num_frames: int = 16, project: bool = True) -> ProjectedTower:
    transformer = SpaceTimeTransformer(768, 12, 16, 196, num_frames)
    return ProjectedTower(transformer, nn.Linear(768, PROJECTED_SIZE) if project else None)


def load(folder: Path, *, num_frames: int | None = None, project: bool = True) -> ProjectedTower:
    """Load the tower with or without its projection into the space shared with text.

    `num_frames` is the length of a window (by default that of training).
    """
    projection = "vid_proj.0" if project else None
    return load_released_tower(folder, "video_model.", projection, num_frames, "zeros", "EgoVLP's visual tower")


def prepare(frames: Tensor) -> Tensor:
    """Frames (N, H, W, 3) uint8 with a short side of 256 → normalised central squares (N, 3, 224, 224)."""
    return normalise(centre_crop(frames, SIZE, antialias=False) / 255, *IMAGENET)
