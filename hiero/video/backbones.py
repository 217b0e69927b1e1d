"""Backbones by name: what each needs of a window, where its weights are, and what it makes of the frames."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hiero import weights
from hiero.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Precision = Literal["auto", "float32", "float16"]
SHORT_SIDE = 260  # frames are decoded to this, the largest that a network looks at


@dataclass(frozen=True)
class Backbone:
    """What is known of a backbone before its network, and torch with it, is imported."""

    name: str
    what: str
    width: int
    module: str
    """In hiero.video: its `load(folder)` gives a network that maps `prepare`d frames to features."""
    per_frame: bool
    """Looks at single frames, a few in each segment. Otherwise at all frames of a window of two segments."""
    half: bool
    """Half precision may be used where the machine is faster with it."""
    scores: bool = True
    """Class scores; of several frames the mean of their probabilities is taken. Otherwise vectors."""
    fetched: bool = True
    """Fetched by itself; otherwise only when the user has asked for the weights."""

    def prepare(self, frames: Tensor) -> Tensor:
        """Frames (N, H, W, 3) uint8 as the network wants them."""
        found: Tensor = import_module(f"hiero.video.{self.module}").prepare(frames)
        return found

    def load(self, folder: Path) -> nn.Module:
        found: nn.Module = import_module(f"hiero.video.{self.module}").load(folder)
        return found


BACKBONES = {
    backbone.name: backbone
    for backbone in (
        Backbone("i3d-k400", "actions: 400 scores of Kinetics classes", 400, "i3d", per_frame=False, half=True),
        Backbone("lite2-imagenet", "objects: 1000 scores of ImageNet classes", 1000, "lite2", per_frame=True, half=False),
        Backbone(
            "clip-vit-b32", "CLIP ViT-B/32: pictures and words in one space", 512, "clip",
            per_frame=True, half=False, scores=False, fetched=False,
        ),
    )
}  # fmt: skip


def find_backbone(name: str) -> Backbone:
    if name not in BACKBONES:
        raise InputError(f"no backbone {name}; known are {', '.join(BACKBONES)}")
    return BACKBONES[name]


def fetch_weights(backbone: Backbone, progress: weights.Progress | None = None) -> Path:
    """The folder of its weights, fetched now if they are not there and come without asking."""
    if not backbone.fetched and weights.find(backbone.name) is None:
        raise InputError(f"{backbone.name} is not here; run: hiero weights get {backbone.name}")
    return weights.get(backbone.name, progress)


def load_backbone(backbone: Backbone, device: torch.device, precision: torch.dtype) -> nn.Module:
    """Its network on a device, in half precision where that is wanted and good enough."""
    import torch

    module = backbone.load(fetch_weights(backbone)).eval()
    return module.to(device, precision if backbone.half or device.type == "cuda" else torch.float32)
