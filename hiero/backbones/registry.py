"""Backbones by name: what each needs of a window, where its weights are, and what it makes of the frames.

A package adds a backbone with an entry point that names a `Backbone`, and a module that holds the network:

    [project.entry-points."hiero.backbones"]
    my-tower = "my_package.registry:MY_TOWER"

    # my_package/registry.py: imported whenever backbones are listed, so without torch
    MY_TOWER = Backbone("my-tower", "ViT for video", 768, "my_package.tower", per_frame=False, allows_half=False, scores=False,
                        num_frames=8, short_side=224, needs_weights=False)

    # my_package/tower.py: imported when the network is used
    def load(folder: Path) -> nn.Module: ...        # the network with its weights; `Backbone.options` are further arguments
    def prepare(frames: Tensor) -> Tensor: ...      # (N, H, W, 3) uint8 → what the network takes, a row each, (N, …)
    def untrained() -> nn.Module: ...               # the same with random weights, to measure its speed; only hiero's own need it

The network maps prepared frames to features: single ones, (N, …) → (N, width), if `per_frame`;
otherwise windows of F frames, (B, F, …) → (B, width). It must have parameters: their type is the
one that it computes in.
"""

from __future__ import annotations

import functools
import warnings
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
STRIDE, FPS = 16, 30.0  # of published features: a row every 16 frames, 30 frames a second
# modules with temporal embeddings, made for a number of frames
EMBEDDED_FRAMES = ("hiero.backbones.egovlp", "hiero.backbones.lavila")


@dataclass(frozen=True)
class Backbone:
    """What is known of a backbone before its network, and torch with it, is imported."""

    name: str
    """As in `hiero backbones`."""
    description: str
    """Description of a line, for people."""
    width: int
    """Width of its features."""
    module: str
    """Module that holds its network: functions `load`, `prepare` and `untrained`, as described at
    the top of this file.
    """
    per_frame: bool
    """Takes single frames, a few of each segment. Otherwise all frames of a window."""
    allows_half: bool
    """Half precision may be used on a CPU that is faster with it; on a GPU every backbone may use it."""
    scores: bool = True
    """Features are logits of classes: of several frames the mean of their probabilities is taken. Otherwise vectors."""
    auto_fetch: bool = True
    """Weights are fetched without asking; otherwise only by `hiero weights get`."""
    short_side: int = 260
    """Frames are decoded to this many pixels; 260 is the most that one of the networks which read a
    video together takes.
    """
    frames_per_segment: int = 2
    """Frames of a segment that a backbone for single frames is shown; their features are averaged."""
    num_frames: int = 0
    """Frames of a window of one segment, for a tower that reads a video alone; 0: reads windows of
    two segments with others.
    """
    has_text: bool = False
    """Texts can be compared with its features: its checkpoint holds a text tower for the same
    space, as EgoVLP's or LaViLa's.
    """
    weights: str = ""
    """Name of its weights in `hiero weights`, where it is not its own."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `load` and `untrained`."""
    needs_weights: bool = True
    """Has weights in `hiero weights`; otherwise `load` finds its own, and is given an empty path."""

    version: int = 1
    """Of what its network computes here; a new one where its features change, so that what was
    extracted before is done again.
    """

    def __post_init__(self) -> None:
        if self.per_frame and self.num_frames:
            raise InputError(
                f"{self.name}: looks at single frames (per_frame) or at windows of its own (num_frames), not both"
            )
        if self.has_text and not self.needs_weights:
            raise InputError(f"{self.name}: has_text needs a checkpoint with a text tower, and so needs_weights")

    @property
    def spacing_s(self) -> float:
        """Seconds from one row of its features to the next, by default."""
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
        """Frames (N, H, W, 3) uint8 as the network takes them."""
        prepared: Tensor = import_module(self.module).prepare(frames)
        return prepared

    def load(self, folder: Path, num_frames: int | None = None) -> nn.Module:
        """The network with its weights.

        Args:
            folder: Where the weights are.
            num_frames: Frames of a window, where not its own number.
        """
        network: nn.Module = import_module(self.module).load(folder, **self._options(num_frames))
        return network

    def untrained(self, num_frames: int | None = None) -> nn.Module:
        """The network in its full size with random weights, which are as fast."""
        network: nn.Module = import_module(self.module).untrained(**self._options(num_frames))
        return network.eval()

    def _options(self, num_frames: int | None) -> dict[str, Any]:
        frames = {"num_frames": num_frames or self.num_frames} if self.module in EMBEDDED_FRAMES else {}
        return self.options | frames


I3D_K400 = Backbone(
    "i3d-k400",
    "actions: 400 scores of Kinetics classes",
    400,
    "hiero.backbones.i3d",
    per_frame=False,
    allows_half=True,
    version=2,
)
DINOV2_TEXT = Backbone(
    "dinov2-text",
    "DINOv2 ViT-S/14 and a head: pictures and words in one space",
    2304,
    "hiero.backbones.dinov2",
    per_frame=True,
    allows_half=False,
    scores=False,
    frames_per_segment=1,
)
CLIP_VIT_B32 = Backbone(
    "clip-vit-b32",
    "CLIP ViT-B/32: pictures and words in one space",
    512,
    "hiero.backbones.clip",
    per_frame=True,
    allows_half=False,
    scores=False,
    auto_fetch=False,
    has_text=True,
)
EGOVLP = Backbone(
    "egovlp",
    "EgoVLP: ViT-B/16 in space and time, projected",
    256,
    "hiero.backbones.egovlp",
    per_frame=False,
    allows_half=False,
    scores=False,
    auto_fetch=False,
    short_side=256,
    num_frames=16,
    has_text=True,
)
EGOVLP_768 = Backbone(
    "egovlp-768",
    "EgoVLP without its projection",
    768,
    "hiero.backbones.egovlp",
    per_frame=False,
    allows_half=False,
    scores=False,
    auto_fetch=False,
    short_side=256,
    num_frames=16,
    weights="egovlp",
    options={"project": False},
)
LAVILA_L = Backbone(
    "lavila-l",
    "LaViLa: TimeSformer-L/14, projected",
    256,
    "hiero.backbones.lavila",
    per_frame=False,
    allows_half=False,
    scores=False,
    auto_fetch=False,
    short_side=224,
    num_frames=4,
    has_text=True,
)
OMNIVORE_L = Backbone(
    "omnivore-l",
    "Omnivore: Swin-L for video",
    1536,
    "hiero.backbones.omnivore",
    per_frame=False,
    allows_half=False,
    scores=False,
    auto_fetch=False,
    short_side=256,
    num_frames=16,
    options={"size": "L"},
)
OMNIVORE_B = Backbone(
    "omnivore-b",
    "Omnivore: Swin-B for video",
    1024,
    "hiero.backbones.omnivore",
    per_frame=False,
    allows_half=False,
    scores=False,
    auto_fetch=False,
    short_side=256,
    num_frames=16,
    options={"size": "B"},
)


@functools.cache
def backbones() -> dict[str, Backbone]:
    """All backbones by name: the entry points of `hiero.backbones`, ours and those of other packages.

    One of another package that cannot be imported is left out, with a warning: it must not take the others along.
    """
    out: dict[str, Backbone] = {}
    for name in registered(GROUP):
        try:
            out[name] = load_plugin(GROUP, name)
        except InputError as error:
            warnings.warn(f"backbone {error}", stacklevel=2)
    return out


def find_backbone(name: str) -> Backbone:
    """A backbone by its name. Raises InputError where there is none, or it cannot be imported."""
    if name not in backbones():
        load_plugin(GROUP, name)  # says why
    return backbones()[name]


def fetch_weights(backbone: Backbone, progress: ProgressCallback | None = None) -> Path:
    """The folder of its weights, fetched now if they are missing and come without asking.

    Raises:
        InputError: They are missing and must be asked for, or cannot be fetched.
    """
    name = backbone.weights_name
    if not backbone.needs_weights:
        return Path()
    if not backbone.auto_fetch and weights.find(name) is None:
        raise InputError(f"{name} is not here; run: hiero weights get {name}")
    return weights.get(name, progress)


def backbone_for(family: str | None, width: int) -> str | None:
    """The backbone whose features a model takes; None where it is none of ours.

    Args:
        family: What the model's configuration calls its backbone, such as `omnivore-l` or `egovlp`;
        up to the first dash it counts.
        width: Of the features that the model takes.
    """
    first_word = (family or "").split("-")[0]
    names = (b.name for b in backbones().values() if b.width == width and first_word in b.name.split("-"))
    return next(names, None)


def load_backbone(
    backbone: Backbone,
    device: torch.device,
    precision: torch.dtype,
    num_frames: int | None = None,
    folder: Path | None = None,
) -> nn.Module:
    """The network of a backbone, ready to run.

    Args:
        backbone: Which.
        device: Where it will run.
        precision: Of its weights; on a CPU only a backbone that allows `half` takes another than float32.
        num_frames: Frames of a window, where not its own number.
        folder: Weights in place of the fetched ones.
    """
    import torch

    module = backbone.load(folder or fetch_weights(backbone), num_frames).eval()
    return module.to(device, precision if backbone.allows_half or device.type == "cuda" else torch.float32)
