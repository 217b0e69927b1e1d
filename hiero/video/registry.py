"""Backbones by name: what each needs of a window, where its weights are, and what it makes of the frames."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hiero.errors import InputError
from hiero.plugins import load_plugin, registered
from hiero.storage import weights
from hiero.types import ProgressCallback

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Precision = Literal["auto", "float32", "float16", "bfloat16"]
GROUP = "hiero.backbones"
STRIDE, FPS = 16, 30.0  # of published features: 16 frames of 30 a second


@dataclass(frozen=True)
class Backbone:
    """What is known of a backbone before its network, and torch with it, is imported."""

    name: str
    what: str
    width: int
    module: str
    """Where its network is: `load(folder)` gives one that maps `prepare(frames)` to features; `untrained()` one to measure."""
    per_frame: bool
    """Looks at single frames, a few in each segment. Otherwise at all frames of a window of two segments."""
    half: bool
    """Half precision may be used where the machine is faster with it."""
    scores: bool = True
    """Class scores; of several frames the mean of their probabilities is taken. Otherwise vectors."""
    fetched: bool = True
    """Fetched by itself; otherwise only when the user has asked for the weights."""
    short_side: int = 260
    """Frames are decoded to this many pixels; 260 is the largest that the networks look at which read a video together."""
    num_frames: int = 0
    """Frames of a segment that a tower for video looks at, all of its own window; 0: one of the networks that share windows."""
    words: bool = False
    """Words can be asked on its features: its checkpoint holds a text tower for the same space."""
    weights: str = ""
    """The weights that it takes, where they are named otherwise."""
    options: dict[str, Any] = field(default_factory=dict)
    """For `load`."""
    needs_weights: bool = True
    """Has weights in `hiero weights`; otherwise `load` finds its own, and is given an empty path."""

    @property
    def spacing_s(self) -> float:
        """Time between the rows of its features, unless one asks for another."""
        return STRIDE / FPS if self.num_frames else 1.0

    @property
    def weights_name(self) -> str:
        """The name of its weights in `hiero weights`."""
        return self.weights or self.name

    @property
    def builtin(self) -> bool:
        """Whether it comes with hiero."""
        return self.module.startswith("hiero.")

    def prepare(self, frames: Tensor) -> Tensor:
        """Frames (N, H, W, 3) uint8 as the network wants them."""
        found: Tensor = import_module(self.module).prepare(frames)
        return found

    def load(self, folder: Path, num_frames: int | None = None) -> nn.Module:
        found: nn.Module = import_module(self.module).load(folder, **self._options(num_frames))
        return found

    def untrained(self, num_frames: int | None = None) -> nn.Module:
        """The network in its full size with random weights, which are as fast."""
        found: nn.Module = import_module(self.module).untrained(**self._options(num_frames))
        return found.eval()

    def _options(self, num_frames: int | None) -> dict[str, Any]:
        """For `load`; temporal embeddings are made for a number of frames."""
        embedded = self.module in ("hiero.video.egovlp", "hiero.video.lavila")
        return self.options | ({"num_frames": num_frames or self.num_frames} if embedded else {})


I3D_K400 = Backbone("i3d-k400", "actions: 400 scores of Kinetics classes", 400, "hiero.video.i3d", per_frame=False, half=True)
LITE2_IMAGENET = Backbone(
    "lite2-imagenet", "objects: 1000 scores of ImageNet classes", 1000, "hiero.video.efficientnet_lite2",
    per_frame=True, half=False,
)  # fmt: skip
CLIP_VIT_B32 = Backbone(
    "clip-vit-b32", "CLIP ViT-B/32: pictures and words in one space", 512, "hiero.video.clip",
    per_frame=True, half=False, scores=False, fetched=False, words=True,
)  # fmt: skip
EGOVLP = Backbone(
    "egovlp", "EgoVLP: ViT-B/16 in space and time, projected", 256, "hiero.video.egovlp",
    per_frame=False, half=False, scores=False, fetched=False, short_side=256, num_frames=16, words=True,
)  # fmt: skip
EGOVLP_768 = Backbone(
    "egovlp-768", "EgoVLP without its projection", 768, "hiero.video.egovlp",
    per_frame=False, half=False, scores=False, fetched=False, short_side=256, num_frames=16, weights="egovlp",
    options={"project": False},
)  # fmt: skip
LAVILA_L = Backbone(
    "lavila-l", "LaViLa: TimeSformer-L/14, projected", 256, "hiero.video.lavila",
    per_frame=False, half=False, scores=False, fetched=False, short_side=224, num_frames=4, words=True,
)  # fmt: skip
OMNIVORE_L = Backbone(
    "omnivore-l", "Omnivore: Swin-L for video", 1536, "hiero.video.omnivore",
    per_frame=False, half=False, scores=False, fetched=False, short_side=256, num_frames=16, options={"size": "L"},
)  # fmt: skip
OMNIVORE_B = Backbone(
    "omnivore-b", "Omnivore: Swin-B for video", 1024, "hiero.video.omnivore",
    per_frame=False, half=False, scores=False, fetched=False, short_side=256, num_frames=16, options={"size": "B"},
)  # fmt: skip


@functools.cache
def backbones() -> dict[str, Backbone]:
    """All backbones by name: the entry points of `hiero.backbones`, ours and those of other packages."""
    return {name: load_plugin(GROUP, name) for name in registered(GROUP)}


def find_backbone(name: str) -> Backbone:
    """A backbone by its name. Raises InputError where there is none."""
    if name not in backbones():
        raise InputError(f"no backbone {name}; known are {', '.join(backbones())}")
    return backbones()[name]


def fetch_weights(backbone: Backbone, progress: ProgressCallback | None = None) -> Path:
    """The folder of its weights, fetched now if they are not there and come without asking."""
    name = backbone.weights_name
    if not backbone.needs_weights:
        return Path()
    if not backbone.fetched and weights.find(name) is None:
        raise InputError(f"{name} is not here; run: hiero weights get {name}")
    return weights.get(name, progress)


def backbone_for(made_for: str | None, width: int) -> str | None:
    """The backbone whose features a model takes, by the name that its configuration gives and their width."""
    kind = (made_for or "").split("-")[0]
    fitting = (b.name for b in backbones().values() if b.width == width and kind in b.name.split("-"))
    return next(fitting, None)


def load_backbone(
    backbone: Backbone, device: torch.device, precision: torch.dtype, num_frames: int | None = None, folder: Path | None = None
) -> nn.Module:
    """Its network on a device, in half precision where that is wanted and good enough. folder: weights in place of the fetched."""
    import torch

    module = backbone.load(folder or fetch_weights(backbone), num_frames).eval()
    return module.to(device, precision if backbone.half or device.type == "cuda" else torch.float32)
