"""EgoVLP's visual tower: ViT-B/16 with divided space-time attention and a projection to 256 dimensions.

The released file (egovlp.pth) holds `state_dict` with `module.video_model.…`,
`module.vid_proj.0.…`, `module.text_model.…` (DistilBERT) and `module.txt_proj.1.…`. It was trained
on 4 frames; for more, the release pads the temporal embeddings with zeros.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from hiero.networks.registry import IMAGENET, centre_crop, normalise
from hiero.networks.spacetime import SpaceTimeTransformer, load_released_tower

SIZE = 224  # pixels
PROJECTED_SIZE = 256  # width of the space shared with text


class EgoVLP(nn.Module):
    """Normalised windows (B, F, 3, 224, 224) → (B, 256), or (B, 768) without the projection."""

    def __init__(self, video_model: SpaceTimeTransformer, size: int | None) -> None:
        super().__init__()
        self.video_model = video_model
        self.vid_proj = nn.Sequential(nn.Linear(video_model.norm.weight.shape[0], size)) if size else None

    def forward(self, frames: Tensor) -> Tensor:
        x: Tensor = self.video_model(frames)
        return x if self.vid_proj is None else self.vid_proj(x)


def untrained(*, num_frames: int = 16, project: bool = True) -> EgoVLP:
    return EgoVLP(SpaceTimeTransformer(768, 12, 16, 196, num_frames), PROJECTED_SIZE if project else None)


def load(folder: Path, *, num_frames: int | None = None, project: bool = True) -> EgoVLP:
    """Load the tower from the released file, or from the only file in a folder.

    `num_frames` is the length of a window (by default that of training). `project` adds the
    projection into the space shared with text.
    """

    def make(tower: SpaceTimeTransformer, state: dict[str, Tensor]) -> EgoVLP:
        return EgoVLP(tower, len(state["vid_proj.0.weight"]) if project else None)

    prefixes = ("video_model.", "vid_proj.") if project else ("video_model.",)
    return load_released_tower(folder, make, prefixes, num_frames, "zeros", "EgoVLP's visual tower")


def prepare(frames: Tensor) -> Tensor:
    """Frames (N, H, W, 3) uint8 with a short side of 256 → normalised central squares (N, 3, 224, 224)."""
    return normalise(centre_crop(frames, SIZE, antialias=False) / 255, *IMAGENET)
