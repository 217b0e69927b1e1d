"""EgoVLP's visual tower: ViT-B/16 with divided space-time attention, and a projection into 256 dimensions.

The release's file (egovlp.pth) holds `state_dict` with `module.video_model.…`,
`module.vid_proj.0.…`, `module.text_model.…` (DistilBERT) and `module.txt_proj.1.…`. It was trained
on 4 frames; for more, the release fills the temporal embeddings up with zeros.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from hiero.backbones.preprocessing import IMAGENET, centre_crop, normalise
from hiero.backbones.spacetime import SpaceTimeTransformer, load_released_tower

MEAN, DEVIATION = IMAGENET
SIZE = 224  # pixels
PROJECTED_SIZE = 256  # width of the space shared with text


class EgoVLP(nn.Module):
    """Windows (B, F, 3, 224, 224), normalised → (B, 256), or (B, 768) without the projection."""

    def __init__(self, video_model: SpaceTimeTransformer, size: int | None) -> None:
        super().__init__()
        self.video_model = video_model
        self.vid_proj = nn.Sequential(nn.Linear(video_model.norm.weight.shape[0], size)) if size else None

    def forward(self, frames: Tensor) -> Tensor:
        x: Tensor = self.video_model(frames)
        return x if self.vid_proj is None else self.vid_proj(x)


def untrained(*, num_frames: int = 16, project: bool = True) -> EgoVLP:
    """A tower of the release's size with random weights."""
    return EgoVLP(SpaceTimeTransformer(768, 12, 16, 196, num_frames), PROJECTED_SIZE if project else None)


def load(folder: Path, *, num_frames: int | None = None, project: bool = True) -> EgoVLP:
    """The tower in the release's file, which is the path or alone in a folder.

    `num_frames` are those of a window, by default as many as it was trained on; `project` adds the
    projection into the space shared with text. Raises InputError where the file holds no such tower.
    """
    projection = ("vid_proj.", lambda state: len(state["vid_proj.0.weight"])) if project else None
    return load_released_tower(folder, EgoVLP, "video_model.", projection, num_frames, "zeros", "EgoVLP's visual tower")


def prepare(frames: Tensor) -> Tensor:
    """(N, H, W, 3) uint8, decoded to a short side of 256 → (N, 3, 224, 224): the middle square,
    scaled, normalised.
    """
    return normalise(centre_crop(frames, SIZE, antialias=False) / 255, MEAN, DEVIATION)
