"""Gates of all TDGC layers of a network as one GPU kernel, and two for their gradient.

On a uniform clock a gate is needed for a few distances only: a small MLP on as many rows. Layer by
layer, that is some forty short kernels in a training step, each of which waits for the previous
one. Here a program computes a gate for a block of channels, and a table of addresses gives the
weights of all gates. The plain version is `hiero.model.tdgc.Gate.for_offsets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hiero.model.gated_messages import refuse_second_derivative
from hiero.model.gated_messages_triton import can_compile
from hiero.model.triton_support import constexpr, jit, tl, triton

NUM_CHANNELS = 32  # channels per program
MAX_TABLES = 64  # cached tables of addresses, one for each network and clock
MAX_HIDDEN = 1024  # hidden units, which a program holds in registers
PARAMETERS_PER_GATE = 4  # weight and bias of the first layer, weight and bias of the second


def is_available(parameters: Sequence[Tensor]) -> bool:
    """Whether the kernels can run: on a GPU, in single precision, with few enough hidden units."""
    is_fitting = len(parameters[0]) <= MAX_HIDDEN and all(parameter.dtype == torch.float32 for parameter in parameters)
    return is_fitting and can_compile(parameters[0])


def uniform_gates_triton(parameters: Sequence[Tensor], distances: Sequence[Sequence[float]], slope: float) -> Tensor:
    """tanh(W₂ LeakyReLU(W₁ d + b₁) + b₂) of several gates at once."""
    return _gates(list(parameters), [distance for row in distances for distance in row], slope)


_Key = tuple[torch.device, tuple[int, ...], tuple[float, ...]]
_tables: dict[_Key, tuple[Tensor, Tensor]] = {}
# Tables that CUDA graphs read at each replay; they are never removed and take a kilobyte each.
_recorded_tables: dict[_Key, tuple[Tensor, Tensor]] = {}


def _find_tables(parameters: Sequence[Tensor], distances: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Addresses (4 G,) and distances (G · O,) on the GPU, which are cached because weights do not move."""
    device = parameters[0].device
    key = device, tuple(parameter.data_ptr() for parameter in parameters), tuple(distances)
    tables = _tables.get(key) or _recorded_tables.get(key)
    if tables is None:
        if len(_tables) >= MAX_TABLES:
            _tables.pop(next(iter(_tables)))  # remove the oldest
        tables = torch.tensor(key[1], device=device), torch.tensor(key[2], device=device, dtype=torch.float32)
        _tables[key] = tables
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        _recorded_tables[key] = tables
    return tables


def _sizes(parameters: Sequence[Tensor]) -> tuple[int, int, int]:
    """Gates, channels and hidden units."""
    num_channels, hidden_size = parameters[2].shape
    return len(parameters) // PARAMETERS_PER_GATE, num_channels, hidden_size


@torch.library.custom_op("hiero::gates", mutates_args=())
def _gates(parameters: Sequence[Tensor], distances: Sequence[float], slope: float) -> Tensor:
    parameters = [parameter.contiguous() for parameter in parameters]
    out = _empty_gates(parameters, distances)
    num_gates, size, hidden_size = _sizes(parameters)
    with torch.cuda.device_of(out):
        sizes = size, hidden_size, slope, out.shape[1], triton.next_power_of_2(hidden_size)
        grid = num_gates, triton.cdiv(size, NUM_CHANNELS)
        _forward[grid](*_find_tables(parameters, distances), out, *sizes)
    return out


@_gates.register_fake
def _empty_gates(parameters: Sequence[Tensor], distances: Sequence[float], *_: object) -> Tensor:
    num_gates, size, _hidden_size = _sizes(parameters)
    return parameters[0].new_empty(num_gates, len(distances) // num_gates, size)


@torch.library.custom_op("hiero::gates_backward", mutates_args=())
def _gates_backward(
    grad: Tensor, out: Tensor, parameters: Sequence[Tensor], distances: Sequence[float], slope: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of W₁ (G, H, 1), b₁ (G, H), W₂ (G, D, H) and b₂ (G, D)."""
    parameters = [parameter.contiguous() for parameter in parameters]
    gradients = _empty_gradients(grad, out, parameters)
    num_gates, size, hidden_size = _sizes(parameters)
    num_blocks = triton.cdiv(size, NUM_CHANNELS)
    num_offsets = out.shape[1]
    padded = triton.next_power_of_2(hidden_size)
    partial_sums = grad.new_empty(num_gates, num_blocks, num_offsets, hidden_size)
    tables = _find_tables(parameters, distances)
    with torch.cuda.device_of(grad):
        tensors = *tables, grad.contiguous(), out, *gradients[2:], partial_sums
        sizes = size, hidden_size, slope, num_offsets, padded
        _backward[(num_gates, num_blocks)](*tensors, *sizes)
        hidden_sizes = num_blocks, hidden_size, slope, num_offsets, padded
        _backward_hidden[(num_gates,)](*tables, partial_sums, *gradients[:2], *hidden_sizes)
    return gradients


@_gates_backward.register_fake
def _empty_gradients(
    grad: Tensor, out: Tensor, parameters: Sequence[Tensor], *_: object
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    num_gates, size, hidden_size = _sizes(parameters)
    return (
        grad.new_empty(num_gates, hidden_size, 1),
        grad.new_empty(num_gates, hidden_size),
        grad.new_empty(num_gates, size, hidden_size),
        grad.new_empty(num_gates, size),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    parameters, ctx.distances, ctx.slope = inputs
    ctx.save_for_backward(*parameters, output)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[list[Tensor], None, None]:
    refuse_second_derivative()
    *parameters, out = ctx.saved_tensors
    gradients = _gates_backward(grad, out, parameters, ctx.distances, ctx.slope)
    return [gradient[i] for i in range(len(out)) for gradient in gradients], None, None


_gates.register_autograd(_differentiate, setup_context=_save)


# The kernels

CHANNELS = constexpr(NUM_CHANNELS)


@jit
def _address(table, number):  # type: ignore[no-untyped-def]
    """Address of parameter W₁, b₁, W₂ or b₂ of the gate of this program."""
    return tl.load(table + 4 * tl.program_id(0) + number).to(tl.pointer_type(tl.float32))


@jit
def _load_vector(at, index, size):  # type: ignore[no-untyped-def]
    return tl.load(at + index, mask=index < size, other=0.0)


@jit  # type: ignore[untyped-decorator]
def _first_layer(table, hidden_size, HIDDEN: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gate of this program, its hidden units, W₁ and b₁."""
    unit = tl.arange(0, HIDDEN)
    w1 = _load_vector(_address(table, 0), unit, hidden_size)
    b1 = _load_vector(_address(table, 1), unit, hidden_size)
    return tl.program_id(0), unit, w1, b1


@jit
def _second_layer(table, size, hidden_size, unit):  # type: ignore[no-untyped-def]
    """The channels of this program, and the offsets, mask and values of W₂."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    at = channel[:, None] * hidden_size + unit[None, :]
    mask = (channel < size)[:, None] & (unit < hidden_size)[None, :]
    return channel, at, mask, tl.load(_address(table, 2) + at, mask=mask, other=0.0)


@jit
def _hidden_units(w1, b1, distance, slope):  # type: ignore[no-untyped-def]
    value = w1 * distance + b1
    return tl.where(value > 0, value, value * slope)


@jit
def _tanh(x):  # type: ignore[no-untyped-def]
    """Accurate also near 0, where 1 − 2 / (e²ˣ + 1) would cancel."""
    square = x * x
    small = x * (1.0 + square * (-1.0 / 3 + square * (2.0 / 15 + square * (-17.0 / 315 + square * (62.0 / 2835)))))
    return tl.where(tl.abs(x) < 0.25, small, 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0))


@jit  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
    table, distances, out, size, hidden_size, slope, O: tl.constexpr, HIDDEN: tl.constexpr
):
    gate, unit, w1, b1 = _first_layer(table, hidden_size, HIDDEN)
    channel, _at, _mask, w2 = _second_layer(table, size, hidden_size, unit)
    b2 = _load_vector(_address(table, 3), channel, size)
    for o in range(O):
        hidden = _hidden_units(w1, b1, tl.load(distances + gate * O + o), slope)
        value = _tanh(tl.sum(w2 * hidden[None, :], axis=1) + b2)
        tl.store(out + (gate * O + o) * size + channel, value, mask=channel < size)


@jit  # type: ignore[untyped-decorator]
def _backward(  # type: ignore[no-untyped-def]
    table,
    distances,
    grad,
    out,
    grad_weight,
    grad_bias,
    partial_sums,
    size,
    hidden_size,
    slope,
    O: tl.constexpr,
    HIDDEN: tl.constexpr,
):
    """Gradient of the second layer. `partial_sums` (G, blocks, O, H) is that of hidden units by block."""
    gate, unit, w1, b1 = _first_layer(table, hidden_size, HIDDEN)
    channel, at, mask, w2 = _second_layer(table, size, hidden_size, unit)
    weight_sum = tl.zeros((CHANNELS, HIDDEN), dtype=tl.float32)
    bias_sum = tl.zeros((CHANNELS,), dtype=tl.float32)
    sums = partial_sums + (gate * tl.num_programs(1) + tl.program_id(1)) * O * hidden_size + unit
    for o in range(O):
        hidden = _hidden_units(w1, b1, tl.load(distances + gate * O + o), slope)
        value = _load_vector(out + (gate * O + o) * size, channel, size)
        inner = _load_vector(grad + (gate * O + o) * size, channel, size) * (1.0 - value * value)
        weight_sum += inner[:, None] * hidden[None, :]
        bias_sum += inner
        tl.store(sums + o * hidden_size, tl.sum(inner[:, None] * w2, axis=0), mask=unit < hidden_size)
    tl.store(grad_weight + gate * size * hidden_size + at, weight_sum, mask=mask)
    tl.store(grad_bias + gate * size + channel, bias_sum, mask=channel < size)


@jit  # type: ignore[untyped-decorator]
def _backward_hidden(  # type: ignore[no-untyped-def]
    table,
    distances,
    partial_sums,
    grad_weight,
    grad_bias,
    num_blocks,
    hidden_size,
    slope,
    O: tl.constexpr,
    HIDDEN: tl.constexpr,
):
    """Gradient of the first layer."""
    gate, unit, w1, b1 = _first_layer(table, hidden_size, HIDDEN)
    weight_sum = tl.zeros((HIDDEN,), dtype=tl.float32)
    bias_sum = tl.zeros((HIDDEN,), dtype=tl.float32)
    for o in range(O):
        distance = tl.load(distances + gate * O + o)
        total = tl.zeros((HIDDEN,), dtype=tl.float32)
        for block in range(num_blocks):
            at = partial_sums + ((gate * num_blocks + block) * O + o) * hidden_size
            total += _load_vector(at, unit, hidden_size)
        inner = tl.where(w1 * distance + b1 > 0, total, total * slope)
        weight_sum += inner * distance
        bias_sum += inner
    tl.store(grad_weight + gate * hidden_size + unit, weight_sum, mask=unit < hidden_size)
    tl.store(grad_bias + gate * hidden_size + unit, bias_sum, mask=unit < hidden_size)
