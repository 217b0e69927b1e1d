"""A vision transformer with divided space-time attention (Frozen in Time): the visual tower of EgoVLP
and LaViLa.

Each block attends first along time (a patch sees itself in all frames), then along space (a patch
sees its frame); the class token sees everything. Unlike in TimeSformer, the output of space is added
to the input of the block, not to the output of time:

    y = x + space(norm₁(x + time(norm₃(x)))),   x' = y + MLP(norm₂(y))

Parameters are named as in the releases, so that their weights load directly.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.networks.video_kernels import add_norm, divided_attention, quick_gelu
from hiero.storage.checkpoints import find_checkpoint, load_strict, read_state_dict, select_prefix

Filling = Literal["zeros", "interpolate"]
"""How a release extends temporal embeddings to more frames: by zeros at the end or by interpolation."""
HEAD_SIZE = 64
EPSILON = 1e-6  # LayerNorm in the blocks and at the end


class DividedAttention(nn.Module):
    """Attention along time or space. The class token sees all tokens and is seen by all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_heads = width // HEAD_SIZE
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, num_frames: int, along: Literal["time", "space"]) -> Tensor:
        """(B, 1 + F·N, D) → the same shape."""
        return self.proj(divided_attention(self.qkv(x), num_frames, self.num_heads, along))


class MLP(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, width: int, hidden: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x)))


class SpaceTimeBlock(nn.Module):
    """Attention along time and space, then an MLP: (B, 1 + F·N, D) → the same shape."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width, eps=EPSILON) for _ in range(3))
        self.attn, self.timeattn = DividedAttention(width), DividedAttention(width)
        self.mlp = MLP(width, 4 * width, activation)

    def forward(self, x: Tensor, num_frames: int) -> Tensor:
        time = self.timeattn(add_norm(x, None, self.norm3)[1], num_frames, "time")
        x, y = add_norm(x, self.attn(add_norm(x, time, self.norm1)[1], num_frames, "space"), self.norm2)
        return x + self.mlp(y)


class FramePatchEmbed(nn.Module):
    """Patches of frames as tokens."""

    def __init__(self, width: int, patch: int, bias: bool) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, patch, bias=bias)

    def forward(self, frames: Tensor) -> Tensor:
        """(B, F, 3, S, S) → (B, F, N, D)."""
        # Patches do not overlap, so the convolution is a matrix product, which is faster.
        size = self.proj.kernel_size[0]
        rows, columns = frames.shape[-2] // size, frames.shape[-1] // size
        x = frames[..., : rows * size, : columns * size].unflatten(-1, (columns, size)).unflatten(-3, (rows, size))
        x = x.permute(0, 1, 3, 5, 2, 4, 6).flatten(4).flatten(2, 3)  # (B, F, N, 3·p·p)
        return F.linear(x, self.proj.weight.flatten(1), self.proj.bias)


class SpaceTimeTransformer(nn.Module):
    """Normalised windows (B, F, 3, S, S) → the class token (B, D)."""

    def __init__(
        self, width: int, depth: int, patch: int, num_patches: int, num_frames: int, clip: bool = False
    ) -> None:
        super().__init__()
        self.patch_embed = FramePatchEmbed(width, patch, bias=not clip)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + num_patches, width))
        self.temporal_embed = nn.Parameter(torch.zeros(1, num_frames, width))
        self.ln_pre = nn.LayerNorm(width) if clip else None
        self.blocks = nn.ModuleList(SpaceTimeBlock(width, quick_gelu if clip else F.gelu) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=EPSILON)

    def forward(self, frames: Tensor) -> Tensor:
        num_frames = frames.shape[1]
        max_frames, num_patches = self.temporal_embed.shape[1], self.pos_embed.shape[1] - 1
        if num_frames > max_frames:
            raise InputError(f"a window must have at most {max_frames} frames, got {num_frames}")
        x = self.patch_embed(frames)
        if x.shape[2] != num_patches:
            raise InputError(f"frames must have {num_patches} patches, got {x.shape[2]} ({frames.shape[-1]} pixels)")
        x = x + self.pos_embed[:, None, 1:] + self.temporal_embed[:, :num_frames, None]
        x = torch.cat([(self.cls_token + self.pos_embed[:, :1]).expand(len(x), -1, -1), x.flatten(1, 2)], 1)
        if self.ln_pre is not None:
            x = self.ln_pre(x)
        for block in self.blocks:
            x = block(x, num_frames)
        return self.norm(x[:, 0])


class ProjectedTower(nn.Module):
    """Normalised windows (B, F, 3, S, S) → class tokens (B, D), projected to (B, size) if there is a projection."""

    def __init__(self, transformer: SpaceTimeTransformer, projection: nn.Linear | None) -> None:
        super().__init__()
        self.transformer, self.projection = transformer, projection

    def forward(self, frames: Tensor) -> Tensor:
        x: Tensor = self.transformer(frames)
        return x if self.projection is None else self.projection(x)


def load_released_tower(
    folder: Path, prefix: str, projection: str | None, num_frames: int | None, filling: Filling, name: str
) -> ProjectedTower:
    """Load a tower from a released file, or from the only file in a folder.

    `prefix` begins the names of the transformer's weights. `projection` is the name of a linear layer
    or of a matrix (D, size).
    """
    path = find_checkpoint(folder)
    released = read_state_dict(path)

    def build() -> tuple[ProjectedTower, dict[str, Tensor]]:
        transformer, state = build_space_time(select_prefix(released, prefix), num_frames, filling)
        state = {f"transformer.{key}": value for key, value in state.items()}
        if projection is None:
            return ProjectedTower(transformer, None), state
        if projection in released:
            layer = {"weight": released[projection].mT}
        else:
            layer = {key: released[f"{projection}.{key}"] for key in ("weight", "bias")}
        size, width = layer["weight"].shape
        with torch.device("meta"):
            linear = nn.Linear(width, size, bias="bias" in layer)
        return ProjectedTower(transformer, linear), state | {f"projection.{key}": x for key, x in layer.items()}

    return load_strict(build, path, name)


def build_space_time(
    state: dict[str, Tensor], num_frames: int | None, filling: Filling
) -> tuple[SpaceTimeTransformer, dict[str, Tensor]]:
    """A tower of the sizes of a released state, on the meta device, and the state to load into it."""
    width, _, patch, _ = state["patch_embed.proj.weight"].shape
    depth = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))
    temporal = state["temporal_embed"]
    num_frames = num_frames or temporal.shape[1]
    state = {**state, "temporal_embed": fill_frames(temporal, num_frames, filling)}
    clip = "ln_pre.weight" in state
    with torch.device("meta"):
        tower = SpaceTimeTransformer(width, depth, patch, state["pos_embed"].shape[1] - 1, num_frames, clip)
    return tower, state


def fill_frames(embedding: Tensor, num_frames: int, filling: Filling) -> Tensor:
    """Temporal embeddings (1, F, D) for another number of frames: truncated or extended."""
    num_trained = embedding.shape[1]
    if num_frames <= num_trained:
        return embedding[:, :num_frames].clone()
    if filling == "zeros":
        return F.pad(embedding, (0, 0, 0, num_frames - num_trained))
    size = (num_frames, embedding.shape[2])
    return F.interpolate(embedding[None], size, mode="bilinear", align_corners=False)[0]
