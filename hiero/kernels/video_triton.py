"""CUDA kernels for the video towers, in Triton: attention where torch's fused kernels do not fit, and what surrounds it.

torch's fused attention wants the members of a group side by side. For divided attention that is a copy of everything along time,
and its tiles of 128 rows are mostly empty for 4 to 16 frames; for Swin's windows it is a permutation before and after, and a bias
makes it slow at heads of 32. Here a program handles the queries of one group and head: it reads queries, keys and values where
the projection left them and writes where the next layer reads. Half precision, no gradients; the slow twins are in `spacetime.py`
and `omnivore.py`.
"""

# mypy: ignore-errors
# ruff: noqa: N803
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64  # queries of a program


def usable(x: Tensor) -> bool:
    """A GPU, half precision, no gradients."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and not torch.is_grad_enabled()


@triton.jit
def _divided(
    qkv, out, length, heads, count, groups, group_step, member_step, scale, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr
):
    place, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    video, group = place // groups, place % groups
    first = 1 + group * group_step
    token = 3 * heads * D
    base = qkv + video.to(tl.int64) * length * token + head * D
    rows, columns, d = part * ROWS + tl.arange(0, ROWS), tl.arange(0, KEYS), tl.arange(0, D)
    there = (first + columns * member_step)[:, None] * token + d[None]
    inside = (columns < count)[:, None]
    q = tl.load(base + (first + rows * member_step)[:, None] * token + d[None], mask=(rows < count)[:, None], other=0.0)
    k = tl.load(base + heads * D + there, mask=inside, other=0.0)
    v = tl.load(base + 2 * heads * D + there, mask=inside, other=0.0)
    k_class, v_class = tl.load(base + heads * D + d), tl.load(base + 2 * heads * D + d)
    scores = tl.where((columns < count)[None], tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    to_class = tl.sum(q.to(tl.float32) * k_class.to(tl.float32)[None], 1) * scale
    top = tl.maximum(tl.max(scores, 1), to_class)
    weight, class_weight = tl.exp(scores - top[:, None]), tl.exp(to_class - top)
    found = tl.dot(weight.to(v.dtype), v) + class_weight[:, None] * v_class.to(tl.float32)[None]
    found /= (tl.sum(weight, 1) + class_weight)[:, None]
    to = out + (video.to(tl.int64) * length + first + rows * member_step)[:, None] * heads * D + head * D + d[None]
    tl.store(to, found.to(out.dtype.element_ty), mask=(rows < count)[:, None])


def divided_attention(qkv: Tensor, num_frames: int, heads: int, along_time: bool) -> Tensor:
    """(B, 1 + F·N, 3·H·d) → (B, 1 + F·N, H·d): patches see their group and the class token, whose own row is left to the caller."""
    num, length, width = qkv.shape
    size = width // 3 // heads
    patches = (length - 1) // num_frames
    count, groups, group_step, member_step = (num_frames, patches, 1, patches) if along_time else (patches, num_frames, patches, 1)
    out = qkv.new_empty(num, length, heads * size)
    keys = max(16, triton.next_power_of_2(count))
    rows = min(ROWS, keys)
    _divided[(num * groups, heads, triton.cdiv(count, rows))](
        qkv, out, length, heads, count, groups, group_step, member_step, size**-0.5, D=size, ROWS=rows, KEYS=keys,
        num_warps=4 if keys > 32 else 1,
    )  # fmt: skip
    return out


@triton.jit
def _windowed(
    qkv, order, regions, bias, out, length, windows, places, heads, scale,
    SHIFTED: tl.constexpr, PADDED: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    part, head, place = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    video, window = place // windows, place % windows
    token = 3 * heads * D
    base = qkv + video.to(tl.int64) * length * token + head * D
    rows, d = part * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    here = tl.load(order + window * PADDED + rows)
    region = tl.load(regions + window * PADDED + rows) if SHIFTED else rows
    q = tl.load(base + here[:, None] * token + d[None])
    q = (q * (scale * 1.44269504)).to(q.dtype)  # exponentials to the base of 2
    top = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    found = tl.zeros((ROWS, D), tl.float32)
    pairs = bias + (head * PADDED + rows[:, None]) * PADDED + tl.arange(0, KEYS)[None]
    for begin in range(0, PADDED, KEYS):
        columns = begin + tl.arange(0, KEYS)
        there = tl.load(order + window * PADDED + columns)
        k = tl.load(base + heads * D + there[:, None] * token + d[None])
        v = tl.load(base + 2 * heads * D + there[:, None] * token + d[None])
        scores = tl.dot(q, tl.trans(k)) + tl.load(pairs + begin).to(tl.float32)
        if SHIFTED:
            other = tl.load(regions + window * PADDED + columns)
            scores = tl.where(region[:, None] == other[None], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weight = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weight, 1)
        found = tl.dot(weight.to(v.dtype), v, found * shrink[:, None])
        top = higher
    found /= total[:, None]
    to = out + (video.to(tl.int64) * length + here)[:, None] * heads * D + head * D + d[None]
    tl.store(to, found.to(out.dtype.element_ty), mask=(rows < places)[:, None])


TILE = 64  # windows are padded to a multiple of this


def window_attention(qkv: Tensor, order: Tensor, regions: Tensor | None, bias: Tensor, places: int) -> Tensor:
    """(B, L, 3·H·d) → (B, L, H·d): tokens see those of their window.

    order (W, P): the tokens of each window, `places` of them; the rest is any token. regions (W, P): tokens of other regions are
    strangers; None: there are none. bias (H, P, P), times log₂e, −∞ for columns from `places` on.
    """
    videos, length, width = qkv.shape
    heads, padded, _ = bias.shape
    size = width // 3 // heads
    out = qkv.new_empty(videos, length, heads * size)
    _windowed[(padded // TILE, heads, videos * len(order))](
        qkv, order, order if regions is None else regions, bias, out, length, len(order), places, heads, size**-0.5,
        SHIFTED=regions is not None, PADDED=padded, D=size, ROWS=TILE, KEYS=TILE, num_warps=4, num_stages=1,
    )  # fmt: skip
    return out


@triton.jit
def _add_norm(x, y, scale, shift, total, out, num, width, eps, ADD: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr):
    rows, columns = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE)
    at = rows[:, None] * width + columns[None]
    inside = (rows < num)[:, None] & (columns < width)[None]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(total + at, value.to(total.dtype.element_ty), mask=inside)
    mean = tl.sum(value, 1) / width
    apart = tl.where(inside, value - mean[:, None], 0.0)
    spread = tl.rsqrt(tl.sum(apart * apart, 1) / width + eps)
    a = tl.load(scale + columns, mask=columns < width, other=0.0).to(tl.float32)
    b = tl.load(shift + columns, mask=columns < width, other=0.0).to(tl.float32)
    tl.store(out + at, (apart * spread[:, None] * a[None] + b[None]).to(out.dtype.element_ty), mask=inside)


def add_norm(x: Tensor, y: Tensor | None, norm: torch.nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """x + y, and its LayerNorm."""
    x = x.contiguous()
    width = x.shape[-1]
    num = x.numel() // width
    total, out = x if y is None else torch.empty_like(x), torch.empty_like(x)
    size = triton.next_power_of_2(width)
    rows = max(1, 4096 // size)
    _add_norm[(triton.cdiv(num, rows),)](
        x, x if y is None else y.contiguous(), norm.weight, norm.bias, total, out, num, width, norm.eps, ADD=y is not None,
        ROWS=rows, SIZE=size, num_warps=4,
    )  # fmt: skip
    return total, out


@triton.jit
def _quick_gelu(x, num, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + at, mask=at < num).to(tl.float32)
    tl.store(x + at, (value / (1 + tl.exp(-1.702 * value))).to(x.dtype.element_ty), mask=at < num)


def quick_gelu_(x: Tensor) -> Tensor:
    """x · σ(1.702 x), in place."""
    _quick_gelu[(triton.cdiv(x.numel(), 2048),)](x, x.numel(), SIZE=2048)
    return x
