"""Backbones by name: what each needs of a window, where its weights are, and what it makes of the frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from hiero import weights
from hiero.errors import InputError
from hiero.video import clip, i3d, lite2
from hiero.video.frames import middle_square

SHORT_SIDE = 260  # frames are decoded to this, the largest that a network looks at
I3D_SIZE = 160  # trained at 224; with 24 frames a window it keeps more of the full scores than 16 frames at 224 do, at less cost


@dataclass(frozen=True)
class Backbone:
    """`load` gives a module that maps `prepare`d frames to features; `prepare` takes frames (N, H, W, 3) uint8."""

    name: str
    what: str
    width: int
    load: Callable[[Path], nn.Module]
    prepare: Callable[[Tensor], Tensor]
    per_frame: bool
    """Looks at single frames, a few in each segment. Otherwise at all frames of a window of two segments."""
    half: bool
    """Half precision may be used where the machine is faster with it."""
    scores: bool = True
    """Class scores; of several frames the mean of their probabilities is taken. Otherwise vectors."""
    fetched: bool = True
    """Fetched by itself; otherwise only when the user has asked for the weights."""


BACKBONES = {
    backbone.name: backbone
    for backbone in (
        Backbone(
            "i3d-k400", "actions: 400 scores of Kinetics classes", 400,
            lambda folder: i3d.load_i3d(folder / "i3d-kinetics-400.ckpt"),
            lambda frames: middle_square(frames, I3D_SIZE) / 127.5 - 1, per_frame=False, half=True,
        ),
        Backbone(
            "lite2-imagenet", "objects: 1000 scores of ImageNet classes", 1000,
            lambda folder: lite2.load_lite2(folder / "efficientnet-lite2.pth"), lite2.prepare, per_frame=True, half=False,
        ),
        Backbone(
            "clip-vit-b32", "CLIP ViT-B/32: pictures and words in one space", 512,
            clip.load_images, clip.prepare, per_frame=True, half=False, scores=False, fetched=False,
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
    module = backbone.load(fetch_weights(backbone)).eval()
    return module.to(device, precision if backbone.half or device.type == "cuda" else torch.float32)
