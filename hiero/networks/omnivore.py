"""Omnivore's trunk for video: a Swin transformer on patches of 2 × 4 × 4 (Girdhar et al. 2022; Liu
et al. 2021, 2022).

Attention stays inside windows of tokens. Every second block shifts the windows by half, and tokens
that meet only because the grid was rolled do not see each other. Parameters are named as in the
release. Sizes follow from the weights, so that B (1024-d), L (1536-d) and others load alike.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.networks.registry import IMAGENET, centre_crop, normalise
from hiero.networks.spacetime import MLP
from hiero.networks.video_kernels import GridShape, WindowPartition, add_norm, partition_windows, window_attention
from hiero.storage.checkpoints import find_checkpoint, load_strict, read_state_dict, select_prefix

HEAD_SIZE = 32
WINDOW_SIDE = 7  # height and width of a window
SIZE, SHORT_SIDE = 224, 256  # pixels of the crop, and of the short side of frames
SIZES: dict[str, tuple[int, tuple[int, ...], GridShape]] = {  # width, depths, window
    "B": (128, (2, 2, 18, 2), (16, WINDOW_SIDE, WINDOW_SIDE)),
    "L": (192, (2, 2, 18, 2), (8, WINDOW_SIDE, WINDOW_SIDE)),
}
UNUSED = ("depth_patch_embed.", "heads.")  # weights for depth images and classes
DERIVED = (".relative_position_index", ".attn_mask")  # buffers that are computed from the sizes


class WindowAttention(nn.Module):
    """Attention inside windows of a grid, with a learned bias for each displacement."""

    def __init__(self, width: int, window: GridShape) -> None:
        super().__init__()
        self.window, self.num_heads = window, width // HEAD_SIZE
        num_displacements = (2 * window[0] - 1) * (2 * window[1] - 1) * (2 * window[2] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(num_displacements, self.num_heads))
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self._bias_cache: dict[Any, Tensor] = {}

    def forward(self, x: Tensor, windows: WindowPartition) -> Tensor:
        """Tokens of a padded grid (B, W·N, D) → those of the grid itself (B, L, D)."""
        table = self.relative_position_bias_table
        # A window that is shorter in time has the first positions of a full one, as in the release.
        num_positions = len(windows.order) // windows.num_windows
        index = relative_position_index(self.window, table.device)[:num_positions, :num_positions]
        return self.proj(window_attention(self.qkv(x), windows, table, index, self._bias_cache))


@functools.lru_cache(8)
def relative_position_index(window: GridShape, device: torch.device) -> Tensor:
    """Row of the bias table for each pair of positions of a window, (N, N)."""
    positions = torch.stack(torch.meshgrid(*(torch.arange(size) for size in window), indexing="ij")).flatten(1)
    offsets = positions[:, :, None] - positions[:, None] + torch.tensor(window)[:, None, None] - 1  # from 0 on
    return ((offsets[0] * (2 * window[1] - 1) + offsets[1]) * (2 * window[2] - 1) + offsets[2]).to(device)


def fit_window(size: GridShape, window: GridShape, shifted: bool) -> tuple[GridShape, GridShape]:
    """The window for a grid, no larger than the grid, and the shift: half a window unless it covers the axis."""
    fitted = tuple(min(n, w) for n, w in zip(size, window, strict=True))
    shift = tuple(w // 2 if shifted and n > w else 0 for n, w in zip(size, window, strict=True))
    return fitted, shift  # type: ignore[return-value]


class SwinBlock(nn.Module):
    """Attention inside windows, then an MLP: (B, T, H, W, D) → the same shape."""

    def __init__(self, width: int, window: GridShape, shifted: bool) -> None:
        super().__init__()
        self.window, self.shifted = window, shifted
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = WindowAttention(width, window)
        self.mlp = MLP(width, 4 * width, F.gelu)

    def forward(self, x: Tensor) -> Tensor:
        x, y = add_norm(x, self._attend(add_norm(x, None, self.norm1)[1]), self.norm2)
        return x + self.mlp(y)

    def _attend(self, x: Tensor) -> Tensor:
        size: GridShape = (x.shape[1], x.shape[2], x.shape[3])
        window, shift = fit_window(size, self.window, self.shifted)
        padding = [-n % w for n, w in zip(size, window, strict=True)]
        if any(padding):
            x = F.pad(x, (0, 0, 0, padding[2], 0, padding[1], 0, padding[0]))
        return self.attn(x.flatten(1, 3), partition_windows(size, window, shift, x.device)).unflatten(1, size)


class PatchMerging(nn.Module):
    """Merge four neighbours of a picture into one token of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, x.shape[3] % 2, 0, x.shape[2] % 2))
        x = torch.cat([x[:, :, row::2, column::2] for column in (0, 1) for row in (0, 1)], -1)
        return self.reduction(self.norm(x))


class SwinStage(nn.Module):
    """Blocks of one resolution, every second one shifted, then merging."""

    def __init__(self, width: int, depth: int, window: GridShape, merge: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(SwinBlock(width, window, shifted=i % 2 == 1) for i in range(depth))
        self.downsample = PatchMerging(width) if merge else None

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class ClipPatchEmbed(nn.Module):
    """Patches of a clip as tokens."""

    def __init__(self, width: int, patch: GridShape) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, width, patch, patch)
        self.norm = nn.LayerNorm(width)

    def forward(self, clips: Tensor) -> Tensor:
        """(B, T, 3, H, W) → (B, T', H', W', D)."""
        t, h, w = self.proj.kernel_size
        clips = F.pad(clips, (0, -clips.shape[4] % w, 0, -clips.shape[3] % h, 0, 0, 0, -clips.shape[1] % t))
        # Patches do not overlap, so the convolution is a matrix product, which is faster.
        x = clips.unflatten(4, (-1, w)).unflatten(3, (-1, h)).unflatten(1, (-1, t))  # (B, T', t, 3, H', h, W', w)
        x = x.permute(0, 1, 4, 6, 3, 2, 5, 7).flatten(4)
        return self.norm(F.linear(x, self.proj.weight.flatten(1), self.proj.bias))


class Omnivore(nn.Module):
    """Normalised clips (B, T, 3, H, W) → the mean of the last tokens, (B, 8·width)."""

    def __init__(self, width: int, depths: tuple[int, ...], window: GridShape, patch: GridShape = (2, 4, 4)) -> None:
        super().__init__()
        self.patch_embed = ClipPatchEmbed(width, patch)
        last = len(depths) - 1
        self.layers = nn.ModuleList(
            SwinStage(width << i, depth, window, merge=i < last) for i, depth in enumerate(depths)
        )
        self.norm = nn.LayerNorm(width << last)

    def forward(self, clips: Tensor) -> Tensor:
        x = self.patch_embed(clips)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x).mean((1, 2, 3))


def build_omnivore(state: dict[str, Tensor]) -> Omnivore:
    """A trunk of the sizes of a released state, on the meta device."""
    width, _, *patch = state["patch_embed.proj.weight"].shape
    # (stage, index) of each block
    blocks = {tuple(map(int, (name.split(".")[1], name.split(".")[3]))) for name in state if ".blocks." in name}
    depths = tuple(sum(stage == i for stage, _ in blocks) for i in range(1 + max(stage for stage, _ in blocks)))
    num_displacements = len(state["layers.0.blocks.0.attn.relative_position_bias_table"])
    duration = (num_displacements // (2 * WINDOW_SIDE - 1) ** 2 + 1) // 2  # tokens of a window in time
    with torch.device("meta"):
        return Omnivore(width, depths, (duration, WINDOW_SIDE, WINDOW_SIDE), tuple(patch))  # type: ignore[arg-type]


def untrained(size: Literal["B", "L"] = "B") -> Omnivore:
    return Omnivore(*SIZES[size])


def load(folder: Path, size: Literal["B", "L"] | None = None) -> Omnivore:
    """Load the trunk from a released file, or from the only file in a folder.

    The file holds `{"trunk": …, "heads": …}`, or names that start with `trunk.`, or the trunk alone.
    Raises InputError if the trunk is missing or is not of `size`.
    """
    path = find_checkpoint(folder)
    state = select_prefix(read_state_dict(path), "trunk.")
    state = {name: value for name, value in state.items() if not name.startswith(UNUSED) and not name.endswith(DERIVED)}
    trunk = load_strict(lambda: (build_omnivore(state), state), path, "Omnivore's trunk for video")
    width = len(trunk.norm.weight)
    if size is not None and width != 8 * SIZES[size][0]:
        raise InputError(f"{path}: features of Swin-{size} must have {8 * SIZES[size][0]} dimensions, got {width}")
    return trunk


def prepare(frames: Tensor) -> Tensor:
    """Frames (N, H, W, 3) uint8 with a short side of 256 → normalised central squares (N, 3, 224, 224)."""
    return normalise(centre_crop(frames, SIZE, SIZE / SHORT_SIDE, antialias=False) / 255, *IMAGENET)
