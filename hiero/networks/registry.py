"""Backbones by name: the frames that each needs, its weights and how it is loaded; preparation of frames.

A package adds a backbone with an entry point that names a `Backbone`, and with a module that holds
the network:

    [project.entry-points."hiero.backbones"]
    my-tower = "my_package.registry:MY_TOWER"

    # my_package/registry.py is imported whenever backbones are listed, so it should not import torch.
    MY_TOWER = Backbone("my-tower", "ViT for video", 768, "my_package.tower", per_frame=False, allows_half=False,
                        scores=False, num_frames=8, short_side=224, needs_weights=False)

    # my_package/tower.py is imported when the network is used.
    def load(folder: Path) -> nn.Module: ...    # Returns the network with its weights; takes `Backbone.options` too.
    def prepare(frames: Tensor) -> Tensor: ...  # Maps (N, H, W, 3) uint8 to what the network takes, (N, …).
    def untrained() -> nn.Module: ...           # Returns the network with random weights; only hiero's own need it.

The network maps prepared frames to features. With `per_frame` it takes single frames and maps
(N, …) to (N, width); otherwise it takes windows of F frames and maps (B, F, …) to (B, width). It
must have parameters: it computes in their dtype.
"""

from __future__ import annotations

import functools
import re
import tomllib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hiero.errors import InputError
from hiero.plugins import load_plugin, registered
from hiero.storage import weights
from hiero.storage.files import ASSETS
from hiero.types import ProgressCallback

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Precision = Literal["auto", "float32", "float16", "bfloat16"]
GROUP = "hiero.backbones"
STRIDE = 16  # frames per row of published features
FPS = 30.0  # frame rate of published features
EMBEDDED_FRAMES = ("hiero.networks.egovlp", "hiero.networks.lavila")  # modules with temporal embeddings
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation of pixels in [0, 1]


@dataclass(frozen=True)
class Backbone:
    """Description of a backbone, which imports neither its network nor torch."""

    name: str
    """The name that users type."""
    description: str
    """A description of one line."""
    width: int
    """The number of features of a row."""
    module: str
    """The module with the functions that are described at the top of this file."""
    per_frame: bool
    """Whether the network takes single frames, a few of each segment, and not windows."""
    allows_half: bool
    """Whether half precision may be used on a CPU too, if that is faster."""
    scores: bool = True
    """Whether the features are logits of classes, which are averaged as probabilities."""
    short_side: int = 260
    """The shorter side of decoded frames in pixels; at most 260 for networks that read a video together."""
    frames_per_segment: int = 2
    """With `per_frame`, the number of frames of a segment. Their features are averaged."""
    num_frames: int = 0
    """The number of frames of a window of one segment, for a network that reads a video alone. With 0,
    it reads windows of two segments together with other networks.
    """
    has_text: bool = False
    """Whether the checkpoint holds a text tower for the space of the features."""
    weights: str = ""
    """The name of the weights in `assets/weights.toml`, if it differs from the name of the backbone."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `load` and `untrained`."""
    needs_weights: bool = True
    """Whether hiero downloads its weights. Otherwise `load` finds its own and gets an empty path."""
    version: int = 1
    """Increase it when the features change, so that cached ones are extracted again."""

    def __post_init__(self) -> None:
        if self.per_frame and self.num_frames:
            raise InputError(f"{self.name}: per_frame and num_frames must not be set together")
        if self.has_text and not self.needs_weights:
            raise InputError(f"{self.name}: needs_weights must be True if has_text is True")

    @property
    def spacing_s(self) -> float:
        """Default time between two rows of features, in seconds."""
        return STRIDE / FPS if self.num_frames else 1.0

    @property
    def weights_name(self) -> str:
        return self.weights or self.name

    @property
    def _module(self) -> Any:
        return import_module(self.module)

    def prepare(self, frames: Tensor) -> Tensor:
        """Convert frames (N, H, W, 3) uint8 to the input of the network."""
        return self._module.prepare(frames)

    def load(self, folder: Path, num_frames: int | None = None) -> nn.Module:
        """Load the network with the weights in a folder, optionally for windows of `num_frames`."""
        return self._module.load(folder, **self._options(num_frames))

    def untrained(self, num_frames: int | None = None) -> nn.Module:
        """The network with random weights, to measure its speed."""
        return self._module.untrained(**self._options(num_frames)).eval()

    def _options(self, num_frames: int | None) -> dict[str, Any]:
        frames = {"num_frames": num_frames or self.num_frames} if self.module in EMBEDDED_FRAMES else {}
        return self.options | frames


OWN = {
    name: Backbone(name, **table)
    for name, table in tomllib.loads((ASSETS / "backbones.toml").read_text(encoding="utf-8")).items()
}
# The names in the entry points of pyproject.toml
I3D_K400 = OWN["i3d-k400"]
DINOV2_TEXT = OWN["dinov2-text"]
CLIP_VIT_B32 = OWN["clip-vit-b32"]
EGOVLP = OWN["egovlp"]
EGOVLP_768 = OWN["egovlp-768"]
LAVILA_L = OWN["lavila-l"]
OMNIVORE_L = OWN["omnivore-l"]
OMNIVORE_B = OWN["omnivore-b"]


@functools.cache
def backbones() -> dict[str, Backbone]:
    """All backbones by name, of hiero and of other packages. Those that cannot be imported give a warning."""
    out: dict[str, Backbone] = {}
    for name in registered(GROUP):
        try:
            out[name] = load_plugin(GROUP, name)
        except InputError as error:
            warnings.warn(f"backbone {error}", stacklevel=2)
    return out


def find_backbone(name: str) -> Backbone:
    """The backbone of a name. Raises InputError if it does not exist or cannot be imported."""
    return backbones().get(name) or load_plugin(GROUP, name)  # registered since, or an error that says why


def fetch_weights(backbone: Backbone, progress: ProgressCallback | None = None) -> Path:
    """The folder of the weights, which are downloaded if they are missing."""
    return weights.get(backbone.weights_name, progress) if backbone.needs_weights else Path()


def backbone_for(family: str | None, width: int) -> str | None:
    """The name of the backbone with features of this width, or None.

    `family` is the backbone in the configuration of a model, such as `omnivore-l`, or as the authors write it:
    `omnivore_video_swinl`, `LaViLa-L`. Only its first word counts.
    """
    first_word = re.split("[-_]", (family or "").lower())[0]
    names = (b.name for b in backbones().values() if b.width == width and first_word in b.name.split("-"))
    return next(names, None)


def load_backbone(
    backbone: Backbone,
    device: torch.device,
    precision: torch.dtype,
    num_frames: int | None = None,
    folder: Path | None = None,
) -> nn.Module:
    """Load a backbone with its downloaded weights or those in `folder`.

    On a CPU, the precision is float32 unless the backbone allows half precision.
    """
    import torch

    module = backbone.load(folder or fetch_weights(backbone), num_frames).eval()
    return module.to(device, precision if backbone.allows_half or device.type == "cuda" else torch.float32)


def centre_crop(frames: Tensor, size: int, share: float = 1.0, antialias: bool = True) -> Tensor:
    """The central square of each frame (N, H, W, 3), scaled to (N, 3, size, size)."""
    from torch.nn import functional as F

    height, width = frames.shape[1:3]
    side = max(1, round(share * min(height, width)))
    top, left = (height - side) // 2, (width - side) // 2
    x = frames[:, top : top + side, left : left + side].permute(0, 3, 1, 2).float()
    if side == size:
        return x
    return F.interpolate(x, size=(size, size), mode="bilinear", antialias=antialias, align_corners=False)


def normalise(pictures: Tensor, mean: Sequence[float], deviation: Sequence[float]) -> Tensor:
    """Subtract the mean of each channel from pictures (N, 3, H, W) and divide by its deviation."""
    return (pictures - pictures.new_tensor(mean)[:, None, None]) / pictures.new_tensor(deviation)[:, None, None]
