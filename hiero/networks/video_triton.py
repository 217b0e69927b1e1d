"""Triton kernels for the video towers: attention, residual addition with LayerNorm, and CLIP's GELU.

torch's fused attention needs the members of a group to be adjacent. Divided attention along time
would copy everything, and tiles of 128 rows are mostly empty for 4 to 16 frames. Swin's windows would
be permuted before and after, and a bias is slow with heads of 32. Here a program handles the queries
of one group and head, reads queries, keys and values in place, and writes where the next layer
reads. Half precision without gradients; the plain versions are in `hiero.networks.video_kernels`.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_QUERIES = 64  # queries per program of divided attention
MIN_KEYS = 16  # smallest side of a matrix for tl.dot
TILE = 64  # queries and keys per program of window attention; windows are padded to a multiple of it
NORM_ELEMENTS = 4096  # elements per program of add_norm
GELU_ELEMENTS = 2048  # elements per program of quick_gelu_triton_


def usable(x: Tensor) -> bool:
    """Whether the kernels can run: on a GPU, in half precision, without gradients."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and not torch.is_grad_enabled()


@triton.jit
def _divided(
    qkv,
    out,
    length,
    num_heads,
    num_members,
    num_groups,
    group_stride,
    member_stride,
    scale,
    D: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
):
    group_id, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    video, group = group_id // num_groups, group_id % num_groups
    first = 1 + group * group_stride  # token 0 is the class token
    token_stride = 3 * num_heads * D
    base = qkv + video.to(tl.int64) * length * token_stride + head * D
    queries, keys, d = block * QUERIES + tl.arange(0, QUERIES), tl.arange(0, KEYS), tl.arange(0, D)
    query_offsets = (first + queries * member_stride)[:, None] * token_stride + d[None]
    key_offsets = (first + keys * member_stride)[:, None] * token_stride + d[None]
    inside = (keys < num_members)[:, None]
    q = tl.load(base + query_offsets, mask=(queries < num_members)[:, None], other=0.0)
    k = tl.load(base + num_heads * D + key_offsets, mask=inside, other=0.0)
    v = tl.load(base + 2 * num_heads * D + key_offsets, mask=inside, other=0.0)
    k_class, v_class = tl.load(base + num_heads * D + d), tl.load(base + 2 * num_heads * D + d)
    # The softmax includes the class token, which would not fit into a power of 2 of keys.
    scores = tl.where((keys < num_members)[None], tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    class_score = tl.sum(q.to(tl.float32) * k_class.to(tl.float32)[None], 1) * scale
    maximum = tl.maximum(tl.max(scores, 1), class_score)
    weight, class_weight = tl.exp(scores - maximum[:, None]), tl.exp(class_score - maximum)
    result = tl.dot(weight.to(v.dtype), v) + class_weight[:, None] * v_class.to(tl.float32)[None]
    result /= (tl.sum(weight, 1) + class_weight)[:, None]
    rows = (video.to(tl.int64) * length + first + queries * member_stride)[:, None]
    at = out + rows * num_heads * D + head * D + d[None]
    tl.store(at, result.to(out.dtype.element_ty), mask=(queries < num_members)[:, None])


def divided_attention_triton(qkv: Tensor, num_frames: int, num_heads: int, along_time: bool) -> Tensor:
    """Patches attend to their group and the class token. The row of the class token is left to the caller."""
    batch, length, width = qkv.shape
    head_size = width // 3 // num_heads
    num_patches = (length - 1) // num_frames
    num_members, num_groups = (num_frames, num_patches) if along_time else (num_patches, num_frames)
    group_stride, member_stride = (1, num_patches) if along_time else (num_patches, 1)
    out = qkv.new_empty(batch, length, num_heads * head_size)
    num_keys = max(MIN_KEYS, triton.next_power_of_2(num_members))
    num_queries = min(MAX_QUERIES, num_keys)
    sizes = {"D": head_size, "QUERIES": num_queries, "KEYS": num_keys}
    groups = num_members, num_groups, group_stride, member_stride
    grid = batch * num_groups, num_heads, triton.cdiv(num_members, num_queries)
    num_warps = 4 if num_keys > 32 else 1
    _divided[grid](qkv, out, length, num_heads, *groups, head_size**-0.5, **sizes, num_warps=num_warps)
    return out


@triton.jit
def _windowed(
    qkv,
    order,
    regions,
    bias,
    out,
    length,
    num_windows,
    num_positions,
    num_heads,
    scale,
    SHIFTED: tl.constexpr,
    PADDED: tl.constexpr,
    D: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
):
    block, head, window_id = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    video, window = window_id // num_windows, window_id % num_windows
    token_stride = 3 * num_heads * D
    base = qkv + video.to(tl.int64) * length * token_stride + head * D
    queries, d = block * QUERIES + tl.arange(0, QUERIES), tl.arange(0, D)
    query_tokens = tl.load(order + window * PADDED + queries)
    query_regions = tl.load(regions + window * PADDED + queries) if SHIFTED else queries
    q = tl.load(base + query_tokens[:, None] * token_stride + d[None])
    q = (q * (scale * 1.44269504)).to(q.dtype)  # log₂e, for exponentials with base 2
    # Online softmax over tiles of keys: running maximum, sum of weights and weighted sum of values.
    maximum = tl.full((QUERIES,), -1e30, tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    result = tl.zeros((QUERIES, D), tl.float32)
    bias_rows = bias + (head * PADDED + queries[:, None]) * PADDED + tl.arange(0, KEYS)[None]
    for start in range(0, PADDED, KEYS):
        keys = start + tl.arange(0, KEYS)
        key_tokens = tl.load(order + window * PADDED + keys)
        k = tl.load(base + num_heads * D + key_tokens[:, None] * token_stride + d[None])
        v = tl.load(base + 2 * num_heads * D + key_tokens[:, None] * token_stride + d[None])
        scores = tl.dot(q, tl.trans(k)) + tl.load(bias_rows + start).to(tl.float32)
        if SHIFTED:
            key_regions = tl.load(regions + window * PADDED + keys)
            scores = tl.where(query_regions[:, None] == key_regions[None], scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        weight = tl.exp2(scores - new_maximum[:, None])
        rescale = tl.exp2(maximum - new_maximum)
        total = total * rescale + tl.sum(weight, 1)
        result = tl.dot(weight.to(v.dtype), v, result * rescale[:, None])
        maximum = new_maximum
    result /= total[:, None]
    rows = (video.to(tl.int64) * length + query_tokens)[:, None]
    at = out + rows * num_heads * D + head * D + d[None]
    tl.store(at, result.to(out.dtype.element_ty), mask=(queries < num_positions)[:, None])


def window_attention_triton(
    qkv: Tensor, order: Tensor, regions: Tensor | None, bias: Tensor, num_positions: int
) -> Tensor:
    """Tokens attend to those of their window."""
    batch, length, width = qkv.shape
    num_heads, padded, _ = bias.shape
    head_size = width // 3 // num_heads
    out = qkv.new_empty(batch, length, num_heads * head_size)
    tensors = qkv, order, order if regions is None else regions, bias, out
    sizes = length, len(order), num_positions, num_heads, head_size**-0.5
    constants = {"SHIFTED": regions is not None, "PADDED": padded, "D": head_size, "QUERIES": TILE, "KEYS": TILE}
    grid = padded // TILE, num_heads, batch * len(order)
    _windowed[grid](*tensors, *sizes, **constants, num_warps=4, num_stages=1)
    return out


@triton.jit
def _add_norm(
    x, y, weight, bias, total, out, num_rows, width, eps, ADD: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, SIZE)
    offsets = rows[:, None] * width + columns[None]
    inside = (rows < num_rows)[:, None] & (columns < width)[None]
    value = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(y + offsets, mask=inside, other=0.0).to(tl.float32)
        tl.store(total + offsets, value.to(total.dtype.element_ty), mask=inside)
    mean = tl.sum(value, 1) / width
    centred = tl.where(inside, value - mean[:, None], 0.0)
    inverse_deviation = tl.rsqrt(tl.sum(centred * centred, 1) / width + eps)
    a = tl.load(weight + columns, mask=columns < width, other=0.0).to(tl.float32)
    b = tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)
    result = centred * inverse_deviation[:, None] * a[None] + b[None]
    tl.store(out + offsets, result.to(out.dtype.element_ty), mask=inside)


def add_norm_triton(x: Tensor, y: Tensor | None, norm: torch.nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """x + y, and its LayerNorm."""
    x = x.contiguous()
    width = x.shape[-1]
    num_rows = x.numel() // width
    total = x if y is None else torch.empty_like(x)
    out = torch.empty_like(x)
    size = triton.next_power_of_2(width)
    rows = max(1, NORM_ELEMENTS // size)
    tensors = x, x if y is None else y.contiguous(), norm.weight, norm.bias, total, out
    constants = {"ADD": y is not None, "ROWS": rows, "SIZE": size}
    _add_norm[(triton.cdiv(num_rows, rows),)](*tensors, num_rows, width, norm.eps, **constants, num_warps=4)
    return total, out


@triton.jit
def _quick_gelu(x, num_elements, SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + offsets, mask=offsets < num_elements).to(tl.float32)
    tl.store(x + offsets, (value / (1 + tl.exp(-1.702 * value))).to(x.dtype.element_ty), mask=offsets < num_elements)


def quick_gelu_triton_(x: Tensor) -> Tensor:
    """x · σ(1.702 x), in place."""
    _quick_gelu[(triton.cdiv(x.numel(), GELU_ELEMENTS),)](x, x.numel(), SIZE=GELU_ELEMENTS)
    return x
