"""The sum inside TDGC as one GPU kernel, and two for its gradient.

As torch operations, bias, φ, gates, shifts along time and the LeakyReLU between two layers are a
dozen passes over memory. Here a program handles a block of nodes and channels and reads the
neighbours of a node in place, so that each pass reads and writes everything once. Sums are in single
precision and rounded once. Column sums (gradients of bias and gates) leave each block as a partial
row, and a second kernel adds the rows in a fixed order, so that results are reproducible. The plain
version is `gated_messages.sum_messages_uniform`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hiero.model.gated_messages import SLOPE, refuse_second_derivative
from hiero.model.triton_support import HAS_TRITON, constexpr, jit, tl, triton

# A row of 64 channels in bf16 is a cache line, and column sums stay inside one warp. On an H200 at
# the size of the paper, the gradient takes 1.75 times as long with 32 nodes and four warps.
NUM_ROWS, NUM_COLUMNS, NUM_WARPS = 16, 64, 1
NUM_SUM_ROWS, NUM_SUM_COLUMNS = 64, 16  # block of a program that adds partial sums


def is_available(x: Tensor) -> bool:
    """Whether the kernels can run: a GPU on which Triton compiles, and at most single precision."""
    return x.dtype != torch.float64 and can_compile(x)


_compiles_on: dict[torch.device, bool] = {}


def can_compile(x: Tensor) -> bool:
    """Whether Triton can run a kernel on the device of x, which needs a C compiler and a recent GPU."""
    if not HAS_TRITON or not x.is_cuda:
        return False
    if torch.compiler.is_compiling():  # the compiler needs Triton too
        return True
    device = x.device
    if device not in _compiles_on:
        try:
            sums = torch.zeros(1, 3, device=device)
            _add_rows[(1,)](sums, torch.zeros(2, device=device), torch.zeros(1, 1, device=device), 1, 1, 1)
            _compiles_on[device] = True
        except Exception:  # errors of Triton, the compiler or the driver
            _compiles_on[device] = False
    return _compiles_on[device]


def sum_messages_triton(
    product: Tensor,
    bias: Tensor,
    gates: Tensor,
    inverse_degree: Tensor,
    linked: Sequence[Tensor],
    *,
    activate: bool = False,
) -> Tensor:
    """`sum_messages_uniform` of product + bias."""
    links = linked[0].flatten() if len(linked) == 1 else torch.cat([link.flatten() for link in linked])
    return _sum_messages(product, bias, gates, inverse_degree, links, activate)


@torch.library.custom_op("hiero::sum_messages", mutates_args=())
def _sum_messages(
    product: Tensor, bias: Tensor, gates: Tensor, inverse_degree: Tensor, links: Tensor, activate: bool
) -> Tensor:
    """`links` holds those of all offsets, one after the other."""
    out = _empty_out(product)
    num_videos, length, size = out.shape
    grid = (triton.cdiv(num_videos * length, NUM_ROWS), triton.cdiv(size, NUM_COLUMNS))
    with torch.cuda.device_of(product):
        tensors = [x.contiguous() for x in (product, bias, gates, inverse_degree, links)]
        _forward[grid](*tensors, out, num_videos, length, size, len(gates), activate, num_warps=NUM_WARPS)
    return out


@_sum_messages.register_fake
def _empty_out(product: Tensor, *_: object) -> Tensor:
    return product.new_empty(*product.shape[:2], product.shape[2] // 2)


@torch.library.custom_op("hiero::sum_messages_backward", mutates_args=())
def _sum_messages_backward(
    grad: Tensor,
    activated: Tensor | None,
    product: Tensor,
    bias: Tensor,
    gates: Tensor,
    inverse_degree: Tensor,
    links: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of product, bias and gates. `activated` is the output of the forward pass after LeakyReLU, if any."""
    grad = grad.contiguous()
    grad_product, grad_bias, grad_gates = _empty_gradients(grad, activated, product, bias, gates)
    num_videos, length, size = grad.shape
    num_blocks = triton.cdiv(num_videos * length, NUM_ROWS)
    num_sums = (2 + len(gates)) * size
    partial_sums = grad.new_empty(num_blocks, num_sums, dtype=torch.float32)
    with torch.cuda.device_of(grad):
        tensors = [x.contiguous() for x in (product, bias, gates, inverse_degree, links)]
        gradients = grad, grad if activated is None else activated
        sizes = num_videos, length, size, len(gates), activated is not None
        grid = num_blocks, triton.cdiv(size, NUM_COLUMNS)
        _backward[grid](*gradients, *tensors, grad_product, partial_sums, *sizes, num_warps=NUM_WARPS)
        sum_grid = (triton.cdiv(num_sums, NUM_SUM_COLUMNS),)
        _add_rows[sum_grid](partial_sums, grad_bias, grad_gates, num_blocks, size, len(gates))
    return grad_product, grad_bias, grad_gates


@_sum_messages_backward.register_fake
def _empty_gradients(
    grad: Tensor, activated: Tensor | None, product: Tensor, bias: Tensor, gates: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    return product.new_empty(product.shape), bias.new_empty(bias.shape), gates.new_empty(gates.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, activate = inputs
    # LeakyReLU keeps the sign, so its output replaces its input in the gradient.
    ctx.save_for_backward(*tensors, *([output] if activate else []))


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    refuse_second_derivative()
    product, bias, gates, inverse_degree, links, *activated = ctx.saved_tensors
    output = activated[0] if activated else None
    gradients = _sum_messages_backward(grad, output, product, bias, gates, inverse_degree, links)
    return *gradients, None, None, None


_sum_messages.register_autograd(_differentiate, setup_context=_save)


# The kernels

ROWS, COLUMNS, SUM_ROWS, SUM_COLUMNS, PHI_SLOPE = map(
    constexpr, (NUM_ROWS, NUM_COLUMNS, NUM_SUM_ROWS, NUM_SUM_COLUMNS, SLOPE)
)


@jit
def _leaky_relu(x):  # type: ignore[no-untyped-def]
    return tl.where(x > 0, x, x * PHI_SLOPE)


@jit
def _locate(length):  # type: ignore[no-untyped-def]
    """Nodes and channels of a program, and the video and the index of each node."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    # 64 bits, because the row times the width may not fit into 32.
    return row.to(tl.int64), column, row // length, row % length


@jit
def _load_message(at, mask, bias):  # type: ignore[no-untyped-def]
    return _leaky_relu(tl.load(at, mask=mask, other=0.0).to(tl.float32) + bias)


@jit  # type: ignore[untyped-decorator]
def _load_gradient(grad, activated, at, mask, ACTIVATED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Gradient of the sum, before LeakyReLU if there is one."""
    value = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
    if ACTIVATED:
        value = tl.where(tl.load(activated + at, mask=mask, other=0.0).to(tl.float32) > 0, value, value * PHI_SLOPE)
    return value


@jit(do_not_specialize=["num_videos", "length"])  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
    product, bias, gates, inverse_degree, links, out, num_videos, length, size, O: tl.constexpr, ACTIVATE: tl.constexpr
):
    row, column, video, time = _locate(length)
    inside, channels = row < num_videos * length, (column < size)[None, :]
    root = product + row[:, None] * (2 * size) + column[None, :]
    message_bias = tl.load(bias + size + column, mask=column < size, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for o in range(1, O + 1):
        gate = tl.load(gates + (o - 1) * size + column, mask=column < size, other=0.0).to(tl.float32)[None, :]
        has_later, has_earlier = inside & (time + o < length), inside & (time >= o)  # in the same video
        pair = links + video * (length - o) + time  # of this node and the later one
        later_link = tl.load(pair, mask=has_later, other=0.0).to(tl.float32)[:, None]
        earlier_link = tl.load(pair - o, mask=has_earlier, other=0.0).to(tl.float32)[:, None]
        later = _load_message(root + size + 2 * o * size, has_later[:, None] & channels, message_bias)
        earlier = _load_message(root + size - 2 * o * size, has_earlier[:, None] & channels, message_bias)
        total += gate * (later_link * later - earlier_link * earlier)
        links += num_videos * (length - o)
    mask = inside[:, None] & channels
    root_bias = tl.load(bias + column, mask=column < size, other=0.0).to(tl.float32)[None, :]
    weight = tl.load(inverse_degree + row, mask=inside, other=0.0).to(tl.float32)[:, None]
    result = tl.load(root, mask=mask, other=0.0).to(tl.float32) + root_bias + weight * total
    if ACTIVATE:
        result = _leaky_relu(result)
    tl.store(out + row[:, None] * size + column[None, :], result.to(out.dtype.element_ty), mask=mask)


@jit(do_not_specialize=["num_videos", "length"])  # type: ignore[untyped-decorator]
def _backward(  # type: ignore[no-untyped-def]
    grad,
    activated,
    product,
    bias,
    gates,
    inverse_degree,
    links,
    grad_product,
    partial_sums,
    num_videos,
    length,
    size,
    O: tl.constexpr,
    ACTIVATED: tl.constexpr,
):
    """`partial_sums` (blocks, 2 + O, D) are the gradients of both halves of the bias and of the gates."""
    row, column, video, time = _locate(length)
    inside, channels = row < num_videos * length, (column < size)[None, :]
    mask = inside[:, None] & channels
    at = row[:, None] * size + column[None, :]
    mixed = row[:, None] * (2 * size) + column[None, :]
    sums = partial_sums + tl.program_id(0).to(tl.int64) * (2 + O) * size + column

    own = _load_gradient(grad, activated, at, mask, ACTIVATED)
    tl.store(grad_product + mixed, own.to(grad_product.dtype.element_ty), mask=mask)
    tl.store(sums, tl.sum(own, axis=0), mask=column < size)

    message_bias = tl.load(bias + size + column, mask=column < size, other=0.0).to(tl.float32)[None, :]
    sent = tl.load(product + mixed + size, mask=mask, other=0.0).to(tl.float32) + message_bias
    message = _leaky_relu(sent)
    grad_message = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for o in range(1, O + 1):
        gate = tl.load(gates + (o - 1) * size + column, mask=column < size, other=0.0).to(tl.float32)[None, :]
        has_later, has_earlier = inside & (time + o < length), inside & (time >= o)
        pair = links + video * (length - o) + time
        later_weight = tl.load(pair, mask=has_later, other=0.0).to(tl.float32)
        later_weight *= tl.load(inverse_degree + row + o, mask=has_later, other=0.0).to(tl.float32)
        earlier_weight = tl.load(pair - o, mask=has_earlier, other=0.0).to(tl.float32)
        earlier_weight *= tl.load(inverse_degree + row - o, mask=has_earlier, other=0.0).to(tl.float32)
        later = _load_gradient(grad, activated, at + o * size, has_later[:, None] & channels, ACTIVATED)
        earlier = _load_gradient(grad, activated, at - o * size, has_earlier[:, None] & channels, ACTIVATED)
        # A message goes to the earlier node with a plus and to the later one with a minus.
        grad_gated = earlier_weight[:, None] * earlier - later_weight[:, None] * later
        tl.store(sums + (1 + o) * size, tl.sum(message * grad_gated, axis=0), mask=column < size)
        grad_message += gate * grad_gated
        links += num_videos * (length - o)
    grad_sent = tl.where(sent > 0, grad_message, grad_message * PHI_SLOPE)
    tl.store(grad_product + mixed + size, grad_sent.to(grad_product.dtype.element_ty), mask=mask)
    tl.store(sums + size, tl.sum(grad_sent, axis=0), mask=column < size)


@jit(do_not_specialize=["num_blocks"])  # type: ignore[untyped-decorator]
def _add_rows(  # type: ignore[no-untyped-def]
    partial_sums, grad_bias, grad_gates, num_blocks, size, O: tl.constexpr
):
    width = (2 + O) * size
    column = tl.program_id(0) * SUM_COLUMNS + tl.arange(0, SUM_COLUMNS)
    total = tl.zeros((SUM_ROWS, SUM_COLUMNS), dtype=tl.float32)
    for start in range(0, num_blocks, SUM_ROWS):
        row = start + tl.arange(0, SUM_ROWS)
        mask = (row < num_blocks)[:, None] & (column < width)[None, :]
        total += tl.load(partial_sums + row.to(tl.int64)[:, None] * width + column[None, :], mask=mask, other=0.0)
    result = tl.sum(total, axis=0)
    of_bias = column < 2 * size
    tl.store(grad_bias + column, result.to(grad_bias.dtype.element_ty), mask=of_bias)
    at = tl.where(of_bias, 0, column - 2 * size)
    tl.store(grad_gates + at, result.to(grad_gates.dtype.element_ty), mask=(column >= 2 * size) & (column < width))
