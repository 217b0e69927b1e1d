"""Omnivore's trunk for video: a Swin transformer on patches of 2 × 4 × 4 (Girdhar et al. 2022; Liu et al. 2021, 2022).

Attention stays inside windows of tokens; every second block shifts them by half, and tokens that meet only because the picture
was rolled do not see each other. Names of parameters are those of the release. Sizes are read off the weights, so that B (1024-d)
and L (1536-d), and any other, load alike.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.kernels.dispatch import video_kernels
from hiero.kernels.layer_norm import add_norm
from hiero.storage.checkpoints import find_checkpoint, load_strict, read_state_dict, select_prefix
from hiero.video.frames import IMAGENET, centre_crop, normalise
from hiero.video.spacetime import MLP

HEAD = 32  # width of an attention head, in all sizes
MEAN, DEVIATION = IMAGENET
SIZE, SHORT_SIDE = 224, 256
Shape = tuple[int, int, int]
SIZES: dict[str, tuple[int, tuple[int, ...], Shape]] = {
    "B": (128, (2, 2, 18, 2), (16, 7, 7)),
    "L": (192, (2, 2, 18, 2), (8, 7, 7)),
}
UNUSED = ("depth_patch_embed.", "heads.")  # for pictures with depth, and for classes
DERIVED = (".relative_position_index", ".attn_mask")  # made again here


class WindowAttention(nn.Module):
    """Attention inside windows (…, N, D) with a learned bias for each displacement; `apart` forbids pairs."""

    def __init__(self, width: int, window: Shape) -> None:
        super().__init__()
        self.window, self.heads = window, width // HEAD
        num = (2 * window[0] - 1) * (2 * window[1] - 1) * (2 * window[2] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(num, self.heads))
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self._kept: tuple[Any, Tensor] | None = None

    def bias(self, num: int) -> Tensor:
        """(H, N, N) for the first `num` places of a window: a window cut short in time has just these."""
        table = self.relative_position_bias_table
        return table.mT[:, displacements(self.window, table.device)[:num, :num]]

    def forward(self, x: Tensor, cut: Windows) -> Tensor:
        """x (B, L, D), the tokens of a grid → (B, L, D) of the same grid, without what pads it."""
        if cut.whole and (kernels := video_kernels(x)) is not None:
            order, regions, places = cut.padded(kernels.TILE)
            bias = self._scaled_bias(places, order.shape[1])
            return self.proj(kernels.window_attention(self.qkv(x), order, regions, bias, places))
        x = x[:, cut.order].unflatten(1, (cut.num, -1))
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, HEAD)).permute(3, 0, 1, 4, 2, 5)  # each (B, W, H, N, d)
        bias = self.bias(x.shape[2]).to(q.dtype).contiguous()  # fused kernels want rows side by side
        found = []
        for a, b, apart in cut.groups:
            mask = bias if apart is None else bias.masked_fill(apart, float("-inf"))
            parts = [part[:, a:b].flatten(0, 1) for part in (q, k, v)]
            out = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=mask[None])
            found.append(out.unflatten(0, (len(x), b - a)).transpose(2, 3).flatten(3))
        return self.proj(torch.cat(found, 1).flatten(1, 2)[:, cut.back])

    def _scaled_bias(self, num: int, padded: int) -> Tensor:
        """The bias times log₂e, padded with −∞, made once for the same weights: our kernel takes powers of 2."""
        table = self.relative_position_bias_table
        key = (num, padded, table.device, table.dtype, table.data_ptr())
        if self._kept is None or self._kept[0] != key:
            bias = F.pad(self.bias(num).float() / math.log(2), (0, padded - num), value=float("-inf"))
            self._kept = key, F.pad(bias, (0, 0, 0, padded - num)).to(table.dtype).contiguous()
        return self._kept[1]


@functools.lru_cache(8)
def displacements(window: Shape, device: torch.device) -> Tensor:
    """For each pair of places in a window the row of the bias table: (N, N)."""
    places = torch.stack(torch.meshgrid(*(torch.arange(size) for size in window), indexing="ij")).flatten(1)
    apart = places[:, :, None] - places[:, None] + torch.tensor(window)[:, None, None] - 1
    return ((apart[0] * (2 * window[1] - 1) + apart[1]) * (2 * window[2] - 1) + apart[2]).to(device)


def fit_window(size: Shape, window: Shape, shift: bool) -> tuple[Shape, Shape]:
    """The window for a grid, no larger than it, and the shift: half a window, none where one window covers the axis."""
    used = tuple(min(s, w) for s, w in zip(size, window, strict=True))
    moved = tuple(w // 2 if shift and s > w else 0 for s, w in zip(size, window, strict=True))
    return used, moved  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Windows:
    """How a grid of tokens is cut."""

    order: Tensor
    """(num · N): the padded grid's tokens, window by window."""
    back: Tensor
    """(L): where each token stands in that order."""
    num: int
    groups: list[tuple[int, int, Tensor | None]]
    """Windows [a, b) in which the same pairs of places, (N, N) bool, must not see each other."""
    regions: Tensor | None
    """(num · N): the same by token; strangers are of different regions. None where nothing is shifted."""
    whole: bool
    """Nothing is padded."""

    @functools.lru_cache(2)  # noqa: B019  (as long as the cut itself, which is kept too)
    def padded(self, tile: int) -> tuple[Tensor, Tensor | None, int]:
        """`order` and `regions` as (W, P), P a multiple of `tile`; and N."""
        order = self.order.view(self.num, -1)
        places = order.shape[1]
        pad = (0, -places % tile)
        regions = None if self.regions is None else F.pad(self.regions.view(self.num, -1), pad).contiguous()
        return F.pad(order, pad).contiguous(), regions, places


@functools.lru_cache(64)
def window_partition(size: Shape, window: Shape, shift: Shape, device: torch.device) -> Windows:
    """Windows of a grid that is rolled by `shift`, those with the same strangers side by side: at most 2 kinds along an axis.

    Strangers came into a window from two ends of the grid.
    """
    grid = tuple(-(-n // m) * m for n, m in zip(size, window, strict=True))
    tokens = torch.arange(grid[0] * grid[1] * grid[2]).view(grid).roll([-n for n in shift], (0, 1, 2))
    regions = torch.zeros(grid, dtype=torch.long)
    for axis, (extent, moved) in enumerate(zip(grid, shift, strict=True)):
        if moved:
            around = (torch.arange(extent) >= extent - moved).long()
            regions = 2 * regions + around.view([-1 if i == axis else 1 for i in range(3)])
    tokens, regions = _into_windows(tokens, window), _into_windows(regions, window)
    apart = regions[:, :, None] != regions[:, None]
    kinds: dict[bytes, list[int]] = {}
    for place, pairs in enumerate(apart):
        kinds.setdefault(pairs.numpy().tobytes(), []).append(place)
    groups: list[tuple[int, int, Tensor | None]] = []
    for places in kinds.values():
        begin = groups[-1][1] if groups else 0
        pairs = apart[places[0]]
        groups.append((begin, begin + len(places), pairs.to(device) if bool(pairs.any()) else None))
    sequence = [place for places in kinds.values() for place in places]
    order = tokens[sequence].flatten()
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    back = back.view(grid)[: size[0], : size[1], : size[2]].flatten()
    by_token = regions[sequence].flatten().int().to(device) if any(shift) else None
    return Windows(order.int().to(device), back.to(device), len(tokens), groups, by_token, size == grid)


def _into_windows(x: Tensor, window: Shape) -> Tensor:
    """(T, H, W) → (windows, places)."""
    (a, b, c), (t, h, w) = window, (n // m for n, m in zip(x.shape, window, strict=True))
    return x.view(t, a, h, b, w, c).permute(0, 2, 4, 1, 3, 5).reshape(t * h * w, a * b * c)


class SwinBlock(nn.Module):
    def __init__(self, width: int, window: Shape, shift: bool) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = WindowAttention(width, window)
        self.mlp = MLP(width, 4 * width, F.gelu)

    def forward(self, x: Tensor) -> Tensor:
        x, y = add_norm(x, self._attend(add_norm(x, None, self.norm1)[1]), self.norm2)
        return x + self.mlp(y)

    def _attend(self, x: Tensor) -> Tensor:
        size: Shape = (x.shape[1], x.shape[2], x.shape[3])
        window, shift = fit_window(size, self.window, self.shift)
        missing = [-n % m for n, m in zip(size, window, strict=True)]
        if any(missing):
            x = F.pad(x, (0, 0, 0, missing[2], 0, missing[1], 0, missing[0]))
        return self.attn(x.flatten(1, 3), window_partition(size, window, shift, x.device)).unflatten(1, size)


class PatchMerging(nn.Module):
    """Four neighbours in a picture become one token of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, x.shape[3] % 2, 0, x.shape[2] % 2))
        x = torch.cat([x[:, :, row::2, column::2] for column in (0, 1) for row in (0, 1)], -1)
        return self.reduction(self.norm(x))


class SwinStage(nn.Module):
    def __init__(self, width: int, depth: int, window: Shape, merge: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(SwinBlock(width, window, shift=i % 2 == 1) for i in range(depth))
        self.downsample = PatchMerging(width) if merge else None

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class ClipPatchEmbed(nn.Module):
    def __init__(self, width: int, patch: Shape) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, width, patch, patch)
        self.norm = nn.LayerNorm(width)

    def forward(self, clips: Tensor) -> Tensor:
        """(B, T, 3, H, W) → (B, T', H', W', D). Patches do not overlap, so the convolution is a product, and faster as one."""
        t, h, w = self.proj.kernel_size
        clips = F.pad(clips, (0, -clips.shape[4] % w, 0, -clips.shape[3] % h, 0, 0, 0, -clips.shape[1] % t))
        x = clips.unflatten(4, (-1, w)).unflatten(3, (-1, h)).unflatten(1, (-1, t))  # (B, T', t, 3, H', h, W', w)
        x = x.permute(0, 1, 4, 6, 3, 2, 5, 7).flatten(4)
        return self.norm(F.linear(x, self.proj.weight.flatten(1), self.proj.bias))


class Omnivore(nn.Module):
    """Clips (B, T, 3, H, W), normalised → the mean of the last tokens (B, 8·width)."""

    def __init__(self, width: int, depths: tuple[int, ...], window: Shape, patch: Shape = (2, 4, 4)) -> None:
        super().__init__()
        self.patch_embed = ClipPatchEmbed(width, patch)
        last = len(depths) - 1
        self.layers = nn.ModuleList(SwinStage(width << i, depth, window, merge=i < last) for i, depth in enumerate(depths))
        self.norm = nn.LayerNorm(width << last)

    def forward(self, clips: Tensor) -> Tensor:
        x = self.patch_embed(clips)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x).mean((1, 2, 3))


def build_omnivore(state: dict[str, Tensor]) -> Omnivore:
    """A trunk of the sizes that its released state has. Windows are square in pictures: 7 × 7."""
    width, _, *patch = state["patch_embed.proj.weight"].shape
    names = {tuple(map(int, (name.split(".")[1], name.split(".")[3]))) for name in state if ".blocks." in name}
    depths = tuple(sum(stage == i for stage, _ in names) for i in range(1 + max(stage for stage, _ in names)))
    rows = len(state["layers.0.blocks.0.attn.relative_position_bias_table"])
    side = 7
    window = ((rows // (2 * side - 1) ** 2 + 1) // 2, side, side)
    with torch.device("meta"):
        return Omnivore(width, depths, window, tuple(patch))  # type: ignore[arg-type]


def untrained(size: Literal["B", "L"] = "B") -> Omnivore:
    """Of the release's size, with random weights."""
    return Omnivore(*SIZES[size])


def load(folder: Path, size: Literal["B", "L"] | None = None) -> Omnivore:
    """The release's file: `{"trunk": …, "heads": …}`, or a state whose names begin with `trunk.`, or the trunk's alone."""
    path = find_checkpoint(folder)
    state = select_prefix(read_state_dict(path), "trunk.")
    state = {name: value for name, value in state.items() if not name.startswith(UNUSED) and not name.endswith(DERIVED)}
    trunk = load_strict(lambda: (build_omnivore(state), state), path, "Omnivore's trunk for video")
    if size is not None and len(trunk.norm.weight) != 8 * SIZES[size][0]:
        raise InputError(f"{path}: its features are {len(trunk.norm.weight)} wide, those of Swin-{size} {8 * SIZES[size][0]}")
    return trunk


def prepare(frames: Tensor) -> Tensor:
    """(N, H, W, 3) uint8, decoded to a short side of 256 → (N, 3, 224, 224): the middle, normalised."""
    return normalise(centre_crop(frames, SIZE, SIZE / SHORT_SIDE, antialias=False) / 255, MEAN, DEVIATION)
