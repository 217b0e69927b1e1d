"""Backbones by name: what each needs of a segment, where its weights are, and what it makes of the frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hiero import weights
from hiero.errors import InputError
from hiero.video import i3d, lite2
from hiero.video.decode import read_segments
from hiero.video.frames import middle_square

SHORT_SIDE = 256  # frames are decoded to this, then cropped


@dataclass(frozen=True)
class Backbone:
    """`load` gives a module; `prepare` turns frames (N, H, W, 3) uint8 into its input; `pool` its output into one vector."""

    name: str
    what: str
    width: int
    num_frames: int
    """Frames of a segment that it looks at, evenly spread."""
    load: Callable[[Path], nn.Module]
    prepare: Callable[[Tensor], Tensor]
    pool: Callable[[Tensor], Tensor]


BACKBONES = {
    backbone.name: backbone
    for backbone in (
        Backbone(
            "i3d-k400", "actions: 400 scores of Kinetics classes", 400, 16,
            lambda folder: i3d.load_i3d(folder / "i3d-kinetics-400.ckpt"),
            lambda frames: middle_square(frames, i3d.SIZE, i3d.SIZE / SHORT_SIDE)[None] / 127.5 - 1,
            lambda scores: scores[0],
        ),
        Backbone(
            "lite2-imagenet", "objects: 1000 scores of ImageNet classes", 1000, 2,
            lambda folder: lite2.load_lite2(folder / "efficientnet-lite2.pth"), lite2.prepare, lambda scores: scores.mean(0),
        ),
    )
}  # fmt: skip


def extract(
    path: Path | str,
    names: Sequence[str] = ("i3d-k400", "lite2-imagenet"),
    *,
    spacing_s: float = 1.0,
    device: str | torch.device = "cpu",
    stream: int = 0,
    progress: Callable[[int], None] = lambda _: None,
    fetch: weights.Progress | None = None,
) -> dict[str, Tensor]:
    """Features of a video from one pass over it: name → (T, width), one row every `spacing_s` seconds."""
    unknown = [name for name in names if name not in BACKBONES]
    if unknown or not names:
        raise InputError(f"no backbone {', '.join(unknown) or 'was named'}; known are {', '.join(BACKBONES)}")
    chosen = [BACKBONES[name] for name in names]
    modules: list[Any] = [backbone.load(weights.get(backbone.name, fetch)).to(device) for backbone in chosen]
    rows: dict[str, list[Tensor]] = {name: [] for name in names}
    num_frames = max(backbone.num_frames for backbone in chosen)
    with torch.inference_mode():
        for segment in read_segments(path, spacing_s=spacing_s, num_frames=num_frames, short_side=SHORT_SIDE, stream=stream):
            frames = torch.from_numpy(segment.frames)
            for backbone, module in zip(chosen, modules, strict=True):
                scores = module(backbone.prepare(frames[spread(num_frames, backbone.num_frames)]).to(device))
                rows[backbone.name].append(backbone.pool(scores).float().cpu())
            progress(segment.index)
    return {name: torch.stack(found) for name, found in rows.items()}


def spread(num: int, wanted: int) -> list[int]:
    """`wanted` of `num` places, in the middle of equal parts."""
    return [int((i + 0.5) * num / wanted) for i in range(wanted)]
